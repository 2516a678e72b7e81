"""Decodes the records of one partition in a Fetch answer, a slice at a time. Pure.

This is the consumer's hot path. `barnabas_raftlog.records.reader` has the same grammar and is the model in the tests.
Here it is one loop with the common case inlined (a varint of one or two bytes), which is almost three times as fast.
Records that are all alike go through `runs.py`, which is four times as fast again (measured).

*Slices.* A mebibyte of small records is ten thousand objects. Only as many are decoded as are wanted next, so memory
holds little more than the records in work, and the loop of a service answers other tasks in between. A batch is opened
(checked, decompressed) when its first record is due, and its plain bytes are released with its last.

*Aborted transactions* (read_committed). For the offsets that it covers, the answer names every producer with an aborted
transaction, and the offset where that began. From there to the abort marker the producer's batches are left out.
Markers are never handed out, in either isolation level, but they take an offset: so a chunk ends at `end_offset`, not
at its last record.

*Damage* is raised when the reader gets there, and everything before it is handed out first. The error names the place
and the offset behind the damaged batch, so that a caller can decide to go on there.
"""

import struct
from collections import deque
from collections.abc import Iterable

from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.compression import DECOMPRESSED_BYTES_MAX
from barnabas_raftlog.records.header import (
    CONTROL,
    HEADER_BYTES,
    SIZE_PREFIX_BYTES,
    TIMESTAMP_LOG_APPEND,
    TRANSACTIONAL,
    BatchHeader,
    verify,
)
from barnabas_raftlog.records.reader import INT64_MAX, INT64_MIN, batch_body

from .errors import CorruptRecordsError
from .record import ConsumerRecord, Header
from .runs import FAR_TIMESTAMP, RUN_MIN, BatchFrame, Shape, take_run

__all__ = ["Aborted", "CorruptRecordsError", "FetchedRecords"]

Aborted = tuple[int, int]
"""A producer id, and the offset from which its records are left out."""

_PREFIX = struct.Struct(">qii")  # base offset, length of the rest, leader epoch
_LAST_DELTA = struct.Struct(">i")
_LAST_DELTA_POSITION = 23
_MARKER = struct.Struct(">hh")  # version and type of a control record's key
_ABORT = 0
PLAIN_MIN = 16
"""The number of records that are decoded one by one before a run is looked for again, at first."""
PLAIN_MAX = 1024
"""The same number after runs were looked for in vain again and again."""


