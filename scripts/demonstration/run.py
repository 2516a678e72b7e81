"""Streams Python source files into a cluster, and checks that all lines come back.

Each line is one record, keyed by its file, so that the lines of a file share a partition and keep their order. While
they stream in, a consumer group of two reads along. Half-way the leader of a partition is killed with SIGKILL, and one
of the two readers as well. At the end Spark reads everything back as a batch, counts it as a stream, lands it in a lake
of Parquet files, and audits the lake. The group's database, Spark and the lake each know the number of lines of every
file and their hash, in the order of their offsets; all are held against the files. Without Spark (`--no-spark`) the
group's database alone is.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from machines.cluster_handle import ClusterHandle, CommandFailedError, cluster, run
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from barnabas_clients.cluster.cluster import Cluster as ClusterClient

from .load import Load, Readers
from .reader import GROUP, Results
from .source import Source

if TYPE_CHECKING:
    from .spark import SparkResult

TOPIC = "python-source"
PARTITIONS = 6
RECORDS_DEFAULT = 500_000
RECORDS_MIN = 500_000
SHARES_TOLD = 5  # how many times progress is a line of its own, where no bar can be drawn
RETURN_AFTER = 0.75  # of the records: by then the others have carried on without the killed broker for a while


class Told:
    """Says how far something is, in lines, on a console that draws no bars: a pipe or a file."""

    def __init__(self, console: Console, name: str, total: int) -> None:
        self._console = console
        self._name = name
        self._total = total
        self._told = 0

    def update(self, completed: int) -> None:
        share = completed * SHARES_TOLD // self._total
        if not self._console.is_terminal and share > self._told:
            self._told = share
            self._console.print(f"{self._name}: {completed:,} of {self._total:,} lines")


class Figures(NamedTuple):
    """The figures of streaming in and reading along; times in seconds."""

    killed_broker: int
    produce_s: float
    pause_s: float
    read_s: float
    reader_killed_after: int
    files: dict[str, tuple[int, str]]


async def leader_of(bootstrap: str, partition: int) -> int:
    async with ClusterClient(bootstrap) as client:
        return (await client.leader(TOPIC, partition, 10)).node_id


async def stream(brokers: ClusterHandle, source: Source, database: Path, console: Console) -> Figures:
    """Produce and read side by side, with a leader and a reader killed half-way."""
    columns = (TextColumn("{task.description:>12}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn())
    killed = 0
    returning: asyncio.Task[float] | None = None
    load = Load(brokers.bootstrap, TOPIC)
    readers = Readers(brokers.bootstrap, TOPIC, database, source.records)
    told_produced, told_read = (Told(console, name, source.records) for name in ("produced", "read by the group"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        produced = progress.add_task("produce", total=source.records)
        read = progress.add_task("group reads", total=source.records)

        def on_read(count: int) -> None:
            progress.update(read, completed=count)
            told_read.update(count)

        async def on_record(number: int) -> None:
            nonlocal killed, returning
            progress.update(produced, completed=number)
            told_produced.update(number)
            if not killed and number >= source.records // 2:
                killed = await leader_of(brokers.bootstrap, 0)
                await asyncio.to_thread(brokers.kill, killed)
                console.print(f"killed broker {killed}, leader of {TOPIC}-0, with SIGKILL", style="bold red")
            if returning is None and number >= source.records * RETURN_AFTER:
                returning = asyncio.create_task(asyncio.to_thread(brokers.start))

        def on_killed(pid: int) -> None:
            console.print(f"killed one of the two readers, process {pid}, with SIGKILL", style="bold red")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(readers.run(on_read, on_killed))
            await load.run(source, on_record)
            progress.update(produced, completed=source.records)
            told_produced.update(source.records)
            assert returning is not None
            console.print(f"restarted broker {killed} in {await returning:.1f} s", style="bold green")
    results = Results(database)
    try:
        files = results.files()
    finally:
        results.close()
    return Figures(
        killed_broker=killed,
        produce_s=load.took_s,
        pause_s=max(load.pauses.values()),
        read_s=readers.took_s,
        reader_killed_after=readers.killed_after,
        files=files,
    )


def differences(source: Source, by_reader: Mapping[str, Mapping[str, tuple[int, str]]]) -> list[str]:
    """Return one line for each file whose lines did not come back once, complete and in order, to a reader."""
    found = []
    for name, expected in source.expected.items():
        for reader, files in by_reader.items():
            count, digest = files.get(name, (0, ""))
            if count != expected.lines:
                found.append(f"{name}: {reader} has {count} lines of {expected.lines}")
            elif digest != (expected.chain if reader == GROUP else expected.sha256):
                found.append(f"{name}: {reader} has lines that differ or are out of order")
    strangers = set[str]().union(*by_reader.values()) - source.expected.keys()
    return found + [f"{name}: was never written" for name in sorted(strangers)]


def pipeline_differences(source: Source, result: "SparkResult") -> list[str]:
    """Return one line for each number of the pipeline that is not the files'."""
    wanted = (source.records, source.words, source.size_bytes)
    found = [
        f"{name}: {count:,} {unit}, and the files have {expected:,}"
        for name, counts in (("the stream", result.streamed.counts), ("the lake", result.landed.counts))
        for unit, count, expected in zip(("lines", "words", "bytes"), counts, wanted, strict=True)
        if count != expected
    ]
    if result.rows != source.records:
        found.append(f"the batch: {result.rows:,} rows for {source.records:,} lines")
    if result.landed.distinct_offsets != source.records:
        found.append(f"the lake: {result.landed.distinct_offsets:,} different offsets for {source.records:,} lines")
    return found + result.audited.wrong


