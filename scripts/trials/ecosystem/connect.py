"""Runs Kafka Connect on Barnabas, and compares what comes out with what went in.

This is `scripts/trials/ecosystem/connect`. Kafka's own connectors for files bring the lines of one file, which are
numbers, through a topic into another file. First a worker alone has both. Then two workers form a cluster, whose
sources write in transactions (KIP-618): the worker that runs the source is killed, and then a broker, each in the
midst of the numbers. Each number must be in the topic once, in order, for who reads what is committed; the sink, which
Kafka promises only that nothing is missing, must have been given all.
"""

import argparse
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from machines.cluster_handle import ClusterHandle, cluster, free_port

from .connect_worker import USUAL, connect_worker, runs, state_of
from .jars import install_connect, status_of
from .numbers import committed
from .workers import Worker, properties, until

__all__ = ["main"]

STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
# So many lines come in at a time: a source takes all that are there into one transaction.
PACE = 50


class Files:
    """The two files, and the topic between them, which all have the numbers of one run."""

    def __init__(self, folder: Path, topic: str) -> None:
        self.topic = topic
        self._input = folder / f"{topic}-in"
        self._output = folder / f"{topic}-out"
        self._input.touch()
        self._output.touch()
        self.count = 0
        self.goal = 0
        """How many numbers are to come in."""

    def brings(self, count: int) -> bool:
        """Let some more numbers come in, up to `goal`, and tell whether so many have come out."""
        more = range(self.count, min(self.goal, self.count + PACE))
        with self._input.open("a") as file:
            file.writelines(f"{number}\n" for number in more)
        self.count += len(more)
        return len({*self.sunk()}) >= count

    def sunk(self) -> list[int]:
        """Return the numbers that have come out."""
        whole, _, _ = self._output.read_text().rpartition("\n")
        return [int(line) for line in whole.splitlines()]

    def source(self) -> dict[str, object]:
        return {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "tasks.max": 1,
            "topic": self.topic,
            "file": self._input,
        }

    def sink(self) -> dict[str, object]:
        return {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": 1,
            "topics": self.topic,
            "file": self._output,
            "consumer.override.auto.offset.reset": "earliest",
            "consumer.override.isolation.level": "read_committed",
        }


def check(bootstrap: str, files: Files) -> None:
    found = committed(bootstrap, files.topic)
    assert found == [*range(files.count)], f"{files.topic}: numbers are missing, or there twice, or in another order"
    given = files.sunk()
    assert {*given} == {*range(files.count)}, f"{files.topic}: the sink lacks some"
    twice = len(given) - files.count
    print(f"{files.topic}: {len(found)} numbers in the topic, each once; {twice} came to the sink twice", flush=True)


def alone(jars: Path, handle: ClusterHandle, folder: Path, count: int) -> None:
    """Run a source and a sink in one worker."""
    files = Files(folder, "alone")
    files.goal = count
    port = free_port(1)
    settings = {
        "bootstrap.servers": handle.bootstrap,
        "offset.storage.file.filename": folder / "offsets",
        "listeners": f"http://127.0.0.1:{port}",
        **USUAL,
    }
    words = (
        properties(folder / "alone.properties", settings),
        properties(folder / "source.properties", {"name": "source", **files.source()}),
        properties(folder / "sink.properties", {"name": "sink", **files.sink()}),
    )
    worker = Worker(f"{jars}/*", folder / "alone", STANDALONE, *words, port=port)
    try:
        until(lambda: files.brings(count), "the numbers to come out", worker)
    finally:
        worker.end()
    check(handle.bootstrap, files)


def together(jars: Path, handle: ClusterHandle, folder: Path, count: int) -> None:
    """Run a source and a sink in a cluster of two workers, of which one is killed, and a broker after it."""
    admin = AdminClient({"bootstrap.servers": handle.bootstrap})
    admin.create_topics([NewTopic("together", 1, 3)])["together"].result(30)
    files = Files(folder, "together")
    with ExitStack() as ends:
        port = free_port(2)
        workers = []
        for number in range(2):
            workers.append(connect_worker(f"{jars}/*", handle.bootstrap, folder, port + number))
            ends.callback(workers[-1].end)
        until(lambda: all(one.ask("GET", "/connectors") == [] for one in workers), "both workers", *workers)
        for name, settings in (("source", files.source()), ("sink", files.sink())):
            body = {key: str(value) for key, value in settings.items()}
            until(partial(workers[0].takes, f"/connectors/{name}/config", body), name)
        files.goal = count
        until(lambda: files.brings(count // 3), "the first numbers", *workers)
        place, _ = state_of(workers[0], "source")
        (killed,) = [one for one in workers if place.endswith(f":{one.port}")]
        (left,) = [one for one in workers if one is not killed]
        killed.kill()
        until(lambda: files.brings(count), "numbers after a worker was killed", left)
        files.goal = 2 * count
        until(lambda: files.brings(count + count // 3), "numbers before a broker is killed", left)
        handle.kill(2)
        until(lambda: files.brings(2 * count), "numbers after a broker was killed", left)
        until(lambda: runs(left, "source") and runs(left, "sink"), "all to run", left)
        handle.start()
    check(handle.bootstrap, files)


def _work() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=3_000, help="of numbers before each death")
    options = parser.parse_args()
    jars = install_connect()
    with tempfile.TemporaryDirectory(prefix="connect-") as folder, cluster() as handle:
        alone(jars, handle, Path(folder), options.count)
        together(jars, handle, Path(folder), options.count)
    return 0


def main() -> int:
    return status_of("connect", "Kafka Connect", _work)


if __name__ == "__main__":
    sys.exit(main())