class FetchedRecords:
    """The records of one partition in an answer, from `next_offset` on. For one reader.

    `start_offset` is the offset that was asked for; the first batch may begin before it. The next fetch must begin at
    `end_offset`: behind the last whole batch, or at a header that makes no sense. `last_epoch` is the leader epoch of
    the last whole batch, -1 if there is none. `size_bytes` is the size of `data`.
    """

    __slots__ = (
        "_aborted",
        "_aborting",
        "_body",
        "_count",
        "_data",
        "_delta_min",
        "_end_offset",
        "_failure",
        "_frame",
        "_frame_at",
        "_left",
        "_limit_bytes",
        "_next_frame_at",
        "_plain",
        "_plain_next",
        "_position",
        "_shapes",
        "_starts_before",
        "end_offset",
        "last_epoch",
        "next_offset",
        "partition",
        "size_bytes",
        "start_offset",
    )

    def __init__(
        self,
        partition: TopicPartition,
        data: memoryview,
        start_offset: int,
        aborted: Iterable[Aborted] | None = None,
        *,
        limit_bytes: int = DECOMPRESSED_BYTES_MAX,
    ) -> None:
        """Take an answer. `aborted` is None if records of aborted transactions are wanted too (read_uncommitted)."""
        self.partition = partition
        self.start_offset = self.next_offset = start_offset
        self.size_bytes = len(data)
        self._data = data
        self._limit_bytes = limit_bytes
        self._aborted = None if aborted is None else deque(sorted(aborted, key=lambda row: row[1]))
        self._aborting: set[int] = set()
        self._frame_at = 0
        self._body = b""
        self._position = 0
        self._left = 0
        self._delta_min = 0  # the least distance of the next record from the base offset
        self._plain = 0
        self._plain_next = PLAIN_MIN
        self._count = 0
        self._end_offset = 0
        self._next_frame_at = 0
        self._starts_before = False
        self._shapes: dict[bool, Shape] = {}
        self._frame: BatchFrame | None = None
        self._failure: CorruptRecordsError | None = None
        self.end_offset, self.last_epoch = self._measure()

    @property
    def frame(self) -> bytes | bytearray:
        """The memory that it keeps: the whole answer, if `data` is a view of that."""
        return self._data.obj  # type: ignore[return-value]  # the type stubs know of no narrower type

    @property
    def is_exhausted(self) -> bool:
        return self.next_offset >= self.end_offset and self._failure is None and not self._is_damaged_at_end()

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """Return the next records, at most `records_max`; fewer only at the end.

        Moves `next_offset` behind them, and behind batches without records for the caller. An empty list means
        exhausted.

        Raises:
            CorruptRecordsError: the next batch is damaged. Raised again at each further call.
        """
        taken: list[ConsumerRecord] = []
        try:
            if self._failure is not None:
                raise self._failure
            while (count := records_max - len(taken)) > 0 and (self._left or self._open_next()):
                self._decode(taken, min(count, self._left))
        except CorruptBatchError as error:
            if self._failure is None:
                self._failure = self._corrupt(str(error))
            if not taken:
                raise self._failure.with_traceback(None) from None
        return taken

    # Batches.

    def _measure(self) -> tuple[int, int]:
        """Return `end_offset` and `last_epoch`: walk from batch to batch by their lengths alone."""
        data = self._data
        end = len(self._data)
        position = 0
        offset = self.start_offset
        epoch = -1
        while end - position >= HEADER_BYTES:
            base_offset, length, batch_epoch = _PREFIX.unpack_from(data, position)
            size = SIZE_PREFIX_BYTES + length
            if size < HEADER_BYTES or position + size > end:
                break
            after = base_offset + _LAST_DELTA.unpack_from(data, position + _LAST_DELTA_POSITION)[0] + 1
            if not 0 <= base_offset <= after <= INT64_MAX:
                break
            offset = max(offset, after)
            epoch = batch_epoch
            position += size
        return offset, epoch

    def _is_damaged_at_end(self) -> bool:
        """Say whether a header follows that makes no sense, and not just a batch that was cut off."""
        rest = len(self._data) - self._frame_at
        if self._left or rest < HEADER_BYTES:
            return False
        base_offset, length, _ = _PREFIX.unpack_from(self._data, self._frame_at)
        delta = _LAST_DELTA.unpack_from(self._data, self._frame_at + _LAST_DELTA_POSITION)[0]
        return length < HEADER_BYTES - SIZE_PREFIX_BYTES or not 0 <= base_offset <= base_offset + delta + 1 <= INT64_MAX

    def _open_next(self) -> bool:
        """Open the next batch that has records for the caller. False at the end."""
        data = self._data
        end = len(self._data)
        while end - self._frame_at >= HEADER_BYTES:
            at = self._frame_at
            size = SIZE_PREFIX_BYTES + _PREFIX.unpack_from(data, at)[1]
            if size < HEADER_BYTES:
                raise CorruptBatchError(f"a batch of {size} bytes, a header alone has {HEADER_BYTES}")
            if size > end - at:
                return False
            frame = data[at : at + size]
            header = verify(frame)
            base_offset = header.base_offset
            last_delta = header.last_offset_delta
            end_offset = base_offset + last_delta + 1
            if not 0 <= base_offset <= end_offset <= INT64_MAX:
                raise CorruptBatchError(f"offset {base_offset} and delta {last_delta} of a batch")
            if end_offset <= self.next_offset or self._is_left_out(header, frame):
                self._pass(at + size, end_offset)
                continue
            body = batch_body(header, frame, self._limit_bytes)
            self._body = body if type(body) is bytes else bytes(body)
            self._position = 0
            self._left = header.record_count
            self._delta_min = 0
            self._count = header.record_count
            self._end_offset = end_offset
            self._next_frame_at = at + size
            # Records before the offset asked for are only in the batch in which the fetch began.
            self._starts_before = base_offset < self.next_offset
            # Not by keywords: a named tuple takes 0.2 µs more then, 4 % of a batch of one record.
            self._frame = BatchFrame(
                *self.partition,
                base_offset,
                last_delta,
                header.base_timestamp,
                header.max_timestamp if header.attributes & TIMESTAMP_LOG_APPEND else None,
                header.leader_epoch,
            )
            if self._left:
                return True
            if body:
                raise CorruptBatchError(f"{len(body)} bytes in a batch of no records")
            self._pass(at + size, end_offset)
        return False

    def _pass(self, next_frame_at: int, end_offset: int) -> None:
        self._frame_at = next_frame_at
        self.next_offset = max(self.next_offset, end_offset)
        self._body = b""

    def _is_left_out(self, header: BatchHeader, frame: memoryview) -> bool:
        is_control = bool(header.attributes & CONTROL)
        if self._aborted is None or header.producer_id < 0:
            return is_control
        last_offset = header.end_offset - 1
        while self._aborted and self._aborted[0][1] <= last_offset:
            self._aborting.add(self._aborted.popleft()[0])
        if is_control:
            if _is_abort_marker(header, frame):
                self._aborting.discard(header.producer_id)
            return True
        return bool(header.attributes & TRANSACTIONAL) and header.producer_id in self._aborting

    def _corrupt(self, reason: str) -> CorruptRecordsError:
        # The checksum does not cover the base offset and the length, and they have led here.
        next_offset = self.next_offset + 1
        if len(self._data) - self._frame_at >= HEADER_BYTES:
            base = _PREFIX.unpack_from(self._data, self._frame_at)[0]
            after = base + _LAST_DELTA.unpack_from(self._data, self._frame_at + _LAST_DELTA_POSITION)[0] + 1
            if 0 <= base <= after <= self.end_offset:
                next_offset = max(next_offset, after)
        return CorruptRecordsError(self.partition, self.next_offset, next_offset, reason)

    # Records.

    def _decode(self, taken: list[ConsumerRecord], count: int) -> None:
        """Append up to `count` records of the current batch to `taken`; on damage only those before it."""
        frame = self._frame
        before = len(taken)
        assert frame is not None
        try:
            plain = self._plain
            first = self._count - self._left
            if not plain and count >= RUN_MIN and first >= self._delta_min:
                self._position = take_run(taken, self._body, self._position, count, first, frame, self._shapes)
                if len(taken) > before:
                    self._plain_next = PLAIN_MIN
                    return
                # Each look in vain doubles the distance to the next one.
                plain = self._plain_next
                self._plain_next = min(plain * 2, PLAIN_MAX)
            stretch = min(plain, count) if plain else count
            self._position = _decode(taken, stretch, self._body, self._position, frame, self._delta_min)
            self._plain = max(0, plain - stretch)
        except IndexError:
            raise CorruptBatchError(f"a record lies outside its batch of {len(self._body)} bytes") from None
        finally:
            self._left -= len(taken) - before
            if len(taken) > before:
                self._delta_min = taken[-1].offset + 1 - frame.base_offset
            self._count_taken(taken, before)

    def _count_taken(self, taken: list[ConsumerRecord], before: int) -> None:
        """Move on behind the records decoded, and to the next batch if they were the last of this one."""
        if self._starts_before:
            taken[before:] = [record for record in taken[before:] if record.offset >= self.next_offset]
        if len(taken) > before:
            self.next_offset = taken[-1].offset + 1
        if not self._left:
            if self._position != len(self._body):
                more = len(self._body) - self._position
                raise CorruptBatchError(f"{more} bytes follow the last of {self._count} records")
            self._pass(self._next_frame_at, self._end_offset)


