"""Measures the Spark data source beside Spark's own Kafka connector, and that connector on Barnabas beside Kafka.

Parts, each of which can be run alone:

  batch      reads, alike, varied and small: rows a second, also beside the ceiling; counting; with --against also
             beside another commit's source
  stream     12 partitions in micro-batches: p50 and p99 at 1,000 records a second, and a backlog of 1 M rows
  write      the sinks: rows a second, with the defaults of each and with large batches
  archive    topic to Parquet, with the same codec, level, row groups and rows
  shapes     256 small partitions; 90 % of the bytes in one of 12
  json       valueFormat=json beside from_json
  connector  Spark's connector on Barnabas and on Kafka, in real-time mode and in micro-batches: 90 minutes

All but the last run against three brokers on this machine, in one warm session with two task slots. Each side is
measured once to warm it, then in turns whose order alternates; the table has medians, their ratio, and the limit that
the ratio has to keep to. Every single value goes into `spark-samples.json`. The exit status is 1 if a limit is broken,
and 2 if something could not be measured.
"""

import argparse
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import KafkaException
from machines import held_memory
from machines.cache import NotInstalledError
from rich.console import Console
from rich.table import Table

from bench import systems
from bench.pipeline import samples
from bench.pipeline.lines import Line
from bench.pipeline.parts import archive, batch, connector, json_values, shapes, stream, write
from bench.pipeline.spark_process import AskedInVainError, SparkProcess, connector_jars, spark_process
from bench.pipeline.stage import Sizes, Stage
from bench.pipeline.topics import Topics

from .against import tree_of

PARTS: dict[str, Callable[[Stage], Iterator[Line]]] = {
    "batch": batch.measure,
    "stream": stream.measure,
    "write": write.measure,
    "archive": archive.measure,
    "shapes": shapes.measure,
    "json": json_values.measure,
}
CONNECTOR = "connector"
MODES = ("page-cache", "synced")
# Where every record waits for a disk, or every batch. Reads do not.
IN_BOTH_MODES = ("stream", "write")
CONNECTOR_ROUNDS = 7
# Kafka's brokers, which share the processors, hold records up for a second now and then in their first half minute.
CONNECTOR_WARM_S = 45.0
CONNECTOR_SECONDS = 120.0
QUICK = Sizes(rounds=1, rows=60_000, wide_rows=40_000, read_rows=40_000, stream_s=6.0, warm_s=4.0)
TABLE_WIDTH = 170
FAILURES = (AskedInVainError, KafkaException, RuntimeError, OSError, ValueError)


class Run:
    """The lines so far, which are kept after each, and what went wrong."""

    def __init__(self, console: Console, options: argparse.Namespace) -> None:
        self.console = console
        self.options = options
        self.lines: list[Line] = []
        self.failed: list[str] = []

    def take(self, part: str, lines: Iterator[Line]) -> None:
        """Measure one part. If that fails, the others still count, and the exit status tells."""
        try:
            for line in lines:
                self.lines.append(line)
                samples.save(self.options.out, vars(self.options), self.lines)
                self.console.print(f"[bold]{line.part}, {line.what}, {line.mode}: {_ratio(line)} {line.verdict}[/bold]")
        except FAILURES as error:
            self.failed.append(part)
            self.console.print(f"{part} could not be measured: {error}", markup=False)
            if not isinstance(error, AskedInVainError):
                self.console.print(traceback.format_exc(), markup=False)


def measure_parts(run: Run, parts: Sequence[str], sizes: Sizes, options: argparse.Namespace) -> None:
    """Measure the parts that compare sources, mode by mode."""
    jars = connector_jars()
    tree = tree_of(options.against) if options.against else None
    with ExitStack() as stack:
        spark = stack.enter_context(spark_process(jars))
        before: SparkProcess | None = stack.enter_context(spark_process(jars, tree=tree)) if tree else None
        for mode in options.modes.split(","):
            wanted = [part for part in parts if mode == MODES[0] or part in IN_BOTH_MODES]
            if not wanted:
                continue
            with systems.barnabas(synced=mode == "synced") as running:
                stage = Stage(mode, Topics(running.address), spark, before, sizes, run.console)
                for part in wanted:
                    run.take(part, PARTS[part](stage))


