"""Runs trials of Spark under faults: killed leaders, tasks and drivers, and an attempt that loses to a speculative one.

scripts/trials/lake/spark-faults [--scenes NAME,...] [--seed 1] [--rounds 1] [--rows 60000] [--kills 4]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from machines import cluster_handle
from spark.faults.drivers import archive_with_kills, stream_with_kills
from spark.faults.leaders import (
    Strike,
    Struck,
    kill_leader,
    kill_task,
    kill_writer,
    struck_archive,
    struck_batch,
    struck_stream,
    struck_write,
)
from spark.faults.rows import Difference, Filled, fill
from spark.faults.speculation import archive_with_a_loser

__all__ = ["SCENES", "Trial", "main"]


def say(line: str) -> None:
    """Print a line at once: a trial takes minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Trial(NamedTuple):
    """What every scene gets: brokers, a folder of its own, a seed, and sizes."""

    brokers: cluster_handle.ClusterHandle
    folder: Path
    seed: int
    rows: int
    kills: int

    def tell(self, line: str) -> None:
        say(line)


def driver_of_archive(kind: str) -> Callable[[Trial], list[str]]:
    def run(trial: Trial) -> list[str]:
        filled = fill(trial.brokers.bootstrap, trial.rows, trial.folder)
        round_size = str(max(1 << 20, trial.rows * 900 // 8))
        return archive_with_kills(kind, filled, trial.folder, trial.seed, trial.kills, round_size, trial.tell)

    return run


def speculation(kind: str) -> Callable[[Trial], list[str]]:
    def run(trial: Trial) -> list[str]:
        filled = fill(trial.brokers.bootstrap, trial.rows, trial.folder)
        return archive_with_a_loser(kind, filled, trial.folder, str(trial.rows * 900 // 3), trial.tell)

    return run


def driver_of_stream(sink: str) -> Callable[[Trial], list[str]]:
    def run(trial: Trial) -> list[str]:
        filled = fill(trial.brokers.bootstrap, trial.rows, trial.folder)
        said, difference = stream_with_kills(sink, filled, trial.folder, trial.seed, trial.kills, trial.tell)
        return judged(trial, said, difference, exact=sink != "stream-to-topic")

    return run


def struck(
    program: Callable[[Filled, Path, Strike], Struck], strike: Strike | None = None
) -> Callable[[Trial], list[str]]:
    """Return a scene that kills by `strike`, else the leader of a partition. Only rows of a write may double."""

    def run(trial: Trial) -> list[str]:
        filled = fill(trial.brokers.bootstrap, trial.rows, trial.folder)
        said, difference = program(filled, trial.folder, strike or kill_leader(trial.brokers))
        return judged(trial, said, difference, exact=program is not struck_write)

    return run


def judged(trial: Trial, said: str, difference: Difference, *, exact: bool) -> list[str]:
    trial.tell(f"  {said}")
    trial.tell(f"  {difference}")
    holds = difference.is_exact if exact else difference.is_at_least_once
    return [] if holds else [str(difference)]


SCENES: dict[str, Callable[[Trial], list[str]]] = {
    "leader-batch": struck(struck_batch),
    "leader-stream": struck(struck_stream),
    "leader-write": struck(struck_write),
    "leader-archive": struck(struck_archive),
    "task-batch": struck(struck_batch, kill_task),
    "task-stream": struck(struck_stream, kill_task),
    "task-write": struck(struck_write, kill_task),
    "task-archive": struck(struck_archive, kill_writer),
    "driver-parquet": driver_of_archive("parquet"),
    "driver-delta": driver_of_archive("delta"),
    "driver-iceberg": driver_of_archive("iceberg"),
    "driver-stream": driver_of_stream("stream"),
    "driver-stream-to-files": driver_of_stream("stream-to-files"),
    "driver-stream-to-topic": driver_of_stream("stream-to-topic"),
    "speculation": speculation("parquet"),
    "speculation-delta": speculation("delta"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", default=",".join(SCENES), help=f"of {', '.join(SCENES)}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="each with the next seed")
    parser.add_argument("--rows", type=int, default=60_000, help="of about 900 bytes")
    parser.add_argument("--kills", type=int, default=4, help="of a driver")
    parser.add_argument("--keep", action="store_true", help="leave the files")
    given = parser.parse_args(arguments)
    names = given.scenes.split(",")
    if unknown := set(names) - set(SCENES):
        parser.error(f"unknown scene {', '.join(sorted(unknown))}; write some of {', '.join(SCENES)}")
    wrong: list[str] = []
    with ExitStack() as stack:
        if given.keep:
            folder = Path(tempfile.mkdtemp(prefix="spark-faults-"))
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-faults-")))
        for seed in range(given.seed, given.seed + given.rounds):
            for name in names:
                wrong += scene(name, folder / f"{name}-{seed}", seed, given)
    for line in wrong:
        say(f"WRONG {line}")
    say(f"{len(names) * given.rounds} scenes, {len(wrong)} wrong")
    return 1 if wrong else 0


def scene(name: str, folder: Path, seed: int, given: argparse.Namespace) -> list[str]:
    """Run a scene on three brokers of its own."""
    folder.mkdir(parents=True)
    say(f"{name}, seed {seed}")
    began = time.monotonic()
    with cluster_handle.cluster(settings={"log.retention.ms": "-1"}) as brokers:
        wrong = SCENES[name](Trial(brokers, folder, seed, given.rows, given.kills))
    say(f"  {'WRONG' if wrong else 'holds'}, {time.monotonic() - began:.0f} s")
    return [f"{name}: {one}" for one in wrong]


if __name__ == "__main__":
    sys.exit(main())
