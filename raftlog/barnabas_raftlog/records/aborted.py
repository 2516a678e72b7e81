"""Tells which batches belong to aborted transactions. Pure.

A batch belongs to one producer, and is written in one of its transactions or in none, so its header is all that has to
be looked at: the whole batch is aborted, or nothing of it is.
"""

from bisect import bisect_right
from collections.abc import Iterable

from .header import CONTROL, TRANSACTIONAL, BatchHeader

__all__ = ["AbortedBatches"]


class AbortedBatches:
    """The aborted transactions with an offset in some range, for questions about the batches in it."""

    __slots__ = ("_ranges",)

    def __init__(self, transactions: Iterable[tuple[int, int, int]] = ()) -> None:
        """`transactions`: (producer id, offset of its first record, offset of its marker) of each, in any order."""
        ranges: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first_offset, last_offset in sorted(transactions):
            ranges.setdefault(producer_id, []).append((first_offset, last_offset))
        self._ranges = ranges

    def has(self, header: BatchHeader) -> bool:
        """Tell whether a batch is one of records that were aborted; a marker is none."""
        if header.attributes & (TRANSACTIONAL | CONTROL) != TRANSACTIONAL:
            return False
        ranges = self._ranges.get(header.producer_id)
        if ranges is None:
            return False
        place = bisect_right(ranges, header.base_offset, key=_first_offset) - 1
        return place >= 0 and header.base_offset < ranges[place][1]


def _first_offset(row: tuple[int, int]) -> int:
    return row[0]
