"""`barnabas cluster stop`: stop the brokers of one directory, or some of them."""

from collections.abc import Sequence
from pathlib import Path

from barnabas_broker.cli.errors import UsageError
from barnabas_broker.cli.output import complain, say, say_json
from barnabas_broker.local_cluster.files import ClusterFiles
from barnabas_broker.local_cluster.supervisor import Stopped, stop_brokers
from barnabas_broker.status.verdict import brokers_named, enumerated

__all__ = ["chosen", "farewell", "stop"]


def stop(data: Path, brokers: Sequence[int], timeout_s: float, *, as_json: bool) -> int:
    """Stop every broker that a cluster has on this machine, or the named ones."""
    files = ClusterFiles.load(data.absolute())
    wanted = chosen(files, brokers)
    with files.lock():
        stopped = stop_brokers(files, wanted, timeout_s, tell=complain)
    if as_json:
        say_json(stopped._asdict())
    else:
        say(farewell(stopped, timeout_s))
    return 0


def chosen(files: ClusterFiles, brokers: Sequence[int]) -> list[int]:
    """Return the brokers that are meant: those that are named, or all of this machine.

    Raises:
        UsageError: one is not of this machine.
    """
    here = list(files.local_ids)
    for node_id in brokers:
        if node_id not in here:
            where = "of this cluster" if node_id not in files.node_ids else "on this machine"
            raise UsageError(f"--broker {node_id}: there is no such broker {where}; there are {enumerated(here)}")
    return sorted(set(brokers)) or here


def farewell(stopped: Stopped, timeout_s: float) -> str:
    """Say in one line how a stop went."""
    parts = []
    if stopped.stopped:
        several = f"{len(stopped.stopped)} brokers"
        parts.append(f"stopped {brokers_named(stopped.stopped) if len(stopped.stopped) == 1 else several}")
    if stopped.killed:
        parts.append(f"killed {brokers_named(stopped.killed)}, which had not stopped after {timeout_s:.0f} s")
    if stopped.down:
        was = "was" if len(stopped.down) == 1 else "were"
        parts.append(f"{brokers_named(stopped.down)} {was} not running")
    return "; ".join(parts)
