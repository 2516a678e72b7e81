"""The records that are collected are sent, and memory is charged for all of them."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_clients.producer.accumulator import (
    RECORD_OVERHEAD_BYTES,
    Accumulator,
    Batch,
    PartitionQueue,
    headers_size,
)
from barnabas_clients.producer.sequences import Identity, Sequences
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import verify
from barnabas_raftlog.records.reader import read_records

NAMES = st.text(max_size=5)
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=5)), max_size=3).map(tuple)


class Given(NamedTuple):
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


RECORDS = st.lists(
    st.builds(
        Given,
        st.integers(0, 2**40) | st.integers(1_000_000, 1_000_100),
        st.none() | st.binary(max_size=10),
        st.none() | st.binary(max_size=40) | st.integers(4_000, 9_000).map(bytes),
        HEADERS,
    ),
    min_size=1,
    max_size=20,
)


def queue_of() -> PartitionQueue:
    sequences: Sequences[Batch] = Sequences(Identity(7), 5)
    return PartitionQueue("orders", 0, sequences)


def size_of(record: Given) -> int:
    return RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers_size(record.headers)


def collected(records: list[Given]) -> Batch:
    batch = Batch(queue_of(), 1_000_000, 0.0)
    for index, record in enumerate(records):
        assert batch.add(*record) == index
    return batch


@settings(max_examples=40)
@given(RECORDS, st.sampled_from(Compression))
def test_a_batch_is_byte_for_byte_what_the_plain_builder_makes(records: list[Given], compression: Compression) -> None:
    batch = collected(records)
    batch.encode(compression)
    frame = batch.number(compression, 7, 1, 99)
    plain = [NewRecord(record.key, record.value, record.timestamp_ms, record.headers) for record in records]
    assert frame == build_batch(plain, compression=compression, producer_id=7, producer_epoch=1, base_sequence=99)


@settings(max_examples=25)
@given(RECORDS)
def test_a_batch_can_be_numbered_anew(records: list[Given]) -> None:
    batch = collected(records)
    batch.encode(Compression.NONE)
    batch.number(Compression.NONE, 7, 0, 0)
    header = verify(memoryview(batch.number(Compression.NONE, 7, 3, 12)))
    assert (header.producer_epoch, header.base_sequence, header.record_count) == (3, 12, len(records))


@settings(max_examples=40)
@given(RECORDS)
def test_a_record_takes_no_more_than_was_reckoned(records: list[Given]) -> None:
    for record in records:
        batch = Batch(queue_of(), 1_000_000, 0.0)
        before = batch.size_bytes
        batch.add(*record)
        assert batch.size_bytes - before <= size_of(record)


@settings(max_examples=40)
@given(RECORDS, st.integers(300, 20_000))
def test_memory_is_charged_and_given_back_to_the_byte(records: list[Given], batch_bytes: int) -> None:
    accumulator = Accumulator(2_000_000, batch_bytes)
    queue = queue_of()
    held: list[Batch] = []
    for record in records:
        batch = queue.open
        if batch is None or batch.add(*record) < 0:
            if batch is not None:
                accumulator.complete(queue)
            assert accumulator.open(queue, size_of(record), 0.0).add(*record) == 0
        sizes = [batch.size_bytes for batch in accumulator.incomplete]
        assert accumulator.used_bytes >= sum(sizes)
        assert accumulator.used_bytes <= 2_000_000
    queue.is_due = True
    while (taken := accumulator.take(queue)) is not None:
        held.append(taken)
        queue.is_due = True
    assert sum(batch.count for batch in held) == len(records)
    assert queue.waiting_bytes == 0
    for batch in held:
        accumulator.release(batch)
    assert accumulator.used_bytes == 0


def test_room_ends_where_the_next_batch_would_not_fit() -> None:
    accumulator = Accumulator(9_000, 2_000)
    opened = 0
    while accumulator.has_room(100):
        accumulator.open(queue_of(), 100, 0.0)
        opened += 1
    # Eight ninths of the limit: a bytearray may hold an eighth more than it needs.
    assert opened == 4
    assert not accumulator.has_room(100)


@settings(max_examples=25)
@given(RECORDS.filter(lambda records: len(records) > 1), st.sampled_from(Compression))
def test_halves_hold_the_records_of_the_whole_in_order(records: list[Given], compression: Compression) -> None:
    accumulator = Accumulator(10_000_000, 1_000_000)
    batch = collected(records)
    batch.encode(compression)
    halves = accumulator.split(batch, compression, (7, 0, 5))
    found = [
        record
        for half, first in zip(halves, (5, 5 + halves[0].count), strict=True)
        for record in read_records(bytes(half.number(compression, 7, 0, first)))
    ]
    assert [(r.timestamp, r.key, r.value, r.headers) for r in found] == [tuple(record) for record in records]
    assert [start for start, _ in batch.parts] == [0, halves[0].count]


def test_text_in_place_of_bytes_is_refused_and_leaves_no_trace() -> None:
    batch = Batch(queue_of(), 1_000, 0.0)
    with pytest.raises(TypeError):
        batch.add(0, None, "text", ())  # type: ignore[arg-type]
    assert batch.add(0, None, b"bytes", ()) == 0
    batch.encode(Compression.NONE)
    assert len(list(read_records(bytes(batch.number(Compression.NONE, -1, -1, -1))))) == 1
