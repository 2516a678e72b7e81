"""`barnabas cluster …`: start, stop and watch the brokers of one directory."""

import json
import selectors
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from barnabas_broker.cli.errors import UsageError
from barnabas_broker.cli.output import complain, print_table, say, say_json
from barnabas_broker.local_cluster.files import KEY_SETTING, ClusterFiles
from barnabas_broker.local_cluster.interrupts import Interrupts
from barnabas_broker.local_cluster.plan import Request
from barnabas_broker.local_cluster.supervisor import Started, Stopped, start_cluster, stop_brokers

__all__ = ["settings_from", "start", "status", "stop"]

STOP_TIMEOUT_S = 15.0
UNKEYED = (
    "no cluster.secret: anybody who reaches the node ports is believed; to have one, stop the whole cluster, and start "
    'it with --set cluster.secret="$(openssl rand -hex 32)"'
)
COLOURS = {"running": "green", "starting": "yellow", "fenced": "yellow", "unreachable": "red", "stopped": "red"}


def start(  # noqa: PLR0913 - one for each option
    data: Path,
    brokers: int | None,
    port: int | None,
    peer_port: int | None,
    host: str | None,
    settings: Sequence[str],
    timeout_s: float,
    *,
    detach: bool,
    brokers_per_host: str | None = None,
    hosts: str | None = None,
    cluster_id: str | None = None,
    token: str | None = None,
) -> int:
    """Start the brokers that are down; then return, or stay until Ctrl-C and stop those that were started."""
    began = time.monotonic()
    request = Request(
        directory=data.absolute(),
        brokers=brokers,
        host=host,
        port=port,
        peer_port=peer_port,
        settings=settings_from(settings),
        timeout_s=timeout_s,
        brokers_per_host=brokers_per_host,
        hosts=tuple(name.strip() for name in hosts.split(",")) if hosts is not None else None,
        cluster_id=cluster_id,
        token=token,
    )
    with Interrupts() as interrupts:
        try:
            started = start_cluster(request, interrupts)
        except KeyboardInterrupt:
            complain("interrupted; what was started is stopped again")
            return 130
        summary = _summary(started, time.monotonic() - began, settings)
        if detach or not started.children:
            say(*summary)
            return 0
        return _stay(started, interrupts, summary)


def stop(data: Path, timeout_s: float) -> int:
    """Stop every broker that a cluster has on this machine."""
    files = ClusterFiles.load(data.absolute())
    with files.lock():
        stopped = stop_brokers(files, files.local_ids, timeout_s)
    say(_farewell(stopped, timeout_s))
    return 0


def status(data: Path, *, as_json: bool, verbose: bool) -> int:
    """Show what a cluster's brokers say, and which say nothing."""
    from barnabas_broker.local_cluster.status import cluster_status  # noqa: PLC0415 - loads threads and msgpack, which a start must not

    found = cluster_status(ClusterFiles.load(data.absolute()))
    if as_json:
        say_json(found)
    else:
        _show(found, verbose=verbose)
    return 0


def settings_from(words: Sequence[str]) -> dict[str, str]:
    """Split NAME=VALUE words.

    Raises:
        UsageError: a word has no `=`, or a name comes twice with different values.
    """
    settings: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageError(f"{word!r} is not a setting; write NAME=VALUE")
        if settings.setdefault(name, value.strip()) != value.strip():
            raise UsageError(f"{name} is given twice, as {settings[name]!r} and as {value.strip()!r}")
    return settings


# Starting and staying.


def _stay(started: Started, interrupts: Interrupts, summary: Sequence[str]) -> int:
    """Report brokers that end; at Ctrl-C stop the rest, at the second one kill them."""
    files = started.files
    alive = dict(started.children)
    status = 0
    say(*summary, "Ctrl-C stops those started now" if started.running else "Ctrl-C stops it")
    with selectors.DefaultSelector() as selector:
        selector.register(interrupts, selectors.EVENT_READ)
        while True:
            for node_id, child in list(alive.items()):
                if (ended := child.poll()) is not None:
                    del alive[node_id]
                    status |= int(ended != 0)
                    _report_end(files, node_id, ended)
            if not alive:
                complain("no broker is left")
                return status
            selector.select()
            if interrupts.asked():
                break
    say("", "stopping; once more kills")
    began = time.monotonic()
    stopped = stop_brokers(files, alive, STOP_TIMEOUT_S, interrupts)
    for child in alive.values():
        child.wait()
    say(_farewell(stopped, time.monotonic() - began))
    return status


def _report_end(files: ClusterFiles, node_id: int, ended: int) -> None:
    how = f"was killed by signal {-ended}" if ended < 0 else f"ended with status {ended}"
    said = files.last_log_line(node_id)
    complain(f"broker {node_id} {how}" + (f"; last said: {said}" if said else ""))


