"""Compaction of batches: of all records with one key only the latest is kept. Pure.

Two steps. First the newest offset of every key is noted (`KeyOffsets`), then every batch is written again without the
records that a newer one has replaced (`compacted`). What is kept is kept as it was: offset, timestamp, headers, order.
A batch keeps its place too: base offset, last offset, term, producer and sequence, compression. One that loses all of
its records stays as a header of 61 bytes. So every entry of the log still has its frame, followers can be served from
a compacted segment as from any other, and idempotence loses nothing.

*A tombstone* (null value) replaces what came before it as any value does. It is itself let go a while after it was
first seen here, so that whoever reads the log later than that never hears of the key.

*Kept whatever they are:* records without a key, which a compacted topic should not have; batches whose inside cannot
be read; transactional batches and control frames.

Keys are noted by a digest of 128 bits, so memory depends on their number and not on their size. Not here: which
segments, when, and how files are replaced (`compacted_log`).
"""

import struct
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.records.compression import DECOMPRESSED_BYTES_MAX, Compression, compress
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
from barnabas_raftlog.records.reader import batch_body, read_batch, varint_at
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = ["KEY_BYTES", "Counts", "KeyOffsets", "compacted"]

KEY_BYTES = (
    192  # of memory for each key: digest, offset and their share of the dictionary, rounded up from 176 measured
)
DIGEST_BYTES = 16
_PREFIX, _TAIL = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")


class Counts(NamedTuple):
    """Records that were looked at, and that were kept."""

    read: int
    kept: int


class KeyOffsets:
    """The newest offset of each key. Limit: `keys_max` keys; at the limit nothing more is taken."""

    def __init__(self, keys_max: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._keys_max = keys_max

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, frame: memoryview) -> bool:
        """Note the keys of a batch, which is newer than those noted before; False if there is no room for them all.

        What was noted of such a batch is right as well, and may be used.
        """
        offsets, keys_max = self._offsets, self._keys_max
        for key, offset in _keys(frame):
            digest = _digest(key)
            if digest not in offsets and len(offsets) >= keys_max:
                return False
            offsets[digest] = offset
        return True

    def is_replaced(self, key: bytes, offset: int) -> bool:
        """Tell whether a newer record with this key is known."""
        return self._offsets.get(_digest(key), -1) > offset


def compacted(frame: memoryview, keys: KeyOffsets, *, drop_tombstones: bool) -> tuple[Buffer, Counts]:
    """Return a batch without what is replaced, and without tombstones if that is asked for.

    The same object if everything is kept.
    """
    header = parse_header(frame)
    if not _is_open(header):
        return frame, Counts(header.record_count, header.record_count)
    kept: list[memoryview] = []
    max_timestamp = -1
    try:
        body = memoryview(batch_body(header, frame, DECOMPRESSED_BYTES_MAX))
        spans = _spans(body, header.record_count)
        for (start, end), record in zip(spans, read_batch(header, frame), strict=True):
            key = record.key
            if key is not None and (keys.is_replaced(key, record.offset) or (drop_tombstones and record.value is None)):
                continue
            kept.append(body[start:end])
            max_timestamp = max(max_timestamp, record.timestamp)
    except CorruptBatchError:
        return frame, Counts(header.record_count, header.record_count)
    counts = Counts(header.record_count, len(kept))
    if len(kept) == header.record_count:
        return frame, counts
    if not kept:
        # Its age is kept with it, by which it is deleted where that is configured too.
        empty = header._replace(
            attributes=header.attributes & ~COMPRESSION_MASK, base_timestamp=header.max_timestamp, record_count=0
        )
        return _frame(empty, b""), counts
    codec = Compression(header.attributes & COMPRESSION_MASK)
    if header.attributes & TIMESTAMP_LOG_APPEND:
        max_timestamp = header.max_timestamp
    changed = header._replace(max_timestamp=max_timestamp, record_count=len(kept))
    return _frame(changed, compress(codec, b"".join(kept))), counts


def _is_open(header: BatchHeader) -> bool:
    return header.record_count > 0 and not header.attributes & (CONTROL | TRANSACTIONAL)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


def _keys(frame: memoryview) -> Iterator[tuple[bytes, int]]:
    """Yield (key, offset) of the records that have a key; nothing if the batch cannot be read to its end."""
    header = parse_header(frame)
    if not _is_open(header):
        return
    try:
        records = list(read_batch(header, frame))
    except CorruptBatchError:
        return
    for record in records:
        if record.key is not None:
            yield record.key, record.offset


def _spans(body: memoryview, count: int) -> Iterator[tuple[int, int]]:
    """Yield [start, end) of each record, its length included."""
    position = 0
    for _ in range(count):
        length, start = varint_at(body, position, len(body))
        if length < 0 or start + length > len(body):
            raise CorruptBatchError(f"record of {length} bytes at {start} of {len(body)}")
        yield position, start + length
        position = start + length


def _frame(header: BatchHeader, body: Buffer) -> bytes:
    tail = _TAIL.pack(*header[5:]) + body
    size = CRC_START + len(tail) - SIZE_PREFIX_BYTES
    assert CRC_START + len(tail) >= HEADER_BYTES
    return _PREFIX.pack(header.base_offset, size, header.leader_epoch, MAGIC, crc32c(tail)) + tail
