"""What a table lacks of an archive, and rows of an archive in the order of offsets whatever its files look like."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_spark.lake.layout import RECORD_SCHEMA
from barnabas_spark.lake.ranges import Span
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.table import TableError
from barnabas_spark.latest.archived import ReadArchive, missing_of, row_groups
from barnabas_spark.latest.writing import SiftedPiece
from barnabas_spark.planning.plan import Split

TOPIC_ID = "5d1f0e1c-9f3a-4c57-8a2f-0d8f1f5f6a10"


def spans_of(offsets: set[int]) -> list[Span]:
    starts = sorted(one for one in offsets if one - 1 not in offsets)
    ends = sorted(one + 1 for one in offsets if one + 1 not in offsets)
    return [Span(start, end) for start, end in zip(starts, ends, strict=True)]


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_what_is_missing_is_the_difference_of_the_offsets(archived: set[int], stored: set[int]) -> None:
    found = missing_of(spans_of(archived), spans_of(stored))
    offsets = [offset for span in found for offset in range(span.start_offset, span.end_offset)]
    assert offsets == sorted(archived - stored)


def rows_of(partition: int, offsets: list[int], topic: str = "t") -> Any:
    row = {"topic": topic, "topicId": TOPIC_ID, "partition": partition, "timestamp": 0, "timestampType": 0}
    rows = [row | {"offset": offset, "key": b"k", "value": b"%d" % offset} for offset in offsets]
    return pa.Table.from_pylist(rows, schema=RECORD_SCHEMA)


def offsets_read(folder: Path, start_offset: int, end_offset: int) -> list[int]:
    location = Location(str(folder))
    paths = sorted(path.name for path in folder.glob("*.parquet"))
    split = Split("t", None, 0, 0, start_offset, end_offset)
    piece = SiftedPiece(split, TOPIC_ID, 1 << 20, tuple(row_groups(location, paths)))
    return [offset for batch in ReadArchive(location)(piece) for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("has_statistics", [True, False])
def test_rows_come_in_the_order_of_offsets_though_files_cross(tmp_path: Path, has_statistics: bool) -> None:
    first = pa.concat_tables([rows_of(0, [30, 31, 1, 5]), rows_of(1, [3, 4])])
    pq.write_table(first, tmp_path / "a.parquet", row_group_size=2, write_statistics=has_statistics)
    pq.write_table(rows_of(0, [2, 3, 4, 8, 9, 40]), tmp_path / "b.parquet", write_statistics=has_statistics)
    assert offsets_read(tmp_path, 0, 100) == [1, 2, 3, 4, 5, 8, 9, 30, 31, 40]
    assert offsets_read(tmp_path, 2, 31) == [2, 3, 4, 5, 8, 9, 30]


def test_rows_of_another_topic_and_files_with_other_columns_are_refused(tmp_path: Path) -> None:
    pq.write_table(rows_of(0, [1], topic="another"), tmp_path / "a.parquet")
    with pytest.raises(TableError, match="the archive has the topic 'another', and not 't'"):
        offsets_read(tmp_path, 0, 10)
    pq.write_table(rows_of(0, [1]).drop_columns(["value"]), tmp_path / "a.parquet")
    with pytest.raises(TableError, match="has no column 'value'"):
        offsets_read(tmp_path, 0, 10)
