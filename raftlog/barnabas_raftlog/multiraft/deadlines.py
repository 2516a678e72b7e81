"""Finds the groups that are due, of ten thousand: a heap with lazy deletion. Pure.

A group's deadline moves with almost every message, nearly always to later. So a change to later only
notes the new deadline; when the old one comes up it is filed again. A change to earlier files a second entry, and the
first is recognised as outdated when it comes up. A tick with nothing due looks at the top of the heap and leaves.

Limits: the heap is rebuilt when more than half of it is outdated; `due` looks at `LOOKS_MAX` entries, most of which it
may have to file again.
"""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Deadlines"]

Item = TypeVar("Item", bound=Hashable)

SLACK = 64
LOOKS_MAX = 500  # 1 to 2 us each


class Deadlines(Generic[Item]):
    """Deadlines of items in ms. Invariant: every item with a deadline has a heap entry at or before it."""

    __slots__ = ("_filed", "_heap", "_serial", "_wanted")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Item]] = []
        self._filed: dict[Item, int] = {}  # the one heap entry of each item that counts
        self._wanted: dict[Item, int] = {}
        self._serial = 0  # breaks ties, so that items need no order and equal deadlines are served as they came

    def __len__(self) -> int:
        return len(self._wanted)

    def set(self, item: Item, deadline_ms: int | None) -> None:
        """Replace the deadline of `item`; None: it has none."""
        if deadline_ms is None:
            self._wanted.pop(item, None)
            return
        self._wanted[item] = deadline_ms
        filed_ms = self._filed.get(item)
        if filed_ms is None or deadline_ms < filed_ms:
            self._file(item, deadline_ms)

    def _file(self, item: Item, deadline_ms: int) -> None:
        self._filed[item] = deadline_ms
        self._serial += 1
        heapq.heappush(self._heap, (deadline_ms, self._serial, item))
        if len(self._heap) > 2 * len(self._filed) + SLACK:
            self._heap = [entry for entry in self._heap if self._filed.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def has_due(self, now_ms: int) -> bool:
        """Say whether `due` might return something; cheap enough for every tick."""
        return bool(self._heap) and self._heap[0][0] <= now_ms

    def due(self, now_ms: int, count_max: int) -> list[Item]:
        """Take out up to `count_max` items whose deadline has come, earliest first. They have no deadline then.

        There may be more as long as `has_due` says so.
        """
        items: list[Item] = []
        heap = self._heap
        looks_left = LOOKS_MAX
        while heap and heap[0][0] <= now_ms and len(items) < count_max and looks_left:
            looks_left -= 1
            filed_ms, _, item = heapq.heappop(heap)
            if self._filed.get(item) != filed_ms:
                continue
            del self._filed[item]
            wanted_ms = self._wanted.get(item)
            if wanted_ms is None:
                continue
            if wanted_ms > now_ms:
                self._file(item, wanted_ms)
                heap = self._heap
            else:
                del self._wanted[item]
                items.append(item)
        return items
