"""Asks all brokers of a cluster for their status at the same time.

The state of a broker is one of

    running      it answers and serves
    starting     it answers and says so, or its process runs and does not listen yet
    fenced       it answers, and the controller has taken it out of service
    unreachable  its process runs and does not answer in time (suspended, overloaded); or nothing is heard from its host
    stopped      no such process; on another host, nobody has its port

A broker that answers says more than this (`leaders`, `replicas`, `witnesses`, counters of fetches, events); that is
passed on as it comes. `ready` of the whole is true when every broker is running and sees a leader for every partition.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgpack

from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.links import admin

from .files import ClusterFiles
from .processes import ProcessIdentity, identify

__all__ = ["ask", "ask_broker", "cluster_status", "unrecorded"]

ANSWER_TIMEOUT_S = 2.0
NOBODY_LISTENS = "nobody listens"
NO_ANSWER = "no answer"


def cluster_status(files: ClusterFiles, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, Any]:
    """Return everything known about a cluster, ready for JSON. Takes little more than `timeout_s` at worst."""
    with ThreadPoolExecutor(max_workers=files.ports.brokers) as pool:
        brokers = list(pool.map(lambda node_id: _broker(files, node_id, timeout_s), files.node_ids))
    return {
        "cluster_id": files.cluster_id,
        "bootstrap": files.bootstrap,
        "data": str(files.directory),
        "ready": all(broker["state"] == "running" and broker["ready"] for broker in brokers),
        "brokers": brokers,
    }


def ask(host: str, port: int, timeout_s: float, secret: str = "") -> dict[str, Any] | str:
    """Return what the broker with this node port says about itself, or why it says nothing."""
    try:
        body = admin.ask(host, port, "status", b"", timeout_s, secret=secret.encode() if secret else None)
        answer = msgpack.unpackb(body, strict_map_key=False)
    except TimeoutError:
        return NO_ANSWER
    except (BarnabasError, OSError, ValueError) as error:
        return NOBODY_LISTENS if isinstance(error.__cause__, ConnectionRefusedError) else f"{NO_ANSWER}: {error}"
    return _for_json(answer) if isinstance(answer, dict) else f"{NO_ANSWER}: it is not a broker"


def ask_broker(files: ClusterFiles, node_id: int, timeout_s: float) -> dict[str, Any] | str:
    """Ask the process at a broker's node port; it may be another cluster's."""
    return ask(files.ports.host_of(node_id), files.ports.node_port(node_id), timeout_s, _secret(files, node_id))


def unrecorded(files: ClusterFiles, node_id: int, timeout_s: float = ANSWER_TIMEOUT_S) -> ProcessIdentity | None:
    """Return the process of a broker that runs and has no broker.pid: started by hand, or the file was lost."""
    answer = ask_broker(files, node_id, timeout_s)
    if isinstance(answer, str) or not _is_ours(files, node_id, answer) or not isinstance(answer.get("pid"), int):
        return None
    return identify(answer["pid"])


def _is_ours(files: ClusterFiles, node_id: int, answer: Mapping[str, Any]) -> bool:
    return answer.get("cluster_id") == files.cluster_id and answer.get("node_id") == node_id


def _broker(files: ClusterFiles, node_id: int, timeout_s: float) -> dict[str, Any]:
    ports = files.ports
    is_local = node_id in files.local_ids
    process = files.process(node_id) if is_local else None
    found: dict[str, Any] = {
        "node_id": node_id,
        "host": ports.host_of(node_id),
        "port": ports.client_port(node_id),
        "peer_port": ports.node_port(node_id),
        "pid": process.pid if process else None,
        "state": "stopped",
        "leaders": 0,
        "replicas": 0,
        "witnesses": 0,
        "ready": False,
        "log": str(files.log_file(node_id)) if is_local else None,
    }
    answer = ask_broker(files, node_id, timeout_s)
    if isinstance(answer, str):
        if process is not None:
            found["state"] = "starting" if answer == NOBODY_LISTENS else "unreachable"
        elif not is_local and answer != NOBODY_LISTENS:
            found["state"] = "unreachable"
        return found
    if not _is_ours(files, node_id, answer):
        # Somebody else has the port, so ours cannot be running.
        found["occupied_by"] = f"node {answer.get('node_id')} of cluster {answer.get('cluster_id')}"
        return found
    # Ports are as configured; the broker knows better its state, pid and counters, which replace our guesses.
    return (
        found | {"state": "running"} | {name: value for name, value in answer.items() if name not in {"host", "port"}}
    )


def _secret(files: ClusterFiles, node_id: int) -> str:
    try:
        return files.config(node_id).cluster_secret
    except BarnabasError:
        # A configuration that somebody has spoilt since is no reason not to look.
        return ""


def _for_json(value: Any) -> Any:
    """Return msgpack's value in the types of JSON: bytes in hex, keys as text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {key.hex() if isinstance(key, bytes) else str(key): _for_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(item) for item in value]
    return value
