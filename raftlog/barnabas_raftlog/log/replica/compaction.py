"""Compacts batches: of all records with one key only the latest is kept. Pure.

There are two steps. First the newest offset of every key is noted (`KeyOffsets`), then every batch is written again
without the records that a newer one has replaced (`compacted`). A record that is kept stays as it was: offset,
timestamp, headers, order. A batch keeps its place too: base offset, last offset, term, producer and sequence,
compression. One that loses all of its records stays as a header of 61 bytes. So every entry of the log still has its
frame, followers can be served from a compacted segment as from any other, and idempotence loses nothing.

*A tombstone* (null value) replaces the records before it as any value does. It is itself let go a while after it was
first seen here, so that later readers of the log never hear of the key.

*Records of aborted transactions* are as if they were not there, if the caller says which they are. Nobody does yet.

*Always kept* are records without a key, which a compacted topic should not have; batches whose inside cannot be read,
and those beyond `BOUNDS`, which are not opened; transactional batches and control frames. Batches that were kept unread
are counted, so that their number can be told. So is one kept that would be larger than a batch may be, because its
producer compresses better than we do.

*Memory:* the table of keys, `KEY_BYTES` for each that there may be; and of one batch at a time the plain bytes, once,
and a bit for each of its records. What is left is written where the batch was, and compressed from there.

Not here: which segments, when, and how files are replaced (`compacting`).
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.raft.messages import Buffer
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
from barnabas_raftlog.records.walker.twins import IS_COMPILED, KEY_BYTES, KeyTable, squeeze
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = ["BOUNDS", "KEY_BYTES", "Counts", "KeyOffsets", "compacted"]

# Whatever may be in a batch at all: of 19 million records of seven bytes the walker makes two seconds' work, of which
# Python would make minutes.
BOUNDS = BatchBounds(records_max=DECOMPRESSED_BYTES_MAX if IS_COMPILED else 1_000_000, bytes_max=DECOMPRESSED_BYTES_MAX)

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

    def note(self, frame: memoryview, aborted: Sequence[tuple[int, int]] = ()) -> bool:
        """Note the keys of a batch, which is newer than those noted before; False if there is no room for them all.

        The keys that were noted of such a batch are right as well, and may be used.

        Args:
            frame: The batch.
            aborted: Ranges [start, end) of offsets in it whose records do not count, in order and apart.
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
        return self._table.note(part, aborted)

    def is_replaced(self, key: bytes, offset: int) -> bool:
        """Tell whether a newer record with this key is known."""
        return self._table.newest(key) > offset

    @property
    def table(self) -> KeyTable:
        """What the walker asks."""
        return self._table


def compacted(
    frame: memoryview, keys: KeyOffsets, *, drop_tombstones: bool, aborted: Sequence[tuple[int, int]] = ()
) -> tuple[Buffer, Counts]:
    """Return a batch without the records that are replaced or aborted, and without tombstones if that is asked for.

    The same object if everything is kept.
    """
    header = parse_header(frame)
    everything = Counts(header.record_count, header.record_count, len(frame))
    if not _is_open(header):
        return frame, everything
    try:
        part = sound_part(header, frame, BOUNDS)
    except CorruptBatchError:
        return frame, everything._replace(plain_bytes=_unread_bytes(header, frame))
    kept = keys.table.kept(part, drop_tombstones=drop_tombstones, aborted=aborted)
    counts = Counts(header.record_count, kept.records, len(part.body))
    if kept.records == header.record_count:
        return frame, counts
    if not kept.records:
        # Its age stays, by which retention deletes it if that is configured too.
        empty = header._replace(
            attributes=header.attributes & ~COMPRESSION_MASK, base_timestamp=header.max_timestamp, record_count=0
        )
        return _frame(empty, b""), counts
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
    return header.record_count > 0 and not header.attributes & (CONTROL | TRANSACTIONAL)


def _unread_bytes(header: BatchHeader, frame: memoryview) -> int:
    """Return what it may have taken to see that a batch cannot be read."""
    return BOUNDS.bytes_max if header.attributes & COMPRESSION_MASK else len(frame)


def _frame(header: BatchHeader, body: Buffer) -> bytes:
    """Return a batch, with the size and the checksum that belong to `body`."""
    tail = _TAIL.pack(*header[5:])
    size = HEADER_BYTES + len(body) - SIZE_PREFIX_BYTES
    crc = crc32c(body, crc32c(tail))
    return b"".join((_PREFIX.pack(header.base_offset, size, header.leader_epoch, MAGIC, crc), tail, body))
