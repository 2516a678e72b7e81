"""Drivers that are killed: real archives and real streams, at moments that follow from a seed, run again until done.

A moment is one of:

* *in a round:* some time after the driver has said that a round begins, up to twice the time of the last one: while tasks read and
  write, or between two rounds;
* *in a commit:* when the folder of the table's commits has changed, or up to 30 ms later: within the commit, or just
  behind it.

Half of the kills take the driver's Python process alone. Its JVM notices that by itself and ends; until then tasks go
on, and write files that nobody commits. The other half take the JVM with it.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from spark.faults.processes import Process, barnabas_spark, until
from spark.faults.rows import Filled, archived, data_files, files_of, spans_of, whole_topic

__all__ = ["COMMITS", "Killed", "Moment", "archive_with_kills", "moments"]

# Where each format keeps its commits. The catalog of an Iceberg table is a file in the table's folder.
COMMITS = {"parquet": "_manifests", "delta": "_delta_log", "iceberg": "."}
TIMEOUT_S = 180.0


class Moment(NamedTuple):
    """When a driver is killed: at round or commit `number` of its own, `after_s` later."""

    where: str
    number: int
    after_s: float
    with_jvm: bool

    def __str__(self) -> str:
        who = "driver and JVM" if self.with_jvm else "driver alone"
        return f"{who}, {self.where} {self.number} + {self.after_s * 1000:.0f} ms"


class Killed(NamedTuple):
    """What a kill left: commits in the table, and finished files that no commit names."""

    moment: str
    commits: int
    orphans: int


def moments(seed: int) -> Iterator[Moment]:
    """Yield moments for ever."""
    chance = random.Random(seed)
    while True:
        is_round = chance.random() < 0.5
        after_s = chance.uniform(0, 1.0) if is_round else chance.choice([0.0, 0.0, chance.uniform(0, 0.03)])
        yield Moment("round" if is_round else "commit", chance.randint(1, 3), after_s, chance.random() < 0.5)


def archive_with_kills(
    kind: str, filled: Filled, folder: Path, seed: int, kills: int, round_size: str, tell: Callable[[str], None]
) -> list[str]:
    """Archive a topic with a driver that is killed `kills` times, then let it end; return what is wrong."""
    root = folder / f"{kind}-{seed}"
    words = ["archive", filled.topic.name, "--to", str(root), "--format", kind, "-b", filled.topic.bootstrap]
    words += ["--round-size", round_size, "--master", "local[2]"]
    chosen = moments(seed)
    for number in range(kills):
        moment = next(chosen)
        with barnabas_spark(words, folder, f"{root.name}-run-{number}") as driver:
            struck = strike(driver, moment, root / COMMITS[kind])
            if not struck:
                driver.finish()
        left = files_of(kind, root) if root.is_dir() and any(root.iterdir()) else []
        ends = {each: spans[-1][1] for each, spans in sorted(spans_of(kind, root).items())} if left else {}
        orphans = len(data_files(kind, root) - set(left))
        tell(f"  {moment if struck else 'ended before it was struck'}: the table ends at {ends}, {orphans} orphans")
        if not struck:
            break
    with barnabas_spark(words, folder, f"{root.name}-last") as driver:
        driver.finish()
    difference = archived(kind, root, filled)
    tell(f"  {difference}, {len(data_files(kind, root) - set(files_of(kind, root)))} orphans")
    wrong = [] if difference.is_exact else [f"{kind}, seed {seed}: {difference}"]
    if spans_of(kind, root) != whole_topic(filled):
        wrong.append(f"{kind}, seed {seed}: the ranges are {spans_of(kind, root)}")
    return wrong


def strike(driver: Process, moment: Moment, commits: Path) -> bool:
    """Kill a driver at a moment; return False if it ended before."""
    before = _state(commits)
    changes = 0

    def has_come() -> bool:
        nonlocal before, changes
        if not driver.is_alive:
            return True
        if moment.where == "round":
            return driver.said().count(" offsets left") >= moment.number
        now = _state(commits)
        if now != before and driver.said().count(" offsets left"):
            changes += 1
        before = now
        return changes >= moment.number

    until(str(moment), has_come, TIMEOUT_S)
    time.sleep(moment.after_s)
    if not driver.is_alive:
        return False
    driver.kill(with_children=moment.with_jvm)
    return True


def _state(folder: Path) -> list[tuple[str, int]]:
    """Return names and times of the files in a folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted((entry.name, entry.stat().st_mtime_ns) for entry in entries if entry.is_file())
    except FileNotFoundError:
        return []
