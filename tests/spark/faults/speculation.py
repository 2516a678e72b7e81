"""The speculative loser: one task of an archive runs twice at once, on two workers, and both write files.

A Python worker of Spark is stopped (SIGSTOP) while it writes a file, so Spark starts another attempt elsewhere. The
first one stays so, until Spark kills it. The second goes on (SIGCONT) as soon as the other attempt has a file, too:
both run, and Spark takes the one that is done first.

Spark's own event log says which attempts there were, where, and from when to when.
"""

import json
import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from spark.faults.processes import Process, until
from spark.faults.rows import Filled, archived, files_of, spans_of, whole_topic
from spark.faults.standalone import HOSTS, environments, standalone

__all__ = ["Attempt", "archive_with_a_loser", "overlapping", "writers"]

_STEM = re.compile(r"(barnabas-.*-\d+-\d{20})-([0-9a-f]{32})-\d+\.parquet$")
STRUCK_MAX = 2
_UNFINISHED = ".unfinished-barnabas-"
SETTINGS = {
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
    """An attempt that was stopped while it wrote, and one that began meanwhile, by the ids in their files' names."""

    stem: str
    attempt: str
    other: str
    wakes: bool

    def __str__(self) -> str:
        after = "goes on" if self.wakes else "stays so until Spark kills it"
        return (
            f"{self.stem}: attempt {self.attempt[:8]} was stopped while it wrote, and {after}; "
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
    kind: str, filled: Filled, folder: Path, round_size: str, tell: Callable[[str], None]
) -> list[str]:
    """Archive on two workers, and stop tasks while they write; return what is wrong.

    The driver has our wheels, and nothing of the source. Executors get our packages from the driver.
    """
    root, events = folder / kind, folder / "events"
    events.mkdir(parents=True)
    pythons = environments(folder)
    settings = SETTINGS | {"spark.eventLog.dir": events.as_uri()}
    words = ["-m", "barnabas_spark.jobs", "archive", filled.topic.name, "--to", str(root), "--format", kind]
    words += ["-b", filled.topic.bootstrap, "--round-size", round_size, "--master"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "PYSPARK_PYTHON": str(pythons.bare),
        "SPARK_CONF_DIR": str(folder / "spark" / "conf"),
        "SPARK_LOCAL_IP": HOSTS[0],
    }
    python = str(pythons.installed)
    with (
        standalone(folder / "spark", settings) as spark,
        Process([python, *words, spark.master], folder, "archive", environment) as driver,
    ):
        lived: list[Stopped] = []
        while len(lived) < STRUCK_MAX and (one := stop_one(driver, root, lived)) is not None:
            lived.append(one)
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
    if not lived:
        wrong.append("no attempt was caught while it wrote")
    if spans_of(kind, root) != whole_topic(filled):
        wrong.append(f"the ranges are {spans_of(kind, root)}")
    if len(pairs) < len(lived):
        wrong.append(f"only {len(pairs)} tasks had two attempts at once")
    for one in lived:
        taken = [attempt for attempt in (one.attempt, one.other) if attempt in live]
        if len(taken) != 1 or (not one.wakes and taken == [one.attempt]):
            wrong.append(f"{one.stem}: the table has files of {taken}")
    return wrong


def stop_one(driver: Process, root: Path, before: Sequence[Stopped]) -> Stopped | None:
    """Stop a Python worker that writes a file, until there is a second attempt of its task; None if the driver ended.

    It is of another task than those `before`, and none that has a second attempt already.
    """
    found: list[tuple[int, str]] = []

    def writes() -> bool:
        stems = [one for one, _ in map(_stem, _attempts(root))]
        once = {one for one in stems if stems.count(one) == 1} - {one.stem for one in before}
        found[:] = [each for each in writers(root) if _stem(each[1])[0] in once] if once else []
        return bool(found) or not driver.is_alive

    until("a file that is being written", writes)
    if not found:
        return None
    pid, name = found[0]
    os.kill(pid, signal.SIGSTOP)
    until("the stop of a process", lambda: _state(pid) in {"T", ""})
    stem, attempt = _stem(name)
    others: set[str] = set()

    rounds = driver.said().count(" offsets left")

    def is_repeated() -> bool:
        assert driver.is_alive, f"the driver has ended: {driver.said()[-3000:]}"
        others.update(other for one, other in map(_stem, _attempts(root)) if one == stem and other != attempt)
        return bool(others) or driver.said().count(" offsets left") > rounds

    until(f"a second attempt of {stem}", is_repeated)
    if not others:
        os.kill(pid, signal.SIGCONT)  # It had told its result before it was stopped.
        return stop_one(driver, root, before)
    assert _state(pid) == "T", f"the attempt that was stopped is in state {_state(pid)}"
    wakes = len(before) % 2 == 1
    if wakes:
        os.kill(pid, signal.SIGCONT)
    return Stopped(stem, attempt, min(others), wakes)


def _state(pid: int) -> str:
    """Return the state of a process, as the kernel abbreviates it; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return ""


def _stem(name: str) -> tuple[str, str]:
    match = _STEM.search(name)
    assert match is not None, name
    return match[1], match[2]


def _attempts(root: Path) -> set[str]:
    """Return the names of all files of rows, also of those that are being written."""
    return {name for _, _, names in os.walk(root) for name in names if _STEM.search(name)}


def writers(root: Path) -> list[tuple[int, str]]:
    """Return the Python workers that have an unfinished file of rows open, with its name, in the order of names."""
    if not any(name.startswith(_UNFINISHED) for name in _attempts(root)):
        return []  # A search through processes takes as long as a small file does.
    found = []
    for pid in _python_workers(int(time.monotonic() * 2)):
        for entry in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = str(entry.readlink())
            except OSError:
                continue  # It was closed.
            if target.startswith(f"{root}/") and f"/{_UNFINISHED}" in target and target.endswith(".parquet"):
                found.append((pid, Path(target).name))
    return sorted(found, key=lambda one: one[1])


@cache
def _python_workers(_half_seconds: int) -> list[int]:
    """Return the processes that run tasks in Python, looked up twice a second."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"pyspark.daemon" in entry.read_bytes():
                found.append(int(entry.parts[2]))
        except OSError:
            continue  # It has ended.
    return found


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
        for first, second in pairwise(ordered):
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
