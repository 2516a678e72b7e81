"""The compiled walker, its twin in Python, our plain reader and two readers of others agree on any batch.

Where nothing is compiled, the twin is compared with the readers alone.
"""

import warnings
from collections.abc import Iterable
from typing import Any

from aiokafka.record.default_records import _DefaultRecordBatchPy
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog.records.strategies import damaged, new_records

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import HEADER_BYTES, BatchHeader, parse_header
from barnabas_raftlog.records.reader import batch_body, placed_records
from barnabas_raftlog.records.walker import twins
from barnabas_raftlog.records.walker.faults import Fault, Walked
from barnabas_raftlog.records.walker.pure.check import check as pure

with warnings.catch_warnings():
    # kafka-python reads its schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch

CODECS = st.sampled_from(Compression)
LIMIT_BYTES = 1 << 20


def walked(header: BatchHeader, body: Any, *, is_dense: bool = False) -> Walked:
    """Return what both twins say of a batch; they must say the same."""
    given = (header.record_count, header.base_timestamp, header.last_offset_delta)
    found = twins.check(body, *given, is_dense=is_dense)
    assert found == pure(body, *given, is_dense=is_dense)
    return found


def seen(timestamps: list[int], keys: Iterable[bytes | None]) -> tuple[int, int, int, int]:
    """Return what a walk tells of sound records."""
    return len(timestamps), min(timestamps), max(timestamps), sum(key is None for key in keys)


def told(found: Walked) -> tuple[int, int, int, int]:
    return found.record, found.min_timestamp, found.max_timestamp, found.null_keys


def plain(batch: bytes | bytearray) -> tuple[BatchHeader, bytes]:
    """Return the header of a batch and its body, decompressed.

    Raises:
        CorruptBatchError: there is no such body.
    """
    header = parse_header(batch)
    return header, bytes(batch_body(header, memoryview(batch), LIMIT_BYTES))


@settings(max_examples=100, deadline=None)
@given(records=st.lists(new_records(), min_size=1, max_size=8), codec=CODECS)
def test_any_records_are_sound_when_they_are_built(records: list[NewRecord], codec: Compression) -> None:
    found = walked(*plain(build_batch(records, compression=codec)), is_dense=True)
    assert found.fault is Fault.NONE
    assert told(found) == seen([one.timestamp for one in records], [one.key for one in records])  # type: ignore[misc]


@settings(max_examples=60, deadline=None)
@given(records=st.lists(new_records(), min_size=1, max_size=8), codec=CODECS)
def test_other_readers_see_the_same_records(records: list[NewRecord], codec: Compression) -> None:
    batch = build_batch(records, compression=codec)
    found = told(walked(*plain(batch), is_dense=True))
    theirs = list(_DefaultRecordBatchPy(bytes(batch)))
    assert found == seen([one.timestamp for one in theirs], [one.key for one in theirs])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        others = list(DefaultRecordBatch(bytes(batch)))
    assert found == seen([one.timestamp for one in others], [one.key for one in others])


def agrees_with_the_reader(header: BatchHeader, body: bytes) -> Fault:
    """Compare the walk with the plain reader, which accepts offsets with gaps; return the fault."""
    found = walked(header, body)
    read: list[tuple[int, bytes | None]] = []
    is_sound = True
    try:
        for record, _ in placed_records(header._replace(attributes=0, base_offset=0), body):
            read.append((record.timestamp, record.key))
    except CorruptBatchError:
        is_sound = False
    assert is_sound == (found.fault is Fault.NONE)
    assert len(read) == found.record
    if read:
        assert told(found) == seen([timestamp for timestamp, _ in read], [key for _, key in read])
    # Dense offsets are the same walk, which stops at a gap.
    dense = walked(header, body, is_dense=True)
    assert dense == found or (dense.fault is Fault.OFFSET and dense.record <= found.record)
    return found.fault


@settings(max_examples=300, deadline=None)
@given(batch=damaged())
def test_mutated_batches_are_accepted_by_all_or_by_none(batch: bytes) -> None:
    try:
        header, body = plain(batch)
    except CorruptBatchError:
        return
    agrees_with_the_reader(header, body)


@settings(max_examples=150, deadline=None)
@given(records=st.lists(new_records(), min_size=1, max_size=4), cut=st.integers(1, 400), choice=st.data())
def test_a_body_that_is_cut_off_is_never_sound(records: list[NewRecord], cut: int, choice: st.DataObject) -> None:
    batch = build_batch(records)
    body = bytes(batch[HEADER_BYTES:])
    size = choice.draw(st.integers(0, len(body) - 1) | st.just(max(0, len(body) - cut)))
    assert agrees_with_the_reader(parse_header(batch), body[:size]) is not Fault.NONE


@settings(max_examples=200, deadline=None)
@given(
    body=st.binary(max_size=60),
    count=st.integers(0, 5),
    base_timestamp=st.sampled_from([-1, 0, 2**63 - 1, -(2**63)]),
    last_delta=st.integers(-1, 6) | st.sampled_from([2**31 - 1, -(2**31)]),
)
def test_any_bytes_at_all_are_judged_alike(body: bytes, count: int, base_timestamp: int, last_delta: int) -> None:
    header = parse_header(build_batch([NewRecord(None, None, 0)]))
    agrees_with_the_reader(
        header._replace(record_count=count, base_timestamp=base_timestamp, last_offset_delta=last_delta), body
    )
