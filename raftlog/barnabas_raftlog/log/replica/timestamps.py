"""Finds the first record at a timestamp, and the one with the largest (ListOffsets).

The time index says from which batch on to look; the headers from there say which batch it is; only that one is opened,
in a thread, because it may be compressed. A batch that cannot be read, or holds more than `BOUNDS`, is answered as a
whole, with its first offset and the timestamp of its header; if that is not believed (`believed_ms`), with none.

Headers are written by clients, and one may promise a timestamp that none of its records has. Then the look-up by time
goes on behind it, for `LIES_MAX` batches, which together may hold as much as `BOUNDS` allows one; and the largest
timestamp is that of its own records, which may not be the largest of all.

Records below the log's start do not count, also if it lies inside a segment or a batch. The header of a batch that
holds the start says too much, so that batch is decoded, and those behind it are asked on their own.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from barnabas_raftlog.log.segments.cold_reads import Hint
from barnabas_raftlog.records.bounded import BatchBounds, find_by_time
from barnabas_raftlog.records.header import BatchHeader, parse_header
from barnabas_raftlog.records.walker.twins import IS_COMPILED

from .reading import FilePart, SegmentDroppedError, file_part, guard
from .state import LogState

__all__ = ["TIMESTAMP_MAX", "Answer", "max_timestamp", "offset_for_timestamp"]

Answer = tuple[int, int, int] | None  # offset, timestamp, leader epoch
Batch = tuple[BatchHeader, memoryview]
OFFSET_MAX = TIMESTAMP_MAX = (1 << 63) - 1
UNKNOWN_TIMESTAMP = -1
# Any client may ask, so less than compaction opens: a fifth of a second of a read thread for each look-up. What is held
# is a piece of the batch and one record, which may be as large as all.
BYTES_MAX = 32 << 20
BOUNDS = BatchBounds(records_max=BYTES_MAX if IS_COMPILED else 100_000, bytes_max=BYTES_MAX)
HEADERS_AT_ONCE = 500  # 1 ms
LIES_MAX = 16  # batches whose records are older than their header says, one after the other


async def offset_for_timestamp(
    log: LogState, timestamp_ms: int, end_offset: int, believed_ms: int = TIMESTAMP_MAX
) -> Answer:
    """Return (offset, timestamp, epoch) of the first record at or after `timestamp_ms` and below `end_offset`.

    Records below `log_start_offset` do not count. A timestamp above `believed_ms` is only answered of a record that
    was read: -1 for a batch that says so and cannot be read.
    """
    return await _from_timestamps(log, lambda reads: reads.first_at(timestamp_ms, end_offset), believed_ms)


async def max_timestamp(log: LogState, end_offset: int, believed_ms: int = TIMESTAMP_MAX) -> Answer:
    """Return (offset, timestamp, epoch) of the first record below `end_offset` that has the largest timestamp."""
    return await _from_timestamps(log, lambda reads: reads.largest(end_offset), believed_ms)


async def _from_timestamps(
    log: LogState, ask: Callable[["_TimestampReads"], Awaitable[Answer]], believed_ms: int
) -> Answer:
    while True:
        answer = await ask(_TimestampReads(log, believed_ms))
        if answer is None or answer[0] >= log.log_start_offset:
            return answer
        # The log's start has moved beyond it meanwhile.


class _TimestampReads:
    """Answers one question about one log.

    The log is read by parts, from the first offset on. The place of the next one, in a file or in memory, is asked when
    its turn comes, so that nothing is missed that moves from memory to a file meanwhile; and each part ends further on,
    so that the end is reached however fast the log moves.
    """

    def __init__(self, log: LogState, believed_ms: int) -> None:
        """`believed_ms`: the largest timestamp that is answered without a record that has it."""
        self._log = log
        self._cold = log.shared.cold
        self._tail = log.tail
        self._start = log.log_start_offset
        self._believed_ms = believed_ms
        self._left_bytes = BOUNDS.bytes_max  # of plain records that may still be looked at

    async def first_at(self, timestamp_ms: int, end_offset: int) -> Answer:
        start_offset = self._start
        batch = None
        for _ in range(LIES_MAX):
            batch = await self._first_batch(timestamp_ms, end_offset, start_offset)
            if batch is None or batch[0].base_offset >= end_offset:
                return None
            answer = await self._cold.in_thread(partial(self._find, *batch, timestamp_ms))
            if answer is not None:
                return answer if answer[0] < end_offset else None
            start_offset = batch[0].end_offset
        assert batch is not None
        return self._whole(batch[0])

    async def _first_batch(self, timestamp_ms: int, end_offset: int, start_offset: int) -> Batch | None:
        """Return the first batch that is as late and goes beyond `start_offset`; it may begin before that."""

        def is_late(_: int, header: BatchHeader) -> bool:
            late = header.record_count > 0 and header.max_timestamp >= timestamp_ms
            return late and header.end_offset > start_offset

        async def look(part: FilePart) -> Batch | None:
            segment = part.segment
            await self._cold.index_of(segment)
            before = segment.time_index.before(timestamp_ms)
            offset = start_offset if before is None else max(before, start_offset)
            return await self._seek(part, segment.index.before_offset(offset), is_late)

        found, position = await self._in_files(start_offset, end_offset, look)
        if found is not None:
            return found
        return await self._in_memory(position, is_late) if position < end_offset else None

    async def largest(self, end_offset: int) -> Answer:
        batch = await self._largest_batch(end_offset, self._start)
        if batch is None or batch[0].base_offset >= end_offset:
            return None
        inside = await self._cold.in_thread(partial(self._find, *batch, None))
        if batch[0].base_offset >= self._start:
            return inside
        behind = await self._largest_batch(end_offset, batch[0].end_offset)
        if behind is None or behind[0].base_offset >= end_offset:
            return inside
        if inside is None or behind[0].max_timestamp > inside[1]:
            return await self._cold.in_thread(partial(self._find, *behind, None))
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

        while position < end_offset and (part := file_part(self._log, position)) is not None:
            segment = part.segment
            if start_offset <= segment.max_timestamp_offset < end_offset:
                found: tuple[int, int] | None = (segment.max_timestamp, -segment.max_timestamp_offset)
            else:
                try:
                    found = await guard(self._log, self._largest_in(part, start_offset, end_offset, note), segment)
                except SegmentDroppedError:
                    continue
            best = max(filter(None, (best, found)), default=None)
            position = part.end_offset
        if position < end_offset:
            await self._in_memory(position, note)
        return None if best is None or best[0] < 0 else await self._batch_at(-best[1])

    async def _largest_in(
        self, part: FilePart, start_offset: int, end_offset: int, note: Callable[[int, BatchHeader], bool]
    ) -> tuple[int, int] | None:
        """Return the time index's answer for a part that goes beyond `end_offset`; `note` the headers it leaves out."""
        segment = part.segment
        await self._cold.index_of(segment)
        latest = segment.time_index.latest(end_offset)
        if latest is not None and latest[1] < start_offset:
            latest = None  # The rows also speak of deleted batches: from the start on, every header counts.
        hint = segment.index.before_offset(latest[1] if latest else start_offset)
        await self._seek(part, hint, note)
        return (latest[0], -latest[1]) if latest else None

    async def _in_files(
        self, start_offset: int, end_offset: int, look: Callable[[FilePart], Awaitable[Batch | None]]
    ) -> tuple[Batch | None, int]:
        """Look into the files part by part; return the batch found, or None, and where the part in memory begins."""
        position = start_offset
        while position < end_offset and (part := file_part(self._log, position)) is not None:
            try:
                found = await guard(self._log, look(part), part.segment)
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

        async def look(part: FilePart) -> Batch | None:
            await self._cold.index_of(part.segment)
            return await self._seek(part, part.segment.index.before_offset(offset), is_there)

        found, position = await self._in_files(offset, OFFSET_MAX, look)
        if found is not None:
            return found
        return await self._in_memory(position, is_there)

    async def _in_memory(self, position: int, found: Callable[[int, BatchHeader], bool]) -> Batch | None:
        """Return the first batch in memory for which `found`, from the one on that holds that offset.

        Small batches may be in memory by the ten thousand: others have their turn in between.
        """
        for number, entry in enumerate(self._tail.entries_from_offset(position), 1):
            header = parse_header(entry.frame)
            if found(entry.index, header):
                return header, memoryview(entry.frame)
            if not number % HEADERS_AT_ONCE:
                await asyncio.sleep(0)
        return None

    async def _seek(self, part: FilePart, hint: Hint | None, found: Callable[[int, BatchHeader], bool]) -> Batch | None:
        """Return the first batch of a part for which `found`, with its bytes.

        The indexes also name batches that are in memory alone: such a place is in no file yet, and nothing before it
        counts.
        """
        cold = self._cold
        segment, size_bytes, end_offset = part
        if hint is not None and hint[2] >= size_bytes:
            return None

        def seek(blocking: bool) -> Batch | None:
            place = cold.seek(segment, hint, size_bytes, found, end_offset=end_offset, blocking=blocking)
            if place is None:
                return None
            header = parse_header(cold.read(segment.log, place[2], 61, blocking=blocking))
            frame = cold.read_all(segment.log, place[2], header.size_bytes, blocking=blocking)
            return header, frame

        return await cold.run(seek)

    # In a thread.

    def _find(self, header: BatchHeader, frame: memoryview, wanted_ms: int | None) -> Answer:
        """Return the first record at `wanted_ms` or later, or the first with the largest timestamp.

        None if there is none: the header may say more than the records, and compaction may have left none.
        """
        bounds = BOUNDS._replace(bytes_max=min(BOUNDS.bytes_max, self._left_bytes))
        found = find_by_time(header, frame, bounds, start_offset=self._start, wanted_ms=wanted_ms)
        self._left_bytes -= found.plain_bytes
        if not found.is_sound:
            return self._whole(header)
        return None if found.record is None else (*found.record, header.leader_epoch)

    def _whole(self, header: BatchHeader) -> tuple[int, int, int]:
        """Answer a batch whose records say nothing."""
        timestamp = header.max_timestamp if header.max_timestamp <= self._believed_ms else UNKNOWN_TIMESTAMP
        return max(header.base_offset, self._start), timestamp, header.leader_epoch
