"""Makes an object of each record of a batch, and passes over records, in Python. Pure.

`take_records` is what consumers run on where nothing is compiled. So it is one loop with the common case inlined (a
varint of one or two bytes), which is almost three times as fast as the walk next door, and only says that a record is
damaged. Then that walk says what is wrong with it.
"""

from collections.abc import Callable
from typing import TypeVar

from barnabas_raftlog.records.walker.batch_frame import BatchFrame
from barnabas_raftlog.records.walker.faults import HEADERS_MAX

from .damage import damage_from
from .walk import INT64_MAX, INT64_MIN, Buffer, Cursor, FaultError, walk_record

__all__ = ["FAR_TIMESTAMP", "skip_records", "take_records"]

R = TypeVar("R")
New = Callable[..., R]
Header = tuple[str, bytes | None]

FAR_TIMESTAMP = 2**62
"""Closer to 0 than this, no distance of two bytes leads out of 64 bits."""


class _DamagedError(Exception):
    """A record is not sound. Never leaves this module."""


def take_records(
    taken: list[R],
    count: int,
    headers_max: int,
    data: Buffer,
    position: int,
    frame: BatchFrame,
    first: int,
    delta_min: int,
    new: New[R],
) -> tuple[int, int]:
    """Append up to `count` records of a plain body to `taken`; return the position behind them, and their headers.

    These are fewer than `count`, and at least one, if there are many headers: a header is two objects or three.

    Args:
        taken: Gets objects, which `new` makes of topic, partition, offset, timestamp (milliseconds since 1970), key,
            value, headers and leader epoch, by position.
        count: How many records there must be from `position` on; at least 1.
        headers_max: It ends behind the record with which there are so many headers, or more.
        data: The records of a batch, decompressed.
        position: Where the first of them begins.
        frame: What the header of the batch says.
        first: The number of the first of them in the batch, from 0; for messages.
        delta_min: The least distance in offset from the base offset that the first of them may have. Each must be
            beyond the one before, and within the batch.
        new: A class, or a function, that takes eight arguments.

    Raises:
        CorruptBatchError: a record is not sound. Those before it have been appended.
    """
    body = data if type(data) is bytes else bytes(data)
    try:
        return _take(taken, count, headers_max, body, position, frame, delta_min, new)
    except (IndexError, _DamagedError):
        raise damage_from(body, position, first, delta_min, frame) from None


def skip_records(count: int, data: Buffer, position: int, frame: BatchFrame, offset: int) -> tuple[int, int, int]:
    """Pass over the records below `offset`, of the `count` that a batch has from `position` on.

    Return how many these were, the position behind them, and the least distance in offset of the next one.

    Raises:
        CorruptBatchError: one of them is not sound, or the first one behind them.
    """
    cursor = Cursor(data, position)
    delta_min = 0
    for number in range(count):
        start = cursor.position
        try:
            delta = walk_record(cursor, frame.base_timestamp).offset_delta
        except FaultError:
            delta = -1
        if not delta_min <= delta <= frame.last_delta:
            raise damage_from(data, start, number, delta_min, frame)
        if frame.base_offset + delta >= offset:
            return number, start, delta_min
        delta_min = delta + 1
    return count, cursor.position, delta_min


