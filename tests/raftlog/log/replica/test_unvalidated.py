"""Batches that nobody validated, as in logs of 0.1: kept as they are, counted, and looked up within bounds."""

import asyncio
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

import pytest
from hostile.frames import bomb
from raftlog.log.node import Node

from barnabas_raftlog.log.replica import compaction, timestamps
from barnabas_raftlog.log.replica.compacting import Compacted, CompactionLimits
from barnabas_raftlog.log.replica.compaction import KeyOffsets, compacted
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.records.bounded import BatchBounds, find_by_time
from barnabas_raftlog.records.builder import NewRecord, build_batch, varint, write_header
from barnabas_raftlog.records.compression import Compression, compress
from barnabas_raftlog.records.header import HEADER_BYTES, parse_header
from barnabas_raftlog.records.reader import read_records

from .transactional_logs import NoTransactions

T = TypeVar("T")
LIMITS = CompactionLimits(
    keys_max=1_000, min_dirty_ratio=0.0, min_lag_ms=0, max_lag_ms=1 << 60, delete_retention_ms=1 << 40
)
NOW_MS = 1_000_000
SECRET = bytes(16)
PLAIN_BYTES_MAX = 128 << 20
BOUNDS = BatchBounds(1 << 30, PLAIN_BYTES_MAX)


def raw(delta: int, rest: bytes = b"\x02k\x02v\x00", *, length: int | None = None) -> bytes:
    """Return a record at its base timestamp: key, value and number of headers as in `rest`."""
    inside = b"\x00\x00" + varint(delta) + rest
    return varint(len(inside) if length is None else length) + inside


SOUND = raw(0) + raw(1) + raw(2)
BODIES = {
    "garbage": b"\x07" * 50,
    "nothing": b"",
    "cut off": SOUND[:-1],
    "one record too few": raw(0) + raw(1),
    "one record too many": SOUND + raw(2),
    "something behind them": SOUND + b"\x00",
    "the same record thrice": raw(0) * 3,
    "backwards": raw(2) + raw(1) + raw(0),
    "beyond the batch": raw(0) + raw(1) + raw(3),
    "a negative length": raw(0) + raw(1) + raw(2, length=-1),
    "a length beyond the body": raw(0) + raw(1) + raw(2, length=1 << 30),
    "a key beyond its record": raw(0) + raw(1) + raw(2, b"\x7ek\x02v\x00"),
    "a size of -2": raw(0) + raw(1) + raw(2, b"\x03\x02v\x00"),
    "headers that are not there": raw(0) + raw(1) + raw(2, b"\x02k\x02v\x08"),
    "a header without a name": raw(0) + raw(1) + raw(2, b"\x02k\x02v\x02\x01\x01"),
    "bytes behind the headers": raw(0) + raw(1) + raw(2, b"\x02k\x02v\x00\x00"),
}


def frame_of(attributes: int, body: bytes, count: int = 3, timestamp_ms: int = 1_500) -> bytearray:
    frame = bytearray(HEADER_BYTES) + body
    write_header(
        frame, attributes=attributes, record_count=count, base_timestamp=timestamp_ms, max_timestamp=timestamp_ms
    )
    return frame


def bad_batches() -> list[bytearray]:
    """Return batches of three records that cannot be read, of every codec and of those that are none."""
    frames = [
        frame_of(codec, bytes(compress(codec, body)))
        for codec in Compression
        for body in BODIES.values()
        if body or codec is Compression.NONE
    ]
    packed = [bytes(compress(codec, SOUND)) for codec in Compression]
    frames += [frame_of(codec, SOUND) for codec in range(1, 8)]
    frames += [frame_of(codec, packed[codec][:-3]) for codec in Compression if codec]
    frames.append(frame_of(Compression.ZSTD, bomb(PLAIN_BYTES_MAX + (1 << 20))))
    frames.append(frame_of(Compression.ZSTD, bomb(10 << 20)))
    return frames


