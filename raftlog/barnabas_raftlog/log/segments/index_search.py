"""Finds the rows of an offset index around an offset or a position, without loading the index. Pure.

The index of a large segment takes megabytes, and milliseconds to load. Whoever needs a few rows bisects: in memory if
they are there, else in the file, of which only the rows that the bisection looks at are read.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence

from .offset_index import INDEX_ROW_BYTES

__all__ = ["BY_OFFSET", "BY_POSITION", "Around", "ReadRows", "Row", "around", "rows_in"]

Row = tuple[int, int]  # base offset and file position of a frame
BY_OFFSET = 0
BY_POSITION = 1
Around = tuple[Row | None, Row | None]  # the last row at or before a place, and the first one after it
ReadRows = Callable[[int, int], Sequence[Row]]  # from a number on, so many

BLOCK_ROWS = 128  # read at once: 3 KiB

_ROW = struct.Struct("<8xqq")
assert _ROW.size == INDEX_ROW_BYTES


def rows_in(data: bytes | bytearray | memoryview) -> list[Row]:
    """Return the whole rows in a piece of an index file."""
    return list(_ROW.iter_unpack(data[: len(data) - len(data) % INDEX_ROW_BYTES]))


def around(count: int, read: ReadRows, by: int, place: int) -> Around:
    """Return the rows around `place`, of `count` that `read` reads; None where there is none, or none is read.

    Rows that are not in order give some answer, too; the caller does not rely on it.
    """
    low = 0
    high = count  # the first row after `place` is one of those from `low` to `high`
    while high - low > BLOCK_ROWS:
        middle = (low + high) // 2
        found = read(middle, 1)
        if not found:
            high = middle  # The file is shorter.
        elif found[0][by] <= place:
            low = middle + 1
        else:
            high = middle
    first = max(0, low - 1)
    rows = read(first, min(high + 1, count) - first)
    number = bisect_right(rows, place, key=lambda row: row[by])
    return rows[number - 1] if number else None, rows[number] if number < len(rows) else None
