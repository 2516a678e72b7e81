"""Decodes the records of one partition in a Fetch answer, a slice at a time. Pure.

This is the consumer's hot path. `barnabas_raftlog.records.reader` has the same grammar and is the model in the tests.
The records are made by the walker's `take_records`, compiled in 0.06 to 0.1 µs each (measured, with sizes that vary).
Where it is not compiled its twin takes 1 µs, and records that are all alike go through `runs.py` in a third of that.

*Slices.* A mebibyte of small records is ten thousand objects. Only as many are decoded as are wanted next, so memory
holds little more than the records in work, and the loop of a service answers other tasks in between. A batch is opened
(checked, decompressed) when its first record is due, and its plain bytes are released with its last.

*Headers.* A header may be two bytes in a batch, and is a tuple and two more objects here. So a slice ends early when
its records have `HEADERS_AT_ONCE` of them, and the few kilobytes that stand for millions are read in many slices.

*Aborted transactions* (read_committed). For the offsets that it covers, the answer names every producer with an aborted
transaction, and the offset where that began. From there to the abort marker the producer's batches are left out.
Markers are never handed out, in either isolation level, but they take an offset: so a chunk ends at `end_offset`, not
at its last record.

*Damage* is raised when the reader gets there, and everything before it is handed out first. The error names the place
and the offset behind the damaged batch, so that a caller can decide to go on there.
"""

import struct
from collections.abc import Iterable

from barnabas_clients.errors import copy_of
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.aborted import AbortedOnTheWay
from barnabas_raftlog.records.compression import DECOMPRESSED_BYTES_MAX
from barnabas_raftlog.records.header import (
    CONTROL,
    HEADER_BYTES,
    SIZE_PREFIX_BYTES,
    TIMESTAMP_LOG_APPEND,
    BatchHeader,
    verify,
)
from barnabas_raftlog.records.reader import INT64_MAX, batch_body
from barnabas_raftlog.records.walker.batch_frame import BatchFrame
from barnabas_raftlog.records.walker.twins import IS_COMPILED, skip_records, take_records

from .errors import CorruptRecordsError
from .record import HEADERS_AT_ONCE, ConsumerRecord
from .runs import Runs

__all__ = ["Aborted", "CorruptRecordsError", "FetchedRecords"]

Aborted = tuple[int, int]
"""A producer id, and the offset from which its records are left out."""

_PREFIX = struct.Struct(">qii")  # base offset, length of the rest, leader epoch
_LAST_DELTA = struct.Struct(">i")
_LAST_DELTA_POSITION = 23


class FetchedRecords:
    """The records of one partition in an answer, from `next_offset` on. For one reader.

    `start_offset` is the offset that was asked for; the first batch may begin before it. The next fetch must begin at
    `end_offset`: behind the last whole batch, or at a header that makes no sense. `last_epoch` is the leader epoch of
    the last whole batch, -1 if there is none. `size_bytes` is the size of `data`.
    """

    __slots__ = (
        "_aborted",
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
        "_position",
        "_take_records",
        "end_offset",
        "headers_taken",
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
        self.headers_taken = 0
        self._data = data
        self._limit_bytes = limit_bytes
        self._aborted = None if aborted is None else AbortedOnTheWay(aborted)
        self._frame_at = 0
        # The compiled walker reads the records where they are; its twin, and what looks for runs, want `bytes`.
        self._take_records = take_records if IS_COMPILED else Runs().take_records
        self._body: bytes | bytearray | memoryview = b""
        self._position = 0
        self._left = 0
        self._delta_min = 0  # the least distance of the next record from the base offset
        self._count = 0
        self._end_offset = 0
        self._next_frame_at = 0
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
        """Return the next records, at most `records_max`; fewer at the end, and where records have many headers.

        Moves `next_offset` behind them, and behind batches without records for the caller. An empty list, and nothing
        else, means exhausted. `headers_taken` is how many headers they have; it may be more than `HEADERS_AT_ONCE` by
        those of one record.

        Raises:
            CorruptRecordsError: the next batch is damaged. Raised again at each further call.
        """
        taken: list[ConsumerRecord] = []
        try:
            if self._failure is not None:
                raise self._failure
            self.headers_taken = 0
            while (
                (count := records_max - len(taken)) > 0
                and self.headers_taken < HEADERS_AT_ONCE
                and (self._left or self._open_next())
            ):
                self._decode(taken, min(count, self._left))
        except CorruptBatchError as error:
            if self._failure is None:
                self._failure = self._corrupt(str(error))
            if not taken:
                raise copy_of(self._failure) from None
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
            self._begin(header, frame, at + size)
            if self._left:
                return True
            self._end_batch()
        return False

    def _begin(self, header: BatchHeader, frame: memoryview, next_frame_at: int) -> None:
        """Stand before the first record of a batch that the caller has asked for."""
        body = batch_body(header, frame, self._limit_bytes)
        self._body = body if IS_COMPILED or type(body) is bytes else bytes(body)
        self._position = 0
        self._left = self._count = header.record_count
        self._delta_min = 0
        self._end_offset = header.end_offset
        self._next_frame_at = next_frame_at
        # Not by keywords: a named tuple takes 0.2 µs more then, 4 % of a batch of one record.
        self._frame = BatchFrame(
            *self.partition,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp if header.attributes & TIMESTAMP_LOG_APPEND else None,
            header.leader_epoch,
        )
        if header.base_offset < self.next_offset:
            # Records before the offset asked for are only in the batch in which the fetch began.
            passed, self._position, self._delta_min = skip_records(
                self._left, self._body, 0, self._frame, self.next_offset
            )
            self._left -= passed

    def _end_batch(self) -> None:
        """Move on to the next batch: the records of this one are used up."""
        if self._position != len(self._body):
            more = len(self._body) - self._position
            raise CorruptBatchError(f"{more} bytes follow the last of {self._count} records")
        self._pass(self._next_frame_at, self._end_offset)

    def _pass(self, next_frame_at: int, end_offset: int) -> None:
        self._frame_at = next_frame_at
        self.next_offset = max(self.next_offset, end_offset)
        self._body = b""

    def _is_left_out(self, header: BatchHeader, frame: memoryview) -> bool:
        is_aborted = self._aborted is not None and self._aborted.has(header, frame)
        return is_aborted or bool(header.attributes & CONTROL)

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
        """Append up to `count` records of the current batch to `taken`: fewer before damage, or of many headers."""
        frame = self._frame
        before = len(taken)
        first = self._count - self._left
        assert frame is not None
        try:
            self._position, headers = self._take_records(
                taken,
                count,
                HEADERS_AT_ONCE - self.headers_taken,
                self._body,
                self._position,
                frame,
                first,
                self._delta_min,
                ConsumerRecord,
            )
            self.headers_taken += headers
        finally:
            if len(taken) > before:
                self._left -= len(taken) - before
                self.next_offset = taken[-1].offset + 1
                self._delta_min = self.next_offset - frame.base_offset
        if not self._left:
            self._end_batch()
