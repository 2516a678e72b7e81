"""Runs Kafka Connect on Barnabas, and compares what comes out with what went in.

This is `scripts/trials/ecosystem/connect`. A source counts, and a sink prints what it gets (`Connectors.java`). First
a worker alone has both. Then two workers form a cluster, whose sources write in transactions (KIP-618): the worker
that runs the source is killed, and then a broker. Each number must be in the topic once, in order, for who reads what
is committed; the sink, which Kafka promises only that nothing is missing, must have been given all.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import confluent_kafka
from bench import systems
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from machines.cache import NotInstalledError
from machines.cluster_handle import ClusterHandle, cluster, free_port

from .workers import Worker, compile_connectors, until

__all__ = ["main"]

STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"
USUAL = {
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "offset.flush.interval.ms": 500,
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1_000,
    "rebalance.timeout.ms": 20_000,
}


def source_of(topic: str) -> dict[str, object]:
    return {"connector.class": "Connectors$Source", "tasks.max": 1, "topic": topic}


def sink_of(topic: str) -> dict[str, object]:
    return {
        "connector.class": "Connectors$Sink",
        "tasks.max": 1,
        "topics": topic,
        "consumer.override.auto.offset.reset": "earliest",
        "consumer.override.isolation.level": "read_committed",
    }


def committed(bootstrap: str, topic: str) -> list[int]:
    """Return the numbers that who reads committed records finds in partition 0, up to its end."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    try:
        while (message := consumer.poll(30)) is not None:
            if message.error():
                return found
            found.append(int(message.value()))
    finally:
        consumer.close()
    raise TimeoutError(f"the end of {topic} is not reached")


def sunk(*workers: Worker) -> list[int]:
    """Return the numbers that sinks were given, in whichever worker."""
    return [number for worker in workers for number in worker.sunk()]


def check(bootstrap: str, topic: str, workers: tuple[Worker, ...], what: str) -> None:
    found = committed(bootstrap, topic)
    assert found == list(range(len(found))), f"{what}: numbers are missing, or there twice"
    given = sunk(*workers)
    # What was committed last may not have come to the sink before it ended.
    assert {*range(max(given) + 1)} == {*given}, f"{what}: the sink lacks some"
    twice = len(given) - len({*given})
    print(f"{what}: {len(found)} numbers in the topic, each once; {twice} came to the sink twice", flush=True)


def alone(jars: Path, handle: ClusterHandle, folder: Path, count: int) -> None:
    """Run a source and a sink in one worker."""
    settings: Mapping[str, object] = {
        "bootstrap.servers": handle.bootstrap,
        "offset.storage.file.filename": folder / "offsets",
        "listeners": f"http://127.0.0.1:{(port := free_port(1))}",
        **USUAL,
    }
    source, sink = {"name": "source", **source_of("alone")}, {"name": "sink", **sink_of("alone")}
    worker = Worker(jars, folder / "alone", STANDALONE, settings, source, sink, port=port)
    try:
        until(lambda: len(sunk(worker)) >= count, "the numbers to come out", worker)
    finally:
        worker.end()
    check(handle.bootstrap, "alone", (worker,), "alone")


def a_worker(jars: Path, handle: ClusterHandle, folder: Path, number: int) -> Worker:
    port = free_port(1)
    settings = {
        "bootstrap.servers": handle.bootstrap,
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
    return Worker(jars, folder / f"worker-{number}", DISTRIBUTED, settings, port=port)


def state_of(worker: Worker, name: str) -> tuple[str, set[str]]:
    """Return where a connector's task runs, and the states of the connector and its tasks; nowhere if nobody says."""
    told = worker.ask("GET", f"/connectors/{name}/status")
    if told is None or not told["tasks"]:
        return "", set()
    return told["tasks"][0]["worker_id"], {one["state"] for one in (told["connector"], *told["tasks"])}


def together(jars: Path, handle: ClusterHandle, folder: Path, count: int) -> None:
    """Run a source and a sink in a cluster of two workers, of which one is killed, and a broker after it."""
    admin = AdminClient({"bootstrap.servers": handle.bootstrap})
    admin.create_topics([NewTopic("together", 1, 3)])["together"].result(30)
    with ExitStack() as ends:
        workers = []
        for number in range(2):
            workers.append(a_worker(jars, handle, folder, number))
            ends.callback(workers[-1].end)
        until(lambda: all(one.ask("GET", "/connectors") == [] for one in workers), "both workers", *workers)
        for name, settings in (("source", source_of("together")), ("sink", sink_of("together"))):
            path = f"/connectors/{name}/config"
            until(partial(workers[0].takes, path, settings), name)
        until(lambda: len({*sunk(*workers)}) >= count // 3, "the first numbers", *workers)
        place, _ = state_of(workers[0], "source")
        (killed,) = [one for one in workers if place.endswith(f":{one.port}")]
        (left,) = [one for one in workers if one is not killed]
        killed.kill()
        goal = len({*sunk(*workers)}) + count // 3
        until(lambda: len({*sunk(*workers)}) >= goal, "numbers after a worker was killed", left)
        handle.kill(2)
        end = len({*sunk(*workers)}) + count // 3
        until(lambda: len({*sunk(*workers)}) >= end, "numbers after a broker was killed", left)
        assert state_of(left, "source")[1] == state_of(left, "sink")[1] == {"RUNNING"}
        handle.start()
    check(handle.bootstrap, "together", tuple(workers), "together")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3_000, help="of numbers, at least")
    options = parser.parse_args()
    try:
        jars = systems.install_connect()
        compile_connectors(jars)
    except NotInstalledError as error:
        print(f"scripts/trials/ecosystem/connect: Kafka Connect cannot be had: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="connect-") as folder, cluster() as handle:
        alone(jars, handle, Path(folder), options.count // 3)
        together(jars, handle, Path(folder), options.count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
