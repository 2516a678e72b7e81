"""Writes: our sink beside Spark's own, with the defaults of each, and both with large batches."""

from collections.abc import Callable, Iterator
from typing import Any

from bench.pipeline.lines import Line, at_least
from bench.pipeline.stage import OURS, PARTITIONS, THEIRS, Stage

__all__ = ["measure"]

LIMIT = at_least(2.0)
DEFAULTS = "defaults"
LARGE_BATCHES = {"kafka.batch.size": "786432", "kafka.linger.ms": "20", "kafka.buffer.memory": "67108864"}


def measure(stage: Stage) -> Iterator[Line]:
    """Write keyed rows that Spark has in memory, each time into a new topic."""
    for value_bytes, rows in ((1024, stage.sizes.wide_rows), (100, stage.sizes.rows)):
        for name, options in ((DEFAULTS, {}), ("large batches", LARGE_BATCHES)):
            what = f"{value_bytes} B, {name}"
            found = stage.timed(
                f"write, {what}", {sink: _into(stage, sink, rows, value_bytes, options) for sink in (OURS, THEIRS)}
            )
            ours, theirs = (found[sink].rates(rows) for sink in (OURS, THEIRS))
            remark = found[OURS].cost_beside(found[THEIRS])
            limit = LIMIT if name == DEFAULTS else None
            yield Line("write", what, stage.mode, "rows/s", ours, theirs, "Spark's sink", limit, remark)


def _into(
    stage: Stage, sink: str, rows: int, value_bytes: int, options: dict[str, str]
) -> Callable[[], dict[str, Any]]:
    def once() -> dict[str, Any]:
        with stage.topics.new(PARTITIONS) as topic:
            given = {"kafka.bootstrap.servers": stage.topics.bootstrap, "topic": topic, **options}
            answer = stage.spark.ask("write", sink=sink, options=given, rows=rows, value_bytes=value_bytes)
            if (found := stage.topics.records(topic, PARTITIONS)) != rows:
                raise RuntimeError(f"{sink} wrote {found} records, not {rows}")
            return answer

    return once