def table_of(lines: Sequence[Line]) -> Table:
    """Return the table: medians with their range, the ratio, the limit and the verdict."""
    table = Table(title="three brokers, RF 3, Spark and load on this machine; medians")
    for heading in ("part", "what", "mode", "unit"):
        table.add_column(heading)
    for heading in ("ours", "least to most", "other", "least to most", "ratio", "limit"):
        table.add_column(heading, justify="right")
    for heading in ("beside", "verdict", ""):
        table.add_column(heading)
    for line in lines:
        cells = [line.part, line.what, line.mode, line.unit, *_figures(line.ours), *_figures(line.theirs)]
        limit = line.limit.text if line.limit else ""
        table.add_row(*cells, _ratio(line), limit, line.beside, line.verdict, line.remark)
    return table


def _figures(values: Sequence[float]) -> tuple[str, str]:
    if not values:
        return "", ""
    ranked = sorted(values)
    digits = 0 if ranked[-1] >= 100 else 2
    middle = ranked[len(ranked) // 2] if len(ranked) % 2 else sum(ranked[len(ranked) // 2 - 1 :][:2]) / 2
    return f"{middle:,.{digits}f}", f"{ranked[0]:,.{digits}f} to {ranked[-1]:,.{digits}f}"


def _ratio(line: Line) -> str:
    return "" if line.ratio is None else f"{line.ratio:.2f}"


def sizes_of(options: argparse.Namespace, *, is_connector: bool = False) -> Sizes:
    """Return the sizes of a part: what the command line says, else what is usual."""
    sizes = QUICK if options.quick else Sizes()
    if is_connector and not options.quick:
        sizes = sizes._replace(rounds=CONNECTOR_ROUNDS, stream_s=CONNECTOR_SECONDS, warm_s=CONNECTOR_WARM_S)
    if options.rounds:
        sizes = sizes._replace(rounds=options.rounds)
    if options.seconds:
        sizes = sizes._replace(stream_s=options.seconds)
    if options.rows:
        sizes = sizes._replace(rows=options.rows, wide_rows=max(1, options.rows // 2), read_rows=options.rows)
    return sizes


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [*PARTS, CONNECTOR]
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(names)}; all of them by default")
    parser.add_argument("--rounds", type=int, default=0, help="5 by default, 7 of connector")
    parser.add_argument("--seconds", type=float, default=0.0, help="of a round of latencies: 20, 120 of connector")
    parser.add_argument("--rows", type=int, default=0, help="1,000,000 by default; half as many of 1 KiB")
    parser.add_argument("--modes", default=",".join(MODES), help="how brokers write, for stream and write")
    parser.add_argument(
        "--triggers", default=",".join(connector.TRIGGERS), help="connector: how queries run, separated by commas"
    )
    parser.add_argument("--against", metavar="COMMIT", help="batch: this commit's source as well, in turn")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="where samples go")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: does it run?")
    held_memory.add_option(parser)
    return parser


def main() -> int:
    parser = arguments()
    options = parser.parse_args()
    parts = options.parts or [*PARTS, CONNECTOR]
    triggers = options.triggers.split(",")
    named: tuple[tuple[str, Sequence[str], Collection[str]], ...] = (
        ("part", parts, {*PARTS, CONNECTOR}),
        ("mode", options.modes.split(","), MODES),
        ("trigger", triggers, connector.TRIGGERS),
    )
    for what, given, known in named:
        if unknown := [name for name in given if name not in known]:
            parser.error(f"unknown {what}: {', '.join(unknown)}")
    # Brokers and sessions end with this process, also when it is told to.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    run = Run(Console(width=TABLE_WIDTH), options)
    try:
        with held_memory.holding(options.hold_memory):
            if comparing := [part for part in parts if part != CONNECTOR]:
                measure_parts(run, comparing, sizes_of(options), options)
            if CONNECTOR in parts:
                sizes = sizes_of(options, is_connector=True)
                run.take(CONNECTOR, connector.measure(connector_jars(), sizes, triggers, run.console))
    except (NotInstalledError, AskedInVainError) as error:
        run.failed.append("the rest")
        run.console.print(f"not measured: {error}", markup=False)
    except ValueError as error:
        parser.error(str(error))
    run.console.print(table_of(run.lines))
    if run.failed:
        run.console.print(f"could not be measured: {', '.join(run.failed)}")
        return 2
    return 1 if any(line.verdict == "BROKEN" for line in run.lines) else 0


if __name__ == "__main__":
    sys.exit(main())
