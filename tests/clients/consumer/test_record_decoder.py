"""The consumer's decoder returns the same records as the plain reader, from any bytes."""

import tracemalloc
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from raftlog.records.bombs import BOMBS, MANY_HEADERS
from raftlog.records.strategies import batch_of_deltas

from barnabas_clients.consumer import decoder
from barnabas_clients.consumer.decoder import CorruptRecordsError, FetchedRecords
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import CRC_POSITION, CRC_START, ControlKind, control_frame
from barnabas_raftlog.records.reader import read_records
from barnabas_raftlog.records.walker.twins import IS_COMPILED
from barnabas_raftlog.wire.crc32c import crc32c

PARTITION = TopicPartition("t", 3)
Row = tuple[object, ...]
"""Offset, timestamp, key, value and headers."""

contents = st.one_of(st.none(), st.binary(max_size=3), st.sampled_from([b"x" * 63, b"y" * 64, b"z" * 200, b"w" * 9000]))
headers = st.lists(st.tuples(st.text(max_size=3), contents), max_size=2)
times = st.one_of(st.integers(0, 200), st.integers(-(2**40), 2**40))
unlike = st.lists(st.builds(NewRecord, contents, contents, times, headers), min_size=1, max_size=12)
"""Records that differ in everything."""


@st.composite
def alike(draw: st.DrawFn) -> list[NewRecord]:
    """Draw records that are alike for long stretches, so that runs begin, end, and are interrupted."""
    found: list[NewRecord] = []
    for _ in range(draw(st.integers(1, 3))):
        key, value = draw(contents), draw(contents)
        step, start = draw(st.sampled_from([0, 1, 3, 70])), draw(st.sampled_from([0, 5, 100, 9000]))
        count = draw(st.integers(1, 150))
        found += [NewRecord(key, value, start + number * step) for number in range(count)]
        found += draw(st.one_of(st.just([]), unlike))
    return found


batches_of = st.lists(st.tuples(st.one_of(unlike, alike()), st.sampled_from(Compression)), min_size=1, max_size=3)


def frames(batches: list[tuple[list[NewRecord], Compression]]) -> bytes:
    data = b""
    offset = 100
    for records, compression in batches:
        data += build_batch(records, compression=compression, base_offset=offset, leader_epoch=7)
        offset += len(records)
    return data


def taken(data: bytes, start_offset: int, size: int) -> tuple[list[Row], bool]:
    """Return what the decoder gives in slices of `size`, and whether it ended in damage."""
    chunk = FetchedRecords(PARTITION, memoryview(data), start_offset)
    found: list[Row] = []
    while True:
        try:
            records = chunk.take(size)
        except CorruptRecordsError:
            return found, not chunk.is_exhausted
        assert len(records) <= size
        if not records:
            assert chunk.is_exhausted
            return found, False
        assert records[-1].offset < chunk.next_offset
        assert {(record.topic, record.partition) for record in records} == {PARTITION}
        found += [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in records]


def model(data: bytes, start_offset: int) -> tuple[list[Row], bool]:
    found: list[Row] = []
    try:
        found.extend(tuple(record) for record in read_records(data, start_offset))
    except CorruptBatchError:
        return found, True
    return found, False


@settings(max_examples=60)
@given(batches_of, st.integers(90, 400), st.sampled_from([1, 7, 100, 10_000]), st.integers(0, 200))
def test_it_reads_what_the_plain_reader_reads(
    batches: list[tuple[list[NewRecord], Compression]], start_offset: int, size: int, cut: int
) -> None:
    data = frames(batches)
    data = data[: len(data) - cut] if cut < len(data) else data
    assert taken(data, start_offset, size) == model(data, start_offset)


@pytest.mark.parametrize("is_compiled", sorted({IS_COMPILED, False}))
@settings(max_examples=40)
@given(batches_of, st.sampled_from([1, 7, 10_000]), st.integers(1, 6))
def test_a_slice_ends_where_its_records_have_many_headers(
    is_compiled: bool, batches: list[tuple[list[NewRecord], Compression]], size: int, headers_at_once: int
) -> None:
    data = frames(batches)
    with (
        patch.object(decoder, "IS_COMPILED", is_compiled),
        patch.object(decoder, "HEADERS_AT_ONCE", headers_at_once),
    ):
        assert taken(data, 100, size) == model(data, 100)
        chunk = FetchedRecords(PARTITION, memoryview(data), 100)
        while records := chunk.take(size):
            counts = [len(record.headers) for record in records]
            assert chunk.headers_taken == sum(counts)
            assert sum(counts[:-1]) < headers_at_once
            assert len(records) == size or sum(counts) >= headers_at_once or chunk.is_exhausted


