"""Gives all members equally many partitions, and leaves with each what it has as far as that goes: `uniform`. Pure.

If all members subscribe to the same topics, each gets the same number of partitions, or one more, over all topics
together. What a member holds it keeps, up to that number; the rest goes to those who have less, in order. Those who
hold one more than the others already are the first to be allowed that; where too few do, the last in order get it. So
what is balanced does not move, and when a member goes only its partitions do.

Members with different subscriptions are `balance.py`'s.

Source: the rules and the results of Kafka's assignor of this name.
"""

from collections.abc import Generator, Mapping

from .balance import balanced_in_steps
from .roster import WORK, Assigned, Assignment, Roster, in_order, topic_order

__all__ = ["uniform_in_steps"]

Partition = tuple[bytes, int]
"""Topic id and partition."""


def uniform_in_steps(roster: Roster, topics: Mapping[bytes, int]) -> Generator[None, None, Assignment]:
    """Return who gets which partitions."""
    if roster.is_of_one_kind():
        return (yield from _Equal(roster, topics).assigned_in_steps())
    return (yield from balanced_in_steps(roster, topics))


class _Equal:
    """One division among members that subscribe to the same topics."""

    def __init__(self, roster: Roster, topics: Mapping[bytes, int]) -> None:
        self._roster = roster
        self._topics = topics
        self._is_kept: dict[bytes, bytearray] = {}  # a byte for each partition, topics in order
        self._revoked: list[Partition] = []
        self._kept: list[dict[bytes, list[int]]] = []  # of each member
        self._unfilled: list[tuple[int, int]] = []  # members, and how many partitions more they get

    def assigned_in_steps(self) -> Generator[None, None, Assignment]:
        topic_ids = yield from in_order(self._roster.kinds_of, topic_order)
        work = total = 0
        for topic_id in topic_ids:
            count = self._topics[topic_id]
            self._is_kept[topic_id] = bytearray(count)
            total += count
            work += 1 + count // 1_000
            if work >= WORK:
                work = 0
                yield
        yield from self._keep_in_steps(total)
        yield from self._fill_in_steps()
        assignment: Assignment = {}
        for member_id, kept in zip(self._roster.member_ids, self._kept, strict=True):
            work += 1
            given = assignment[member_id] = {}
            for topic_id, partitions in kept.items():
                given[topic_id] = tuple(sorted(partitions))
                work += 1 + len(partitions)
                if work >= WORK:
                    work = 0
                    yield
        return assignment

    def _keep_in_steps(self, total: int) -> Generator[None, None, None]:
        """Leave with all members what they may keep of so many partitions, and find out who gets how many more."""
        count = len(self._roster.member_ids)
        each, odd = divmod(total, count)
        for member, assigned in enumerate(self._roster.assigned):
            kept: dict[bytes, list[int]] = {}
            self._kept.append(kept)
            size = yield from self._keep_of(assigned, kept, each + (odd > 0))
            # The last ones have to, so that everything is somebody's.
            has_one_more = odd > 0 and (size > each or count - member <= odd)
            odd -= has_one_more
            if more := each + has_one_more - size:
                self._unfilled.append((member, more))

    def _keep_of(self, assigned: Assigned, kept: dict[bytes, list[int]], size_max: int) -> Generator[None, None, int]:
        """Move what one member may keep to `kept`, and the rest to what is revoked; return how many it keeps."""
        size = work = 0
        for topic_id in (yield from in_order(assigned.keys() & self._is_kept.keys(), topic_order)):
            is_kept = self._is_kept[topic_id]
            for partition in sorted(assigned[topic_id]):
                work += 1
                if work >= WORK:
                    work = 0
                    yield
                if not 0 <= partition < len(is_kept) or is_kept[partition]:
                    continue
                is_kept[partition] = True
                if size < size_max:
                    kept.setdefault(topic_id, []).append(partition)
                    size += 1
                else:
                    self._revoked.append((topic_id, partition))
        yield
        return size

    def _fill_in_steps(self) -> Generator[None, None, None]:
        """Give what nobody keeps to those who have less than their share."""
        unfilled = iter(self._unfilled)
        member, more = next(unfilled, (0, 0))
        for given, (topic_id, partition) in enumerate(self._unassigned(), 1):
            while not more:
                member, more = next(unfilled)
            self._kept[member].setdefault(topic_id, []).append(partition)
            more -= 1
            if not given % WORK:
                yield

    def _unassigned(self) -> Generator[Partition, None, None]:
        """Yield those that nobody had, then those that somebody may not keep."""
        for topic_id, is_kept in self._is_kept.items():
            at = is_kept.find(0)
            while at >= 0:
                yield topic_id, at
                at = is_kept.find(0, at + 1)
        yield from self._revoked