def _decode(  # noqa: C901, PLR0915 - one loop with one call is the point
    records: list[ConsumerRecord], count: int, body: bytes, position: int, frame: BatchFrame, delta_min: int
) -> int:
    """Append `count` records from `position` on; return the position behind them. On damage those before it stay."""
    topic, number, base_offset, last_delta, base_timestamp, log_append_timestamp, epoch = frame
    new = ConsumerRecord
    append = records.append
    size = len(body)
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
            raise CorruptBatchError(f"a record of impossible length at {position} of {size}")

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
            due = f"{zigzag_min >> 1} to {last_delta}"
            raise CorruptBatchError(f"offset delta {value >> 1} of a record where {due} is due")
        zigzag_min = value + 2
        offset = base_offset + (value >> 1)

        key, content, position = _key_and_value(body, position)
        headers: tuple[Header, ...] = ()
        # Most records end with the number of their headers, 0.
        if body[position] or position + 1 != end:
            headers = _headers(body, position, end)
        position = end
        if may_overflow and not INT64_MIN <= timestamp <= INT64_MAX:
            raise CorruptBatchError(f"timestamp {timestamp} does not fit 64 bits")
        if log_append_timestamp is not None:
            timestamp = log_append_timestamp
        append(new(topic, number, offset, timestamp, key, content, headers, epoch))
    return position


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
        raise CorruptBatchError(f"a byte string of size {-(zigzag >> 1) - 1}")