def compact(log: ReplicaLog) -> Compacted:
    async def run() -> Compacted | None:
        async def pause(_: int) -> None: ...

        return await log.compact(LIMITS, log.last_index, NOW_MS, pause, NoTransactions(log.log_end_offset))

    done = asyncio.run(run())
    assert done is not None
    return done


def frames_of(log: ReplicaLog) -> list[bytes]:
    async def run() -> list[bytes]:
        return [bytes(entry.frame) async for entry in log.replay(1)]

    return asyncio.run(run())


def peak_of(ask: Callable[[], T]) -> tuple[T, int]:
    """Return an answer, and the most memory that Python had at one moment for it."""
    tracemalloc.start()
    try:
        return ask(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_bad_batches_stay_byte_for_byte_and_are_counted_once_and_the_others_are_compacted() -> None:
    node = Node()
    log = node.log()
    good = build_batch([NewRecord(b"a", bytes(100), 1_000), NewRecord(b"b", bytes(100), 1_001)])
    bad = bad_batches()
    for frame in bad:
        log.append_batch(1, bytearray(good))
        log.append_batch(1, bytearray(frame))
    for _ in range(60):  # so that all the others are in segments that are closed
        log.append_batch(1, bytearray(good))
    node.work()
    before = frames_of(log)
    done = compact(log)
    assert (done.unread_count, done.unread_offset) == (len(bad), 2)
    after = frames_of(log)
    assert [len(frame) for frame in after[: 2 * len(bad) : 2]] == [HEADER_BYTES] * len(bad)
    assert after[1 : 2 * len(bad) : 2] == before[1 : 2 * len(bad) : 2]
    records = [one for frame in after[::2] if len(frame) == len(good) for one in read_records(frame)]
    assert {one.key for one in records} == {b"a", b"b"}
    for _ in range(60):
        log.append_batch(1, bytearray(good))
    node.work()
    again = compact(log)
    assert again.unread_count == 0
    assert frames_of(log)[1 : 2 * len(bad) : 2] == before[1 : 2 * len(bad) : 2]


@pytest.mark.slow
def test_bad_batches_are_looked_up_as_a_whole_and_those_around_them_by_their_records() -> None:
    for number, frame in enumerate(bad_batches()):
        node = Node()
        log = node.log()
        log.append_batch(1, build_batch([NewRecord(None, b"v", 1_000), NewRecord(None, b"v", 1_400)], leader_epoch=1))
        log.append_batch(1, bytearray(frame))
        log.append_batch(1, build_batch([NewRecord(None, b"v", 1_450), NewRecord(None, b"v", 1_600)], leader_epoch=1))
        node.work()
        end = log.log_end_offset
        found = asyncio.run(log.offset_for_timestamp(1_401, end))
        assert found is not None
        # A record before the first fault is an answer, too.
        assert found[0] in range(2, 5), number
        assert found[1:] == (1_500, 1)
        assert asyncio.run(log.offset_for_timestamp(1_400, end)) == (1, 1_400, 1)
        assert asyncio.run(log.offset_for_timestamp(1_501, end)) == (end - 1, 1_600, 1)
        assert asyncio.run(log.max_timestamp(end)) == (end - 1, 1_600, 1)


@pytest.mark.parametrize("size_bytes", [PLAIN_BYTES_MAX, 10 << 30])
def test_a_bomb_ends_where_it_is_no_record_any_more(size_bytes: int) -> None:
    frame = memoryview(frame_of(Compression.ZSTD, bomb(size_bytes), count=1_000_000))
    keys = KeyOffsets(1_000, SECRET)
    _, noted = peak_of(lambda: keys.note(frame))
    assert (len(keys), keys.unread_count) == (0, 1)
    found, looked = peak_of(lambda: find_by_time(parse_header(frame), frame, BOUNDS, start_offset=0, wanted_ms=1))
    assert (found.is_sound, found.record) == (False, None)
    assert found.plain_bytes <= 256 << 10
    assert max(noted, looked) < 2 << 20


def test_a_record_that_says_that_it_is_too_large_is_not_waited_for() -> None:
    body = raw(0, length=1 << 30) + bytes(8 << 20)
    frame = memoryview(frame_of(Compression.ZSTD, bytes(compress(Compression.ZSTD, body)), count=1))
    keys = KeyOffsets(1_000, SECRET)
    _, noted = peak_of(lambda: keys.note(frame))
    assert keys.unread_count == 1
    found, looked = peak_of(lambda: find_by_time(parse_header(frame), frame, BOUNDS, start_offset=0, wanted_ms=1))
    assert not found.is_sound
    assert max(noted, looked) < 2 << 20


def test_a_look_up_holds_a_piece_and_a_record() -> None:
    small = b"".join(raw(number, b"\x01" + varint(1_000) + bytes(1_000) + b"\x00") for number in range(4_000))
    large = raw(4_000, b"\x01" + varint(3 << 20) + bytes(3 << 20) + b"\x00")
    frame = memoryview(frame_of(Compression.ZSTD, bytes(compress(Compression.ZSTD, small)), count=4_000))
    found, peak = peak_of(lambda: find_by_time(parse_header(frame), frame, BOUNDS, start_offset=3_999, wanted_ms=1))
    assert found.record == (3_999, 1_500)
    assert found.plain_bytes == len(small)
    assert peak < 2 << 20
    frame = memoryview(frame_of(Compression.ZSTD, bytes(compress(Compression.ZSTD, small + large)), count=4_001))
    found, peak = peak_of(lambda: find_by_time(parse_header(frame), frame, BOUNDS, start_offset=4_000, wanted_ms=1))
    assert found.record == (4_000, 1_500)
    assert peak < 6 << 20


@pytest.mark.parametrize("codec", list(Compression))
def test_a_batch_is_held_once_while_it_is_compacted(codec: Compression) -> None:
    """Beside what it becomes; one that was not compressed becomes as much as it was."""
    size = 4 << 20
    records = [NewRecord(b"a", bytes(1 << 10), 1_000) for _ in range(4)] + [NewRecord(b"b", bytes(size), 1_000)]
    frame = memoryview(build_batch(records, compression=codec))
    keys = KeyOffsets(1_000, SECRET)
    assert keys.note(frame)
    (_, counts), peak = peak_of(lambda: compacted(frame, keys, drop_tombstones=False))
    assert counts[:2] == (5, 2)
    assert peak < (2 if codec is Compression.NONE else 1.125) * size + (3 << 19)


def test_a_batch_that_would_become_larger_than_a_batch_may_be_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = memoryview(build_batch([NewRecord(b"a", b"v" * 50, 1_000)] * 9, compression=Compression.ZSTD))
    keys = KeyOffsets(1_000, SECRET)
    assert keys.note(frame)
    monkeypatch.setattr(compaction, "compress", lambda *_: bytes(1_001))
    monkeypatch.setattr(compaction, "BATCH_BYTES_MAX", 1_000 + HEADER_BYTES)
    after, counts = compacted(frame, keys, drop_tombstones=False)
    assert after is frame
    assert counts[:2] == (9, 9)
    monkeypatch.setattr(compaction, "BATCH_BYTES_MAX", 1_001 + HEADER_BYTES)
    assert compacted(frame, keys, drop_tombstones=False)[1][:2] == (9, 1)


def test_what_a_look_up_opens_of_batches_that_lie_is_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    log = node.log()
    for _ in range(4):
        lie = frame_of(Compression.NONE, SOUND)
        write_header(lie, attributes=0, record_count=3, base_timestamp=1_000, max_timestamp=2_000)
        log.append_batch(1, lie)
    node.work()
    monkeypatch.setattr(timestamps, "BOUNDS", timestamps.BOUNDS._replace(bytes_max=3 * len(SOUND)))
    assert asyncio.run(log.offset_for_timestamp(1_500, 12)) == (9, 2_000, 1)
    monkeypatch.setattr(timestamps, "BOUNDS", timestamps.BOUNDS._replace(bytes_max=4 * len(SOUND)))
    assert asyncio.run(log.offset_for_timestamp(1_500, 12)) is None
