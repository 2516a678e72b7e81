"""Sparse arrays of integers, which find a value in constant time. Pure."""

from array import array
from collections.abc import Iterator

__all__ = ["Column"]

CHUNK = 1024
_EMPTY = array("q", [-1]) * CHUNK


class Column:
    """Integers by position; -1 stands where nothing was put.

    Eight bytes a position once any of its chunk of 1,024 is used, so 8 KiB for one lonely value: offsets and sequence
    numbers are dense but for a few, and a wild one in a damaged history costs a chunk, not the machine.
    """

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: dict[int, array[int]] = {}

    def get(self, position: int) -> int:
        chunk = self._chunks.get(position // CHUNK)
        return -1 if chunk is None else chunk[position % CHUNK]

    def put(self, position: int, value: int) -> None:
        number = position // CHUNK
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = _EMPTY[:]
        chunk[position % CHUNK] = value

    def within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield (position, value) for each value in [start, end), in order. Costs chunks that exist, not the range."""
        if end <= start:
            return
        first = start // CHUNK
        last = (end - 1) // CHUNK
        if last - first < len(self._chunks):
            numbers = [number for number in range(first, last + 1) if number in self._chunks]
        else:
            numbers = sorted(number for number in self._chunks if first <= number <= last)
        for number in numbers:
            base = number * CHUNK
            chunk = self._chunks[number]
            for position in range(max(start, base), min(end, base + CHUNK)):
                if (value := chunk[position - base]) != -1:
                    yield position, value
