"""The speculative loser: one task of an archive runs twice at once, on two workers, and both write files.

A worker of Spark's Python is stopped (SIGSTOP) while it writes a file, so Spark starts another attempt elsewhere. In
every second round that is struck, it goes on (SIGCONT) as soon as that attempt has a file, too: then both run to their end, and Spark
takes the first one that is done. Otherwise it stays as it is, until Spark kills it.

Spark's own event log says which attempts there were, where, and from when to when.
"""

import json
import os
import re
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spark.faults.processes import Process, until
from spark.faults.rows import Filled, archived, data_files, files_of, spans_of, whole_topic
from spark.faults.standalone import HOSTS, environments, standalone

__all__ = ["Attempt", "archive_with_a_loser", "overlapping", "writers"]

_STEM = re.compile(r"(barnabas-.*-\d+-\d{20})-([0-9a-f]{32})-\d+\.parquet$")
_SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
    "spark.python.task.killTimeout": "500ms",
}


class Stopped(NamedTuple):
    """A worker of Python that was stopped while it wrote, and the attempt that began meanwhile, by the ids in their files."""

    round: int
    stem: str
    attempt: str
    other: str
    wakes: bool

    def __str__(self) -> str:
        after = "goes on" if self.wakes else "stays so until Spark kills it"
        return (
            f"round {self.round}: {self.stem}: attempt {self.attempt[:8]} was stopped while it wrote, and {after}; "
            f"attempt {self.other[:8]} wrote at the same time"
        )


class Attempt(NamedTuple):
    """One attempt of a task, as Spark's event log has it. Times are in ms."""

    stage: int
    task: int
    host: str
    launched_at_ms: int
    finished_at_ms: int
    is_speculative: bool
    is_killed: bool


def archive_with_a_loser(
    kind: str, filled: Filled, folder: Path, round_size: str, ships: bool, tell: Callable[[str], None]
) -> list[str]:
    """Archive on two workers; stop a task in rounds 1 and 2; return what is wrong.

    If `ships`, executors get our packages from the driver, as zip files; otherwise they have the wheels installed.
    """
    root, events = folder / kind, folder / "events"
    events.mkdir(parents=True)
    pythons = environments(folder)
    settings = _SETTINGS | {"spark.eventLog.dir": events.as_uri()}
    if ships:
        settings["spark.submit.pyFiles"] = ",".join(map(str, pythons.zips))
    words = ["-m", "barnabas_spark.jobs", "archive", filled.topic.name, "--to", str(root), "--format", kind]
    words += ["-b", filled.topic.bootstrap, "--round-size", round_size, "--master"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "PYSPARK_PYTHON": str(pythons.bare if ships else pythons.installed),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": HOSTS[0],
    }
    with standalone(folder / "spark", settings) as spark:
        environment["SPARK_CONF_DIR"] = str(folder / "spark" / "conf")
        with Process([str(pythons.installed), *words, spark.master], folder, "archive", environment) as driver:
            lived = [stop_one(driver, root, number, wakes=number % 2 == 0) for number in (1, 2)]
            driver.finish()
    live = " ".join(path.name for path in files_of(kind, root))
    for one in lived:
        winner = one.attempt if one.attempt in live else one.other
        tell(f"  {one}; the table has the file of {winner[:8]}")
    attempts = attempts_in(next(events.iterdir()).read_text().splitlines())
    pairs = overlapping(attempts)
    for first, second in pairs:
        tell(f"  {shown(first)} | {shown(second)}")
    difference = archived(kind, root, filled)
    orphans = _attempts(root) - {path.name for path in files_of(kind, root)}
    tell(f"  {difference}, {len(orphans)} files of losers are left")
    wrong = [] if difference.is_exact else [str(difference)]
    if spans_of(kind, root) != whole_topic(filled):
        wrong.append(f"the ranges are {spans_of(kind, root)}")
    if len({first.stage for first, _ in pairs}) < len(lived):
        wrong.append(f"only {len(pairs)} tasks had two attempts at once")
    for one in lived:
        taken = [attempt for attempt in (one.attempt, one.other) if attempt in live]
        if len(taken) != 1 or (not one.wakes and taken == [one.attempt]):
            wrong.append(f"round {one.round}: the table has files of {taken}")
    return wrong


