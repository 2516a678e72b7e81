"""Batches of transactions and their markers in a walk, one by one."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from raftlog.log.replica.transactional_logs import Transactions, batch, marker

from barnabas_raftlog.log.replica.compaction import KeyOffsets, Walk
from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.records.aborted import AbortedBatches
from barnabas_raftlog.records.header import HEADER_BYTES, next_offset, parse_header, stamp, verify
from barnabas_raftlog.records.markers import EndMarker, read_marker
from barnabas_raftlog.records.reader import read_records

NOW_MS = 1_000_000
RETENTION_MS = 1_000
SECRET = bytes(range(16))


def frames_of(*batches: bytearray) -> list[Buffer]:
    """Return batches as they follow each other in a log, in term 3."""
    offset = 0
    for frame in batches:
        stamp(frame, offset, 3)
        offset = next_offset(frame)
    return [memoryview(frame) for frame in batches]


def walked(frames: Sequence[Buffer], now_ms: int = NOW_MS, *, is_due: bool = True) -> list[Buffer]:
    """Return the frames of a log after one pass over all of it."""
    known = Transactions(frames)
    assert not known.open, "compaction never passes the last stable offset"
    aborted = AbortedBatches(known.aborted)
    keys = KeyOffsets(100, SECRET)
    for frame in frames:
        assert aborted.has(parse_header(frame)) or keys.note(memoryview(frame))
    walk = Walk(keys, now_ms, RETENTION_MS)
    after = [walk.compacted(memoryview(frame), aborted, is_due=is_due)[0] for frame in frames]
    for frame in after:
        verify(memoryview(frame))
    return after


class Size(NamedTuple):
    offset: int
    records: int


def sizes_of(frames: Sequence[Buffer]) -> list[Size]:
    return [Size(one.base_offset, one.record_count) for one in map(parse_header, frames)]


def test_what_was_aborted_goes_and_replaces_nothing() -> None:
    before = frames_of(
        batch(1, 0, [(b"a", b"1"), (b"b", b"1")]),
        marker(1, is_commit=True),
        batch(1, 2, [(b"a", None), (b"b", b"2")]),
        marker(1, is_commit=False),
    )
    after = walked(before)
    assert [list(read_records(memoryview(frame))) for frame in after] == [
        list(read_records(memoryview(before[0]))),
        [],
        [],
        [],
    ]
    assert sizes_of(after) == [(0, 2), (2, 1), (3, 0), (5, 1)]
    assert (after[0], after[1], after[3]) == (before[0], before[1], before[3])
    old, new = parse_header(before[2]), verify(memoryview(after[2]))
    changed = {name for name in old._fields if getattr(old, name) != getattr(new, name)}
    assert changed == {"batch_length", "crc", "base_timestamp", "record_count"}
    assert (new.size_bytes, new.base_timestamp) == (HEADER_BYTES, NOW_MS)


def test_what_was_aborted_goes_unread() -> None:
    damaged = batch(1, 0, [(b"a", b"1")])
    damaged[-1] = 9  # headers that are not there
    frames = frames_of(batch(2, 0, [(b"a", b"0")], is_transactional=False), damaged, marker(1, is_commit=False))
    aborted = AbortedBatches(Transactions(frames).aborted)
    keys = KeyOffsets(100, SECRET)
    after, counts = Walk(keys, NOW_MS, RETENTION_MS).compacted(memoryview(frames[1]), aborted, is_due=False)
    assert (parse_header(after).record_count, counts.read, counts.kept) == (0, 1, 0)


def test_transactions_of_several_producers_are_told_apart() -> None:
    after = walked(
        frames_of(
            batch(1, 0, [(b"a", b"1")]),
            batch(2, 0, [(b"b", b"1")]),
            batch(1, 1, [(b"c", b"1")]),
            batch(2, 1, [(b"d", b"1")], is_transactional=False),
            marker(2, is_commit=False),
            batch(2, 2, [(b"e", b"1")]),
            marker(1, is_commit=True),
            marker(2, is_commit=True),
        )
    )
    assert sizes_of(after) == [(0, 1), (1, 0), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1)]


def test_committed_records_are_replaced_like_others() -> None:
    after = walked(
        frames_of(
            batch(1, 0, [(b"a", b"1"), (b"b", b"1")]),
            batch(3, 0, [(b"a", b"2")], is_transactional=False),
            marker(1, is_commit=True),
            batch(1, 2, [(b"b", b"3")]),
            marker(1, is_commit=True),
        )
    )
    assert sizes_of(after) == [(0, 0), (2, 1), (3, 1), (4, 1), (5, 1)]


def replaced_later() -> list[Buffer]:
    """Return a transaction, a marker that commits it, and what replaces its record."""
    return frames_of(
        batch(1, 0, [(b"a", b"1")]),
        marker(1, is_commit=True),
        batch(2, 0, [(b"a", b"2")], is_transactional=False),
    )


def test_a_marker_is_spent_when_its_data_has_been_gone_for_as_long_as_is_stated() -> None:
    first = walked(replaced_later())
    assert sizes_of(first) == [(0, 0), (1, 1), (2, 1)]
    assert sizes_of(walked(first, NOW_MS + RETENTION_MS - 1)) == [(0, 0), (1, 1), (2, 1)]
    spent = walked(first, NOW_MS + RETENTION_MS)
    assert sizes_of(spent) == [(0, 0), (1, 0), (2, 1)]
    assert spent[0] == first[0], "since when its data is gone is said once"
    header = verify(memoryview(spent[1]))
    assert header.size_bytes == HEADER_BYTES
    assert read_marker(header, memoryview(spent[1])) == EndMarker(1, 0, True, 5)
    assert walked(spent, NOW_MS + 9 * RETENTION_MS) == spent


def test_the_bytes_of_what_is_left_are_these() -> None:
    first = walked(replaced_later())
    spent = walked(first, NOW_MS + RETENTION_MS)
    assert bytes(spent[0]).hex() == (
        "0000000000000000"
        "00000031"
        "00000003"
        "02"
        "9845c1c0"  # offset, size, term, magic, checksum
        "0010"
        "00000000"
        "00000000000f4240"
        "00000000000003e8"  # transactional, delta, when it was emptied, its age
        "0000000000000001"
        "0000"
        "00000000"
        "00000000"  # producer, epoch, sequence, records
    )
    assert bytes(spent[1]).hex() == (
        "0000000000000001"
        "00000031"
        "00000003"
        "02"
        "1ef237a4"
        "0030"
        "00000000"
        "00000000000003e8"
        "00000000000003e8"  # transactional and control, delta, its age twice
        "0000000000000001"
        "0000"
        "00000005"
        "00000000"  # producer, epoch, coordinator epoch, records
    )


def test_a_marker_is_not_spent_in_a_part_of_the_log_that_was_not_clean_for_long() -> None:
    first = walked(replaced_later())
    assert walked(first, NOW_MS + RETENTION_MS, is_due=False) == first


@pytest.mark.parametrize(("first_key", "last_key"), [(b"a", b"b"), (b"b", b"a")])
def test_the_last_batch_to_lose_its_records_counts(first_key: bytes, last_key: bytes) -> None:
    frames = frames_of(
        batch(1, 0, [(b"a", b"1")]),
        batch(1, 1, [(b"b", b"1")]),
        marker(1, is_commit=True),
        batch(2, 0, [(first_key, b"2")], is_transactional=False),
    )
    first = walked(frames)
    more = batch(2, 1, [(last_key, b"2")], is_transactional=False)
    stamp(more, 4, 3)
    second = walked([*first, memoryview(more)], NOW_MS + 500)
    assert sizes_of(second) == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 1)]
    assert walked(second, NOW_MS + RETENTION_MS + 499) == second
    assert sizes_of(walked(second, NOW_MS + RETENTION_MS + 500))[2] == (2, 0)


def test_the_next_transaction_of_a_producer_begins_anew() -> None:
    frames = frames_of(
        batch(1, 0, [(b"a", b"1")]),
        marker(1, is_commit=True),
        batch(1, 1, [(b"b", b"1")]),
        marker(1, is_commit=True),
        batch(2, 0, [(b"b", b"2")], is_transactional=False),
    )
    later = walked(walked(frames), NOW_MS + RETENTION_MS)
    assert sizes_of(later) == [(0, 1), (1, 1), (2, 0), (3, 0), (4, 1)]


@pytest.mark.parametrize("key", [struct.pack(">hh", 0, 9), b"\0"], ids=["another type", "damaged"])
def test_a_control_record_that_is_no_marker_stays(key: bytes) -> None:
    frame = marker(1, is_commit=True)
    odd = batch(1, 0, [(key, b"")])
    odd[21:23] = frame[21:23]  # attributes
    stamp(odd, 0, 3)
    walk = Walk(KeyOffsets(1, SECRET), NOW_MS, RETENTION_MS)
    before = memoryview(odd)
    assert walk.compacted(before, AbortedBatches(), is_due=True)[0] is before
