"""Batches that are built from columns decode to the rows, as those of the builder for single records do."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_raftlog.records.builder import NewRecord, build_batch, write_header
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import HEADER_BYTES, verify
from barnabas_raftlog.records.reader import read_records
from barnabas_raftlog.records.walker.twins import IS_COMPILED
from barnabas_spark.writing.batches import Built, build_batches, compiled_records
from barnabas_spark.writing.joining import joined_records
from barnabas_spark.writing.rows import RecordColumns, row_sizes

HEADER_TYPE = pa.struct([("key", pa.binary()), ("value", pa.binary())])
CONTENTS = st.none() | st.binary(max_size=6) | st.sampled_from([63, 64, 65, 8_191, 8_192]).map(bytes)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70)), max_size=3)
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]
ROWS: st.SearchStrategy[list[Row]] = st.lists(st.tuples(CONTENTS, CONTENTS, HEADERS), max_size=30)


def columns_of(rows: list[Row], *, cut: int = 0) -> RecordColumns:
    """Return rows as Arrow columns that begin `cut` rows after their buffers do."""
    padding: list[Row] = [(b"before", b"before", [("before", b"before")])] * cut
    keys, values, headers = zip(*padding, *rows, strict=True) if padding or rows else ((), (), ())
    pairs = [None if one is None else [{"key": k.encode(), "value": v} for k, v in one] for one in headers]

    def column(content: Any, kind: Any) -> Any:
        made = pa.array(content, kind)[cut:]
        return None if made.null_count == len(made) else made

    return RecordColumns(
        len(rows), column(keys, pa.binary()), column(values, pa.binary()), column(pairs, pa.list_(HEADER_TYPE))
    )


def decoded(built: Built, compression: Compression = Compression.NONE) -> list[Row]:
    frame = built.frame
    write_header(
        frame,
        attributes=compression,
        record_count=built.end - built.start,
        base_timestamp=1_000,
        max_timestamp=1_000,
    )
    verify(memoryview(frame))
    records = list(read_records(bytes(frame)))
    assert [record.offset for record in records] == list(range(built.end - built.start))
    assert {record.timestamp for record in records} == {1_000}
    return [(record.key, record.value, [(name, content) for name, content in record.headers]) for record in records]


def plain(rows: list[Row]) -> list[Row]:
    """Return rows as records have them: without headers and with none are the same there."""
    return [(key, value, headers or []) for key, value, headers in rows]


@pytest.mark.slow
@settings(max_examples=100)
@given(ROWS, st.integers(0, 2), st.integers(1, 20_000), st.data())
@example([(b"k", None, None)] * 70, 0, 100_000, None)
def test_batches_hold_the_rows_in_order_within_runs_and_sizes(
    rows: list[Row], cut: int, batch_bytes: int, data: Any
) -> None:
    inner = data.draw(st.lists(st.integers(0, len(rows)), max_size=3)) if data is not None else []
    run_ends = [*sorted(inner), len(rows)]
    columns = columns_of(rows, cut=cut)
    found = build_batches(columns, run_ends, Compression.NONE, batch_bytes)
    assert [row for built in found for row in decoded(built)] == plain(rows)
    assert [built.start for built in found] == [0, *(built.end for built in found)][: len(found)]
    for built in found:
        assert built.end <= run_ends[built.run]
        assert built.start >= (run_ends[built.run - 1] if built.run else 0)
        assert len(built.frame) <= batch_bytes or built.end - built.start == 1
        assert built.plain_bytes == len(built.frame) - HEADER_BYTES


@pytest.mark.slow
@given(ROWS.filter(bool))
def test_a_batch_is_byte_by_byte_that_of_the_builder_for_single_records(rows: list[Row]) -> None:
    (built,) = build_batches(columns_of(rows), [len(rows)], Compression.NONE, 1 << 30)
    decoded(built)
    expected = build_batch([NewRecord(key, value, 1_000, headers or []) for key, value, headers in rows])
    assert bytes(built.frame) == bytes(expected)


@pytest.mark.slow
@settings(max_examples=150)
@given(ROWS.filter(bool), st.integers(0, 9), st.integers(1, 20_000), st.data())
def test_both_builders_make_the_same_bytes_and_cuts(rows: list[Row], cut: int, room_bytes: int, data: Any) -> None:
    columns = columns_of(rows, cut=cut)
    count = len(rows)
    if data.draw(st.booleans()):
        times = data.draw(st.lists(st.integers(-(2**52), 2**52), min_size=count, max_size=count))
        columns = columns._replace(timestamps=np.array(times, np.int64))
    if data.draw(st.booleans()):
        columns = columns._replace(order=np.array(data.draw(st.permutations(range(count))), np.int64))
    run_ends = [*sorted(data.draw(st.lists(st.integers(0, count), max_size=3))), count]
    joined, expected = joined_records(columns, run_ends, room_bytes)
    if not IS_COMPILED:
        return  # There is one builder only.
    compiled, found = compiled_records(columns, run_ends, room_bytes)
    assert found == expected
    assert bytes(compiled) == bytes(joined)


def test_the_compiled_builder_refuses_an_order_of_other_rows() -> None:
    if not IS_COMPILED:
        return  # The other builder leaves that to Arrow and numpy.
    columns = columns_of([(b"k", b"v", None)] * 3)
    for order in ([0, 1, 3], [-1, 0, 1]):
        with pytest.raises(IndexError, match="an order of other rows"):
            compiled_records(columns._replace(order=np.array(order, np.int64)), [3], 100)
    with pytest.raises(ValueError, match="runs that do not end with the last of 3 rows"):
        compiled_records(columns, [2], 100)


@pytest.mark.slow
@given(ROWS)
def test_the_sizes_of_rows_are_never_too_small_and_little_too_large(rows: list[Row]) -> None:
    sizes = row_sizes(columns_of(rows)).tolist()
    for size, (key, value, headers) in zip(sizes, rows, strict=True):
        exact = len(build_batch([NewRecord(key, value, 0, headers or [])])) - HEADER_BYTES
        assert exact <= size <= exact + 24 + 10 * len(headers or [])


@pytest.mark.parametrize("compression", list(Compression))
def test_every_compression_can_be_read(compression: Compression) -> None:
    rows: list[Row] = [(b"key %d" % number, b"value" * 50, None) for number in range(500)]
    found = build_batches(columns_of(rows), [200, 500], compression, 20_000)
    assert [row for built in found for row in decoded(built, compression)] == plain(rows)
    assert max(built.plain_bytes for built in found) <= 20_000


def test_places_of_many_records_take_three_bytes() -> None:
    count = 20_000
    (built,) = build_batches(RecordColumns(count), [count], Compression.NONE, 1 << 20)
    assert decoded(built) == [(None, None, [])] * count
