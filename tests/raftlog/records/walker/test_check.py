"""What the walk over a batch finds: each fault in turn, and what it tells of records that are sound."""

from typing import Any

import pytest
from raftlog.records.bombs import headers
from raftlog.records.strategies import batch_of_deltas

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.builder import NewRecord, build_batch, varint
from barnabas_raftlog.records.header import HEADER_BYTES
from barnabas_raftlog.records.walker.faults import HEADERS_MAX, Fault, Walked, raise_fault

from .both import on_both_twins

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
THREE = [
    NewRecord(None, b"first", 1_000),
    NewRecord(b"key", None, 3_000, [("a", b"1"), ("b", None), ("", b"")]),
    NewRecord(b"", b"x" * 9_000, 2_000),
]
SOUND = bytes(build_batch(THREE)[HEADER_BYTES:])
ENDLESS = b"\xff" * 11


def record(content: bytes, length: int | None = None) -> bytes:
    return varint(len(content) if length is None else length) + content


def checked(walker: Any, body: Any, count: int = 1, base: int = 1_000, last: int | None = None, **more: bool) -> Walked:
    last = count - 1 if last is None else last
    found: Walked = walker.check(body, count, base, last, **({"is_dense": True} | more))
    return found


@on_both_twins("check")
def test_a_sound_batch_has_no_fault(walker: Any) -> None:
    assert checked(walker, SOUND, 3) == Walked(Fault.NONE, 3, len(SOUND), 1_000, 3_000, 1)


@on_both_twins("check")
@pytest.mark.parametrize("made", [bytearray, memoryview, lambda body: memoryview(b"-" + body + b"-")[1:-1]])
def test_a_body_may_be_any_buffer(walker: Any, made: Any) -> None:
    assert checked(walker, made(SOUND), 3) == checked(walker, SOUND, 3)


@on_both_twins("check")
def test_a_batch_without_records_has_no_timestamps(walker: Any) -> None:
    assert checked(walker, b"", 0) == Walked(Fault.NONE, 0, 0, -1, -1, 0)


PLAIN = b"\x00\x00\x00\x01\x01\x00"  # attributes, two deltas, no key, no value, no headers


@on_both_twins("check")
@pytest.mark.parametrize(
    ("body", "fault", "position"),
    [
        (b"", Fault.VARINT, 0),
        (b"\x80", Fault.VARINT, 0),
        (varint(2**31), Fault.VARINT, 0),
        (ENDLESS, Fault.VARINT, 0),
        (varint(-1), Fault.LENGTH, 1),
        (varint(7) + PLAIN, Fault.LENGTH, 1),
        (varint(2**31 - 1) + PLAIN, Fault.LENGTH, 5),
        (record(b""), Fault.VARINT, 1),
        (record(b"\x00"), Fault.VARINT, 2),
        (record(b"\x00" + ENDLESS), Fault.VARINT, 12),
        (record(b"\x00\x00\x01\x01\x01\x00"), Fault.OFFSET, 7),  # the delta -1
        (record(b"\x00\x00\x02\x01\x01\x00"), Fault.OFFSET, 7),  # the delta 1
        (record(b"\x00\x00\x00\x03\x01\x00"), Fault.KEY, 5),  # a key of -2 bytes
        (record(b"\x00\x00\x00\x06\x01\x00"), Fault.KEY, 5),  # a key of 3 bytes, where 2 are left
        (record(b"\x00\x00\x00\x01\x03\x00"), Fault.VALUE, 6),
        (record(b"\x00\x00\x00\x01\x04\x00"), Fault.VALUE, 6),
        (record(b"\x00\x00\x00\x01\x01\x01"), Fault.HEADER_COUNT, 7),  # -1 headers
        (record(b"\x00\x00\x00\x01\x01\x02\x00"), Fault.HEADER_COUNT, 7),  # one, in 1 byte
        (record(b"\x00\x00\x00\x01\x01\x02\x01\x01"), Fault.HEADER_NAME, 8),  # its name is null
        (record(b"\x00\x00\x00\x01\x01\x02\x04\x01"), Fault.HEADER_NAME, 8),  # of 2 bytes, where 1 is left
        (record(b"\x00\x00\x00\x01\x01\x02\x00\x03"), Fault.HEADER_VALUE, 9),
        (record(b"\x00\x00\x00\x01\x01\x02\x00\x02"), Fault.HEADER_VALUE, 9),
        (record(b"\x00\x00\x00\x01\x01"), Fault.VARINT, 6),  # no number of headers
        (record(PLAIN + b"\x00"), Fault.LONGER, 7),
        (record(PLAIN) + b"\x00", Fault.BEHIND, 7),
        (record(PLAIN) * 2, Fault.BEHIND, 7),
    ],
)
def test_each_fault_is_named_with_its_place(walker: Any, body: bytes, fault: Fault, position: int) -> None:
    found = checked(walker, body)
    assert (found.fault, found.position) == (fault, position)
    assert found.record == (fault is Fault.BEHIND)


