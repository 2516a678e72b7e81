"""The 61-byte header of a record batch, format v2: read, written, verified. Pure.

Everything that Raft replicates is such a batch, called a *frame* here; nothing in it is decoded. A data frame comes
from a client, with base offset and leader epoch stamped in; neither is covered by the checksum, so stamping costs no
recomputation. A *control frame* holds zero records: it has a Raft index but occupies no offset (`record_count` 0,
`last_offset_delta` -1), so that offsets as clients see them stay dense. Layout: the Kafka documentation, "Record
Batch"; the meaning of a control frame's body is ours.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = [
    "BATCH_BYTES_MAX",
    "HEADER_BYTES",
    "BatchHeader",
    "ControlKind",
    "control_frame",
    "control_kind",
    "emptied_batch",
    "next_offset",
    "parse_header",
    "restamp",
    "stamp",
    "verify",
]

Buffer = bytes | bytearray | memoryview

HEADER_BYTES = 61
BATCH_BYTES_MAX = 63 << 20
"""The largest batch that is taken, in any configuration: with its description it fits a frame between nodes."""
SIZE_PREFIX_BYTES = 12  # base_offset and batch_length, which precede the bytes that batch_length counts
MAGIC_POSITION = 16
CRC_POSITION = 17
CRC_START = 21
MAGIC = 2
TRANSACTIONAL = 0x10
CONTROL = 0x20
TIMESTAMP_LOG_APPEND = 0x08
COMPRESSION_MASK = 0x07
NO_PRODUCER_ID = -1
_DELTA_MAX = (1 << 31) - 1

_LAYOUT = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_POSITION = 35


class BatchHeader(NamedTuple):
    """The header's fields in wire order. Timestamps are milliseconds since 1970; -1 means none."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Size of the whole frame, header included."""
        return SIZE_PREFIX_BYTES + self.batch_length

    @property
    def end_offset(self) -> int:
        """First offset after this batch; equals `base_offset` for a control frame of ours."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_raft_control(self) -> bool:
        """True for a frame that takes a Raft index but no offset."""
        return self.record_count == 0 and self.last_offset_delta == -1


class ControlKind(IntEnum):
    """The meaning of a control frame. Stored: never renumber."""

    NO_OP = 1  # a leader's first entry in its term (Raft paper 5.4.2 and 8)
    MEMBERSHIP = 2
    PREFIX_TRUNCATION = 3


def parse_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`.

    Raises:
        CorruptBatchError: fewer than 61 bytes are left, the magic is not 2, or `batch_length` is smaller than
            a header. The rest of the frame may still be missing, and the checksum is not looked at.
    """
    if len(data) - position < HEADER_BYTES:
        raise CorruptBatchError(f"{len(data) - position} bytes at {position}, a batch header has {HEADER_BYTES}")
    header = BatchHeader._make(_LAYOUT.unpack_from(data, position))
    if header.magic != MAGIC:
        raise CorruptBatchError(f"magic {header.magic} at {position}, only {MAGIC} is supported")
    if header.batch_length < HEADER_BYTES - SIZE_PREFIX_BYTES:
        raise CorruptBatchError(f"batch_length {header.batch_length} at {position} is smaller than a header")
    return header


def verify(frame: memoryview) -> BatchHeader:
    """Check that `frame` is exactly one intact batch, and return its header.

    Raises:
        CorruptBatchError: the size, the checksum or the counts are wrong.
    """
    header = parse_header(frame)
    if header.size_bytes != len(frame):
        raise CorruptBatchError(f"batch claims {header.size_bytes} bytes, {len(frame)} are there")
    actual = crc32c(frame[CRC_START:])
    if actual != header.crc:
        raise CorruptBatchError(
            f"checksum {actual:#010x} at offset {header.base_offset}, header says {header.crc:#010x}"
        )
    if header.is_raft_control:
        return header
    if header.last_offset_delta < 0 or header.record_count < 0:
        raise CorruptBatchError(f"{header.record_count} records up to delta {header.last_offset_delta}")
    return header


def stamp(frame: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write the two fields that a leader assigns into a writable frame. The checksum stays valid."""
    _BASE_OFFSET.pack_into(frame, 0, base_offset)
    _EPOCH.pack_into(frame, 12, leader_epoch)


def restamp(frame: bytearray | memoryview, header: BatchHeader, *, attributes: int, max_timestamp: int) -> BatchHeader:
    """Change what brokers may change of a writable frame that a client has sent; return its header from now on.

    The checksum covers both, so it is computed anew: 20 us a MiB.
    """
    _ATTRIBUTES.pack_into(frame, CRC_START, attributes)
    _MAX_TIMESTAMP.pack_into(frame, _MAX_TIMESTAMP_POSITION, max_timestamp)
    crc = crc32c(memoryview(frame)[CRC_START:])
    _CRC.pack_into(frame, CRC_POSITION, crc)
    return header._replace(crc=crc, attributes=attributes, max_timestamp=max_timestamp)


def next_offset(frame: Buffer, position: int = 0) -> int:
    """Return the first offset after the frame at `position`, without parsing the rest of its header."""
    base_offset: int = _BASE_OFFSET.unpack_from(frame, position)[0]
    delta: int = _EPOCH.unpack_from(frame, position + 23)[0]
    return base_offset + delta + 1


def emptied_batch(base_offset: int, end_offset: int, leader_epoch: int) -> bytes:
    """Return a batch without records that reaches up to `end_offset`, or as far as one can: what compaction leaves.

    A reader that is given it goes on behind it. `end_offset` is exclusive, and above `base_offset`.
    """
    delta = min(end_offset - base_offset, _DELTA_MAX) - 1
    tail = struct.pack(">hiqqqhii", 0, delta, -1, -1, NO_PRODUCER_ID, -1, -1, 0)
    size = CRC_START + len(tail) - SIZE_PREFIX_BYTES
    return struct.pack(">qiibI", base_offset, size, leader_epoch, MAGIC, crc32c(tail)) + tail


def control_frame(base_offset: int, leader_epoch: int, kind: ControlKind, body: bytes = b"") -> bytes:
    """Return a frame of zero records at `base_offset`: the end offset of the log, which it does not advance."""
    payload = bytes((kind,)) + body
    tail = struct.pack(">hiqqqhii", CONTROL, -1, -1, -1, NO_PRODUCER_ID, -1, -1, 0) + payload
    size = CRC_START + len(tail) - SIZE_PREFIX_BYTES
    return struct.pack(">qiibI", base_offset, size, leader_epoch, MAGIC, crc32c(tail)) + tail


def control_kind(frame: Buffer) -> tuple[ControlKind, bytes]:
    """Return the kind and body of a control frame.

    Raises:
        CorruptBatchError: the kind is not one this version knows, or the frame is empty.
    """
    payload = bytes(frame[HEADER_BYTES:])
    try:
        return ControlKind(payload[0]), payload[1:]
    except (IndexError, ValueError) as error:
        raise CorruptBatchError(f"control frame of unknown kind {payload[:1].hex() or '(empty)'}") from error
