"""Sparse indexes of a segment: where the search for an entry, offset or timestamp begins. Pure.

`OffsetIndex` has a row for about every 4 KiB of a segment: (raft_index, base_offset, file_position) of the frame that
begins there. `TimeIndex` has (max_timestamp, base_offset): the largest timestamp in the segment so far and the batch
that holds it, a row only where that grew. A row is a *hint*: readers start at the frame it names, check that its
header says what the row says, and walk the headers from there. So a row that is lost costs a longer walk and nothing
else, and index files need no sync. `parse_index` and `parse_times` drop everything from the first row that contradicts
its predecessor. That takes 0.2 ms for each thousand rows, and a segment of 1 GiB has 262,144: many are parsed in a
thread. `load` then only joins columns.

The files hold little-endian 64-bit columns, interleaved row by row, without header or checksum.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right

__all__ = [
    "INDEX_ROW_BYTES",
    "INTERVAL_BYTES",
    "TIME_ROW_BYTES",
    "Columns",
    "OffsetIndex",
    "TimeIndex",
    "parse_index",
    "parse_times",
]

Columns = tuple["array[int]", ...]
"""The columns of rows that follow each other, as many rows in each."""

INTERVAL_BYTES = 4096  # Kafka's index.interval.bytes
INDEX_ROW_BYTES = 24
TIME_ROW_BYTES = 16


def _interleave(columns: tuple["array[int]", ...], start: int) -> bytes:
    width = len(columns)
    flat = array("q", bytes(8 * width * (len(columns[0]) - start)))
    for number, column in enumerate(columns):
        flat[number::width] = column[start:]
    if sys.byteorder == "big":
        flat.byteswap()
    return flat.tobytes()


def _columns(data: bytes | bytearray | memoryview, width: int) -> list["array[int]"]:
    flat = array("q")
    flat.frombytes(bytes(data[: len(data) - len(data) % (8 * width)]))
    if sys.byteorder == "big":
        flat.byteswap()
    return [flat[number::width] for number in range(width)]


def parse_index(data: bytes | bytearray | memoryview) -> Columns:
    """Return the columns (index, base_offset, position) of an index file, up to the first row that makes no sense."""
    indexes, offsets, positions = _columns(data, 3)
    keep = 0
    before = (0, -1, 0)
    for index, offset, position in zip(indexes, offsets, positions, strict=True):
        if index <= before[0] or offset < before[1] or position <= before[2]:
            break
        before = (index, offset, position)
        keep += 1
    return indexes[:keep], offsets[:keep], positions[:keep]


def parse_times(data: bytes | bytearray | memoryview) -> Columns:
    """Return the columns (max_timestamp, base_offset) of a time index file in the same way."""
    timestamps, offsets = _columns(data, 2)
    keep = 0
    before = (-(1 << 63), -1)
    for timestamp, offset in zip(timestamps, offsets, strict=True):
        if timestamp <= before[0] or offset <= before[1]:
            break
        before = (timestamp, offset)
        keep += 1
    return timestamps[:keep], offsets[:keep]


class OffsetIndex:
    """Rows of one segment. Indexes and positions strictly increase, offsets never decrease.

    `stored` says how many of the rows are in the file; `missing` how many of those are not in memory (an index is
    loaded when it is first needed). Rows in memory follow the missing ones.
    """

    __slots__ = ("_indexes", "_offsets", "_positions", "missing", "stored")

    def __init__(self, stored: int = 0) -> None:
        self._indexes = array("q")
        self._offsets = array("q")
        self._positions = array("q")
        self.stored = stored
        self.missing = stored

    def __len__(self) -> int:
        return self.missing + len(self._positions)

    def add(self, index: int, base_offset: int, position: int) -> None:
        self._indexes.append(index)
        self._offsets.append(base_offset)
        self._positions.append(position)

    def before_offset(self, offset: int) -> tuple[int, int, int] | None:
        """Return the last row (index, base_offset, position) whose frame begins at or before `offset`.

        Several frames may have the same offset, because control frames take none. The data frame that holds the offset
        comes after all of those, so none before the last row matters.
        """
        return self._row(bisect_right(self._offsets, offset) - 1)

    def before_index(self, index: int) -> tuple[int, int, int] | None:
        """Return the last row whose frame is at or before `index`."""
        return self._row(bisect_right(self._indexes, index) - 1)

    def in_memory_around(self, by_position: int, place: int) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
        """Return (base_offset, position) of the last row at or before `place`, and of the first one after it.

        `place` is an offset, or a position if `by_position`. Only of the rows in memory: if the first of the two is
        None, the missing ones may have it.
        """
        offsets, positions = self._offsets, self._positions
        number = bisect_right(positions if by_position else offsets, place)
        before = (offsets[number - 1], positions[number - 1]) if number else None
        return before, (offsets[number], positions[number]) if number < len(positions) else None

    def _row(self, number: int) -> tuple[int, int, int] | None:
        assert not self.missing, "load the index first"
        return (self._indexes[number], self._offsets[number], self._positions[number]) if number >= 0 else None

    def truncate_to(self, position: int) -> None:
        """Forget the rows of frames at and after file position `position`."""
        assert not self.missing, "load the index first"
        keep = bisect_left(self._positions, position)
        del self._indexes[keep:], self._offsets[keep:], self._positions[keep:]
        self.stored = min(self.stored, keep)

    def load(self, columns: Columns, size_bytes: int) -> None:
        """Put the missing rows, parsed from the file, before those in memory, as far as they fit before them."""
        if not self.missing:
            return
        indexes, offsets, positions = columns
        end = self._positions[0] if self._positions else size_bytes
        keep = min(self.missing, bisect_left(positions, end))
        self._indexes = indexes[:keep] + self._indexes
        self._offsets = offsets[:keep] + self._offsets
        self._positions = positions[:keep] + self._positions
        self.stored = keep
        self.missing = 0

    def unload(self) -> None:
        """Give the memory back; only for rows that are all in the file."""
        if self.stored == len(self):
            self.missing = self.stored
            del self._indexes[:], self._offsets[:], self._positions[:]

    def unstored(self) -> bytes:
        """Return the rows that the file does not have yet; they belong at row `stored`."""
        return _interleave((self._indexes, self._offsets, self._positions), self.stored - self.missing)


class TimeIndex:
    """Rows of one segment. Timestamps strictly increase, offsets too. `stored` and `missing` as in `OffsetIndex`."""

    __slots__ = ("_offsets", "_timestamps", "missing", "stored")

    def __init__(self, stored: int = 0) -> None:
        self._timestamps = array("q")
        self._offsets = array("q")
        self.stored = stored
        self.missing = stored

    def __len__(self) -> int:
        return self.missing + len(self._timestamps)

    def add(self, max_timestamp: int, base_offset: int) -> None:
        """Add a row if it says something new."""
        if not self._timestamps or max_timestamp > self._timestamps[-1]:
            self._timestamps.append(max_timestamp)
            self._offsets.append(base_offset)

    def before(self, timestamp_ms: int) -> int | None:
        """Return the base offset in the last row whose timestamp is before `timestamp_ms`; None: no row has.

        The first batch with such a timestamp lies behind it: when that row was made, no batch up to it was as late.
        That holds whatever rows are lost; a bound from above, by the row after it, would not hold then.
        """
        assert not self.missing, "load the index first"
        number = bisect_left(self._timestamps, timestamp_ms) - 1
        return self._offsets[number] if number >= 0 else None

    def latest(self, end_offset: int) -> tuple[int, int] | None:
        """Return the last row (max_timestamp, base_offset) below `end_offset`."""
        assert not self.missing, "load the index first"
        number = bisect_left(self._offsets, end_offset) - 1
        return (self._timestamps[number], self._offsets[number]) if number >= 0 else None

    def truncate_to(self, end_offset: int) -> None:
        """Forget the rows of batches at and after `end_offset`."""
        assert not self.missing, "load the index first"
        keep = bisect_left(self._offsets, end_offset)
        del self._timestamps[keep:], self._offsets[keep:]
        self.stored = min(self.stored, keep)

    def load(self, columns: Columns) -> None:
        """Put the missing rows before those in memory, as `OffsetIndex.load`."""
        if not self.missing:
            return
        timestamps, offsets = columns
        keep = min(self.missing, len(timestamps))
        if self._timestamps:
            keep = min(keep, bisect_left(timestamps, self._timestamps[0]))
        self._timestamps = timestamps[:keep] + self._timestamps
        self._offsets = offsets[:keep] + self._offsets
        self.stored = keep
        self.missing = 0

    def unload(self) -> None:
        """Give the memory back; only for rows that are all in the file."""
        if self.stored == len(self):
            self.missing = self.stored
            del self._timestamps[:], self._offsets[:]

    def unstored(self) -> bytes:
        """Return the rows that the file does not have yet; they belong at row `stored`."""
        return _interleave((self._timestamps, self._offsets), self.stored - self.missing)
