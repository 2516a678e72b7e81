"""Tracks which index is durable, if writes complete later and truncations come between. Pure.

Every append is queued under a *ticket*, a number that only grows; a completion says "everything up to ticket t is on
disk". Between the two a follower may have to truncate, and the index then lives again with another entry. So a
truncation from index i clamps every promise that is under way to i - 1: an old completion can still make the entries
*before* i durable, but it can never count an entry that was appended again in the place of the one it wrote.
"""

from bisect import bisect_right

__all__ = ["PendingIndexes"]


class PendingIndexes:
    """One log's way from "queued" to "reached". Used for durable indexes, and for indexes written to a segment.

    Invariants: tickets strictly increase from left to right, indexes never decrease, `reached` <= every queued index.
    Limit: one pair per ticket under way; the queues that hand out tickets are bounded in bytes.
    """

    __slots__ = ("_indexes", "_tickets", "reached")

    def __init__(self, reached: int) -> None:
        self.reached = reached
        # They are lists because they are mostly empty, and an empty deque takes 760 bytes, in thousands of logs.
        self._tickets: list[int] = []
        self._indexes: list[int] = []

    def __bool__(self) -> bool:
        """True while something is under way."""
        return bool(self._tickets)

    def queue(self, ticket: int, index: int) -> None:
        """Note that everything up to `index` will have been written once `ticket` completes."""
        tickets = self._tickets
        if tickets and tickets[-1] == ticket:
            self._indexes[-1] = index
        else:
            tickets.append(ticket)
            self._indexes.append(index)

    def complete(self, ticket: int) -> bool:
        """Take note that every ticket up to `ticket` has completed; return whether `reached` moved."""
        before = self.reached
        count = bisect_right(self._tickets, ticket)
        if count:
            self.reached = self._indexes[count - 1]
            del self._tickets[:count]
            del self._indexes[:count]
        return self.reached != before

    def truncate_from(self, index: int) -> None:
        """Count nothing that is under way for the entries at and after `index`, which are gone."""
        last = index - 1
        self.reached = min(self.reached, last)
        indexes = self._indexes
        # From the right, and only as far as needed: indexes never decrease.
        position = len(indexes) - 1
        while position >= 0 and indexes[position] > last:
            indexes[position] = last
            position -= 1

    def reset(self, index: int) -> None:
        """Start anew at `index`: nothing that is under way counts any more."""
        self._tickets.clear()
        self._indexes.clear()
        self.reached = index
