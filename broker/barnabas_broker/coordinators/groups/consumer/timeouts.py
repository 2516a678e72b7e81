"""Keeps until when members of a group may take for something. Pure.

A member has one time or none; a new one takes the place of the old one. Those that are over before their time stay in
the heap until they are looked at, or until they are most of it.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

__all__ = ["Timeouts"]

SPARE = 100


class Timeouts:
    """See the module. `len` and `in` are of the members that have a time."""

    __slots__ = ("_heap", "_until")

    def __init__(self) -> None:
        self._until: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._until

    def __iter__(self) -> Iterator[str]:
        return iter(self._until)

    def __len__(self) -> int:
        return len(self._until)

    def set(self, member_id: str, until_ms: int) -> None:
        """Give a member until then."""
        self._until[member_id] = until_ms
        heappush(self._heap, (until_ms, member_id))
        if len(self._heap) > 2 * len(self._until) + SPARE:
            self._heap = [(until_ms, member_id) for member_id, until_ms in self._until.items()]
            heapify(self._heap)

    def drop(self, member_id: str) -> None:
        """Give a member all the time, if it had not."""
        self._until.pop(member_id, None)

    def clear(self) -> None:
        self._until.clear()
        self._heap.clear()

    @property
    def first_ms(self) -> int | None:
        """When the first time may be over, never too late. None: there is none."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int, count_max: int) -> list[str]:
        """Return whose time is over, so many of them, in order; they have none any more."""
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now_ms and len(due) < count_max:
            until_ms, member_id = heappop(self._heap)
            if self._until.get(member_id) == until_ms:
                del self._until[member_id]
                due.append(member_id)
        return due
