"""Declares what the two ends of a transfer of segments say to each other. Pure.

They are bodies of RPC calls: msgpack arrays, except for the bytes of a file, which follow their checksum (`u32`,
CRC-32C) as they are. A reader checks the shape; whether the numbers make sense is for the user of the message to see.
"""

import struct
from typing import TypeVar

import msgspec

from barnabas_raftlog.errors import BarnabasError, MalformedMessageError
from barnabas_raftlog.unpacking import UNREADABLE
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = [
    "CHUNK_BYTES_MAX",
    "DAMAGED",
    "ENTRIES",
    "MANIFEST",
    "READ",
    "CatchUpBusyError",
    "DamagedNotice",
    "EntriesRequest",
    "ManifestReply",
    "ManifestRequest",
    "ReadRequest",
    "decode",
    "encode",
    "open_chunk",
    "seal_chunk",
]

# Methods of calls between nodes.
MANIFEST = "catch-up-manifest"
READ = "catch-up-read"
DAMAGED = "catch-up-damaged"
ENTRIES = "catch-up-entries"
CHUNK_BYTES_MAX = 1 << 20  # one read, one answer, one write: 1 ms of a 10 Gbit/s link, so others hardly wait for it

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class CatchUpBusyError(BarnabasError):
    """Not now: the sender has too many transfers, or does not know its answer yet."""


class ManifestRequest(msgspec.Struct, array_like=True, frozen=True):
    """Ask for the manifest of a group from byte `position` on. `manifest_id` 0 begins a transfer."""

    group: bytes
    manifest_id: int
    position: int


class ManifestReply(msgspec.Struct, array_like=True, frozen=True):
    """`total_bytes` 0: it is still being made, `ready_count` of `file_count` checksums are known; ask again."""

    manifest_id: int
    total_bytes: int
    ready_count: int
    file_count: int
    data: bytes


class ReadRequest(msgspec.Struct, array_like=True, frozen=True):
    """Ask for bytes of a file that manifest `manifest_id` names. `manifest_id` 0: of any sealed segment."""

    group: bytes
    manifest_id: int
    base_offset: int
    first_index: int
    position: int
    size_bytes: int


class EntriesRequest(msgspec.Struct, array_like=True, frozen=True):
    """Ask for committed entries from `index` on, frame behind frame: `size_bytes` at most, but one of any size."""

    group: bytes
    index: int
    size_bytes: int


class DamagedNotice(msgspec.Struct, array_like=True, frozen=True):
    """Tell the sender that the bytes it reads from a sealed segment cannot be right. No answer."""

    group: bytes
    base_offset: int
    first_index: int


_encoder = msgspec.msgpack.Encoder()
_CRC = struct.Struct(">I")


def encode(message: msgspec.Struct) -> bytes:
    """Return the body of a request, or of an answer to `MANIFEST`."""
    return _encoder.encode(message)


def decode(body: bytes, kind: type[T]) -> T:
    """Read what `encode` wrote.

    Raises:
        MalformedMessageError: it is something else.
    """
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except UNREADABLE as error:
        raise MalformedMessageError(f"not a {kind.__name__}: {error}") from error


def seal_chunk(data: Buffer) -> bytes:
    """Return the answer to `READ`, or to `ENTRIES`."""
    return _CRC.pack(crc32c(data)) + data


def open_chunk(body: bytes) -> memoryview:
    """Return the bytes of the file, or the frames.

    Raises:
        MalformedMessageError: they were damaged on the way.
    """
    data = memoryview(body)[_CRC.size :]
    if len(body) <= _CRC.size or crc32c(data) != _CRC.unpack_from(body)[0]:
        raise MalformedMessageError(f"{len(data)} bytes of a segment do not have the checksum that came with them")
    return data
