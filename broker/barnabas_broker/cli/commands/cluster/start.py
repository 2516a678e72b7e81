"""`barnabas cluster start`: start the brokers of one directory, and stay with them."""

import selectors
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from barnabas_broker.cli.errors import UsageError
from barnabas_broker.cli.output import complain, say, say_json
from barnabas_broker.local_cluster.files import KEY_SETTING, ClusterFiles
from barnabas_broker.local_cluster.interrupts import Interrupts
from barnabas_broker.local_cluster.plan import Request
from barnabas_broker.local_cluster.supervisor import Started, start_cluster, stop_brokers

from .stop import farewell

__all__ = ["settings_from", "start"]

STOP_TIMEOUT_S = 15.0
UNKEYED = (
    "no cluster.secret: anybody who reaches the node ports is believed; to have one, stop the whole cluster, and start "
    'it with --set cluster.secret="$(openssl rand -hex 32)"'
)


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
    as_json: bool = False,
    brokers_per_host: str | None = None,
    hosts: str | None = None,
    cluster_id: str | None = None,
    token: str | None = None,
) -> int:
    """Start the brokers that are down; then return, or stay until Ctrl-C and stop those that were started."""
    began = time.monotonic()
    _check_texts({"--host": host, "--hosts": hosts, "--cluster-id": cluster_id, "--token": token})
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
            started = start_cluster(request, interrupts, complain)
        except KeyboardInterrupt:
            complain("interrupted; what was started is stopped again")
            return 130
        took_s = time.monotonic() - began
        summary = _summary(started, took_s, settings)
        if as_json:
            say_json(_for_json(started, took_s))
        if detach or not started.children:
            say(*summary, to_stderr=as_json)
            return 0
        return _stay(started, interrupts, summary, to_stderr=as_json)


def _check_texts(given: Mapping[str, str | None]) -> None:
    """Refuse empty values, and a token that cannot be read, before anything is done."""
    for option, value in given.items():
        if value is not None and not value.strip():
            raise UsageError(f"{option} is empty; give a value, or leave the option out")
    if (token := given["--token"]) is not None:
        from barnabas_broker.access.join_tokens import JoinToken, TokenError  # noqa: PLC0415 - slow to load

        try:
            JoinToken.parse(token)
        except TokenError as error:
            raise UsageError(str(error)) from error


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


def _stay(started: Started, interrupts: Interrupts, summary: Sequence[str], *, to_stderr: bool) -> int:
    """Report brokers that end; at Ctrl-C stop the rest, at the second one kill them."""
    files = started.files
    alive = dict(started.children)
    status = 0
    leave = "Ctrl-C stops those started now" if started.running else "Ctrl-C stops it"
    say(*summary, leave, to_stderr=to_stderr)
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
    say("", "stopping; once more kills", to_stderr=to_stderr)
    began = time.monotonic()
    stopped = stop_brokers(files, alive, STOP_TIMEOUT_S, interrupts, complain)
    for child in alive.values():
        child.wait()
    say(farewell(stopped, time.monotonic() - began), to_stderr=to_stderr)
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


def _for_json(started: Started, took_s: float) -> dict[str, Any]:
    files = started.files
    return {
        "cluster_id": files.cluster_id,
        "bootstrap": files.bootstrap,
        "data": str(files.directory),
        "started": list(started.children),
        "running": list(started.running),
        "took_s": round(took_s, 3),
    }


def _names(node_ids: Sequence[int] | dict[int, Any]) -> str:
    return ", ".join(map(str, node_ids))


def _count(number: int) -> str:
    return f"{number} broker" + "s" * (number != 1)
