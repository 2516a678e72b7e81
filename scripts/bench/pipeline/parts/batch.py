"""Batch reads: our source beside Spark's own, and beside that of another commit."""

from collections.abc import Callable, Iterator
from typing import Any

from bench.pipeline.lines import Line, at_least
from bench.pipeline.spark_process import SparkProcess
from bench.pipeline.stage import IMPATIENT, OURS, PARTITIONS, THEIRS, THEIRS_IMPATIENT, Stage

__all__ = ["measure"]

# Two runs of one commit differ by so much.
NO_SLOWER = 0.95
BEFORE = "the other commit"


def measure(stage: Stage) -> Iterator[Line]:
    """Read 1 KiB values from 12 even partitions with all seven columns, and the value alone."""
    rows = stage.sizes.wide_rows
    with stage.topics.filled([1] * PARTITIONS, rows) as topic:
        for source in (OURS, THEIRS):
            if (found := stage.spark.ask("count", source=source, options=stage.options(topic))["rows"]) != rows:
                raise RuntimeError(f"{source} read {found} rows, not {rows}")
        yield from _lines(stage, "all columns", stage.options(topic), stage.options(topic), stage.before)
        # An older commit may not know the option.
        yield from _lines(stage, "the value", stage.options(topic, columns="value"), stage.options(topic), None)


def _lines(
    stage: Stage, what: str, ours: dict[str, str], theirs: dict[str, str], before: SparkProcess | None
) -> Iterator[Line]:
    sides: dict[str, Callable[[], dict[str, Any]]] = {
        OURS: lambda: stage.spark.ask("read", source=OURS, options=ours),
        THEIRS: lambda: stage.spark.ask("read", source=THEIRS, options=theirs),
        THEIRS_IMPATIENT: lambda: stage.spark.ask("read", source=THEIRS, options=theirs | IMPATIENT),
    }
    if before is not None:
        sides[BEFORE] = lambda: before.ask("read", source=OURS, options=ours)
    found = stage.timed(f"batch, {what}", sides)
    rates = {side: times.rates(stage.sizes.wide_rows) for side, times in found.items()}
    for side, name in ((THEIRS, "Spark's source"), (THEIRS_IMPATIENT, THEIRS_IMPATIENT)):
        remark = found[OURS].cost_beside(found[side])
        yield Line("batch", what, stage.mode, "rows/s", rates[OURS], rates[side], name, remark=remark)
    if before is not None:
        remark = found[OURS].cost_beside(found[BEFORE])
        limit = at_least(NO_SLOWER)
        yield Line("batch", what, stage.mode, "rows/s", rates[OURS], rates[BEFORE], BEFORE, limit, remark)
