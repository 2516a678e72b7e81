"""Runs a job of Apache Flink on Barnabas whose sink writes exactly once, and compares what comes out with what went in.

This is `scripts/trials/ecosystem/flink`. The job (`Copy.java`) runs in a cluster of Flink's own in one process. It is
killed some times in the midst of the numbers, and another begins with its last checkpoint: the sink commits the
transactions that the checkpoint has, with the producer ids and epochs in it, and ends those that came after it. Then a
broker is killed. Each number must be in the copy once for who reads what is committed. Each strategy by which the sink
names its transactions has a run: one tries ids until it finds none, the other asks which there are.
"""

import argparse
import random
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from machines import java
from machines.cluster_handle import ClusterHandle, cluster

from .jars import install_flink, status_of
from .numbers import committed, produce
from .workers import Worker, until

__all__ = ["main"]

SOURCE = Path(__file__).with_name("Copy.java")
# Flink writes with what Java 17 keeps closed.
OPENED = tuple(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "time"))
STRATEGIES = ("INCREMENTING", "POOLING")
PARTITIONS = 3
DEATHS = 5  # of the job
CHECKPOINTS_S = 0.5


def run(jars: Path, handle: ClusterHandle, folder: Path, strategy: str, count: int) -> None:
    source, copy = f"{strategy}-in", f"{strategy}-out"
    admin = AdminClient({"bootstrap.servers": handle.bootstrap})
    for done in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in (source, copy)]).values():
        done.result(30)
    checkpoints = folder / strategy
    checkpoints.mkdir()
    job = partial(
        Worker, java.class_path(SOURCE, jars), folder / f"{strategy}-log", "Copy",
        *(handle.bootstrap, source, copy, f"copy-{strategy}", checkpoints, strategy),
        options=OPENED,
    )  # fmt: skip

    def found() -> list[int]:
        return [number for k in range(PARTITIONS) for number in committed(handle.bootstrap, copy, k)]

    worker = job()
    sent = 0

    def send() -> None:
        nonlocal sent
        produce(handle.bootstrap, source, range(sent, sent + count), PARTITIONS)
        sent += count

    chance = random.Random(strategy)
    try:
        for death in range(DEATHS + 1):
            send()
            until(lambda: len(found()) > sent - count, "the first numbers", worker)
            send()
            if death < DEATHS:
                # Anywhere between two checkpoints, or in one.
                time.sleep(chance.uniform(0, CHECKPOINTS_S))
                worker.kill()
                worker = job()
            else:
                handle.kill(2)
            until(lambda: len(found()) >= sent, "numbers after a death", worker)
        handle.start()
    finally:
        worker.end()
    assert sorted(found()) == [*range(sent)], f"{strategy}: numbers are missing in the copy, or there twice"
    assert "begins with file:" in worker.said(), "no life began with a checkpoint"
    print(f"{strategy}: {sent} numbers in the copy, each once", flush=True)


def _work() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000, help="of numbers before and behind each death")
    options = parser.parse_args()
    jars = install_flink()
    java.classes(SOURCE, jars)
    with tempfile.TemporaryDirectory(prefix="flink-") as folder, cluster() as handle:
        for strategy in STRATEGIES:
            run(jars, handle, Path(folder), strategy, options.count)
    return 0


def main() -> int:
    return status_of("flink", "Apache Flink", _work)


if __name__ == "__main__":
    sys.exit(main())
