"""Runs Kafka Connect on Barnabas, and compares what comes out with what went in.

This is `scripts/trials/ecosystem/connect`. First a worker alone copies the lines of a file to a topic, and on to
another file. Then two workers form a cluster, whose sources write in transactions (KIP-618): while lines are appended
to the source's file, the worker that runs it is killed, and then a broker. Each line must be in the topic once, in
order, for who reads what is committed; the sink, which Kafka promises only that nothing is missing, must have all.
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka
from bench import systems
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from machines.cache import NotInstalledError
from machines.cluster_handle import ClusterHandle, cluster, free_port

from .workers import STRINGS, Worker, until

__all__ = ["main"]

STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
QUICK = {"offset.flush.interval.ms": 500, "plugin.discovery": "hybrid_warn"}
PATIENT = {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000, "rebalance.timeout.ms": 20_000}


def source_of(file: Path, topic: str) -> dict[str, object]:
    return {"connector.class": SOURCE, "tasks.max": 1, "file": str(file), "topic": topic, "batch.size": 20}


def sink_of(file: Path, topic: str) -> dict[str, object]:
    return {
        "connector.class": SINK,
        "tasks.max": 1,
        "file": str(file),
        "topics": topic,
        "consumer.override.auto.offset.reset": "earliest",
        "consumer.override.isolation.level": "read_committed",
    }


def append(file: Path, first: int, count: int) -> None:
    with file.open("a") as lines:
        lines.writelines(f"line {number}\n" for number in range(first, first + count))


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def committed(bootstrap: str, topic: str, expected: int) -> list[str]:
    """Return what who reads committed records finds in partition 0, up to its end, which has at least `expected`."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    try:
        while True:
            message = consumer.poll(30)
            if message is None:
                raise TimeoutError(f"{len(found)} of {expected} lines can be read")
            if message.error():
                if len(found) >= expected:
                    return found
                continue
            found.append(message.value().decode())
    finally:
        consumer.close()


def alone(jars: Path, handle: ClusterHandle, folder: Path, lines: int) -> None:
    """Copy a file through a topic with one worker."""
    given, taken = folder / "given.txt", folder / "taken.txt"
    append(given, 0, lines)
    settings = {
        "bootstrap.servers": handle.bootstrap,
        "offset.storage.file.filename": folder / "offsets",
        "listeners": f"http://127.0.0.1:{(port := free_port(1))}",
        **STRINGS,
        **QUICK,
    }
    source = {"name": "source", **source_of(given, "alone")}
    sink = {"name": "sink", **sink_of(taken, "alone")}
    worker = Worker(jars, folder / "alone", STANDALONE, settings, source, sink, port=port)
    try:
        until(lambda: len(lines_of(taken)) >= lines, "all lines to come out", worker)
    finally:
        worker.end()
    assert lines_of(taken) == [f"line {number}" for number in range(lines)]
    print(f"alone: {lines} lines, each once", flush=True)


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
        **STRINGS,
        **QUICK,
        **PATIENT,
    }
    return Worker(jars, folder / f"worker-{number}", DISTRIBUTED, settings, port=port)


def state_of(worker: Worker, name: str) -> tuple[str, set[str]]:
    """Return where a connector's task runs, and the states of the connector and its tasks; nowhere if nobody says."""
    told: Any = worker.ask("GET", f"/connectors/{name}/status")
    if told is None or not told["tasks"]:
        return "", set()
    return told["tasks"][0]["worker_id"], {one["state"] for one in (told["connector"], *told["tasks"])}


def together(jars: Path, handle: ClusterHandle, folder: Path, lines: int) -> None:
    """Copy a file through a topic with two workers, of which one is killed, and a broker after it."""
    given, taken, topic = folder / "source.txt", folder / "sink.txt", "together"
    admin = AdminClient({"bootstrap.servers": handle.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(30)
    given.touch()
    part = lines // 3
    with ExitStack() as ends:
        workers = {}
        for number in range(2):
            worker = a_worker(jars, handle, folder, number)
            ends.callback(worker.end)
            workers[number] = worker
        until(lambda: all(one.ask("GET", "/connectors") == [] for one in workers.values()), "both", *workers.values())
        for name, settings in (("source", source_of(given, topic)), ("sink", sink_of(taken, topic))):
            until(
                lambda name=name, settings=settings: (  # type: ignore[misc]
                    workers[0].ask("PUT", f"/connectors/{name}/config", settings) is not None
                ),
                f"{name} to be taken",
            )
        append(given, 0, part)
        until(lambda: len({*lines_of(taken)}) >= part, "the first lines", *workers.values())
        place, _ = state_of(workers[0], "source")
        killed = next(number for number, one in workers.items() if place.endswith(f":{one.port}"))
        workers.pop(killed).kill()
        (left,) = workers.values()
        append(given, part, part)
        until(lambda: len({*lines_of(taken)}) >= 2 * part, "the lines after a worker was killed", left)
        handle.kill(2)
        append(given, 2 * part, lines - 2 * part)
        until(lambda: len({*lines_of(taken)}) >= lines, "the lines after a broker was killed", left)
        assert state_of(left, "source")[1] == state_of(left, "sink")[1] == {"RUNNING"}
        handle.start()
    expected = [f"line {number}" for number in range(lines)]
    assert committed(handle.bootstrap, topic, lines) == expected
    assert {*lines_of(taken)} == {*expected}
    again = len(lines_of(taken)) - lines
    print(f"together: {lines} lines in the topic, each once; {again} came out of the sink twice", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=300)
    options = parser.parse_args()
    try:
        jars = systems.install_connect()
    except NotInstalledError as error:
        print(f"scripts/trials/ecosystem/connect: Kafka Connect cannot be had: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="connect-") as folder, cluster() as handle:
        alone(jars, handle, Path(folder), options.lines)
        together(jars, handle, Path(folder), options.lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
