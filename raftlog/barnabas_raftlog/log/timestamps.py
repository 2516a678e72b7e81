"""Which record is the first at a timestamp, and which has the largest one (ListOffsets). Batch headers first.

The time index says in which 4 KiB to look; the headers there say which batch; only that batch is decoded, in a thread,
because it may be compressed. A batch that cannot be decoded is answered as a whole, with its first offset.

Records below the log's start do not count, also where it lies inside a segment or a batch. One exception: if the batch
that holds the start has the largest timestamp of all, but below the start, the answer is the start itself.
"""

from collections.abc import Callable
from functools import partial

from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.records.header import BatchHeader, parse_header

from .cold_reads import ColdReads, Hint
from .segment import Segment
from .tail_cache import LogTail

__all__ = ["Answer", "TimestampReads"]

Answer = tuple[int, int, int] | None  # offset, timestamp, leader epoch
LAST = 1 << 62


class TimestampReads:
    """Answers one question about one log. `segments`: each with the number of bytes that are surely in its file."""

    def __init__(
        self, cold: ColdReads, segments: list[tuple[Segment, int]], tail: LogTail, log_start_offset: int
    ) -> None:
        self._cold = cold
        self._start = log_start_offset
        self._segments = segments
        self._tail = tail

    async def first_at(self, timestamp_ms: int, end_offset: int) -> Answer:
        found = await self._first_batch(timestamp_ms, end_offset, self._start)
        if found is not None and found[0].base_offset < self._start:
            answer = await self._decode(found, timestamp_ms, end_offset, self._start)
            if answer is not None and answer[0] >= self._start:
                return answer
            found = await self._first_batch(timestamp_ms, end_offset, found[0].end_offset)
        return None if found is None else await self._decode(found, timestamp_ms, end_offset)

    async def _first_batch(
        self, timestamp_ms: int, end_offset: int, start_offset: int
    ) -> tuple[BatchHeader, memoryview] | None:
        """Return the first batch that is as late and goes beyond `start_offset`; it may begin before that."""

        def is_late(_: int, header: BatchHeader) -> bool:
            late = header.record_count > 0 and header.max_timestamp >= timestamp_ms
            return late and header.end_offset > start_offset

        for segment, size_bytes in self._segments:
            if segment.max_timestamp < timestamp_ms or segment.base_offset >= end_offset:
                continue
            await self._cold.index_of(segment)
            row_offset = segment.time_index.first_at(timestamp_ms)
            offset = LAST if row_offset is None else max(row_offset - 1, start_offset)
            hint = segment.index.before_offset(offset)
            found = await self._seek(segment, hint, size_bytes, is_late)
            if found is not None:
                return found
        for entry in self._tail.entries_from_offset(start_offset):
            header = parse_header(entry.frame)
            if is_late(entry.index, header):
                return header, memoryview(entry.frame)
        return None

    async def largest(self, end_offset: int) -> Answer:
        best: tuple[int, int] | None = None  # timestamp, -base offset
        for segment, size_bytes in self._segments:
            if segment.base_offset >= end_offset:
                break
            if self._start <= segment.max_timestamp_offset < end_offset:
                found: tuple[int, int] | None = (segment.max_timestamp, -segment.max_timestamp_offset)
            else:
                found = await self._largest_in(segment, size_bytes, end_offset)
            best = max(filter(None, (best, found)), default=None)
        if best is None or best[0] < 0:
            return None
        answer = await self._decode(await self._frame_at(-best[1]), best[0], end_offset)
        return None if answer is None else (max(answer[0], self._start), answer[1], answer[2])

    async def _largest_in(self, segment: Segment, size_bytes: int, end_offset: int) -> tuple[int, int] | None:
        """Return (timestamp, -base offset) of the latest batch of a segment that goes beyond `end_offset`."""
        await self._cold.index_of(segment)
        hint = segment.index.before_offset(end_offset - 1)
        latest = segment.time_index.latest(hint[1] + 1) if hint else None
        if latest is None or latest[1] < self._start:
            # The rows speak of what was deleted, too: from the start on, every header counts.
            hint, latest = segment.index.before_offset(self._start), None
        best = (latest[0], -latest[1]) if latest else (-1, 0)

        def note(_: int, header: BatchHeader) -> bool:
            nonlocal best
            if header.end_offset > end_offset:
                return True
            if header.record_count > 0 and header.end_offset > self._start:
                best = max(best, (header.max_timestamp, -header.base_offset))
            return False

        await self._seek(segment, hint, size_bytes, note)
        for entry in self._tail.entries_from_offset(hint[1] if hint else segment.base_offset):
            if note(entry.index, parse_header(entry.frame)):
                break
        return best

    async def _frame_at(self, offset: int) -> tuple[BatchHeader, memoryview]:
        """Return the batch that begins at `offset`."""
        for entry in self._tail.entries_from_offset(offset):
            header = parse_header(entry.frame)
            if header.base_offset == offset and header.record_count > 0:
                return header, memoryview(entry.frame)
        segment, size_bytes = next(item for item in reversed(self._segments) if item[0].base_offset <= offset)
        await self._cold.index_of(segment)

        def is_there(_: int, header: BatchHeader) -> bool:
            return header.end_offset > offset

        found = await self._seek(segment, segment.index.before_offset(offset), size_bytes, is_there)
        assert found is not None, offset
        return found

    async def _seek(
        self, segment: Segment, hint: Hint | None, size_bytes: int, found: Callable[[int, BatchHeader], bool]
    ) -> tuple[BatchHeader, memoryview] | None:
        """Return the first batch in the file for which `found`, with its bytes."""
        cold = self._cold

        def seek(blocking: bool) -> tuple[BatchHeader, memoryview] | None:
            place = cold.seek(segment, hint, size_bytes, found, blocking=blocking)
            if place is None:
                return None
            header = parse_header(cold.read(segment.log, place[2], 61, blocking=blocking))
            frame = cold.read_all(segment.log, place[2], header.size_bytes, blocking=blocking)
            return header, frame

        return await cold.run(seek)

    async def _decode(
        self, batch: tuple[BatchHeader, memoryview], timestamp_ms: int, end_offset: int, start_offset: int = 0
    ) -> Answer:
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
