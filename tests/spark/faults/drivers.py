"""Drivers that are killed: real archives and real streams, at moments that follow from a seed, run again until done.

A moment is one of:

* *in a round:* up to a second after the driver has said that a round begins: while tasks read and write, or between two
  rounds;
* *in a commit:* when the folder of the table's commits has changed, or up to 30 ms later: within the commit, or just
  behind it.

Half of the kills take the driver's Python process alone. Its JVM notices that by itself and ends; until then tasks go
on, and write files that nobody commits. The other half take the JVM with it.
"""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlparse

from spark.faults.leaders import program, written
from spark.faults.processes import Process, barnabas_spark, until
from spark.faults.rows import (
    PARTITIONS,
    Difference,
    Filled,
    archived,
    compared,
    data_files,
    files_of,
    spans_of,
    whole_topic,
)
from spark.lake.produced import new_topic

__all__ = ["COMMITS", "Moment", "archive_with_kills", "moments", "stream_with_kills"]

# Where each format keeps its commits. The catalog of an Iceberg table is a file in the table's folder.
COMMITS = {"parquet": "_manifests", "delta": "_delta_log", "iceberg": "."}
TIMEOUT_S = 400.0


class Moment(NamedTuple):
    """When a driver is killed: at round or commit `number` of its own, `after_s` later."""

    where: str
    number: int
    after_s: float
    with_jvm: bool

    def __str__(self) -> str:
        who = "driver and JVM" if self.with_jvm else "driver alone"
        return f"{who}, {self.where} {self.number} + {self.after_s * 1000:.0f} ms"


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


def stream_with_kills(
    sink: str, filled: Filled, folder: Path, seed: int, kills: int, tell: Callable[[str], None]
) -> tuple[str, Difference]:
    """Run a stream of about eight batches whose driver is killed `kills` times; return how its rows compare.

    `sink` is one of the programs `stream` (by the ids of batches), `stream-to-files` and `stream-to-topic`.
    """
    target = new_topic(filled.topic.bootstrap, PARTITIONS) if sink == "stream-to-topic" else None
    into = target.name if target else str(folder / "rows")
    checkpoint = folder / "checkpoint"
    more = ("--checkpoint", str(checkpoint), "--batch-rows", str(-(-filled.rows // 8)), "--group", f"group-{seed}")
    chance = random.Random(seed)
    for number in range(kills):
        # Spark writes the end of a batch down before it (offsets), and that it is done behind it (commits).
        where, after_s = chance.choice(["offsets", "commits"]), chance.choice([0.0, chance.uniform(0, 1.0)])
        with program(sink, filled, into, folder / "notes", *more, run=f"run-{number}") as driver:
            is_struck = _strike_stream(driver, checkpoint / where, chance.randint(1, 2), after_s, chance.random() < 0.5)
        batches = [len(_state(checkpoint / name)) // 2 for name in ("offsets", "commits")]
        said = f"killed {after_s * 1000:.0f} ms behind {where}" if is_struck else "ended before it was killed"
        tell(f"  {said}: {batches[0]} batches begun, {batches[1]} done")
        if not is_struck:
            break
    with program(sink, filled, into, folder / "notes", *more, run="last") as driver:
        driver.finish()
    if target:
        return sink, written(filled, target, folder)
    return sink, compared(filled.expected, committed_files(Path(into)))


def _strike_stream(driver: Process, log: Path, number: int, after_s: float, with_jvm: bool) -> bool:
    """Kill a driver when there are `number` more files in a log of its checkpoint; return False if it ended before."""
    before = len(_state(log))
    # Each file has a checksum beside it.
    until(f"a batch in {log.name}", lambda: not driver.is_alive or len(_state(log)) >= before + 2 * number, TIMEOUT_S)
    time.sleep(after_s)
    if not driver.is_alive:
        return False
    driver.kill(with_children=with_jvm)
    return True


def committed_files(root: Path) -> list[Path]:
    """Return the files that a stream has committed: those of its batches, or those in the log of Spark's sink."""
    log = root / "_spark_metadata"
    if not log.is_dir():
        return sorted(root.glob("batch=*/*.parquet"))
    found = {}
    # A log is compacted every ten batches: a file of all before it, in the same form.
    for path in sorted(log.glob("[0-9]*"), key=lambda path: int(path.name.partition(".")[0])):
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            found[entry["path"]] = Path(unquote(urlparse(entry["path"]).path))
    return sorted(found.values())
