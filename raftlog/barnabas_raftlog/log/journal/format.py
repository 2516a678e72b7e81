"""Encodes journal files: batches of records that cannot be taken for older ones. Pure.

A journal file is a header sector and then *batches*, one for every sync. A batch begins at a sector boundary with a
BATCH record that gives its number and its length, and goes on with the records that were waiting at that moment.

Journal files are used again and again, because writing over allocated blocks is cheaper than growing a file. So a file
is full of well-formed records of its former lives. Every checksum is therefore seeded with the sequence number in the
file's header, which is new in every life: a stale record can never pass for a new one.

The meaning of a bad record depends on the bytes after it. The *last* batch may be torn: it was never synced, nobody was
told, it is cut. But batch n + 1 is only written after batch n was synced. So if any intact batch follows a gap, the
records in the gap had been durable and are damaged, and `scan` says so instead of cutting them. Between files the same
holds by another means: a file's header names its predecessor, and says up to where that is valid. A file that was begun
in place of one that had failed, and failed too, is nobody's predecessor: it does not count.

Not here: a checksum that finds deliberate forgery, and repair.
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = [
    "BATCH_MAGIC",
    "FILE_HEADER_BYTES",
    "RECORD_BYTES",
    "RECORD_HEADER",
    "SECTOR_BYTES",
    "FileHeader",
    "QueuedRecord",
    "RecordKind",
    "aligned",
    "as_stored",
    "encode_batch",
    "encode_file_header",
    "file_bytes_of",
    "is_journal_file",
    "parse_file_header",
    "record_seed",
    "stored_size",
]

SECTOR_BYTES = 512  # the smallest unit that a disk writes whole or not at all
FILE_HEADER_BYTES = SECTOR_BYTES
FILE_MAGIC = b"BNBSJRNL"
BATCH_MAGIC = b"BNBSBTCH"
NAME_DIGITS = 8
# Version 1 had no `previous_sequence`: it was `sequence` - 1, and the checksum covered 16 bytes. 2 had no STORED.
VERSION = 3

_HEADER = struct.Struct(">8sIIQQQ")  # magic, version, crc of what follows, sequence, previous_end, previous_sequence
RECORD_HEADER = struct.Struct(">IIB3x20sQQ")  # crc of what follows, payload length, kind, group, index, term
_AFTER_CRC = struct.Struct(">IB3x20sQQ")
_CRC = struct.Struct(">I")
_SEQUENCE = struct.Struct(">Q")
_PLACE = struct.Struct(">QQ")
_SIZE = struct.Struct(">I")
_FILE_BYTES = struct.Struct(">Q12x")  # in the place of a BATCH record's group
PLACE_BYTES = _PLACE.size
RECORD_BYTES = RECORD_HEADER.size


class RecordKind(IntEnum):
    """The meanings of records. The numbers are stored: never change one."""

    # index: batch number; term: bytes in the batch, this record included; payload: magic; the group begins with a u64:
    # how long the file is for certain (the first batch of a file: when that batch is durable), 0 from older versions
    BATCH = 1
    ENTRY = 2  # index, term, payload: the frame
    HARD_STATE = 3  # term; index: voted_for + 1, or 0 for nobody
    TRUNCATE = 4  # index: first index that is gone; term: number of the truncation in this replica's life
    TRUNCATED = 5  # the segment files show truncation or snapshot number `term`; only in page-cache mode
    # the log was emptied and starts after (index, term); payload: u64 end offset, u64 number with `PARTIAL_BIT` set for
    # a witness's log, `encode_place` if so, state file
    INSTALL = 6
    REPLICA = 7  # the replica was opened at last index `index`; term: 1 for page-cache mode; payload: directory name
    DELETE = 8  # the replica is gone, and unless term is `LEFT_BEHIND` its hard state; index: its own ticket
    # the segments up to entry (index, term) are gone; payload: u64 base offset of the first one left, `encode_place` of
    # a witness's log
    PREFIX = 9
    ADOPT = 10  # other segments take the log's place, up to (index, term); payload: u64 number, the replica's new row
    MEMBERS = 11  # the configuration of the group from entry (index, term) on; payload: the same as in the entry
    CERTAIN = 12  # the replica has all again that it had ever acknowledged
    # index, term: an entry whose frame is in its segment file, synced, as are all before it; payload: u32 size of the
    # frame
    STORED = 13


ENTRY = int(RecordKind.ENTRY)
STORED = int(RecordKind.STORED)
PARTIAL_BIT = 63
LEFT_BEHIND = 1
QueuedRecord = tuple[int, bytes, int, int, Buffer]  # kind, group, index, term, payload


def encode_place(place: tuple[int, int] | None) -> bytes:
    """Return (term, index) in 16 bytes; nothing for None."""
    return b"" if place is None else _PLACE.pack(*place)


def decode_place(data: bytes) -> tuple[int, int] | None:
    """Read what `encode_place` wrote at the beginning of `data`; None if that is too short."""
    if len(data) < _PLACE.size:
        return None
    term, index = _PLACE.unpack_from(data)
    return term, index


def as_stored(record: QueuedRecord) -> QueuedRecord:
    """Return the record that stands for `record` when its frame is in a segment file; itself if it is no ENTRY."""
    kind, group, index, term, frame = record
    return (STORED, group, index, term, _SIZE.pack(len(frame))) if kind == ENTRY else record


def stored_size(payload: Buffer) -> int:
    """Return the size of the frame, in bytes, that a STORED record with this payload speaks of."""
    (size_bytes,) = _SIZE.unpack(payload)
    assert isinstance(size_bytes, int)
    return size_bytes


def file_bytes_of(group: bytes) -> int:
    """Return how long the file is, as a BATCH record with this `group` says."""
    (file_bytes,) = _FILE_BYTES.unpack(group)
    assert isinstance(file_bytes, int)
    return file_bytes


def is_journal_file(name: str) -> bool:
    """Tell whether a file in the directory of the journal is the journal's, by its name."""
    number, _, rest = name.partition(".")
    return rest == "journal" and number.isdecimal() and len(number) >= NAME_DIGITS


