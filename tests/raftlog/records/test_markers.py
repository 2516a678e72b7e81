"""A marker reads back as it was written, as Kafka's own readers read it, and damage in one is told."""

import struct

import pytest
from aiokafka.record import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.builder import NewRecord, build_batch, write_header
from barnabas_raftlog.records.header import CONTROL, TRANSACTIONAL, ControlKind, control_frame, parse_header, verify
from barnabas_raftlog.records.markers import (
    EndMarker,
    is_marker,
    is_spent,
    marker_batch,
    marker_type,
    read_marker,
    spent_header,
)
from barnabas_raftlog.records.reader import read_records

markers = st.builds(
    EndMarker,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    is_commit=st.booleans(),
    coordinator_epoch=st.integers(0, 2**31 - 1),
)


def control_batch(key: bytes | None, value: bytes | None) -> memoryview:
    frame = build_batch([NewRecord(key, value, 5)])
    write_header(
        frame,
        attributes=CONTROL | TRANSACTIONAL,
        record_count=1,
        base_timestamp=5,
        max_timestamp=5,
        producer_id=7,
        producer_epoch=1,
    )
    return memoryview(frame)


@given(markers, st.integers(0, 2**52))
def test_a_marker_reads_back(marker: EndMarker, timestamp_ms: int) -> None:
    frame = memoryview(marker_batch(marker, timestamp_ms))
    header = verify(frame)

    assert is_marker(header)
    assert read_marker(header, frame) == marker
    assert header.max_timestamp == timestamp_ms
    assert header.base_sequence == -1
    assert list(read_records(frame)) == []


@pytest.mark.parametrize("is_commit", [False, True])
def test_other_readers_see_a_control_batch_that_aborts_or_commits(is_commit: bool) -> None:
    batch = MemoryRecords(bytes(marker_batch(EndMarker(7, 1, is_commit, 3), 5))).next_batch()

    assert batch.is_control_batch
    assert batch.is_transactional
    assert batch.producer_id == 7
    (record,) = list(batch)
    assert struct.unpack(">hh", record.key) == (0, int(is_commit))
    assert struct.unpack(">hi", record.value) == (0, 3)


@given(markers, st.integers(0, 2**52))
def test_a_spent_marker_says_what_it_has_said(marker: EndMarker, timestamp_ms: int) -> None:
    marker = marker._replace(is_commit=True)
    frame = memoryview(marker_batch(marker, timestamp_ms))
    header = parse_header(frame)
    spent = spent_header(header, marker)

    assert not is_spent(header)
    assert is_spent(spent)
    assert is_marker(spent)
    assert read_marker(spent, memoryview(b"")) == marker
    assert (spent.end_offset, spent.max_timestamp, spent.is_raft_control) == (header.end_offset, timestamp_ms, False)


def test_a_marker_that_aborts_cannot_be_spent() -> None:
    marker = EndMarker(7, 1, False, 3)
    with pytest.raises(AssertionError):
        spent_header(parse_header(marker_batch(marker, 5)), marker)


def test_frames_of_raft_and_batches_of_records_are_no_markers() -> None:
    assert not is_marker(parse_header(control_frame(0, 1, ControlKind.NO_OP)))
    batch = parse_header(build_batch([NewRecord(b"k", b"v", 5)], producer_id=7, is_transactional=True))
    assert not is_marker(batch)
    assert not is_marker(batch._replace(record_count=0)), "emptied by compaction"
    assert not is_spent(batch._replace(record_count=0))


def test_a_control_record_of_another_type_is_no_end() -> None:
    frame = control_batch(struct.pack(">hh", 0, 9), b"")

    assert read_marker(parse_header(frame), frame) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b""), (b"\0\0\0", b""), (struct.pack(">hh", 0, 1), None), (struct.pack(">hh", 0, 0), b"\0\0\0\0\0")],
    ids=["no key", "a short key", "no value", "a short value"],
)
def test_what_a_marker_lacks_is_told(key: bytes | None, value: bytes | None) -> None:
    frame = control_batch(key, value)

    with pytest.raises(CorruptBatchError):
        read_marker(parse_header(frame), frame)


def test_a_long_control_record_is_not_read() -> None:
    frame = control_batch(struct.pack(">hh", 0, 1), bytes(4096))

    with pytest.raises(CorruptBatchError, match="control record of"):
        read_marker(parse_header(frame), frame)


def test_versions_with_more_fields_are_read() -> None:
    frame = control_batch(struct.pack(">hhi", 1, 1, 9), struct.pack(">hiq", 1, 3, 9))

    assert read_marker(parse_header(frame), frame) == EndMarker(7, 1, True, 3)
    assert marker_type(struct.pack(">hhi", 1, 1, 9)) == 1
