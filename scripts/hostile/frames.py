"""Raw connections of hostile clients, and batches whose headers may say anything.

A connection here is a plain blocking socket with a time limit, so that a broker that rightly does not read cannot hang
its caller.
"""

import socket
import struct
from collections.abc import Sequence
from typing import Any, Self

from barnabas_clients.protocol.registry import Message, decode_response, encode_request
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = [
    "Address",
    "Wire",
    "batch",
    "bomb",
    "connect",
    "frame_of",
    "one_record",
    "raw_frame",
    "send_some",
    "take_some",
]

Address = tuple[str, int]

TIMEOUT_S = 5.0
RECORDS_MAX = 1_000  # that are made; of more only the header says that they are there
RLE_BYTES = 128 << 10  # the largest block of zstd


def connect(address: Address, *, receive_buffer: int = 0, source: str = "", timeout_s: float = TIMEOUT_S) -> Any:
    """Return a connected socket; `source` is the address it comes from, for a client that wants to be many."""
    made = socket.socket()
    made.settimeout(timeout_s)
    try:
        if receive_buffer:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source:
            made.bind((source, 0))
        made.connect(address)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        made.close()
        raise
    return made


def frame_of(request: Message, version: int, correlation_id: int = 1, client_id: str | None = "hostile") -> bytes:
    """Return a whole request."""
    return b"".join(encode_request(request, version, correlation_id, client_id))


def raw_frame(api_key: int, version: int, body: bytes, client_id: bytes | None = b"hostile") -> bytes:
    """Return a request of any body; its header is that of an inflexible version."""
    length = -1 if client_id is None else len(client_id)
    head = struct.pack(">hhih", api_key, version, 1, length) + (client_id or b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


def send_some(made: socket.socket, data: bytes) -> int:
    """Send until all is gone, or until nothing goes for the socket's time limit; return the bytes that were taken."""
    view = memoryview(data)
    sent = 0
    try:
        while sent < len(view):
            sent += made.send(view[sent : sent + (1 << 20)])
    except OSError:
        pass  # It is full, or was closed: either is an answer.
    return sent


def take_some(made: socket.socket, count: int) -> bytes:
    """Return the bytes that are there, up to `count`; none if it was closed, or nothing came in time."""
    try:
        return made.recv(count)
    except OSError:
        return b""


class Wire:
    """One connection on which whole requests are asked, one after the other or many at a time."""

    def __init__(self, address: Address, timeout_s: float = 20.0) -> None:
        self.socket = connect(address, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: Message, version: int, client_id: str | None = "hostile") -> Any:
        """Return the decoded answer.

        Raises:
            OSError: the connection was closed, or nothing came in time.
        """
        self.socket.sendall(frame_of(request, version, client_id=client_id))
        return decode_response(type(request), self.receive(), version)

    def ask_all(self, requests: Sequence[Message], version: int) -> list[Any]:
        """Send them in one write and return the answers; more than a socket takes at once would wait for ever."""
        self.socket.sendall(b"".join(frame_of(request, version, n) for n, request in enumerate(requests)))
        return [decode_response(type(request), self.receive(), version) for request in requests]

    def receive(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self.socket.recv(min(size - len(found), 1 << 20))
            if not part:
                raise ConnectionError(f"closed after {len(found)} of {size} bytes")
            found += part
        return bytes(found)


def batch(  # noqa: PLR0913 - the fields of a header
    count: int = 1,
    *,
    body: bytes | None = None,
    attributes: int = 0,
    base_timestamp: int = 1_000,
    max_timestamp: int = 1_000,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    last_offset_delta: int | None = None,
    magic: int = 2,
    length: int | None = None,
    crc: int | None = None,
) -> bytes:
    """Return one batch; fields that are not given are right, and so are its records unless `body` is given."""
    if body is None:
        body = b"".join(_record(number, b"") for number in range(count)) if count <= RECORDS_MAX else bytes(7 * count)
    delta = max(count - 1, 0) if last_offset_delta is None else last_offset_delta
    times = (base_timestamp, max_timestamp)
    tail = struct.pack(">hiqqqhii", attributes, delta, *times, producer_id, epoch, sequence, count) + body
    size = len(tail) + 9 if length is None else length
    return struct.pack(">qiibI", 0, size, -1, magic, crc32c(tail) if crc is None else crc) + tail


def one_record(value_bytes: int) -> bytes:
    """Return the body of a batch of one record, which has so many bytes."""
    return _record(0, bytes(value_bytes))


def _record(number: int, value: bytes) -> bytes:
    inside = b"\0\0" + _varint(number) + b"\x01" + _varint(len(value)) + value + b"\0"
    return _varint(len(inside)) + inside


def _varint(value: int) -> bytes:
    rest = value << 1
    parts = bytearray()
    while rest > 0x7F:
        parts.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes(parts) + bytes([rest])


def bomb(size_bytes: int) -> bytes:
    """Return a zstd frame of so many zeros: four bytes for every 128 KiB (RFC 8878, RLE blocks)."""
    blocks = max(1, size_bytes // RLE_BYTES)
    # Descriptor: no checksum, no size; the window is 128 KiB (exponent 7).
    head = struct.pack("<IBB", 0xFD2FB528, 0, 7 << 3)
    whole = [struct.pack("<I", RLE_BYTES << 3 | 1 << 1 | (n == blocks - 1))[:3] + b"\0" for n in range(blocks)]
    return head + b"".join(whole)
