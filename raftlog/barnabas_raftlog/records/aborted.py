"""Tells which batches belong to aborted transactions. Pure.

A batch belongs to one producer, and is written in one of its transactions or in none, so its header is all that has to
be looked at: the whole batch is aborted, or nothing of it is.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

from .header import CONTROL, TRANSACTIONAL, BatchHeader
from .markers import ABORT, marker_type
from .reader import read_batch

__all__ = ["AbortedBatches", "AbortedOnTheWay"]


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


class AbortedOnTheWay:
    """The aborted transactions of a part of a log that is read from its front to its end.

    An answer to a fetch of committed records names each producer that has an aborted transaction in it, with the offset
    where that began, which may lie before the answer. From there to the marker that aborts it the producer's batches
    are aborted, and behind it another one may begin.
    """

    __slots__ = ("_begun", "_coming")

    def __init__(self, transactions: Iterable[tuple[int, int]]) -> None:
        """`transactions`: (producer id, offset of its first record) of each, in any order."""
        self._coming = deque(sorted(transactions, key=lambda row: row[1]))
        self._begun: set[int] = set()

    def has(self, header: BatchHeader, frame: memoryview) -> bool:
        """Tell whether the next batch is one of records that were aborted; a marker is none. Asked of every batch.

        Raises:
            CorruptBatchError: a marker cannot be read.
        """
        if header.producer_id < 0:
            return False
        while self._coming and self._coming[0][1] < header.end_offset:
            self._begun.add(self._coming.popleft()[0])
        if header.attributes & CONTROL:
            # Batches of Raft have no record, and a spent marker has none any more.
            if header.record_count and marker_type(next(read_batch(header, frame)).key) == ABORT:
                self._begun.discard(header.producer_id)
            return False
        return bool(header.attributes & TRANSACTIONAL) and header.producer_id in self._begun
