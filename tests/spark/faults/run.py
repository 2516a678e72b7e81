"""Runs trials of Spark under faults: killed leaders, tasks and drivers, and an attempt that loses to a speculative one.

    scripts/trials/spark-faults [--scenes NAME,...] [--seed 1] [--rounds 1] [--rows 60000] [--kills 4]
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
from spark.faults.drivers import archive_with_kills
from spark.faults.rows import fill
from spark.faults.speculation import archive_with_a_loser

__all__ = ["SCENES", "Trial", "main"]


class Trial(NamedTuple):
    """What every scene gets: brokers, a folder of its own, a seed, and sizes."""

    brokers: cluster_handle.ClusterHandle
    folder: Path
    seed: int
    rows: int
    kills: int

    def tell(self, line: str) -> None:
        print(line, flush=True)


def driver_of_archive(kind: str) -> Callable[[Trial], list[str]]:
    def run(trial: Trial) -> list[str]:
        filled = fill(trial.brokers.bootstrap, trial.rows, trial.folder)
        round_size = str(max(1 << 20, trial.rows * 900 // 8))
        return archive_with_kills(kind, filled, trial.folder, trial.seed, trial.kills, round_size, trial.tell)

    return run


def speculation(kind: str, *, ships: bool) -> Callable[[Trial], list[str]]:
    def run(trial: Trial) -> list[str]:
        filled = fill(trial.brokers.bootstrap, trial.rows, trial.folder)
        return archive_with_a_loser(kind, filled, trial.folder, str(trial.rows * 900 // 3), ships, trial.tell)

    return run


SCENES: dict[str, Callable[[Trial], list[str]]] = {
    "driver-parquet": driver_of_archive("parquet"),
    "driver-delta": driver_of_archive("delta"),
    "driver-iceberg": driver_of_archive("iceberg"),
    "speculation": speculation("parquet", ships=False),
    "speculation-shipped": speculation("delta", ships=True),
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
        print(f"WRONG {line}")
    print(f"{len(names) * given.rounds} scenes, {len(wrong)} wrong", flush=True)
    return 1 if wrong else 0


def scene(name: str, folder: Path, seed: int, given: argparse.Namespace) -> list[str]:
    """Run a scene on three brokers of its own."""
    folder.mkdir(parents=True)
    print(f"{name}, seed {seed}", flush=True)
    began = time.monotonic()
    with cluster_handle.cluster(settings={"log.retention.ms": "-1"}) as brokers:
        wrong = SCENES[name](Trial(brokers, folder, seed, given.rows, given.kills))
    print(f"  {'WRONG' if wrong else 'holds'}, {time.monotonic() - began:.0f} s", flush=True)
    return [f"{name}: {one}" for one in wrong]


if __name__ == "__main__":
    sys.exit(main())
