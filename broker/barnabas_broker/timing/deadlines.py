"""Keeps points in time in a heap, from which cancelled ones are swept. Pure.

A parked request has no timer of its own: deadlines are one heap for the node, for which `timers` sets one timer.
"""

import heapq
from typing import Generic, TypeVar

__all__ = ["Deadline", "Deadlines"]

T = TypeVar("T")


class Deadline(Generic[T]):
    """A place in `Deadlines`; `cancel` makes it empty."""

    __slots__ = ("at_ms", "item")

    def __init__(self, at_ms: int, item: T | None) -> None:
        self.at_ms = at_ms
        self.item = item


class Deadlines(Generic[T]):
    """Points in time with something to do at each. Cancelled ones are swept out when they outnumber the rest."""

    __slots__ = ("_cancelled", "_heap", "_sequence")

    def __init__(self) -> None:
        # Tuples, because they compare without running Python; the sequence settles ties.
        self._heap: list[tuple[int, int, Deadline[T]]] = []
        self._sequence = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    @property
    def next_at_ms(self) -> int | None:
        """When `take_due` is next worth calling; may be early by a cancelled deadline. None: never."""
        return self._heap[0][0] if self._heap else None

    def add(self, at_ms: int, item: T) -> Deadline[T]:
        """Note that `item` is due at `at_ms`; equal times are due in the order of adding."""
        self._sequence += 1
        deadline = Deadline(at_ms, item)
        heapq.heappush(self._heap, (at_ms, self._sequence, deadline))
        return deadline

    def cancel(self, deadline: Deadline[T]) -> None:
        """Empty `deadline`. Cancelling twice, or after it was taken, has no effect."""
        if deadline.item is None:
            return
        deadline.item = None
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].item is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def take_due(self, now_ms: int, count_max: int = 1 << 62) -> list[T]:
        """Remove and return what is due at or before `now_ms`, in order of time, so many at most."""
        due: list[T] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms and len(due) < count_max:
            deadline = heapq.heappop(heap)[2]
            if deadline.item is None:
                self._cancelled -= 1
            else:
                due.append(deadline.item)
                deadline.item = None
        return due
