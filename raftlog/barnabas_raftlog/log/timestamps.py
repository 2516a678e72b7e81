"""Which record is the first at a timestamp, and which has the largest one (ListOffsets). Batch headers first.

The time index says from which batch on to look; the headers from there say which it is; only that one is decoded, in a
thread, because it may be compressed. A batch that cannot be decoded is answered as a whole, with its first offset.

Records below the log's start do not count, also where it lies inside a segment or a batch. Of a batch that holds the
start the header says too much, so that one is decoded, and what follows is asked on its own.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.records.header import BatchHeader, parse_header

from .cold_reads import ColdReads, Hint
from .segment import Segment
from .tail_cache import LogTail

__all__ = ["Answer", "FilePart", "LogParts", "SegmentDroppedError", "TimestampReads"]

T = TypeVar("T")
Answer = tuple[int, int, int] | None  # offset, timestamp, leader epoch
Batch = tuple[BatchHeader, memoryview]
OFFSET_MAX = (1 << 63) - 1


class SegmentDroppedError(Exception):
    """The segment that was being read is not part of the log any more."""


class FilePart(NamedTuple):
    """What of a segment is surely in its file: so many bytes, up to `end_offset` (exclusive)."""

    segment: Segment
    size_bytes: int
    end_offset: int


class LogParts(Protocol):
    """Where the batches of a log are *now*. What was said is old after each `await`: the tail cache lets go of more."""

    def file_part(self, offset: int) -> FilePart | None:
        """Return the part of a segment's file that has `offset`; None: the tail cache has it, or nothing."""

    async def guard(self, reading: Awaitable[T], segment: Segment) -> T:
        """Await a read of `segment`; raise SegmentDroppedError if it failed because that was dropped meanwhile."""


