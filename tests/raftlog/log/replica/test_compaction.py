"""Compaction of batches against a dictionary: only the latest record of each key is kept."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog.log.frames import data_frame

from barnabas_raftlog.log.replica import compaction
from barnabas_raftlog.log.replica.compaction import KeyOffsets, compacted
from barnabas_raftlog.records import bounded, inside
from barnabas_raftlog.records.bounded import BatchBounds
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.compression import Compression
from barnabas_raftlog.records.header import HEADER_BYTES, stamp, verify
from barnabas_raftlog.records.pieces import plain_pieces
from barnabas_raftlog.records.reader import Record, read_records

MANY = 1_000
SECRET = bytes(range(16))


def frames_of(batches: Sequence[Sequence[NewRecord]], codec: Compression = Compression.NONE) -> list[memoryview]:
    """Return batches as they are in a log: of producer 7, one after the other, in term 3."""
    frames = []
    offset = 0
    for records in batches:
        frame = bytearray(
            build_batch(records, compression=codec, producer_id=7, producer_epoch=1, base_sequence=offset)
        )
        stamp(frame, offset, 3)
        frames.append(memoryview(frame))
        offset += len(records)
    return frames


def record(key: bytes | None, value: bytes | None = b"v", at: int = 1_000) -> NewRecord:
    return NewRecord(key, value, at)


def known_of(frames: Sequence[memoryview], keys_max: int = MANY) -> KeyOffsets:
    keys = KeyOffsets(keys_max, SECRET)
    for frame in frames:
        assert keys.note(frame)
    return keys


def compact(frames: Sequence[memoryview], *, drop_tombstones: bool = False) -> list[memoryview]:
    keys = known_of(frames)
    return [memoryview(compacted(frame, keys, drop_tombstones=drop_tombstones)[0]) for frame in frames]


def test_an_older_value_goes_and_everything_else_stays_as_it_was() -> None:
    frames = frames_of([[record(b"a", b"1", 5), record(b"b", b"2", 6)], [record(b"a", b"3", 7)]])
    first, second = compact(frames)
    assert second is frames[1] or second == frames[1]
    assert list(read_records(first)) == [Record(1, 6, b"b", b"2")]
    before = verify(frames[0])
    after = verify(first)
    changed = {"batch_length", "crc", "record_count"}
    assert {name for name in before._fields if getattr(before, name) != getattr(after, name)} == changed
    assert (after.base_offset, after.end_offset, after.leader_epoch, after.producer_id) == (0, 2, 3, 7)


def test_a_batch_that_loses_everything_stays_as_a_header() -> None:
    frames = frames_of([[record(b"a", b"1", 5)], [record(b"a", b"2")]], Compression.GZIP)
    empty = compact(frames)[0]
    header = verify(empty)
    assert (len(empty), header.record_count, header.attributes) == (HEADER_BYTES, 0, 0)
    assert (header.base_offset, header.end_offset, header.leader_epoch, header.max_timestamp) == (0, 1, 3, 5)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 0)
    assert list(read_records(empty)) == []
    assert compacted(empty, KeyOffsets(MANY, SECRET), drop_tombstones=True)[0] is empty


def test_a_tombstone_replaces_and_goes_when_it_is_told_to() -> None:
    frames = frames_of([[record(b"a"), record(b"b")], [record(b"a", None)]])
    assert [list(read_records(frame)) for frame in compact(frames)] == [
        [Record(1, 1_000, b"b", b"v")],
        [Record(2, 1_000, b"a", None)],
    ]
    assert [len(list(read_records(frame))) for frame in compact(frames, drop_tombstones=True)] == [1, 0]


def test_records_without_a_key_and_batches_that_make_no_sense_are_kept() -> None:
    frames = frames_of([[record(None), record(None)], [record(None)]])
    assert compact(frames) == frames
    garbage = memoryview(data_frame(2, 50))
    assert compacted(garbage, known_of([garbage]), drop_tombstones=True)[0] is garbage


@pytest.mark.parametrize("bounds", [BatchBounds(3, 1 << 20), BatchBounds(1_000, 99)])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_batch_beyond_the_bounds_is_not_opened_and_counted(
    monkeypatch: pytest.MonkeyPatch, bounds: BatchBounds, codec: Compression
) -> None:
    small, large = frames_of([[record(b"a"), record(b"b")], [record(b"a", bytes(100))] * 4], codec)
    monkeypatch.setattr(compaction, "BOUNDS", bounds)
    keys = known_of([small, large, large])
    assert (len(keys), keys.unread_count, keys.unread_offset) == (2, 2, 2)
    assert not keys.is_replaced(b"a", 0)
    after, counts = compacted(large, keys, drop_tombstones=True)
    assert after is large
    assert counts[:2] == (4, 4)


def test_of_a_batch_that_is_damaged_further_on_nothing_is_noted() -> None:
    frame = frames_of([[record(b"a"), record(b"b")]])[0]
    frame[-1] = 9  # a number of headers that are not there
    keys = known_of([frame])
    assert (len(keys), keys.unread_count, keys.unread_offset) == (0, 1, 0)


def test_a_batch_is_decompressed_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = frames_of([[record(b"a"), record(b"b")], [record(b"a")]], Compression.ZSTD)
    opened = list[int]()

    def counted(codec: int, data: memoryview, limit_bytes: int) -> Iterator[bounded.Buffer]:
        opened.append(limit_bytes)
        return plain_pieces(codec, data, limit_bytes)

    monkeypatch.setattr(inside, "plain_pieces", counted)
    compact(frames)
    assert opened == [compaction.BOUNDS.bytes_max] * 4


def test_at_its_limit_nothing_more_is_noted_and_what_was_noted_holds() -> None:
    frames = frames_of([[record(b"a"), record(b"b")], [record(b"a"), record(b"c"), record(b"b")]])
    keys = KeyOffsets(2, SECRET)
    assert keys.note(frames[0])
    assert not keys.note(frames[1])
    assert len(keys) == 2
    assert keys.is_replaced(b"a", 0)
    assert not keys.is_replaced(b"b", 1), "the newer one comes after the one that there was no room for"


records = st.builds(
    record,
    st.none() | st.binary(max_size=2),
    st.none() | st.binary(max_size=20),
    st.integers(0, 9),
)


@pytest.mark.parametrize("codec", list(Compression))
@settings(max_examples=25)
@given(st.lists(st.lists(records, min_size=1, max_size=5), max_size=6), st.booleans())
def test_every_log_keeps_what_a_dictionary_would(
    codec: Compression, batches: list[list[NewRecord]], drop_tombstones: bool
) -> None:
    frames = frames_of(batches, codec)
    everything = [one for frame in frames for one in read_records(frame)]
    latest = {one.key: one.offset for one in everything if one.key is not None}
    wanted = [
        one
        for one in everything
        if one.key is None or (latest[one.key] == one.offset and not (drop_tombstones and one.value is None))
    ]
    after = compact(frames, drop_tombstones=drop_tombstones)
    assert [one for frame in after for one in read_records(frame)] == wanted
    for before, frame in zip(frames, after, strict=True):
        old = verify(before)
        new = verify(frame)
        same = ("base_offset", "last_offset_delta", "leader_epoch", "producer_id", "producer_epoch", "base_sequence")
        assert [getattr(old, name) for name in same] == [getattr(new, name) for name in same]
        kept = [one.timestamp for one in read_records(frame)]
        assert new.max_timestamp == (max(kept) if kept else old.max_timestamp)
    # A second time changes nothing.
    again = known_of(after)
    assert [compacted(frame, again, drop_tombstones=drop_tombstones)[0] for frame in after] == after