def _headers(body: bytes, position: int, end: int) -> tuple[Header, ...]:
    """Return the headers of a record, which reach from `position` to its `end`."""
    headers: list[Header] = []
    if not body[position]:
        position += 1
    else:
        count, position = _varint(body, position, 32)
        if count & 1 or count >> 1 > (end - position) // 2:  # a header is at least two sizes
            raise CorruptBatchError(f"an impossible number of headers in {end - position} bytes")
        for _ in range(count >> 1):
            name, position = _bytes(body, position, end)
            if name is None:
                raise CorruptBatchError("a header without a name")
            content, position = _bytes(body, position, end)
            # As in the Java client, a name that is not UTF-8 loses its odd bytes, and not the whole batch.
            headers.append((name.decode(errors="replace"), content))
    # Positions only grow, so this one comparison also says that no field reached beyond the record.
    if position != end:
        raise CorruptBatchError(f"a record ends at {position}, its length says {end}")
    return tuple(headers)


def _bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    value, position = _varint(body, position, 32)
    if value == 1:
        return None, position
    size = value >> 1
    if value & 1 or size > end - position:
        raise CorruptBatchError(f"a header of impossible size at {position}, the record ends at {end}")
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
    raise CorruptBatchError(f"a varint before {position} exceeds {bits} bits")


def _is_abort_marker(header: BatchHeader, frame: memoryview) -> bool:
    """Say whether a batch of one control record is an abort marker, by its key. Our batches of Raft have no record."""
    if not header.record_count:
        return False
    frame_of_marker = BatchFrame(
        topic="",
        partition=0,
        base_offset=0,
        last_delta=header.last_offset_delta,
        base_timestamp=0,
        log_append_timestamp=None,
        epoch=0,
    )
    markers: list[ConsumerRecord] = []
    body = bytes(batch_body(header, frame, DECOMPRESSED_BYTES_MAX))
    try:
        _decode(markers, 1, body, 0, frame_of_marker, 0)
    except IndexError:
        raise CorruptBatchError("a transaction marker that cannot be read") from None
    key = markers[0].key
    if key is None or len(key) < _MARKER.size:
        raise CorruptBatchError("a transaction marker without a type")
    return bool(_MARKER.unpack_from(key)[1] == _ABORT)
