"""The archive: topic to Parquet files, beside Spark's Kafka source and its Parquet sink.

Both have the same codec and level, and as many rows in a row group: the archive cuts row groups by plain bytes, so it
goes first, and what it made is what the other side is told to make. The archive also has checksums, commits with
offsets, and files that are made durable; Spark's sink has none of these.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from bench.pipeline.lines import Line, at_least
from bench.pipeline.stage import IMPATIENT, OURS, PARTITIONS, THEIRS, THEIRS_IMPATIENT, Stage, timed

__all__ = ["measure"]

CODEC = "zstd"
LEVEL = 3
ROW_GROUP_BYTES = 32 << 20


def measure(stage: Stage) -> Iterator[Line]:
    rows = stage.sizes.rows
    with stage.topics.filled([1] * PARTITIONS, rows, kind="orders") as topic:
        common = {"bootstrap": stage.topics.bootstrap, "topic": topic, "codec": CODEC, "level": LEVEL}
        first: dict[str, Any] = stage.spark.ask("archive_ours", **common, row_group_bytes=ROW_GROUP_BYTES)

        def theirs(options: dict[str, str]) -> Callable[[], dict[str, Any]]:
            group_rows = first["group_rows"]
            return partial(stage.spark.ask, "archive_theirs", **common, row_group_rows=group_rows, options=options)

        found = stage.turns(
            "archive",
            {
                OURS: lambda: stage.spark.ask("archive_ours", **common, row_group_bytes=ROW_GROUP_BYTES),
                THEIRS: theirs({}),
                THEIRS_IMPATIENT: theirs(IMPATIENT),
            },
        )
    for answers in found.values():
        _check(answers[0], rows, first["group_rows"])
    times = {side: timed(answers) for side, answers in found.items()}
    sides = ((THEIRS, "Spark's source and sink", at_least(1.2)), (THEIRS_IMPATIENT, THEIRS_IMPATIENT, None))
    for side, name, limit in sides:
        rates = times[OURS].rates(rows), times[side].rates(rows)
        remark = (
            f"{times[OURS].cost_beside(times[side])}; "
            f"{CODEC} {LEVEL}, row groups of {first['group_rows']:,} rows; "
            f"{found[OURS][0]['stored_bytes'] / 2**20:.0f} and {found[side][0]['stored_bytes'] / 2**20:.0f} MiB"
        )
        yield Line("archive", "to Parquet", stage.mode, "rows/s", *rates, name, limit, remark)


def _check(answer: dict[str, Any], rows: int, group_rows: int) -> None:
    """Raise RuntimeError if the files are not comparable."""
    found = (answer["rows"], answer["codecs"], answer["group_rows"])
    if found != (rows, [CODEC], group_rows):
        raise RuntimeError(f"rows, codecs and rows of a group are {found}, not {(rows, [CODEC], group_rows)}")