def _take(  # noqa: C901, PLR0915 - one loop with one call is the point
    taken: list[R], count: int, enough: int, body: bytes, position: int, frame: BatchFrame, delta_min: int, new: New[R]
) -> tuple[int, int]:
    topic, number, base_offset, last_delta, base_timestamp, log_append_timestamp, epoch = frame
    append = taken.append
    header_count, size = 0, len(body)
    zigzag_min = delta_min * 2
    zigzag_max = last_delta * 2
    may_overflow = not -FAR_TIMESTAMP < base_timestamp < FAR_TIMESTAMP
    for _ in range(count):
        # Each field is a zigzag varint: even is positive. Two bytes reach to 8191; `_varint` reads longer ones.
        value = body[position]
        position += 1
        if value >= 0x80:
            value += (body[position] << 7) - 0x80
            position += 1
            if value >= 0x4000:
                value, position = _varint(body, position - 2, 32)
        end = position + (value >> 1)
        if value & 1 or end > size:
            raise _DamagedError

        # The record's own attributes, one byte behind its length, mean nothing yet.
        value = body[position + 1]
        position += 2
        if value >= 0x80:
            value += (body[position] << 7) - 0x80
            position += 1
            if value >= 0x4000:
                value, position = _varint(body, position - 2, 64)
                may_overflow = True
        timestamp = base_timestamp - (value >> 1) - 1 if value & 1 else base_timestamp + (value >> 1)

        value = body[position]
        position += 1
        if value >= 0x80:
            value += (body[position] << 7) - 0x80
            position += 1
            if value >= 0x4000:
                value, position = _varint(body, position - 2, 32)
        if value > zigzag_max or (value != zigzag_min and (value & 1 or value < zigzag_min)):
            raise _DamagedError
        zigzag_min = value + 2
        offset = base_offset + (value >> 1)

        key, content, position = _key_and_value(body, position)
        headers: tuple[Header, ...] = ()
        # Most records end with the number of their headers, 0.
        if body[position] or position + 1 != end:
            headers = _headers(body, position, end)
            header_count += len(headers)
        position = end
        if may_overflow and not INT64_MIN <= timestamp <= INT64_MAX:
            raise _DamagedError
        if log_append_timestamp is not None:
            timestamp = log_append_timestamp
        append(new(topic, number, offset, timestamp, key, content, headers, epoch))
        if headers and header_count >= enough:
            break
    return position, header_count


def _key_and_value(body: bytes, position: int) -> tuple[bytes | None, bytes | None, int]:
    """Return the key and the value that begin at `position`, and the position behind them."""
    value = body[position]
    position += 1
    if value == 1:
        key = None
    else:
        if value >= 0x80:
            value, position = _varint(body, position - 1, 32)
        start = position
        position += value >> 1
        key = body[start:position]
        if value & 1:
            _check_null(value)
            key = None

    value = body[position]
    start = position + 1
    if value == 1:
        return key, None, start
    if value >= 0x80:
        value += (body[start] << 7) - 0x80
        start += 1
        if value >= 0x4000:
            value, start = _varint(body, position, 32)
    if value & 1:
        _check_null(value)
        return key, None, start
    position = start + (value >> 1)
    return key, body[start:position], position


def _check_null(zigzag: int) -> None:
    """Check a size below zero: -1 is null, even if it takes more bytes than it needs."""
    if zigzag != 1:
        raise _DamagedError


def _headers(body: bytes, position: int, end: int) -> tuple[Header, ...]:
    """Return the headers of a record, which reach from `position` to its `end`."""
    headers: list[Header] = []
    if not body[position]:
        position += 1
    else:
        count, position = _varint(body, position, 32)
        # A header is at least two sizes.
        if count & 1 or count >> 1 > min(HEADERS_MAX, (end - position) // 2):
            raise _DamagedError
        for _ in range(count >> 1):
            name, position = _bytes(body, position, end)
            if name is None:
                raise _DamagedError
            content, position = _bytes(body, position, end)
            # As in the Java client, a name that is not UTF-8 loses its odd bytes, and not the whole batch.
            headers.append((name.decode(errors="replace"), content))
    # Positions only grow, so this one comparison also says that no field reached beyond the record.
    if position != end:
        raise _DamagedError
    return tuple(headers)


def _bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    value, position = _varint(body, position, 32)
    if value == 1:
        return None, position
    size = value >> 1
    if value & 1 or size > end - position:
        raise _DamagedError
    return body[position : position + size], position + size


def _varint(body: bytes, position: int, bits: int) -> tuple[int, int]:
    """Return the varint at `position`, still in zigzag form, and the position behind it."""
    value = shift = 0
    while shift < bits:
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return value, position
        shift += 7
    raise _DamagedError
