"""Tells how many bytes a range of offsets has, and where to cut it into parts of so many (DescribeOffsetRanges).

It is answered from the sizes of segments and the rows of their sparse indexes; no record is read, nor any header. An
end of the range that is no row is interpolated between the rows around it. Cuts are at rows, each of which is the
beginning of a batch, or at the beginning of a segment, whichever is nearest; so a part may have more or fewer bytes by
half an index interval (2 KiB), or by half a batch if those are larger. Where rows are missing (they are hints, and may
be lost) parts are larger, and never is a place told that is not in the range.

What compaction has removed has no bytes; frames of Raft's own count with the records around them.
"""

import asyncio
from bisect import bisect_right
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from barnabas_raftlog.log.segments.cold_reads import ColdReads, NotCachedError
from barnabas_raftlog.log.segments.index_search import (
    BY_OFFSET,
    BY_POSITION,
    Around,
    Row,
    around,
    rows_in,
)
from barnabas_raftlog.log.segments.offset_index import INDEX_ROW_BYTES
from barnabas_raftlog.log.segments.segment import Segment

from .state import LogState

__all__ = ["RangePart", "range_parts"]

PARTS_AT_ONCE = 32  # 2 ms


class RangePart(NamedTuple):
    """A part of a range: from the end of the one before it up to `end_offset` (exclusive), of about `size_bytes`."""

    end_offset: int
    size_bytes: int


async def range_parts(
    log: LogState, start_offset: int, end_offset: int, target_bytes: int, parts_max: int
) -> list[RangePart]:
    """Cut [start_offset, end_offset), which is in the log, about every `target_bytes`; the last part is the rest.

    Parts are as many as that makes, but no more than `parts_max`: then they do not reach the end of the range. An empty
    range has none.

    Cancellation: it has no effect.
    """
    assert target_bytes > 0
    assert parts_max > 0
    if start_offset >= end_offset:
        return []
    spans = _Spans(log, start_offset, end_offset)
    start = await spans.place_of(start_offset)
    end = max(await spans.place_of(end_offset), start)
    parts: list[RangePart] = []
    offset, place = start_offset, start
    number = 0
    while len(parts) < parts_max:
        # Multiples of the target, each once, so that roundings do not add up.
        number = max(number, (place - start) // target_bytes) + 1
        wanted = start + number * target_bytes
        cut = await spans.cut_near(wanted, offset, end_offset) if wanted < end else None
        if cut is None or end - wanted < abs(cut[1] - wanted):
            parts.append(RangePart(end_offset, max(0, end - place)))
            break
        parts.append(RangePart(cut[0], max(0, cut[1] - place)))
        offset, place = cut[0], max(place, cut[1])
        if not len(parts) % PARTS_AT_ONCE:
            await asyncio.sleep(0)
    return parts


class _Spans:
    """The segments that a range touches, as they were at the beginning, laid end to end.

    A *place* is a number of bytes from the beginning of the first of them. Segments may be dropped or replaced
    meanwhile: then their rows are missing.
    """

    def __init__(self, log: LogState, start_offset: int, end_offset: int) -> None:
        self._cold = log.shared.cold
        first = max(0, bisect_right(log.segments, start_offset, key=_base_offset) - 1)
        behind = bisect_right(log.segments, end_offset, key=_base_offset)
        self._segments = log.segments[first:behind]
        self._offsets = [segment.base_offset for segment in self._segments]
        self._offsets.append(log.segments[behind].base_offset if behind < len(log.segments) else log.log_end_offset)
        self._places = list(accumulate((segment.size_bytes for segment in self._segments), initial=0))

    async def place_of(self, offset: int) -> int:
        """Return about where the batch that has `offset` is."""
        number = max(0, bisect_right(self._offsets, offset, hi=len(self._segments)) - 1)
        first, last = self._ends(number)
        if offset <= first[0]:
            return first[1]
        before, after = await self._around(number, BY_OFFSET, offset)
        if after[0] <= before[0]:
            return before[1]
        return before[1] + (after[1] - before[1]) * (min(offset, last[0]) - before[0]) // (after[0] - before[0])

    async def cut_near(self, place: int, start_offset: int, end_offset: int) -> Row | None:
        """Return offset and place of the cut nearest to `place` within the range, ends excluded; None: there is none.

        If all before `place` are too early it is the next one.
        """
        while True:
            number = bisect_right(self._places, place, hi=len(self._segments)) - 1
            before, after = await self._around(number, BY_POSITION, place)
            choice = [one for one in (before, after) if start_offset < one[0] < end_offset]
            if choice or after[0] >= end_offset or after[1] >= self._places[-1]:
                return min(choice, key=lambda one: abs(one[1] - place), default=None)
            place = after[1]  # Frames without records have the offset of the record behind them, however many they are.

    def _ends(self, number: int) -> tuple[Row, Row]:
        """Return the beginning and the end of a segment."""
        return (self._offsets[number], self._places[number]), (self._offsets[number + 1], self._places[number + 1])

    async def _around(self, number: int, by: int, value: int) -> tuple[Row, Row]:
        """Return the rows, or ends of the segment, around an offset or a place; with places instead of positions."""
        first, last = self._ends(number)
        origin = first[1]
        found = await _rows_around(self._cold, self._segments[number], by, value - origin if by else value)
        # An index is not verified when it is read: rows that cannot be are none.
        before, after = [
            (row[0], origin + row[1])
            if row is not None and first[0] < row[0] <= last[0] and 0 < row[1] < last[1] - origin
            else None
            for row in found
        ]
        return before or first, after or last


async def _rows_around(cold: ColdReads, segment: Segment, by: int, value: int) -> Around:
    """Return the rows of a segment around an offset or a position in its file. Rows that cannot be read are none."""
    index = segment.index
    before, after = index.in_memory_around(by, value)
    if before is None and (count := index.missing):
        # It may be loaded meanwhile: from here on, what is in memory is not looked at.
        search = partial(_search_file, cold, segment, count, by, value)
        try:
            before, in_file = await cold.run(lambda blocking: search(blocking=blocking))
        except OSError:
            return None, after
        after = in_file or after
    return before, after


def _search_file(cold: ColdReads, segment: Segment, count: int, by: int, value: int, *, blocking: bool) -> Around:
    def read(first: int, rows: int) -> list[Row]:
        wanted = rows * INDEX_ROW_BYTES
        data = cold.read(segment.index_handle, first * INDEX_ROW_BYTES, wanted, blocking=blocking)
        if len(data) < wanted and not blocking:
            raise NotCachedError
        return rows_in(data)

    return around(count, read, by, value)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
