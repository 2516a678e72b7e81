"""Compacts batches: of all records with one key only the latest is kept. Pure.

There are two steps. First the newest offset of every key is noted (`KeyOffsets`), then every batch is written again
without the records that a newer one has replaced (`compacted`). A record that is kept stays as it was: offset,
timestamp, headers, order. A batch keeps its place too: base offset, last offset, term, producer and sequence,
compression. One that loses all of its records stays as a header of 61 bytes. So every entry of the log still has its
frame, followers can be served from a compacted segment as from any other, and idempotence loses nothing.

*A tombstone* (null value) replaces the records before it as any value does. It is itself let go a while after it was
first seen here, so that later readers of the log never hear of the key.

*Always kept* are records without a key, which a compacted topic should not have; batches whose inside cannot be read,
and those beyond `BOUNDS`, which are not opened; transactional batches and control frames. Batches that were kept unread
are counted, so that their number can be told.

Keys are noted by a digest of 128 bits, so memory depends on their number and not on their size. Not here: which
segments, when, and how files are replaced (`compacting`).
"""

import struct
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.records.bounded import BatchBounds, bounded_body
from barnabas_raftlog.records.compression import Compression, compress
from barnabas_raftlog.records.header import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    MAGIC,
    SIZE_PREFIX_BYTES,
    TIMESTAMP_LOG_APPEND,
    TRANSACTIONAL,
    BatchHeader,
    parse_header,
)
from barnabas_raftlog.records.reader import placed_records
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = ["BOUNDS", "KEY_BYTES", "Counts", "KeyOffsets", "compacted"]

# librdkafka puts at most a million records into a batch. One takes a thread seconds, and at most 100 MiB of memory.
BOUNDS = BatchBounds(records_max=1_000_000, bytes_max=32 << 20)

# Of memory for each key: digest, offset and their share of the dictionary, rounded up from 176 measured.
KEY_BYTES = 192
DIGEST_BYTES = 16
_PREFIX = struct.Struct(">qiibI")
_TAIL = struct.Struct(">hiqqqhii")


class Counts(NamedTuple):
    """Records that were looked at, and that were kept."""

    read: int
    kept: int


class KeyOffsets:
    """The newest offset of each key. Limit: `keys_max` keys; at the limit nothing more is taken.

    `unread_count` batches were not noted because they cannot be read or are beyond `BOUNDS`, the first of them at
    `unread_offset`, -1 for none.
    """

    def __init__(self, keys_max: int) -> None:
        self.unread_count = 0
        self.unread_offset = -1
        self._offsets: dict[bytes, int] = {}
        self._keys_max = keys_max

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, frame: memoryview) -> bool:
        """Note the keys of a batch, which is newer than those noted before; False if there is no room for them all.

        The keys that were noted of such a batch are right as well, and may be used.
        """
        offsets = self._offsets
        keys_max = self._keys_max
        header = parse_header(frame)
        if not _is_open(header):
            return True
        try:
            for digest, offset in _keys(header, frame):
                if digest not in offsets and len(offsets) >= keys_max:
                    return False
                offsets[digest] = offset
        except CorruptBatchError:
            if not self.unread_count:
                self.unread_offset = header.base_offset
            self.unread_count += 1
        return True

    def is_replaced(self, key: bytes, offset: int) -> bool:
        """Tell whether a newer record with this key is known."""
        return self._offsets.get(_digest(key), -1) > offset


def compacted(frame: memoryview, keys: KeyOffsets, *, drop_tombstones: bool) -> tuple[Buffer, Counts]:
    """Return a batch without the records that are replaced, and without tombstones if that is asked for.

    The same object if everything is kept.
    """
    header = parse_header(frame)
    if not _is_open(header):
        return frame, Counts(header.record_count, header.record_count)
    kept = bytearray()
    kept_count = 0
    kept_from = 0
    position = 0
    max_timestamp = -1
    try:
        body = bounded_body(header, frame, BOUNDS)
        view = memoryview(body)
        for record, end in placed_records(header, body):
            key = record.key
            if key is not None and (keys.is_replaced(key, record.offset) or (drop_tombstones and record.value is None)):
                kept += view[kept_from:position]
                kept_from = end
            else:
                kept_count += 1
                max_timestamp = max(max_timestamp, record.timestamp)
            position = end
    except CorruptBatchError:
        return frame, Counts(header.record_count, header.record_count)
    counts = Counts(header.record_count, kept_count)
    if kept_count == header.record_count:
        return frame, counts
    kept += view[kept_from:position]
    if not kept_count:
        # Its age stays, by which retention deletes it if that is configured too.
        empty = header._replace(
            attributes=header.attributes & ~COMPRESSION_MASK, base_timestamp=header.max_timestamp, record_count=0
        )
        return _frame(empty, b""), counts
    codec = Compression(header.attributes & COMPRESSION_MASK)
    if header.attributes & TIMESTAMP_LOG_APPEND:
        max_timestamp = header.max_timestamp
    changed = header._replace(max_timestamp=max_timestamp, record_count=kept_count)
    return _frame(changed, compress(codec, kept)), counts


def _is_open(header: BatchHeader) -> bool:
    return header.record_count > 0 and not header.attributes & (CONTROL | TRANSACTIONAL)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


def _keys(header: BatchHeader, frame: memoryview) -> Iterator[tuple[bytes, int]]:
    """Yield (digest of the key, offset) of the records that have a key.

    Raises:
        CorruptBatchError: the batch cannot be read to its end, or is beyond `BOUNDS`; then nothing was yielded.
    """
    digests = bytearray()
    offsets = array("q")
    for record, _ in placed_records(header, bounded_body(header, frame, BOUNDS)):
        if record.key is not None:
            digests += _digest(record.key)
            offsets.append(record.offset)
    for number, offset in enumerate(offsets):
        yield bytes(digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]), offset


def _frame(header: BatchHeader, body: Buffer) -> bytes:
    tail = _TAIL.pack(*header[5:]) + body
    size = CRC_START + len(tail) - SIZE_PREFIX_BYTES
    assert CRC_START + len(tail) >= HEADER_BYTES
    return _PREFIX.pack(header.base_offset, size, header.leader_epoch, MAGIC, crc32c(tail)) + tail