class FileHeader(NamedTuple):
    """`sequence` numbers the lives of all journal files, from 1.

    `previous_sequence`: the life that this one continues, 0 if it is the first since a start; `previous_end`: where
    that ends.
    """

    sequence: int
    previous_end: int
    previous_sequence: int


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
        ValueError: the bytes are no header. A sector is written whole, so this is damage.
    """
    if len(data) < FILE_HEADER_BYTES or not any(data[:FILE_HEADER_BYTES]):
        return None
    magic, version, checksum, sequence, previous_end, previous_sequence = _HEADER.unpack_from(data)
    if magic != FILE_MAGIC or crc32c(data[16 : 32 if version == 1 else _HEADER.size]) != checksum:
        raise ValueError("the file header is damaged")
    if version == 1:
        previous_sequence = sequence - 1 if previous_end else 0
    elif version not in {2, VERSION}:
        raise ValueError(f"journal format {version}, this version reads {VERSION}")
    return FileHeader(sequence, previous_end, previous_sequence)


def record_seed(sequence: int) -> int:
    """Return the value that every checksum in the life `sequence` of a file begins with."""
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


def encode_batch(
    sequence: int, number: int, records: Iterable[QueuedRecord], file_bytes: int = 0
) -> tuple[list[Buffer], int]:
    """Return the buffers of one batch, payloads uncopied, and their size; the batch goes to a sector boundary.

    `file_bytes`: the length of the file, as far as it is durable before the batch is.
    """
    seed = record_seed(sequence)
    buffers: list[Buffer] = [b"", b""]
    size = RECORD_BYTES + len(BATCH_MAGIC)
    for record in records:
        _encode(buffers, seed, record)
        size += RECORD_BYTES + len(record[4])
    first: list[Buffer] = []
    _encode(first, seed, (RecordKind.BATCH, _FILE_BYTES.pack(file_bytes), number, size, BATCH_MAGIC))
    buffers[:2] = first
    return buffers, size