def stop_one(driver: Process, root: Path, number: int, *, wakes: bool) -> Stopped:
    """Stop a worker of Python that writes a file in round `number`, until there is a second attempt of its task."""
    until(f"round {number}", lambda: _ended(driver) or driver.said().count(" offsets left") >= number)
    found: list[tuple[int, str]] = []

    def writes() -> bool:
        found[:] = writers(root)
        return bool(found) or _ended(driver)

    until(f"a file in round {number}", writes)
    pid, name = found[0]
    os.kill(pid, signal.SIGSTOP)
    stem, attempt = _stem(name)
    others: set[str] = set()

    def is_repeated() -> bool:
        others.update(other for one, other in map(_stem, _attempts(root)) if one == stem and other != attempt)
        return bool(others) or _ended(driver)

    until(f"a second attempt of {stem}", is_repeated)
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    assert state == "T", f"the first attempt is in state {state}"
    if wakes:
        os.kill(pid, signal.SIGCONT)
    return Stopped(number, stem, attempt, min(others), wakes)


def _ended(driver: Process) -> bool:
    assert driver.is_alive, f"the driver has ended: {driver.said()[-3000:]}"
    return False


def _stem(name: str) -> tuple[str, str]:
    match = _STEM.search(name)
    assert match is not None, name
    return match[1], match[2]


def _attempts(root: Path) -> set[str]:
    """Return the names of all files of rows, also of those that are being written."""
    return {name for _, _, names in os.walk(root) for name in names if _STEM.search(name)}


def writers(root: Path) -> list[tuple[int, str]]:
    """Return the processes that have an unfinished file of rows open, with its name, in the order of names."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(entry)
        except OSError:
            continue  # It was closed, or is somebody else's.
        if target.startswith(f"{root}/") and "/.unfinished-barnabas-" in target and target.endswith(".parquet"):
            found.append((int(entry.parts[2]), Path(target).name))
    return sorted(found, key=lambda one: one[1])


def attempts_in(lines: Iterable[str]) -> list[Attempt]:
    """Read all attempts that have ended out of Spark's event log."""
    found = []
    for line in lines:
        event: Mapping[str, Any] = json.loads(line)
        if event["Event"] != "SparkListenerTaskEnd":
            continue
        info = event["Task Info"]
        found.append(
            Attempt(
                event["Stage ID"],
                info["Index"],
                info["Host"],
                info["Launch Time"],
                info["Finish Time"],
                info["Speculative"],
                info["Killed"],
            )
        )
    return found


def overlapping(attempts: Iterable[Attempt]) -> list[tuple[Attempt, Attempt]]:
    """Return each pair of attempts of one task that lived at the same time on different hosts, the first one first."""
    of_task = defaultdict(list)
    for one in attempts:
        of_task[one.stage, one.task].append(one)
    pairs = []
    for these in of_task.values():
        ordered = sorted(these, key=lambda one: one.launched_at_ms)
        for first, second in zip(ordered, ordered[1:], strict=False):
            if second.is_speculative and second.launched_at_ms < first.finished_at_ms and first.host != second.host:
                pairs.append((first, second))
    return pairs


def shown(one: Attempt) -> str:
    kind = "speculative" if one.is_speculative else "first"
    end = "killed" if one.is_killed else "done"
    return (
        f"stage {one.stage}, task {one.task}, {kind} on {one.host}: "
        f"{one.launched_at_ms % 1_000_000} to {one.finished_at_ms % 1_000_000} ms, {end}"
    )