@pytest.mark.slow
def test_records_with_many_headers_take_bounded_memory() -> None:
    """All of them at once would be 110 MiB; those of the batch that is small as sent, 4 GiB."""
    records = [NewRecord(None, None, 1, [("ab", b"cd")] * 65_536)] * 10
    for data in (build_batch(records), BOMBS[MANY_HEADERS].batch()):
        chunk = FetchedRecords(PARTITION, memoryview(data), 0)
        assert len(chunk.take(1)) == 1  # the body is there from now on
        tracemalloc.start()
        try:
            assert len(chunk.take(500)) == 2
            assert tracemalloc.get_traced_memory()[1] < 64 << 20
        finally:
            tracemalloc.stop()


@settings(max_examples=100)
@given(st.one_of(unlike, alike()), st.data(), st.sampled_from([3, 10_000]))
def test_damage_inside_a_batch_is_found_where_the_plain_reader_finds_it(
    records: list[NewRecord], data: st.DataObject, size: int
) -> None:
    frame = bytearray(build_batch(records, base_offset=100))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(CRC_START + 2, len(frame) - 1))
        frame[at] = data.draw(st.integers(0, 255))
    # A producer may put a valid checksum over anything.
    frame[CRC_POSITION:CRC_START] = crc32c(memoryview(frame)[CRC_START:]).to_bytes(4, "big")
    assert taken(bytes(frame), 100, size) == model(bytes(frame), 100)


@st.composite
def deltas_of(draw: st.DrawFn) -> list[int]:
    """Draw stretches that count up, which are read as runs, and others between them."""
    found: list[int] = []
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.one_of(st.just(len(found)), st.integers(0, 60)))
        found += range(start, start + draw(st.integers(1, 40)))
    return found


@settings(max_examples=200)
@given(deltas_of(), st.integers(0, 120), st.sampled_from([1, 7, 10_000]))
@example([0, 1, 2, *range(40, 53), *range(16, 40)], 0, 10_000)
@example([90, *range(1, 40)], 95, 7)
def test_offsets_that_do_not_rise_are_damage_in_runs_too(deltas: list[int], start_offset: int, size: int) -> None:
    data = batch_of_deltas(deltas, last_delta=120)
    assert taken(data, start_offset, size) == model(data, start_offset)


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes_at_all_give_records_or_damage(data: bytes) -> None:
    taken(data, 0, 10)


def test_a_wrong_checksum_names_the_place_and_the_way_past_it() -> None:
    good = build_batch([NewRecord(None, b"a", 1)] * 3, base_offset=10)
    bad = build_batch([NewRecord(None, b"b", 1)] * 5, base_offset=13)
    bad[-1] ^= 1
    chunk = FetchedRecords(PARTITION, memoryview(bytes(good + bad)), 10)
    assert [record.offset for record in chunk.take(100)] == [10, 11, 12]
    for _ in range(2):
        with pytest.raises(CorruptRecordsError, match="t-3 at offset 13: checksum") as raised:
            chunk.take(100)
        assert (raised.value.offset, raised.value.next_offset) == (13, 18)


def test_offsets_without_records_are_passed_over() -> None:
    data = (
        build_batch([NewRecord(None, b"a", 1)], base_offset=0)
        + control_frame(1, 2, ControlKind.NO_OP)
        + transactional(5, 1, b"\x00\x00\x00\x01", is_control=True)
    )
    chunk = FetchedRecords(PARTITION, memoryview(data), 0)
    assert len(chunk.take(10)) == 1
    assert chunk.take(10) == []
    assert chunk.next_offset == chunk.end_offset == 2


def transactional(producer_id: int, offset: int, text: bytes, *, is_control: bool = False) -> bytes:
    frame = build_batch(
        [NewRecord(text if is_control else None, text, 1)],
        producer_id=producer_id,
        base_offset=offset,
        is_transactional=True,
    )
    if is_control:
        frame[CRC_START + 1] |= 0x20
        frame[CRC_POSITION:CRC_START] = crc32c(memoryview(frame)[CRC_START:]).to_bytes(4, "big")
    return bytes(frame)


def test_records_of_aborted_transactions_are_left_out() -> None:
    abort, commit = b"\x00\x00\x00\x00", b"\x00\x00\x00\x01"
    data = (
        transactional(1, 0, b"one kept")
        + transactional(2, 1, b"two aborted")
        + transactional(1, 2, commit, is_control=True)
        + transactional(2, 3, b"two aborted")
        + transactional(2, 4, abort, is_control=True)
        + transactional(2, 5, b"two again, kept")
        + transactional(1, 6, b"one aborted")
        + transactional(1, 7, abort, is_control=True)
        + build_batch([NewRecord(None, b"plain", 1)], base_offset=8)
    )
    chunk = FetchedRecords(PARTITION, memoryview(data), 0, [(1, 6), (2, 1)])
    assert [(r.offset, r.value) for r in chunk.take(100)] == [(0, b"one kept"), (5, b"two again, kept"), (8, b"plain")]
    everything = FetchedRecords(PARTITION, memoryview(data), 0)
    assert [record.offset for record in everything.take(100)] == [0, 1, 3, 5, 6, 8]
