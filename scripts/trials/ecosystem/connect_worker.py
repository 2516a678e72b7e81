"""One worker of a cluster of Kafka Connect, and what it says of its connectors."""

from pathlib import Path

from .workers import Worker, properties

__all__ = ["USUAL", "connect_worker", "runs", "state_of"]

MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
TEXT = "org.apache.kafka.connect.storage.StringConverter"
USUAL = {
    "key.converter": TEXT,
    "value.converter": TEXT,
    "offset.flush.interval.ms": 500,
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1_000,
    "rebalance.timeout.ms": 20_000,
}


def connect_worker(class_path: str, bootstrap: str, folder: Path, port: int) -> Worker:
    """Start a worker, whose sources write in transactions if they can. `port` is that of its REST interface."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "connect",
        **{f"{what}.storage.topic": f"connect-{what}" for what in ("config", "offset", "status")},
        **{f"{what}.storage.replication.factor": 3 for what in ("config", "offset", "status")},
        "offset.storage.partitions": 5,
        "status.storage.partitions": 2,
        "exactly.once.source.support": "enabled",
        "scheduled.rebalance.max.delay.ms": 2_000,
        "listeners": f"http://127.0.0.1:{port}",
        **USUAL,
    }
    file = properties(folder / f"{port}.properties", settings)
    return Worker(class_path, folder / str(port), MAIN, file, port=port)


def state_of(worker: Worker, name: str) -> tuple[str, set[str]]:
    """Return where a connector's task runs, and the states of the connector and its tasks; nowhere if nobody says."""
    told = worker.ask("GET", f"/connectors/{name}/status")
    if told is None or not told["tasks"]:
        return "", set()
    return told["tasks"][0]["worker_id"], {one["state"] for one in (told["connector"], *told["tasks"])}


def runs(worker: Worker, name: str) -> bool:
    """Tell whether a connector and its task run."""
    return state_of(worker, name)[1] == {"RUNNING"}
