"""Batch reads: our source beside Spark's own, beside the ceiling, and beside that of another commit.

The ceiling is what a source in Python could reach: it has the same rows in memory, in the same Arrow batches, while the
brokers serve the same bytes to a process that throws them away.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from bench.pipeline.discarder import Discarder, discarder
from bench.pipeline.lines import Line, at_least
from bench.pipeline.stage import IMPATIENT, OURS, PARTITIONS, THEIRS, THEIRS_IMPATIENT, Stage, Timed

__all__ = ["measure"]

# Two runs of one commit differ by so much.
NO_SLOWER = 0.95
BEFORE = "the other commit"
CEILING = "the ceiling"
READ_LIMIT = at_least(4.0)
CEILING_LIMIT = at_least(0.8)
COUNT_LIMIT = at_least(6.0)
SMALL_FACTOR = 3  # so many records of 100 bytes for each of 1 KiB
# The narrowest column; Spark tells a source in Python nothing of what a query needs.
COUNTED = "partition"

Sides = dict[str, Callable[[], dict[str, Any]]]


def measure(stage: Stage) -> Iterator[Line]:
    """Read from 12 even partitions with all seven columns: alike values, varied ones and small ones; and count."""
    rows = stage.sizes.read_rows
    shapes = (
        ("1 KiB", rows, "bytes", 1024),
        ("varied", rows, "varied", 1024),
        ("100 B", SMALL_FACTOR * rows, "bytes", 100),
    )
    for what, count, kind, record_bytes in shapes:
        with ExitStack() as stack:
            topic = stack.enter_context(stage.topics.filled([1] * PARTITIONS, count, kind, record_bytes))
            _check_sources(stage, topic, count)
            discarding = stack.enter_context(
                discarder(stage.topics.bootstrap, topic, stage.topics.end_offsets(topic, PARTITIONS))
            )
            yield from _reads(stage, what, count, topic, discarding)
            if what == "1 KiB":
                yield from _values(stage, count, topic)
            if what != "varied":
                yield from _counts(stage, what, count, topic)


def _check_sources(stage: Stage, topic: str, rows: int) -> None:
    found = {source: stage.spark.ask("count", source=source, options=stage.options(topic)) for source in (OURS, THEIRS)}
    found[CEILING] = stage.spark.ask("keep", options=stage.options(topic))
    for source, answer in found.items():
        if answer["rows"] != rows:
            raise RuntimeError(f"{source} read {answer['rows']} rows, not {rows}")


def _reads(stage: Stage, what: str, rows: int, topic: str, discarding: Discarder) -> Iterator[Line]:
    options = stage.options(topic)

    def ceiling() -> dict[str, Any]:
        began = time.perf_counter()
        discarding.begin()
        answer = stage.spark.ask("read_kept")
        discarded = discarding.end()
        return answer | {"seconds": time.perf_counter() - began, "discarding": discarded["seconds"]}

    sides = _sources("read", stage, options, options) | {CEILING: ceiling}
    before = stage.before
    if before is not None and what == "1 KiB":
        sides[BEFORE] = lambda: before.ask("read", source=OURS, options=options)
    found = stage.timed(f"batch, {what}", sides)
    lines = {side: _line(stage, what, rows, found, side) for side in found if side != OURS}
    beside_theirs = lines[THEIRS]._replace(limit=READ_LIMIT)
    beside_ceiling = lines[CEILING]._replace(limit=CEILING_LIMIT)
    yield beside_theirs._replace(instead=beside_ceiling)
    yield beside_ceiling._replace(instead=beside_theirs)
    yield lines[THEIRS_IMPATIENT]
    if BEFORE in lines:
        yield lines[BEFORE]._replace(limit=at_least(NO_SLOWER))


def _values(stage: Stage, rows: int, topic: str) -> Iterator[Line]:
    ours, theirs = stage.options(topic, columns="value"), stage.options(topic)
    found = stage.timed("batch, the value", _sources("read", stage, ours, theirs))
    for side in (THEIRS, THEIRS_IMPATIENT):
        yield _line(stage, "1 KiB, the value", rows, found, side)


def _counts(stage: Stage, what: str, rows: int, topic: str) -> Iterator[Line]:
    ours, theirs = stage.options(topic, columns=COUNTED), stage.options(topic)
    found = stage.timed(f"batch, count of {what}", _sources("count", stage, ours, theirs))
    yield _line(stage, f"{what}, count()", rows, found, THEIRS)._replace(limit=COUNT_LIMIT)
    yield _line(stage, f"{what}, count()", rows, found, THEIRS_IMPATIENT)


def _sources(call: str, stage: Stage, ours: dict[str, str], theirs: dict[str, str]) -> Sides:
    return {
        OURS: lambda: stage.spark.ask(call, source=OURS, options=ours),
        THEIRS: lambda: stage.spark.ask(call, source=THEIRS, options=theirs),
        THEIRS_IMPATIENT: lambda: stage.spark.ask(call, source=THEIRS, options=theirs | IMPATIENT),
    }


def _line(stage: Stage, what: str, rows: int, found: Mapping[str, Timed], side: str) -> Line:
    name = "Spark's source" if side == THEIRS else side
    remark = found[OURS].cost_beside(found[side])
    return Line(
        "batch", what, stage.mode, "rows/s", found[OURS].rates(rows), found[side].rates(rows), name, remark=remark
    )