@on_both_twins("check")
def test_the_walk_ends_at_the_first_fault_and_tells_of_the_records_before_it(walker: Any) -> None:
    bad = SOUND + record(b"\x00\x00" + varint(3) + b"\x03")
    found = checked(walker, bad, 5)
    assert found == Walked(Fault.KEY, 3, len(SOUND) + 5, 1_000, 3_000, 1)
    assert found.words == f"record 3 has a key of a negative size, or beyond its record, at {len(SOUND) + 5}"


@on_both_twins("check")
@pytest.mark.parametrize(
    ("base", "delta", "is_sound"),
    [
        (INT64_MAX, 0, True),
        (INT64_MAX, 1, False),
        (INT64_MAX, INT64_MIN, True),
        (INT64_MIN, 0, True),
        (INT64_MIN, -1, False),
        (INT64_MIN, INT64_MAX, True),
        (0, INT64_MAX, True),
        (-1, INT64_MIN, False),
    ],
)
def test_a_timestamp_must_fit_64_bits(walker: Any, base: int, delta: int, is_sound: bool) -> None:
    found = checked(walker, record(b"\x00" + varint(delta) + PLAIN[2:]), base=base)
    if is_sound:
        assert found[:5] == (Fault.NONE, 1, found.position, base + delta, base + delta)
    else:
        assert found.fault is Fault.TIMESTAMP


@on_both_twins("check")
@pytest.mark.parametrize(
    ("deltas", "last", "if_dense", "if_not"),
    [
        ([0, 1, 2], 2, Fault.NONE, Fault.NONE),
        ([0, 1, 2], 1, Fault.OFFSET, Fault.OFFSET),
        ([0, 1, 2], 9, Fault.NONE, Fault.NONE),
        ([0, 2, 5], 7, Fault.OFFSET, Fault.NONE),
        ([3, 4, 5], 5, Fault.OFFSET, Fault.NONE),
        ([0, 0, 1], 2, Fault.OFFSET, Fault.OFFSET),
        ([0, 2, 1], 2, Fault.OFFSET, Fault.OFFSET),
        ([0, 1, 2**31 - 1], 2**31 - 1, Fault.OFFSET, Fault.NONE),
    ],
)
def test_offsets_are_consecutive_or_at_least_rise(
    walker: Any, deltas: list[int], last: int, if_dense: Fault, if_not: Fault
) -> None:
    body = batch_of_deltas(deltas, last_delta=last)[HEADER_BYTES:]
    assert checked(walker, body, 3, last=last).fault is if_dense
    assert checked(walker, body, 3, last=last, is_dense=False).fault is if_not


@on_both_twins("check")
def test_a_varint_may_be_longer_than_it_need_be(walker: Any) -> None:
    assert checked(walker, b"\x8c\x80\x80\x80\x00" + PLAIN).fault is Fault.NONE
    assert checked(walker, b"\x8c\x80\x80\x80\x80\x00" + PLAIN).fault is Fault.VARINT
    assert checked(walker, b"\x8c\x80\x80\x80\x10" + PLAIN).fault is Fault.VARINT  # its 33rd bit is set


@on_both_twins("check")
def test_a_claim_of_two_billion_records_or_headers_costs_nothing(walker: Any) -> None:
    assert checked(walker, SOUND, 2**31 - 1).record == 3
    huge = record(b"\x00\x00\x00\x01\x01" + varint(2**31 - 1) + b"\x00" * 8)
    assert checked(walker, huge).fault is Fault.HEADER_COUNT


@on_both_twins("check")
def test_a_record_has_at_most_65536_headers(walker: Any) -> None:
    assert HEADERS_MAX == 65_536
    assert checked(walker, headers(HEADERS_MAX).plain).fault is Fault.NONE
    found = checked(walker, headers(HEADERS_MAX + 1).plain)
    assert (found.fault, found.position) == (Fault.HEADER_COUNT, 11)
    assert found.words.endswith("a negative number of headers, or more than fit or than 65,536, at 11")


@on_both_twins("check")
def test_a_fault_is_raised_as_a_corrupt_batch(walker: Any) -> None:
    raise_fault(checked(walker, SOUND, 3), 7)
    with pytest.raises(CorruptBatchError, match="the batch at offset 7: bytes follow the last of 2 records, from"):
        raise_fault(checked(walker, SOUND, 2), 7)
    assert checked(walker, SOUND, 3).words == ""