class TimestampReads:
    """Answers one question about one log.

    The log is read by parts, from the first offset on. Where the next one is, in a file or in memory, is asked when its
    turn comes, so that nothing is missed which moves from memory to a file meanwhile; and each part ends further on, so
    that the end is reached however fast the log moves.
    """

    def __init__(self, cold: ColdReads, parts: LogParts, tail: LogTail, log_start_offset: int) -> None:
        self._cold = cold
        self._parts = parts
        self._tail = tail
        self._start = log_start_offset

    async def first_at(self, timestamp_ms: int, end_offset: int) -> Answer:
        found = await self._first_batch(timestamp_ms, end_offset, self._start)
        if found is not None and found[0].base_offset < self._start:
            answer = await self._decode(found, timestamp_ms, end_offset, self._start)
            if answer is not None and answer[0] >= self._start:
                return answer
            found = await self._first_batch(timestamp_ms, end_offset, found[0].end_offset)
        return None if found is None else await self._decode(found, timestamp_ms, end_offset)

    async def _first_batch(self, timestamp_ms: int, end_offset: int, start_offset: int) -> Batch | None:
        """Return the first batch that is as late and goes beyond `start_offset`; it may begin before that."""

        def is_late(_: int, header: BatchHeader) -> bool:
            late = header.record_count > 0 and header.max_timestamp >= timestamp_ms
            return late and header.end_offset > start_offset

        async def look(segment: Segment, size_bytes: int) -> Batch | None:
            await self._cold.index_of(segment)
            before = segment.time_index.before(timestamp_ms)
            offset = start_offset if before is None else max(before, start_offset)
            return await self._seek(segment, segment.index.before_offset(offset), size_bytes, is_late)

        found, position = await self._in_files(start_offset, end_offset, look)
        if found is not None:
            return found
        for entry in self._tail.entries_from_offset(position) if position < end_offset else ():
            header = parse_header(entry.frame)
            if is_late(entry.index, header):
                return header, memoryview(entry.frame)
        return None

    async def largest(self, end_offset: int) -> Answer:
        batch = await self._largest_batch(end_offset, self._start)
        if batch is None or batch[0].base_offset >= self._start:
            return None if batch is None else await self._decode(batch, batch[0].max_timestamp, end_offset)
        inside = await self._cold.in_thread(partial(_largest_record, *batch, self._start))
        behind = await self._largest_batch(end_offset, batch[0].end_offset)
        if behind is not None and (inside is None or behind[0].max_timestamp > inside[1]):
            return await self._decode(behind, behind[0].max_timestamp, end_offset)
        return inside

    async def _largest_batch(self, end_offset: int, start_offset: int) -> Batch | None:
        """Return the first of the batches with the largest timestamp that go beyond `start_offset`.

        It may begin before that, and its largest timestamp may be there, too.
        """
        best: tuple[int, int] | None = None  # timestamp, -base offset
        position = start_offset

        def note(_: int, header: BatchHeader) -> bool:
            nonlocal best
            if header.end_offset > end_offset:
                return True
            if header.record_count > 0 and header.end_offset > start_offset:
                best = max(filter(None, (best, (header.max_timestamp, -header.base_offset))))
            return False

        while position < end_offset and (part := self._parts.file_part(position)) is not None:
            segment = part.segment
            if start_offset <= segment.max_timestamp_offset < end_offset:
                found: tuple[int, int] | None = (segment.max_timestamp, -segment.max_timestamp_offset)
            else:
                try:
                    found = await self._parts.guard(self._largest_in(part, start_offset, end_offset, note), segment)
                except SegmentDroppedError:
                    continue
            best = max(filter(None, (best, found)), default=None)
            position = part.end_offset
        for entry in self._tail.entries_from_offset(position) if position < end_offset else ():
            if note(entry.index, parse_header(entry.frame)):
                break
        return None if best is None or best[0] < 0 else await self._batch_at(-best[1])

    async def _largest_in(
        self, part: FilePart, start_offset: int, end_offset: int, note: Callable[[int, BatchHeader], bool]
    ) -> tuple[int, int] | None:
        """Return what the time index says of a part that goes beyond `end_offset`; `note` the headers it leaves."""
        segment = part.segment
        await self._cold.index_of(segment)
        latest = segment.time_index.latest(end_offset)
        if latest is not None and latest[1] < start_offset:
            latest = None  # The rows speak of what was deleted, too: from the start on, every header counts.
        hint = segment.index.before_offset(latest[1] if latest else start_offset)
        await self._seek(segment, hint, part.size_bytes, note)
        return (latest[0], -latest[1]) if latest else None

    async def _in_files(
        self, start_offset: int, end_offset: int, look: Callable[[Segment, int], Awaitable[Batch | None]]
    ) -> tuple[Batch | None, int]:
        """Look into the files part by part; return what was found, or None, and where the part in memory begins."""
        position = start_offset
        while position < end_offset and (part := self._parts.file_part(position)) is not None:
            try:
                found = await self._parts.guard(look(part.segment, part.size_bytes), part.segment)
            except SegmentDroppedError:
                continue
            if found is not None:
                return found, position
            position = part.end_offset
        return None, position

    async def _batch_at(self, offset: int) -> Batch | None:
        """Return the batch that begins at `offset`, or the one after it if that was dropped; None: there is none."""

        def is_there(_: int, header: BatchHeader) -> bool:
            return header.record_count > 0 and header.end_offset > offset

        async def look(segment: Segment, size_bytes: int) -> Batch | None:
            await self._cold.index_of(segment)
            return await self._seek(segment, segment.index.before_offset(offset), size_bytes, is_there)

        found, position = await self._in_files(offset, OFFSET_MAX, look)
        if found is not None:
            return found
        for entry in self._tail.entries_from_offset(position):
            header = parse_header(entry.frame)
            if is_there(entry.index, header):
                return header, memoryview(entry.frame)
        return None

    async def _seek(
        self, segment: Segment, hint: Hint | None, size_bytes: int, found: Callable[[int, BatchHeader], bool]
    ) -> Batch | None:
        """Return the first batch in the file for which `found`, with its bytes."""
        cold = self._cold

        def seek(blocking: bool) -> Batch | None:
            place = cold.seek(segment, hint, size_bytes, found, blocking=blocking)
            if place is None:
                return None
            header = parse_header(cold.read(segment.log, place[2], 61, blocking=blocking))
            frame = cold.read_all(segment.log, place[2], header.size_bytes, blocking=blocking)
            return header, frame

        return await cold.run(seek)

    async def _decode(self, batch: Batch, timestamp_ms: int, end_offset: int, start_offset: int = 0) -> Answer:
        header, frame = batch
        if header.base_offset >= end_offset:
            return None
        offset, timestamp = await self._cold.in_thread(
            partial(_first_record, header, frame, timestamp_ms, start_offset)
        )
        return (offset, timestamp, header.leader_epoch) if offset < end_offset else None


def _first_record(header: BatchHeader, frame: memoryview, timestamp_ms: int, start_offset: int) -> tuple[int, int]:
    # Loaded here, because it brings the compression libraries with it and few brokers are ever asked for timestamps.
    from barnabas_raftlog.records.reader import read_batch  # noqa: PLC0415 - see above

    try:
        for record in read_batch(header, frame):
            if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                return record.offset, record.timestamp
    except BarnabasError:
        pass
    return header.base_offset, header.max_timestamp


def _largest_record(header: BatchHeader, frame: memoryview, start_offset: int) -> Answer:
    """Return the first record from `start_offset` on with the largest timestamp; None if compaction has left none."""
    from barnabas_raftlog.records.reader import read_batch  # noqa: PLC0415 - as in `_first_record`

    try:
        left = [record for record in read_batch(header, frame) if record.offset >= start_offset]
    except BarnabasError:
        return start_offset, header.max_timestamp, header.leader_epoch
    if not left:
        return None
    largest = max(left, key=lambda record: record.timestamp)
    return largest.offset, largest.timestamp, header.leader_epoch
