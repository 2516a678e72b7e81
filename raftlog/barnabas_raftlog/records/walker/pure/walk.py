"""The walk over one record, in Python. Pure."""

from typing import NamedTuple

from barnabas_raftlog.records.walker.faults import HEADERS_MAX, Fault

__all__ = ["Buffer", "Cursor", "FaultError", "Seen", "walk_record"]

Buffer = bytes | bytearray | memoryview

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


class FaultError(Exception):
    """A record is not sound. Never leaves this package."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.name)
        self.fault = fault


class Cursor:
    """A position in a body, which does not pass the `end` of its record."""

    __slots__ = ("body", "end", "position")

    def __init__(self, body: Buffer, position: int = 0, end: int = -1) -> None:
        self.body = body
        self.position = position
        self.end = len(body) if end < 0 else end

    def varint(self, bits: int) -> int:
        """Read a zigzag varint of at most 32 or 64 bits."""
        value = shift = 0
        while self.position < self.end and shift < bits:
            byte = self.body[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> bits:
                    break
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise FaultError(Fault.VARINT)

    def skip_bytes(self, size_min: int, fault: Fault) -> int:
        """Pass over a byte string, and return its size; -1 for null."""
        size = self.varint(32)
        if not size_min <= size <= self.end - self.position:
            raise FaultError(fault)
        self.position += max(size, 0)
        return size


class Seen(NamedTuple):
    """Where the parts of a record are in its body. Sizes are -1 for null; `headers_start` is behind their number."""

    offset_delta: int
    timestamp: int
    key_start: int
    key_size: int
    value_start: int
    value_size: int
    headers_start: int
    headers: int


def walk_record(cursor: Cursor, base_timestamp: int) -> Seen:
    """Walk over the record at the cursor.

    Raises:
        FaultError: it is not sound. The cursor stands where the fault was seen.
    """
    start = cursor.position
    cursor.end = len(cursor.body)
    try:
        length = cursor.varint(32)
    except FaultError:
        cursor.position = start
        raise
    end = cursor.position + length
    if length < 0 or end > cursor.end:
        raise FaultError(Fault.LENGTH)
    cursor.end = end
    if cursor.position >= end:
        raise FaultError(Fault.VARINT)
    cursor.position += 1  # the record's own attributes, which mean nothing yet
    timestamp = base_timestamp + cursor.varint(64)
    if not INT64_MIN <= timestamp <= INT64_MAX:
        raise FaultError(Fault.TIMESTAMP)
    offset_delta = cursor.varint(32)
    key_size = cursor.skip_bytes(-1, Fault.KEY)
    key_start = cursor.position - max(key_size, 0)
    value_size = cursor.skip_bytes(-1, Fault.VALUE)
    value_start = cursor.position - max(value_size, 0)
    headers = cursor.varint(32)
    if not 0 <= headers <= min(HEADERS_MAX, (end - cursor.position) // 2):  # a header is at least two sizes
        raise FaultError(Fault.HEADER_COUNT)
    headers_start = cursor.position
    for _ in range(headers):
        cursor.skip_bytes(0, Fault.HEADER_NAME)
        cursor.skip_bytes(-1, Fault.HEADER_VALUE)
    if cursor.position != end:
        raise FaultError(Fault.LONGER)
    return Seen(offset_delta, timestamp, key_start, key_size, value_start, value_size, headers_start, headers)
