"""Builds one record batch from records. Pure.

For clients, the command line, the metadata quorum and tests. The layout is the Kafka documentation's "Record Batch" and
"Record": a header of 61 bytes, then for each record zigzag varints for its length, its distance in time and offset from
the batch's base, the sizes of key, value and headers, and the bytes themselves. With a codec, everything behind the
header is compressed as one piece.

The base offset is 0 and the leader epoch -1 unless asked otherwise: the leader stamps both (`header.stamp`).

Deliberately not here: transaction markers (`markers`), and a builder that grows record by record with a size
estimate, which the producer's accumulator keeps.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas_raftlog.wire.crc32c import crc32c

from .compression import Compression, compress
from .header import CRC_POSITION, CRC_START, HEADER_BYTES, MAGIC, NO_PRODUCER_ID, SIZE_PREFIX_BYTES, TRANSACTIONAL

__all__ = ["Header", "NewRecord", "build_batch", "varint", "write_header"]

Buffer = bytes | bytearray | memoryview
Header = tuple[str, bytes | None]

_NULL = b"\x01"  # zigzag of -1
_BEFORE_CRC = struct.Struct(">qiib")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_CRC = struct.Struct(">I")


class NewRecord(NamedTuple):
    """A record before it has an offset. `timestamp` in milliseconds since 1970, -1 for none."""

    key: Buffer | None
    value: Buffer | None
    timestamp: int
    headers: Sequence[Header] = ()


def varint(value: int) -> bytes:
    """Return the zigzag varint of `value`, which lies in -2**63..2**63-1."""
    zigzag = (value << 1) ^ (value >> 63)
    if zigzag < 0x80:
        return _ONE_BYTE[zigzag]
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


_ONE_BYTE = [bytes((value,)) for value in range(0x80)]


def build_batch(
    records: Iterable[NewRecord],
    *,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """Return one whole batch that holds `records` at consecutive offsets; at least one record is needed."""
    pieces: list[Buffer] = []
    count = 0
    base_timestamp = -1
    max_timestamp = -1
    for key, value, timestamp, headers in records:
        if count == 0:
            base_timestamp = timestamp
            max_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
        body = [b"\x00", varint(timestamp - base_timestamp), varint(count)]
        _add_bytes(body, key)
        _add_bytes(body, value)
        body.append(varint(len(headers)))
        for name, said in headers:
            _add_bytes(body, name.encode())
            _add_bytes(body, said)
        record = b"".join(body)
        pieces += (varint(len(record)), record)
        count += 1
    assert count > 0, "a batch holds at least one record"
    payload = b"".join(pieces)

    frame = bytearray(HEADER_BYTES)
    frame += compress(compression, payload)
    write_header(
        frame,
        attributes=compression | (TRANSACTIONAL if is_transactional else 0),
        record_count=count,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    return frame


def write_header(  # noqa: PLR0913 - these are the header's fields
    frame: bytearray | memoryview,
    *,
    attributes: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> None:
    """Write the header into the first 61 bytes of `frame`, whose body is already there, checksum included.

    It may be written anew, with another sequence for example; the body stays as it is.
    """
    _BEFORE_CRC.pack_into(frame, 0, base_offset, len(frame) - SIZE_PREFIX_BYTES, leader_epoch, MAGIC)
    _AFTER_CRC.pack_into(
        frame,
        CRC_START,
        attributes,
        record_count - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    with memoryview(frame) as view, view[CRC_START:] as covered:
        _CRC.pack_into(frame, CRC_POSITION, crc32c(covered))


def _add_bytes(body: list[bytes], content: Buffer | None) -> None:
    if content is None:
        body.append(_NULL)
    else:
        body += (varint(len(content)), content)  # type: ignore[arg-type]  # join takes any buffer
