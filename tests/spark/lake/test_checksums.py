"""The checksum of rows depends on the rows and their order, and on nothing else."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.wire.crc32c import crc32c
from barnabas_spark.lake.checksums import CHECKED_COLUMNS, RowsChecksum, combined
from barnabas_spark.lake.layout import RECORD_SCHEMA

HEADER = st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)})
ROW = st.fixed_dictionaries(
    {
        "offset": st.integers(0, 2**62),
        "timestamp": st.integers(-(2**40), 2**40),
        "timestampType": st.integers(0, 1),
        "key": st.none() | st.binary(max_size=5),
        "value": st.none() | st.binary(max_size=5),
        "headers": st.none() | st.lists(HEADER, min_size=1, max_size=3),
    }
)
CONSTANT = {"topic": "t", "topicId": "t", "partition": 0}


def batch_of(rows: Sequence[dict[str, Any]]) -> Any:
    return pa.RecordBatch.from_pylist([CONSTANT | row for row in rows], schema=RECORD_SCHEMA)


def checksum_of(rows: Sequence[dict[str, Any]]) -> RowsChecksum:
    return RowsChecksum().extended(batch_of(rows))


@settings(max_examples=40)
@given(st.lists(ROW, max_size=12), st.integers(0, 12))
def test_batches_do_not_change_it(rows: list[dict[str, Any]], cut: int) -> None:
    whole, batch = checksum_of(rows), batch_of(rows)
    assert RowsChecksum().extended(batch.slice(0, cut)).extended(batch.slice(cut)) == whole
    assert combined([RowsChecksum().extended(batch.slice(0, cut)), RowsChecksum().extended(batch.slice(cut))]) == whole


@settings(max_examples=60)
@given(st.lists(ROW, min_size=1, max_size=6), st.data())
def test_a_changed_row_changes_it(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.sampled_from(CHECKED_COLUMNS))
    other = data.draw(ROW.filter(lambda row: row[column] != rows[at][column]))
    changed = [*rows[:at], rows[at] | {column: other[column]}, *rows[at + 1 :]]
    assert checksum_of(changed).value != checksum_of(rows).value


def test_null_is_not_empty_and_strings_do_not_run_together() -> None:
    row: dict[str, Any] = {"offset": 1, "timestamp": 1, "timestampType": 0, "key": None, "value": None, "headers": None}
    unlike = [
        [row],
        [row | {"key": b""}],
        [row | {"value": b""}],
        [row | {"key": b"ab"}, row],
        [row, row | {"key": b"ab"}],
    ]
    unlike += [[row | {"key": b"a"}, row | {"key": b"b"}], [row | {"key": b"ab", "value": b""}, row]]
    assert len({checksum_of(rows).value for rows in unlike}) == len(unlike)


def test_it_is_fixed_for_all_time() -> None:
    """Tables have it: another number for the same rows would make an audit find damage where there is none."""
    row = {"offset": 7, "timestamp": 1_700_000_000_000_000, "timestampType": 0, "key": None, "value": b"vv"}
    streams = [
        *(struct.pack("<q", 7), struct.pack("<q", 1_700_000_000_000_000), struct.pack("<i", 0)),
        *(struct.pack("<i", -1), b"", struct.pack("<i", 2), b"vv"),
        *(struct.pack("<i", 1), struct.pack("<i", 2), "é".encode(), struct.pack("<i", -1), b""),
    ]
    expected = crc32c(struct.pack("<12I", *map(crc32c, streams)))
    assert checksum_of([row | {"headers": [{"key": "é", "value": None}]}]).value == expected


@pytest.mark.parametrize("large", [False, True])
def test_it_is_computed_again_from_a_file(tmp_path: Path, large: bool) -> None:
    rows = [
        {"offset": n, "timestamp": n * 1000, "timestampType": 0, "key": None if n % 3 else b"k", "value": b"v" * n}
        | {"headers": [{"key": "h", "value": b"1"}] if n % 2 else None}
        for n in range(50)
    ]
    pq.write_table(pa.Table.from_batches([batch_of(rows)]), tmp_path / "f.parquet", row_group_size=7)
    read = pq.read_table(tmp_path / "f.parquet")
    if large:
        read = read.set_column(7, "value", read.column("value").cast(pa.large_binary()))
    again = RowsChecksum()
    for batch in read.to_batches(max_chunksize=9):
        again = again.extended(batch)
    assert again == checksum_of(rows)
