"""Compacts batches: of all records with one key only the latest is kept. Pure.

There are two steps. First the newest offset of every key is noted (`KeyOffsets`), then every batch is written again
without the records that a newer one has replaced (`Walk`). A record that is kept stays as it was: offset, timestamp,
headers, order. A batch keeps its place too: base offset, last offset, term, producer and sequence, compression. One
that loses all of its records stays as a header of 61 bytes. So every entry of the log still has its frame, followers
can be served from a compacted segment as from any other, and idempotence loses nothing.

*A tombstone* (null value) replaces the records before it as any value does. It is itself let go a while after it was
first seen here, so that later readers of the log never hear of the key.

*Batches of aborted transactions* are as if they were not there, and lose all of their records without being opened. The
caller says which they are, and hands over none of which that is not decided. Those of committed ones are compacted like
others.

*A marker that commits* is spent (`records.markers`) a while after the last record of its transaction was gone. When
that was, the transaction's own batches say: those without records have the time in the place of their base timestamp. A
marker that aborts stays: whoever has the transaction's records must hear how it ended, a replica that was away for
long, and a reader of that one; and of what it takes, a header would stay anyway.

*Always kept* are records without a key, which a compacted topic should not have; batches whose inside cannot be read,
and those beyond `BOUNDS`, which are not opened; control frames of other kinds. Batches that were kept unread are
counted, so that their number can be told. So is one kept that would be larger than a batch may be, because its producer
compresses better than we do.

*Memory:* the table of keys, `KEY_BYTES` for each that there may be; and of one batch at a time the plain bytes, once,
and a bit for each of its records. What is left is written where the batch was, and compressed from there. And a number
for each producer that is in the middle of a transaction.

Not here: which segments, when, and how files are replaced (`compacting`).
"""

import struct
from typing import NamedTuple

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.records.aborted import AbortedBatches
from barnabas_raftlog.records.bounded import BatchBounds, sound_part
from barnabas_raftlog.records.compression import DECOMPRESSED_BYTES_MAX, Compression, compress
from barnabas_raftlog.records.header import (
    BATCH_BYTES_MAX,
    COMPRESSION_MASK,
    CONTROL,
    HEADER_BYTES,
    MAGIC,
    SIZE_PREFIX_BYTES,
    TIMESTAMP_LOG_APPEND,
    TRANSACTIONAL,
    BatchHeader,
    parse_header,
)
from barnabas_raftlog.records.markers import EndMarker, is_marker, is_spent, read_marker, spent_header
from barnabas_raftlog.records.walker.twins import IS_COMPILED, KEY_BYTES, KeyTable, squeeze
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = ["BOUNDS", "KEY_BYTES", "Counts", "KeyOffsets", "Walk", "compacted"]

# Whatever may be in a batch at all: of 19 million records of seven bytes the walker makes two seconds' work, of which
# Python would make minutes.
BOUNDS = BatchBounds(records_max=DECOMPRESSED_BYTES_MAX if IS_COMPILED else 1_000_000, bytes_max=DECOMPRESSED_BYTES_MAX)

_NEVER = 1 << 62
_PREFIX = struct.Struct(">qiibI")
_TAIL = struct.Struct(">hiqqqhii")


class Counts(NamedTuple):
    """Records that were looked at, and that were kept; `plain_bytes`: of the batch, which says what it took."""

    read: int
    kept: int
    plain_bytes: int


class KeyOffsets:
    """The newest offset of each key. Limit: `keys_max` keys; at the limit nothing more is taken.

    `unread_count` batches were not noted because they cannot be read or are beyond `BOUNDS`, the first of them at
    `unread_offset`, -1 for none. `plain_bytes` of batches were looked at, which says what it took.
    """

    def __init__(self, keys_max: int, secret: bytes) -> None:
        """`secret`: 16 bytes of chance, so that nobody writes two keys that look like one here.

        Raises:
            OSError or MemoryError: there is no memory for so many keys.
        """
        self.unread_count = 0
        self.unread_offset = -1
        self.plain_bytes = 0
        self._table = KeyTable(keys_max, secret)

    def __len__(self) -> int:
        return len(self._table)

    def note(self, frame: memoryview) -> bool:
        """Note the keys of a batch, which is newer than those noted before; False if there is no room for them all.

        The keys that were noted of such a batch are right as well, and may be used. Aborted batches must not be noted.
        """
        header = parse_header(frame)
        if not _is_open(header):
            return True
        try:
            part = sound_part(header, frame, BOUNDS)
        except CorruptBatchError:
            self.plain_bytes += _unread_bytes(header, frame)
            if not self.unread_count:
                self.unread_offset = header.base_offset
            self.unread_count += 1
            return True
        self.plain_bytes += len(part.body)
        return self._table.note(part)

    def is_replaced(self, key: bytes, offset: int) -> bool:
        """Tell whether a newer record with this key is known."""
        return self._table.newest(key) > offset

    @property
    def table(self) -> KeyTable:
        """What the walker asks."""
        return self._table


