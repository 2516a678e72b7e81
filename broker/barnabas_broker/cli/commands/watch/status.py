"""`barnabas cluster status`: what the brokers say, and which say nothing."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas_broker.cli.config_files import read_config
from barnabas_broker.cli.errors import UsageError
from barnabas_broker.cli.output import complain, print_table, say, say_json
from barnabas_broker.local_cluster.files import ClusterFiles
from barnabas_broker.local_cluster.notices import noticed
from barnabas_broker.local_cluster.status import cluster_status, configured_status
from barnabas_broker.status.verdict import Health

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["show", "status"]

COLOURS = {"running": "green", "starting": "yellow", "fenced": "yellow", "unreachable": "red", "stopped": "red"}
COLOURS_OF_HEALTH = {Health.HEALTHY: "green", Health.DEGRADED: "yellow", Health.DOWN: "red"}


def status(data: Path | None, config: Path | None, *, as_json: bool, verbose: bool) -> int:
    """Ask the brokers of a directory, or those that a broker's configuration names; show what they say."""
    if (data is None) == (config is None):
        raise UsageError("give either --data, of a cluster that `cluster start` made, or --config, of a broker")
    with noticed(complain, "waiting for brokers that do not answer yet"):
        if config is not None:
            found = configured_status(read_config(config))
        else:
            assert data is not None
            found = cluster_status(ClusterFiles.load(data.absolute()))
    if as_json:
        say_json(found)
    else:
        show(found, verbose=verbose)
    return 0


def show(found: dict[str, Any], *, verbose: bool) -> None:
    """Print the verdict and a row for each broker; `verbose`: also what there is to say of each."""
    from rich.text import Text  # noqa: PLC0415 - slow to load, and only needed here

    verdict = Text(f"{found['health']}: {'; '.join(found['reasons'])}", COLOURS_OF_HEALTH.get(found["health"], "red"))
    columns = ["node", "state", "address", "peer port", "pid", "leaders", "replicas"]
    has_witnesses = any(broker.get("witnesses") for broker in found["brokers"])
    columns += ["witnesses"] * has_witnesses
    lacks = any(broker.get("under_replicated") for broker in found["brokers"])
    columns += ["a replica too few"] * lacks
    rows = []
    for broker in found["brokers"]:
        state = Text(str(broker["state"]), COLOURS.get(broker["state"], "red"))
        if "occupied_by" in broker:
            state.append(f" (port taken by {broker['occupied_by']})", "default")
        rows.append(
            (
                broker["node_id"],
                state,
                f"{broker['host']}:{broker['port']}" if broker["port"] is not None else broker["host"],
                broker["peer_port"],
                broker["pid"] or None,
                broker["leaders"],
                broker["replicas"],
                *([broker.get("witnesses", 0)] if has_witnesses else []),
                *([_marked(broker.get("under_replicated", 0))] if lacks else []),
            )
        )
    title = Text.assemble(f"cluster {found['cluster_id']}  ", verdict)
    print_table(columns, rows, [title, f"bootstrap.servers {found['bootstrap']}"])
    lines = _quorum_lines(found["brokers"])
    if verbose:
        for broker in found["brokers"]:
            for part in ("fetches", "events", "loop", "stats"):
                lines += [f"node {broker['node_id']} {part}: {line}" for line in _lines(broker.get(part))]
    if lines:
        say(*lines)


def _marked(count: int) -> "Text":
    from rich.text import Text  # noqa: PLC0415 - slow to load, and only needed here

    return Text(str(count), "yellow" if count else "")


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
