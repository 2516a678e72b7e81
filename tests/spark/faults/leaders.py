"""Leaders and tasks that are killed while a read, a stream, a write or an archive is in the midst of its rows."""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import AdminClient
from machines.cluster_handle import ClusterHandle
from spark.faults.processes import PATHS, Process, barnabas_spark, until
from spark.faults.rows import PARTITIONS, Difference, Filled, archived, compared, consumed, spans_of, whole_topic
from spark.faults.speculation import writers
from spark.lake.produced import Topic, new_topic

__all__ = [
    "Strike",
    "Struck",
    "kill_leader",
    "kill_task",
    "kill_writer",
    "program",
    "struck_archive",
    "struck_batch",
    "struck_stream",
    "struck_write",
    "written",
]

Strike = Callable[[Process, Filled, Path], str]
"""Kills something while tasks are at their gate, or write; says what."""


class Struck(NamedTuple):
    """What was killed, and how the rows compare with those that were produced."""

    said: str
    difference: Difference


def program(name: str, filled: Filled, to: str, folder: Path, *more: str, run: str = "run") -> Process:
    """Start one of `programs.PROGRAMS`."""
    words = [sys.executable, "-m", "spark.faults.programs", name, "--bootstrap-server", filled.topic.bootstrap]
    words += ["--topic", filled.topic.name, "--to", to, "--notes", str(folder), *more]
    folder.mkdir(parents=True, exist_ok=True)
    ours = {"PYTHONPATH": PATHS, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return Process(words, folder, run, os.environ | ours)


def kill_leader(brokers: ClusterHandle) -> Strike:
    """Return what kills the leader of partition 0."""

    def strike(_process: Process, filled: Filled, _folder: Path) -> str:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        leader = admin.list_topics(filled.topic.name, 30).topics[filled.topic.name].partitions[0].leader
        brokers.kill(leader)
        return f"broker {leader}, the leader of partition 0, was killed"

    return strike


def kill_task(process: Process, _filled: Filled, folder: Path) -> str:
    """Kill all Python workers of tasks that are not at the gate: they read or write for those that are."""
    at_gate = {int(path.name.rpartition(".")[2]) for path in folder.glob("at-*")}
    others = workers(process) - at_gate
    assert others, "no worker reads or writes"
    for pid in others:
        os.kill(pid, signal.SIGKILL)
    return f"the {len(others)} Python workers that read or write were killed"


def kill_writer(process: Process, _filled: Filled, folder: Path) -> str:
    """Kill a Python worker that writes a file of an archive."""
    found: list[tuple[int, str]] = []

    def writes() -> bool:
        assert process.is_alive, process.said()[-3000:]
        found[:] = writers(folder)
        return bool(found)

    until("a file that is being written", writes)
    os.kill(found[0][0], signal.SIGKILL)
    return f"the Python worker that wrote {found[0][1][:60]}... was killed"


def workers(process: Process) -> set[int]:
    """Return the Python workers of a driver: the children of Spark's daemon."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(entry.parts[2])] = int(entry.read_text().rpartition(") ")[2].split()[1])
        except OSError:
            continue  # It has ended.
    below = {process.pid}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return {pid for pid in below if _is_of_tasks(pid) and _is_of_tasks(parents[pid])}


def _is_of_tasks(pid: int) -> bool:
    """Tell a daemon for tasks, and its children, from those that plan reads and from those of streams."""
    try:
        return b"pyspark.daemon\0pyspark.worker\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _strike_at_gate(process: Process, filled: Filled, notes: Path, strike: Strike) -> str:
    """Strike when a task is at the gate, open it, and wait for the end of the program."""

    def is_there() -> bool:
        assert process.is_alive, process.said()[-3000:]
        return any(notes.glob("at-*"))

    until("a task at the gate", is_there)
    waiting = len([*notes.glob("at-*")])
    said = strike(process, filled, notes)
    (notes / "go").touch()
    process.finish()
    again = len({path.name.split(".")[1] for path in notes.glob("at-*") if path.name.split(".")[2] != "0"})
    assert again or strike is not kill_task, "no task was tried again"
    return f"{said} while {waiting} of {PARTITIONS} tasks were under way; {again} were tried again"


def struck_batch(filled: Filled, folder: Path, strike: Strike) -> Struck:
    with program("batch", filled, str(folder / "rows"), folder / "notes", "--gate") as process:
        said = _strike_at_gate(process, filled, folder / "notes", strike)
    return Struck(said, compared(filled.expected, (folder / "rows").glob("*.parquet")))


def struck_stream(filled: Filled, folder: Path, strike: Strike) -> Struck:
    """Strike in the second of five batches."""
    more = ("--checkpoint", str(folder / "checkpoint"), "--batch-rows", str(-(-filled.rows // 5)), "--gate")
    with program("stream", filled, str(folder / "rows"), folder / "notes", *more) as process:
        said = _strike_at_gate(process, filled, folder / "notes", strike)
    return Struck(said, compared(filled.expected, (folder / "rows").glob("batch=*/*.parquet")))


def struck_write(filled: Filled, folder: Path, strike: Strike) -> Struck:
    """Strike while the rows are written to another topic; its leaders are those that are killed."""
    target = filled._replace(topic=new_topic(filled.topic.bootstrap, PARTITIONS))
    more = ("--rows", str(filled.expected), "--gate")
    with program("write", target, "-", folder / "notes", *more) as process:
        said = _strike_at_gate(process, target, folder / "notes", strike)
    return Struck(said, written(filled, target.topic, folder))


def written(filled: Filled, target: Topic, folder: Path) -> Difference:
    """Compare the keys and values of a topic with those of another."""
    return compared(filled.expected, [consumed(target, folder / "consumed.parquet")], ("key", "value"))


def struck_archive(filled: Filled, folder: Path, strike: Strike) -> Struck:
    """Strike in the second round of about five, while a task writes a file."""
    root = folder / "lake"
    words = ["archive", filled.topic.name, "--to", str(root), "-b", filled.topic.bootstrap, "--json"]
    words += ["--round-size", str(max(1 << 20, filled.rows * 900 // 5)), "--master", "local[2,4]"]
    with barnabas_spark(words, folder, "archive") as process:

        def is_there() -> bool:
            assert process.is_alive, process.said()[-3000:]
            return process.said().count(" offsets left") >= 2 and bool(writers(root))

        until("a file that is being written in round 2", is_there)
        said = strike(process, filled, root)
        process.finish()
    left = sum(json.loads(line)["rows"] for line in process.output.read_text().splitlines())
    assert left == filled.rows, process.output.read_text()
    assert spans_of("parquet", root) == whole_topic(filled)
    return Struck(said, archived("parquet", root, filled))
