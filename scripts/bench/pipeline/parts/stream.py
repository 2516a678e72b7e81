"""Streams of micro-batches: latency at a fixed rate, and a backlog; 12 partitions, our source beside Spark's own.

Both queries have the trigger `processingTime="0 seconds"`. The latencies are those into the sink `memory`, with
the clock that its tasks read for each row. The backlog goes into `noop`.
"""

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench.pipeline.flow import flow
from bench.pipeline.lines import Line, at_least, at_most
from bench.pipeline.stage import IMPATIENT, OURS, PARTITIONS, THEIRS, THEIRS_IMPATIENT, Stage, timed
from bench.pipeline.streams import EVERY_MICRO_BATCH

__all__ = ["measure"]

SIDES = (OURS, THEIRS)
BESIDE = "Spark's source"
BACKLOG_BYTES = 100
TOLD = ("batch_ms", "cpu_s")


def measure(stage: Stage) -> Iterator[Line]:
    found = stage.turns("stream", {source: _latencies_of(stage, source) for source in SIDES})
    for metric in ("p50_ms", "p99_ms"):
        ours, theirs = ([one[metric] for one in found[source]] for source in SIDES)
        what = f"{stage.sizes.rate:,} records/s into memory, {metric[:3]}"
        middle_ms, cpu_s = ([statistics.median(one[key] for one in found[side]) for side in SIDES] for key in TOLD)
        remark = f"micro-batches of {middle_ms[0]:.0f} and {middle_ms[1]:.0f} ms; "
        remark += f"Spark's processor time: {cpu_s[0]:.1f} s, and {cpu_s[1]:.1f}"
        yield Line("stream", what, stage.mode, "ms", ours, theirs, BESIDE, at_most(1.2), remark)
    if stage.mode == "page-cache":
        yield from _backlog(stage)


def _latencies_of(stage: Stage, source: str) -> Callable[[], dict[str, Any]]:
    def once() -> dict[str, Any]:
        found, told = flow(stage.spark, stage.topics, stage.sizes, source, PARTITIONS, EVERY_MICRO_BATCH)
        return found._asdict() | told

    return once


def _backlog(stage: Stage) -> Iterator[Line]:
    rows = stage.sizes.rows
    with stage.topics.filled([1] * PARTITIONS, rows, record_bytes=BACKLOG_BYTES) as topic:
        options = stage.options(topic)
        sides = {OURS: (OURS, options), THEIRS: (THEIRS, options), THEIRS_IMPATIENT: (THEIRS, options | IMPATIENT)}
        found = stage.turns(
            "backlog",
            {
                side: partial(stage.spark.ask, "backlog", source=source, options=given, rows=rows)
                for side, (source, given) in sides.items()
            },
        )
    for side, beside, limit in ((THEIRS, BESIDE, at_least(2.0)), (THEIRS_IMPATIENT, THEIRS_IMPATIENT, None)):
        remark = timed(found[OURS]).cost_beside(timed(found[side]))
        for what, metric in (("its micro-batches", "batch_seconds"), ("from start()", "seconds")):
            ours, theirs = ([rows / one[metric] for one in found[each]] for each in (OURS, side))
            name = f"backlog of {rows:,} into noop, {what}"
            judged = limit if metric == "batch_seconds" else None
            yield Line("stream", name, stage.mode, "rows/s", ours, theirs, beside, judged, remark)
