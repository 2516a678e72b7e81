"""The bytes of a journal file: how records are written, and how a scan tells what is really there. Pure.

A journal file is a header sector and then *batches*, one for every sync. A batch begins at a sector boundary with a
BATCH record that gives its number and its length, and goes on with the records that were waiting at that moment.

Journal files are used again and again, because writing over allocated blocks is cheaper than growing a file. So a file
is full of well-formed records of its former lives. Every checksum is therefore seeded with the sequence number in the
file's header, which is new in every life: a stale record can never pass for a new one.

What a bad record means depends on what comes after it. The *last* batch may be torn: it was never synced, nobody was
told, it is cut. But batch n + 1 is only written after batch n was synced. So if any intact batch follows a gap, then
what stood in the gap had been durable and is damaged, and `scan` says so (`damaged_at`) instead of cutting it. Between
files the same holds by another means: a file's header names its predecessor, and says up to where that is valid. A file
that was begun in place of one that had failed, and failed too, is nobody's predecessor: it does not count.

What is not here: a checksum that finds deliberate forgery, and repair.
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import msgspec

from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = [
    "FILE_HEADER_BYTES",
    "NO_GROUP",
    "RECORD_BYTES",
    "FileHeader",
    "JournalRecord",
    "QueuedRecord",
    "RecordKind",
    "Scan",
    "aligned",
    "encode_batch",
    "encode_file_header",
    "parse_file_header",
    "scan",
]

SECTOR_BYTES = 512  # the smallest unit that a disk writes whole or not at all
FILE_HEADER_BYTES = SECTOR_BYTES
FILE_MAGIC = b"BNBSJRNL"
BATCH_MAGIC = b"BNBSBTCH"
VERSION = 2  # version 1 had no `previous_sequence`: it was `sequence` - 1, and the checksum covered 16 bytes
NO_GROUP = bytes(20)

_HEADER = struct.Struct(">8sIIQQQ")  # magic, version, crc of what follows, sequence, previous_end, previous_sequence
_RECORD = struct.Struct(">IIB3x20sQQ")  # crc of what follows, payload length, kind, group, index, term
_AFTER_CRC = struct.Struct(">IB3x20sQQ")
_CRC = struct.Struct(">I")
_SEQUENCE = struct.Struct(">Q")
RECORD_BYTES = _RECORD.size


class RecordKind(IntEnum):
    """What a record says. Stored: never renumber."""

    BATCH = 1  # index: batch number; term: bytes in the batch, this record included; payload: magic
    ENTRY = 2  # index, term, payload: the frame
    HARD_STATE = 3  # term; index: voted_for + 1, or 0 for nobody
    TRUNCATE = 4  # index: first index that is gone; term: number of the truncation in this replica's life
    TRUNCATED = 5  # the segment files show truncation or snapshot number `term`; only in page-cache mode
    INSTALL = 6  # the log was emptied and starts after (index, term); payload: u64 end offset, u64 number, state file
    REPLICA = 7  # the replica was opened at last index `index`; term: 1 for page-cache mode; payload: directory name
    DELETE = 8  # the replica and its hard state are gone
    PREFIX = 9  # the segments up to entry (index, term) are gone; payload: u64 base offset of the first one left
    ADOPT = 10  # other segments take the log's place, up to (index, term); payload: u64 number, the replica's new row
    MEMBERS = 11  # the configuration of the group from entry (index, term) on; payload: the same as in the entry


QueuedRecord = tuple[int, bytes, int, int, Buffer]  # kind, group, index, term, payload


class FileHeader(NamedTuple):
    """`sequence` numbers the lives of all journal files, from 1.

    `previous_sequence`: the life that this one continues, 0 if it is the first since a start; `previous_end`: where
    that ends.
    """

    sequence: int
    previous_end: int
    previous_sequence: int


class JournalRecord(msgspec.Struct):
    """A record as found: `position` and `size_bytes` are those of its payload within the file."""

    kind: int
    group: bytes
    index: int
    term: int
    position: int
    size_bytes: int


class Scan(NamedTuple):
    """What `scan` found. `end`: where the valid part ends. `damaged_at`: where durable bytes are damaged, or None."""

    records: list[JournalRecord]
    end: int
    last_batch: int
    damaged_at: int | None


def aligned(position: int) -> int:
    """Return the first sector boundary at or after `position`."""
    return -(-position // SECTOR_BYTES) * SECTOR_BYTES


def encode_file_header(header: FileHeader) -> bytes:
    """Return the first sector of a journal file."""
    tail = struct.pack(">QQQ", *header)
    data = _HEADER.pack(FILE_MAGIC, VERSION, crc32c(tail), *header)
    return data.ljust(FILE_HEADER_BYTES, b"\0")


def parse_file_header(data: Buffer) -> FileHeader | None:
    """Return the header; None for a file that never got one (all zeros, or empty).

    Raises:
        ValueError: something else than a header is there. A sector is written whole, so this is damage.
    """
    if len(data) < FILE_HEADER_BYTES or not any(data[:FILE_HEADER_BYTES]):
        return None
    magic, version, checksum, sequence, previous_end, previous_sequence = _HEADER.unpack_from(data)
    if magic != FILE_MAGIC or crc32c(data[16 : 32 if version == 1 else _HEADER.size]) != checksum:
        raise ValueError("the file header is damaged")
    if version == 1:
        previous_sequence = sequence - 1 if previous_end else 0
    elif version != VERSION:
        raise ValueError(f"journal format {version}, this version reads {VERSION}")
    return FileHeader(sequence, previous_end, previous_sequence)


def _seed(sequence: int) -> int:
    return crc32c(_SEQUENCE.pack(sequence))


def _encode(buffers: list[Buffer], seed: int, record: QueuedRecord) -> None:
    kind, group, index, term, payload = record
    tail = _AFTER_CRC.pack(len(payload), kind, group, index, term)
    checksum = crc32c(tail, seed)
    if payload:
        checksum = crc32c(payload, checksum)
        buffers.append(_CRC.pack(checksum) + tail)
        buffers.append(payload)
    else:
        buffers.append(_CRC.pack(checksum) + tail)


def encode_batch(sequence: int, number: int, records: Iterable[QueuedRecord]) -> tuple[list[Buffer], int]:
    """Return the buffers of one batch, payloads uncopied, and their size; the batch goes to a sector boundary."""
    seed = _seed(sequence)
    buffers: list[Buffer] = [b"", b""]
    size = RECORD_BYTES + len(BATCH_MAGIC)
    for record in records:
        _encode(buffers, seed, record)
        size += RECORD_BYTES + len(record[4])
    first: list[Buffer] = []
    _encode(first, seed, (RecordKind.BATCH, NO_GROUP, number, size, BATCH_MAGIC))
    buffers[:2] = first
    return buffers, size


def _parse(data: memoryview, position: int, seed: int) -> JournalRecord | None:
    """Return the record at `position` if it is intact."""
    body = position + RECORD_BYTES
    if body > len(data):
        return None
    checksum, size, kind, group, index, term = _RECORD.unpack_from(data, position)
    if body + size > len(data):
        return None
    if crc32c(data[position + 4 : body + size], seed) != checksum:
        return None
    return JournalRecord(kind, group, index, term, body, size)


def scan(data: memoryview, sequence: int, start: int, batch_before: int) -> Scan:
    """Read the batches from sector boundary `start` on; `batch_before` is the number of the batch that ends there.

    Records of a batch that is torn are returned up to the tear: they were never acknowledged, and may be kept.
    """
    seed = _seed(sequence)
    records: list[JournalRecord] = []
    position = end = aligned(start)
    number = batch_before
    missing = number + 1  # the batch that is not wholly there
    while True:
        batch = _parse(data, position, seed)
        if batch is None or batch.kind != RecordKind.BATCH or batch.index != number + 1:
            break
        number = missing = batch.index
        end_of_batch = position + batch.term
        position = end = batch.position + batch.size_bytes
        while position < end_of_batch and (record := _parse(data, position, seed)) is not None:
            records.append(record)
            position = end = record.position + record.size_bytes
        if position != end_of_batch:
            break
        position = aligned(position)
        missing = number + 1
    later = _batch_after(data, position, seed, missing)
    return Scan(records, end, number, position if later else None)


def _batch_after(data: memoryview, position: int, seed: int, missing: int) -> bool:
    """True if an intact batch with a number above `missing` begins after `position`: then `missing` was synced."""
    # find() runs at memory speed; only its few hits are looked at.
    haystack = data.obj if isinstance(data.obj, bytes | bytearray) and len(data.obj) == len(data) else bytes(data)
    found = haystack.find(BATCH_MAGIC, position)
    while found >= 0:
        begin = found - RECORD_BYTES
        if begin % SECTOR_BYTES == 0:
            batch = _parse(data, begin, seed)
            if batch is not None and batch.kind == RecordKind.BATCH and batch.index > missing:
                return True
        found = haystack.find(BATCH_MAGIC, found + 1)
    return False
