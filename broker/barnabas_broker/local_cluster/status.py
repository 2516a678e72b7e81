"""Asks all brokers of a cluster for their status at the same time.

The state of a broker is one of

    running      it answers and serves
    starting     it answers and says so, or its process runs and does not listen yet
    fenced       it answers, and the controller has taken it out of service
    unreachable  its process runs and does not answer in time (suspended, overloaded); or nothing is heard from its host
    stopped      no such process; where the process is not known, nobody has its port

A broker that answers says more than this (`leaders`, `replicas`, `witnesses`, counters of fetches, events); that is
passed on as it comes. `ready` of the whole is true when every broker is running and sees a leader for every partition.
`health` and `reasons` are the verdict (`status.verdict`) on what all of them say together.

The brokers are those of a directory of `cluster start`, or those that a broker's own configuration names: then nothing
is known of processes, and ports for clients are what the brokers say.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgpack

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.status.verdict import Facts, Verdict, judge
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.links import admin

from .files import ClusterFiles
from .processes import ProcessIdentity, identify

__all__ = ["ask", "ask_broker", "cluster_status", "configured_status", "unrecorded"]

ANSWER_TIMEOUT_S = 2.0
NOBODY_LISTENS = "nobody listens"
NO_ANSWER = "no answer"


class _Place(NamedTuple):
    """Where a broker is, as far as that is known before it has answered."""

    node_id: int
    cluster_id: str
    host: str
    port: int | None
    peer_port: int
    secret: str
    process: ProcessIdentity | None = None
    is_local: bool = False
    log: str | None = None


def cluster_status(files: ClusterFiles, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, Any]:
    """Return everything known about a cluster, ready for JSON. Takes little more than `timeout_s` at worst."""
    brokers = _brokers([_place(files, node_id) for node_id in files.node_ids], timeout_s)
    return _whole(files.cluster_id, files.bootstrap, str(files.directory), brokers)


def configured_status(config: BrokerConfig, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, Any]:
    """Return the same about the cluster of a broker with this configuration."""
    places = [
        _Place(node_id, config.cluster_id, address.host, None, address.port, config.cluster_secret)
        for node_id, address in config.nodes.items()
    ]
    brokers = _brokers(places, timeout_s)
    bootstrap = ",".join(f"{broker['host']}:{broker['port']}" for broker in brokers if broker["port"] is not None)
    return _whole(config.cluster_id, bootstrap, None, brokers)


def _brokers(places: Sequence[_Place], timeout_s: float) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(max_workers=len(places)) as pool:
        return list(pool.map(lambda place: _broker(place, timeout_s), places))


def _whole(cluster_id: str, bootstrap: str, data: str | None, brokers: list[dict[str, Any]]) -> dict[str, Any]:
    verdict = _verdict(brokers)
    return {
        "cluster_id": cluster_id,
        "bootstrap": bootstrap,
        "data": data,
        "ready": all(broker["state"] == "running" and broker["ready"] for broker in brokers),
        "health": str(verdict.health),
        "reasons": list(verdict.reasons),
        "brokers": brokers,
    }


def _verdict(brokers: Sequence[Mapping[str, Any]]) -> Verdict:
    """Judge what the brokers say; each counts what it leads, and knows of all topics."""
    heard = {broker["node_id"]: broker for broker in brokers if broker["state"] not in {"stopped", "unreachable"}}
    partitions = max((sum(broker.get("topics", {}).values()) for broker in heard.values()), default=0)
    served = sum(broker.get("leaders_confirmed", 0) for broker in heard.values())
    leading = [broker for node_id, broker in heard.items() if broker.get("controller") == node_id]
    facts = Facts(
        brokers={broker["node_id"]: broker["state"] for broker in brokers},
        partitions=partitions,
        without_leader=max(0, partitions - served),
        under_replicated=min(served, sum(broker.get("under_replicated", 0) for broker in heard.values())),
        has_controller=any(broker.get("controller") in heard for broker in heard.values()),
        is_answered=bool(heard),
        waiting=next((text for broker in leading if (text := broker.get("quorum", {}).get("waiting"))), ""),
    )
    return judge(facts)


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
    if (
        isinstance(answer, str)
        or not _is_ours(node_id, files.cluster_id, answer)
        or not isinstance(answer.get("pid"), int)
    ):
        return None
    return identify(answer["pid"])


def _is_ours(node_id: int, cluster_id: str, answer: Mapping[str, Any]) -> bool:
    return answer.get("cluster_id") == cluster_id and answer.get("node_id") == node_id


def _place(files: ClusterFiles, node_id: int) -> _Place:
    ports = files.ports
    is_local = node_id in files.local_ids
    return _Place(
        node_id,
        files.cluster_id,
        ports.host_of(node_id),
        ports.client_port(node_id),
        ports.node_port(node_id),
        _secret(files, node_id),
        process=files.process(node_id) if is_local else None,
        is_local=is_local,
        log=str(files.log_file(node_id)) if is_local else None,
    )


def _broker(place: _Place, timeout_s: float) -> dict[str, Any]:
    found: dict[str, Any] = {
        "node_id": place.node_id,
        "host": place.host,
        "port": place.port,
        "peer_port": place.peer_port,
        "pid": place.process.pid if place.process else None,
        "state": "stopped",
        "leaders": 0,
        "replicas": 0,
        "witnesses": 0,
        "ready": False,
        "log": place.log,
    }
    answer = ask(place.host, place.peer_port, timeout_s, place.secret)
    if isinstance(answer, str):
        if place.process is not None:
            found["state"] = "starting" if answer == NOBODY_LISTENS else "unreachable"
        elif not place.is_local and answer != NOBODY_LISTENS:
            found["state"] = "unreachable"
        return found
    if not _is_ours(place.node_id, place.cluster_id, answer):
        # Somebody else has the port, so ours cannot be running.
        found["occupied_by"] = f"node {answer.get('node_id')} of cluster {answer.get('cluster_id')}"
        return found
    # Ports are as configured, if they are; the broker knows better its state, pid and counters, which replace our
    # guesses.
    known = {"host", "port"} if place.port is not None else set[str]()
    return found | {"state": "running"} | {name: value for name, value in answer.items() if name not in known}


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
