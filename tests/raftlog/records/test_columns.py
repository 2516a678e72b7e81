"""The columnar reader against the plain one, which is its model."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.columns import Columns, Slices, read_columns
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import ControlKind, control_frame
from barnabas_raftlog.records.reader import Record, read_records

from .strategies import batch_of_deltas, damaged, new_records


def cut(slices: Slices, data: memoryview) -> list[bytes | None]:
    offsets, joined, valid = slices.packed(data)
    return [
        bytes(joined[start:end]) if present else None
        for start, end, present in zip(offsets[:-1], offsets[1:], valid, strict=True)
    ]


def rows(columns: Columns) -> list[Record]:
    headers: list[tuple[tuple[str, bytes | None], ...]] = [()] * len(columns.offsets)
    if columns.headers is not None:
        names = cut(columns.headers.names, columns.data)
        values = cut(columns.headers.values, columns.data)
        bounds = columns.headers.offsets.tolist()
        headers = [
            tuple(((names[at] or b"").decode(errors="replace"), values[at]) for at in range(start, end))
            for start, end in itertools.pairwise(bounds)
        ]
    return [
        Record(*row)
        for row in zip(
            columns.offsets.tolist(),
            columns.timestamps.tolist(),
            cut(columns.keys, columns.data),
            cut(columns.values, columns.data),
            headers,
            strict=True,
        )
    ]


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, int]:
    """Return concatenated batches with gaps and control frames between, and their end offset."""
    offset = draw(st.integers(0, 2**40))
    data = b""
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            data += control_frame(offset, 1, ControlKind.NO_OP)
        records = draw(st.lists(new_records(), min_size=1, max_size=5))
        data += build_batch(records, compression=draw(st.sampled_from(Compression)), base_offset=offset)
        offset += len(records) + draw(st.integers(0, 2))
    return data, offset


@settings(max_examples=80, deadline=None)
@given(log=logs(), choice=st.data())
def test_columns_hold_what_the_reader_yields(log: tuple[bytes, int], choice: st.DataObject) -> None:
    data, end = log
    every = list(read_records(data))
    start_offset = choice.draw(st.integers(0, end) | st.sampled_from([one.offset for one in every] or [0]))
    end_offset = choice.draw(st.integers(start_offset, end + 5))
    kept = data[: choice.draw(st.integers(0, len(data)) | st.just(len(data)))]
    columns = read_columns(kept, start_offset, end_offset, with_headers=True)
    expected = [one for one in read_records(kept, start_offset) if one.offset < end_offset]
    assert rows(columns) == expected
    assert start_offset <= columns.next_offset <= end_offset
    assert all(one.offset < columns.next_offset for one in expected)
    without = read_columns(kept, start_offset, end_offset)
    assert without.headers is None
    assert rows(without) == [one._replace(headers=()) for one in expected]


@settings(max_examples=40, deadline=None)
@given(log=logs(), target_bytes=st.integers(0, 300))
def test_steps_of_a_target_size_add_up(log: tuple[bytes, int], target_bytes: int) -> None:
    data, _ = log
    collected: list[Record] = []
    rest = memoryview(data)
    while rest:
        columns = read_columns(rest, with_headers=True, target_bytes=target_bytes)
        assert len(columns.rest) < len(rest)
        collected += rows(columns)
        rest = columns.rest
    assert collected == list(read_records(data))


def outcome(read: Callable[[], list[Record]]) -> list[Record] | type[CorruptBatchError]:
    try:
        return read()
    except CorruptBatchError:
        return CorruptBatchError


@settings(max_examples=150, deadline=None)
@given(data=damaged())
def test_damage_is_seen_by_both_readers_or_by_neither(data: bytes) -> None:
    columns = outcome(lambda: rows(read_columns(data, with_headers=True, check_crc=False, limit_bytes=1 << 20)))
    assert columns == outcome(lambda: list(read_records(data, check_crc=False, limit_bytes=1 << 20)))


@settings(max_examples=150, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 6), max_size=6), min_size=1, max_size=3),
    compression=st.sampled_from([Compression.NONE, Compression.ZSTD]),
)
def test_offsets_that_do_not_rise_are_seen_by_both_readers(batches: list[list[int]], compression: Compression) -> None:
    data = b"".join(batch_of_deltas(deltas, compression=compression, last_delta=6) for deltas in batches)
    read = outcome(lambda: list(read_records(data)))
    assert outcome(lambda: rows(read_columns(data, with_headers=True))) == read
    rises = all(deltas == sorted(set(deltas)) for deltas in batches)
    assert (read is not CorruptBatchError) == rises


def test_a_record_of_very_many_headers_is_read_like_any_other() -> None:
    records = [
        NewRecord(b"a", b"b", 1, [(f"name {number}", None if number % 3 else b"x" * number) for number in range(count)])
        for count in (1, 300, 0, 64, 65)
    ]
    data = build_batch(records)
    assert rows(read_columns(data, with_headers=True)) == list(read_records(data))
    for position in range(200, len(data), 997):
        hurt = bytearray(data)
        hurt[position] ^= 0x41
        columns = outcome(lambda hurt=hurt: rows(read_columns(hurt, with_headers=True, check_crc=False)))  # type: ignore[misc]
        assert columns == outcome(lambda hurt=hurt: list(read_records(hurt, check_crc=False)))  # type: ignore[misc]


def test_records_of_log_append_batches_carry_the_batch_timestamp() -> None:
    batch = build_batch([NewRecord(b"k", b"v", 5), NewRecord(None, b"w", 9)])
    batch[22] |= 0x08
    columns = read_columns(batch, check_crc=False)
    assert columns.timestamps.tolist() == [9, 9]
    assert columns.is_log_append.all()


def test_next_offset_passes_what_holds_no_record() -> None:
    batch = build_batch([NewRecord(b"k", b"v", 5), NewRecord(None, b"w", 9)])
    batch[22] |= 0x20  # transaction markers
    columns = read_columns(batch, check_crc=False)
    assert (columns.offsets.tolist(), columns.next_offset) == ([], 2)


@pytest.mark.parametrize("end_offset", [3, 4])
def test_a_batch_beyond_the_end_ends_the_range(end_offset: int) -> None:
    data = build_batch([NewRecord(None, b"a", 1)], base_offset=1) + build_batch(
        [NewRecord(None, b"b", 1)], base_offset=9
    )
    columns = read_columns(data, 0, end_offset)
    assert (columns.offsets.tolist(), columns.next_offset, bytes(columns.rest)) == ([1], end_offset, b"")