class Walk:
    """Compacts batch by batch, from the oldest of a log on, and follows the transactions on the way.

    Limit: a number for each producer with a transaction that has begun and not ended in what was walked. One thread at
    a time.
    """

    def __init__(self, keys: KeyOffsets, now_ms: int, delete_retention_ms: int) -> None:
        """`now_ms`: the time of this pass; `delete_retention_ms`: for how long a marker stays when its data is gone."""
        self._keys = keys
        self._now_ms = now_ms
        self._spent_ms = now_ms - delete_retention_ms
        self._gone_ms: dict[int, int] = {}  # since when a producer's transaction has no records, `_NEVER` if it has

    def compacted(self, frame: memoryview, aborted: AbortedBatches, *, is_due: bool) -> tuple[Buffer, Counts]:
        """Return the next batch without what need not stay; the same object if it stays as it is.

        `is_due`: whether tombstones and markers may go that are in this part of the log.
        """
        header = parse_header(frame)
        if is_marker(header):
            return self._marker(header, frame, is_due=is_due)
        if aborted.has(header):
            after: Buffer = _emptied(header, self._now_ms) if header.record_count else frame
            counts = Counts(header.record_count, 0, len(frame))
        else:
            after, counts = compacted(frame, self._keys, drop_tombstones=is_due, now_ms=self._now_ms)
        if header.attributes & TRANSACTIONAL:
            gone_ms = _NEVER if counts.kept else self._now_ms if counts.read else header.base_timestamp
            self._gone_ms[header.producer_id] = max(gone_ms, self._gone_ms.get(header.producer_id, 0))
        return after, counts

    def _marker(self, header: BatchHeader, frame: memoryview, *, is_due: bool) -> tuple[Buffer, Counts]:
        # Nothing is known of a transaction that has no batch here: its data went with the beginning of the log.
        gone_ms = self._gone_ms.pop(header.producer_id, 0)
        counts = Counts(header.record_count, header.record_count, len(frame))
        if is_spent(header) or not is_due or gone_ms > self._spent_ms:
            return frame, counts
        marker = _end_of(header, frame)
        if marker is None or not marker.is_commit:
            return frame, counts
        return _frame(spent_header(header, marker), b""), counts._replace(kept=0)


def compacted(frame: memoryview, keys: KeyOffsets, *, drop_tombstones: bool, now_ms: int = 0) -> tuple[Buffer, Counts]:
    """Return a batch without the records that are replaced, and without tombstones if that is asked for.

    The same object if everything is kept. `now_ms`: the time of this pass.
    """
    header = parse_header(frame)
    everything = Counts(header.record_count, header.record_count, len(frame))
    if not _is_open(header):
        return frame, everything
    try:
        part = sound_part(header, frame, BOUNDS)
    except CorruptBatchError:
        return frame, everything._replace(plain_bytes=_unread_bytes(header, frame))
    kept = keys.table.kept(part, drop_tombstones=drop_tombstones)
    counts = Counts(header.record_count, kept.records, len(part.body))
    if kept.records == header.record_count:
        return frame, counts
    if not kept.records:
        return _emptied(header, now_ms), counts
    # A body that was not compressed is part of the log's own frame, which must stay.
    body = part.body if isinstance(part.body, bytearray) else bytearray(part.body)
    del body[squeeze(body, kept.marks, header.record_count) :]
    max_timestamp = header.max_timestamp if header.attributes & TIMESTAMP_LOG_APPEND else kept.max_timestamp
    changed = header._replace(max_timestamp=max_timestamp, record_count=kept.records)
    written = compress(Compression(header.attributes & COMPRESSION_MASK), body)
    if HEADER_BYTES + len(written) > max(len(frame), BATCH_BYTES_MAX):
        return frame, counts._replace(kept=header.record_count)
    return _frame(changed, written), counts


def _is_open(header: BatchHeader) -> bool:
    return header.record_count > 0 and not header.attributes & CONTROL


def _end_of(header: BatchHeader, frame: memoryview) -> EndMarker | None:
    """Return what a marker says; None if it makes no sense."""
    try:
        return read_marker(header, frame)
    except CorruptBatchError:
        return None


def _unread_bytes(header: BatchHeader, frame: memoryview) -> int:
    """Return what it may have taken to see that a batch cannot be read."""
    return BOUNDS.bytes_max if header.attributes & COMPRESSION_MASK else len(frame)


def _emptied(header: BatchHeader, now_ms: int) -> bytes:
    """Return what is left of a batch that has lost its last records `now_ms`."""
    # Its age stays, by which retention deletes it if that is configured too. When its records went is asked for
    # only at the end of a transaction.
    base_timestamp = now_ms if header.attributes & TRANSACTIONAL else header.max_timestamp
    attributes = header.attributes & ~COMPRESSION_MASK
    return _frame(header._replace(attributes=attributes, base_timestamp=base_timestamp, record_count=0), b"")


def _frame(header: BatchHeader, body: Buffer) -> bytes:
    """Return a batch, with the size and the checksum that belong to `body`."""
    tail = _TAIL.pack(*header[5:])
    size = HEADER_BYTES + len(body) - SIZE_PREFIX_BYTES
    crc = crc32c(body, crc32c(tail))
    return b"".join((_PREFIX.pack(header.base_offset, size, header.leader_epoch, MAGIC, crc), tail, body))