def answer(result: "SparkResult", console: Console) -> None:
    """Show Spark's findings about the code."""
    modules = Table(title="What this Python imports most (Spark, over every line)")
    modules.add_column("module")
    modules.add_column("import lines", justify="right")
    modules.add_column("files", justify="right")
    for name, lines, files in result.imports:
        modules.add_row(name, f"{lines:,}", f"{files:,}")
    packages = Table(title="Largest packages, and what their lines are")
    for heading in ("package", "lines", "comment", "blank", "longest line"):
        packages.add_column(heading, justify="left" if heading == "package" else "right")
    for name, lines, comments, blanks, longest in result.packages:
        packages.add_row(name, f"{lines:,}", f"{comments / lines:.0%}", f"{blanks / lines:.0%}", f"{longest:,}")
    console.print(modules, packages)


def closing(source: Source, figures: Figures, result: "SparkResult | None", started_s: float) -> Table:
    """Return the closing table."""
    took_s = figures.produce_s
    table = Table(title="Barnabas: what happened", show_header=False)
    rows = {
        "cluster of three ready after": f"{started_s:.2f} s",
        "records": f"{source.records:,} lines of {len(source.expected):,} files, {source.size_bytes / 1e6:.1f} MB",
        "produced with": "barnabas_clients.Producer, acks=all, idempotent, RF 3",
        "throughput": f"{source.size_bytes / 1e6 / took_s:.1f} MB/s, {source.records / took_s:,.0f} records/s",
        "killed with SIGKILL": f"broker {figures.killed_broker}, restarted under load; one reader of two",
        "failover pause": f"{figures.pause_s:.2f} s, the longest wait of any partition",
        "read by the group": f"each line once, in {figures.read_s:.1f} s; "
        f"one reader went on alone after {figures.reader_killed_after:,} lines",
    }
    if result is not None:
        streamed, landed, audited = result.streamed, result.landed, result.audited
        rows["read back by Spark"] = f"{result.rows:,} rows in {result.took_s:.1f} s"
        rows["streamed by Spark"] = (
            f"{streamed.counts.lines:,} rows, {streamed.batches} batches, {streamed.took_s:.1f} s"
        )
        rows["landed in a lake"] = f"{landed.counts.lines:,} rows in {landed.took_s:.1f} s; a second run landed none"
        rows["audited"] = f"topic and lake, by {audited.by}, in {audited.took_s:.1f} s"
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def proved(source: Source, result: "SparkResult | None") -> list[str]:
    """Return what is proved if nothing is wrong, with its numbers."""
    files = f"{len(source.expected):,} files"
    readers = "by the group" if result is None else "by the group, by Spark and in the lake"
    found = [f"each line of {files} once, in its order and unchanged (count and SHA-256 of each file), {readers}"]
    if result is not None:
        counts = f"{source.records:,} lines, {source.words:,} words, {source.size_bytes:,} bytes"
        found += [
            f"{counts}: in the files, in the stream and in the lake",
            f"{result.landed.distinct_offsets:,} offsets in the lake, none of them twice",
            f"topic and lake have the same rows, by {result.audited.by}",
        ]
    return found


def _read_by_spark(bootstrap: str, source: Source, directory: Path, console: Console) -> "SparkResult":
    from .spark import read_back  # noqa: PLC0415 - PySpark, which needs Java, only where it is wanted

    with console.status("Spark reads everything back, as a batch and as a stream, and lands it in a lake"):
        result = read_back(bootstrap, TOPIC, source.records, directory)
    answer(result, console)
    for command, printed in (("archive", result.landed.report), ("audit", result.audited.report)):
        if printed:
            console.print(f"$ barnabas-spark {command} {TOPIC} ...", style="bold")
            console.print(printed, end="", markup=False, highlight=False)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--records", type=int, default=RECORDS_DEFAULT, metavar="N", help="stop after the file that reaches N lines"
    )
    parser.add_argument("--no-spark", action="store_true", help="let the group alone verify; needs no Java")
    options = parser.parse_args()
    if options.records < 1:
        parser.error("--records must be at least 1")
    console = Console()
    source = Source(options.records)
    if source.records < min(options.records, RECORDS_MIN):
        console.print(f"only {source.records:,} lines of Python found; {options.records:,} were asked for", style="red")
        return 1
    with cluster() as brokers, tempfile.TemporaryDirectory(prefix="barnabas-demo-") as directory:
        words = ("--partitions", PARTITIONS, "--replication-factor", 3, "--bootstrap-server", brokers.bootstrap)
        run("topic", "create", TOPIC, *words)
        figures = asyncio.run(stream(brokers, source, Path(directory) / "results.db", console))
        result = None if options.no_spark else _read_by_spark(brokers.bootstrap, source, Path(directory), console)
        console.print(closing(source, figures, result, brokers.ready_s))
    by_reader = {GROUP: figures.files}
    if result is not None:
        by_reader |= {"Spark": result.files, "the lake": result.lake_files}
    wrong = differences(source, by_reader)
    if result is not None:
        wrong += pipeline_differences(source, result)
    for line in wrong[:20]:
        console.print(line, style="red")
    for line in () if wrong else proved(source, result):
        console.print(f"proved: {line}", highlight=False, soft_wrap=True)
    console.print("everything adds up" if not wrong else f"{len(wrong)} things do not add up", style="bold")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CommandFailedError as failure:
        sys.exit(f"scripts/demo: {failure}")