def _summary(started: Started, took_s: float, settings: Sequence[str]) -> list[str]:
    files = started.files
    if not started.children:
        text = f"cluster {files.cluster_id} is running already: {_count(len(started.running))}"
    else:
        names = ", ".join(map(str, started.children))
        of = f" ({names}; the others were running)" if started.running else ""
        text = f"cluster {files.cluster_id} is ready after {took_s:.1f} s: {_count(len(started.children))} started{of}"
    lines = [text]
    if KEY_SETTING not in files.settings and not any(
        files.config(node_id).cluster_secret for node_id in files.local_ids
    ):
        lines.append(UNKEYED)
    lines += [f"bootstrap.servers {files.bootstrap}", f"data {files.directory}"]
    if settings and started.running:
        lines.append(
            f"brokers that were running keep their settings until they are restarted: {_names(started.running)}"
        )
    return lines


def _farewell(stopped: Stopped, timeout_s: float) -> str:
    parts = []
    if stopped.stopped:
        parts.append(f"stopped {_count(len(stopped.stopped))}")
    if stopped.killed:
        parts.append(f"killed broker {_names(stopped.killed)}, which had not stopped after {timeout_s:.0f} s")
    if stopped.down:
        parts.append(f"broker {_names(stopped.down)} was not running")
    return "; ".join(parts)


def _names(node_ids: Sequence[int] | dict[int, Any]) -> str:
    return ", ".join(map(str, node_ids))


def _count(number: int) -> str:
    return f"{number} broker" + "s" * (number != 1)


# Showing.


def _show(found: dict[str, Any], *, verbose: bool) -> None:
    from rich.text import Text  # noqa: PLC0415 - slow to load, and only needed here

    ready = Text("ready") if found["ready"] else Text("not ready", "red")
    columns = ["node", "state", "address", "peer port", "pid", "leaders", "replicas"]
    has_witnesses = any(broker.get("witnesses") for broker in found["brokers"])
    columns += ["witnesses"] * has_witnesses
    rows = []
    for broker in found["brokers"]:
        state = Text(str(broker["state"]), COLOURS.get(broker["state"], "red"))
        if "occupied_by" in broker:
            state.append(f" (port taken by {broker['occupied_by']})", "default")
        rows.append(
            (
                broker["node_id"],
                state,
                f"{broker['host']}:{broker['port']}",
                broker["peer_port"],
                broker["pid"] or None,
                broker["leaders"],
                broker["replicas"],
                *([broker.get("witnesses", 0)] if has_witnesses else []),
            )
        )
    title = Text.assemble(f"cluster {found['cluster_id']}  ", ready)
    print_table(columns, rows, [title, f"bootstrap.servers {found['bootstrap']}"])
    lines = _quorum_lines(found["brokers"])
    if verbose:
        for broker in found["brokers"]:
            for part in ("fetches", "events", "loop", "stats"):
                lines += [f"node {broker['node_id']} {part}: {line}" for line in _lines(broker.get(part))]
    if lines:
        say(*lines)


def _quorum_lines(brokers: Sequence[dict[str, Any]]) -> list[str]:
    """Say who votes on metadata, as the leader of that group knows it, and who waits for what."""
    asked = [broker for broker in brokers if broker.get("quorum", {}).get("voters")]
    asked.sort(key=lambda broker: broker["node_id"] != broker.get("controller"))
    lines = []
    if asked:
        voters = ", ".join(asked[0]["quorum"]["voters"])
        leader_id = asked[0].get("controller")
        led = f"led by {leader_id}" if leader_id is not None else "without a leader"
        lines.append(f"controllers {voters}, {led}")
    waiting = [(broker["node_id"], broker.get("quorum", {}).get("waiting")) for broker in brokers]
    return lines + [f"node {node_id} waits: {reason}" for node_id, reason in waiting if reason]


def _lines(value: Any) -> list[str]:
    """Spell a part of a broker's answer as lines, whatever its shape."""
    if isinstance(value, dict):
        return [f"{name} {json.dumps(item)}" for name, item in value.items()]
    if isinstance(value, list):
        return [_line(item) for item in value]
    return [] if value is None else [str(value)]


def _line(item: Any) -> str:
    if not isinstance(item, dict):
        return item if isinstance(item, str) else json.dumps(item)
    words = []
    for name, value in item.items():
        if name == "time_ms":
            moment = datetime.fromtimestamp(value / 1000, tz=UTC).astimezone()
            words.append(moment.isoformat(sep=" ", timespec="milliseconds"))
        else:
            words.append(f"{name}={value}" if isinstance(value, str | int) else f"{name}={json.dumps(value)}")
    return "  ".join(words)
