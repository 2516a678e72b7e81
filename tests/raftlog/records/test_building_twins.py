"""Both twins append the same bytes to a batch as the plain builder, and hash keys to the same number."""

import sys
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchPy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_raftlog.records.builder import NewRecord, build_batch, write_header
from barnabas_raftlog.records.header import HEADER_BYTES
from barnabas_raftlog.records.walker import twins
from barnabas_raftlog.records.walker.pure import building as pure

from .strategies import new_records

# Where nothing is compiled, the twin is compared with the plain builder alone.
compiled: Any = pure
if twins.IS_COMPILED:
    from barnabas_raftlog.records.walker.compiled import building as compiled

MODULES = pytest.mark.parametrize("module", [compiled, pure], ids=["compiled", "pure"])


def body_of(module: Any, records: Sequence[NewRecord]) -> bytearray:
    batch = module.OpenRecords(1 << 30, 0)
    for number, (key, value, timestamp, headers) in enumerate(records):
        assert batch.add(timestamp, key, value, headers) == number
    assert batch.count == len(records)
    assert batch.base_timestamp_ms == records[0].timestamp
    assert batch.max_timestamp_ms == max(record.timestamp for record in records)
    return batch.buffer  # type: ignore[no-any-return]


@settings(max_examples=100, deadline=None)
@given(records=st.lists(new_records(), min_size=1, max_size=6))
def test_both_twins_append_what_the_plain_builder_builds(records: list[NewRecord]) -> None:
    plain = build_batch(records)[HEADER_BYTES:]
    assert body_of(compiled, records) == body_of(pure, records) == plain


@MODULES
@settings(max_examples=40, deadline=None)
@given(records=st.lists(new_records(), min_size=1, max_size=6))
def test_aiokafka_reads_what_is_appended(module: Any, records: list[NewRecord]) -> None:
    frame = bytearray(HEADER_BYTES) + body_of(module, records)
    write_header(
        frame,
        attributes=0,
        record_count=len(records),
        base_timestamp=records[0].timestamp,
        max_timestamp=max(record.timestamp for record in records),
    )
    theirs = _DefaultRecordBatchPy(bytes(frame))
    assert theirs.validate_crc()
    assert [(each.key, each.value, each.timestamp, list(each.headers)) for each in theirs] == records


@settings(max_examples=100, deadline=None)
@given(
    record=new_records(),
    base=st.sampled_from([0, -1, 5, 2**63 - 1, -(2**63)]),
    delta=st.integers(-(2**62), 2**62) | st.sampled_from([63, 64, -64, -65, 8191, 8192, 2**63 - 1, -(2**63)]),
    number=st.integers(0, 2**31 - 1) | st.sampled_from([0, 63, 64, 4095, 4096, 8191, 8192]),
    short_of=st.sampled_from([0, 1, 50]),
)
def test_both_twins_stop_at_the_same_byte(record: NewRecord, base: int, delta: int, number: int, short_of: int) -> None:
    key, value, _, headers = record
    timestamp = min(max(base + delta, -(2**63)), 2**63 - 1)

    def appended(module: Any, limit_bytes: int) -> tuple[object, ...]:
        batch = module.OpenRecords(limit_bytes, 6)
        batch.count = number
        batch.base_timestamp_ms = batch.max_timestamp_ms = base
        try:
            index: int | str = batch.add(timestamp, key, value, headers)
        except OverflowError as error:
            index = str(error)
        return batch.buffer, index, batch.count, batch.base_timestamp_ms, batch.max_timestamp_ms

    whole = appended(pure, 1 << 20)
    size = len(whole[0])  # type: ignore[arg-type]
    found = appended(compiled, size - short_of)
    assert found == appended(pure, size - short_of)
    if short_of and size > 6:
        assert found == (bytes(6), -1, number, base, base)
    else:
        assert found == whole


@MODULES
def test_keys_values_and_what_headers_say_may_be_any_buffer(module: Any) -> None:
    plain = body_of(module, [NewRecord(b"key", b"", 5, [("a", b"bytes"), ("", None)])])
    for kind in (bytearray, memoryview):
        headers: Any = [("a", kind(b"bytes")), ("", None)]
        record = NewRecord(kind(b"key"), kind(b""), 5, headers)
        assert body_of(module, [record]) == plain
    assert body_of(module, [NewRecord(memoryview(b"-key-")[1:4], b"", 5, (("a", b"bytes"), ("", None)))]) == plain


@MODULES
@pytest.mark.parametrize(
    "record",
    [NewRecord(5, b"v", 1), NewRecord(b"k", b"v", 1, [("a", 5)]), NewRecord(b"k", b"v", 1, [(b"a", b"x")])],  # type: ignore[list-item,arg-type]
)
def test_a_record_that_cannot_be_appended_leaves_nothing_behind(module: Any, record: NewRecord) -> None:
    batch = module.OpenRecords(1 << 20, 6)
    with pytest.raises((TypeError, AttributeError)):
        batch.add(1, record.key, record.value, record.headers)
    assert (batch.buffer, batch.count) == (bytes(6), 0)


@MODULES
def test_a_buffer_that_somebody_looks_at_does_not_grow(module: Any) -> None:
    batch = module.OpenRecords(1 << 20, 6)
    with memoryview(batch.buffer), pytest.raises(BufferError):
        batch.add(1, b"k", b"v", ())
    assert (batch.buffer, batch.count) == (bytes(6), 0)


@MODULES
@pytest.mark.parametrize("limit_bytes", [700, 40_000])
def test_memory_taken_ahead_stays_within_the_limit_and_is_given_back(module: Any, limit_bytes: int) -> None:
    for count in (1, 5, 6, 60, 500):
        batch = module.OpenRecords(limit_bytes, 61)
        for _ in range(count):
            batch.add(1, None, b"v" * 100, ())
            assert batch.buffer.__alloc__() <= limit_bytes * 9 // 8 + 8
        whole = bytes(batch.buffer)
        batch.trim()
        assert batch.buffer == whole
        assert batch.buffer.__alloc__() <= len(whole) * 9 // 8 + 8


@MODULES
def test_nothing_of_a_record_is_held_afterwards(module: Any) -> None:
    record = (b"k" * 40, b"v" * 300, (("name", b"x" * 9),))
    before = [sys.getrefcount(each) for each in (*record, *record[2][0])]
    body_of(module, [NewRecord(record[0], record[1], 5, record[2])] * 500)
    assert module.OpenRecords(10, 6).add(1, *record) == -1
    module.murmur2(record[0])
    assert [sys.getrefcount(each) for each in (*record, *record[2][0])] == before


@MODULES
def test_a_key_has_one_of_the_partitions(module: Any) -> None:
    found = [module.partition_of(b"key-%d" % number, 7) for number in range(100)]
    assert set(found) == set(range(7))
    assert found == [(pure.murmur2(b"key-%d" % number) & 0x7FFFFFFF) % 7 for number in range(100)]


@settings(max_examples=200, deadline=None)
@given(key=st.binary(max_size=70))
@example(key=b"\xff" * 7)
def test_both_twins_hash_a_key_to_the_same_number(key: bytes) -> None:
    assert (
        compiled.murmur2(key) == pure.murmur2(key) == compiled.murmur2(memoryview(key)) == pure.murmur2(bytearray(key))
    )
