"""Divides partitions among members that subscribe to different topics: as evenly as that goes, and little moves. Pure.

1. Everybody keeps what it has of the topics that it subscribes to.
2. What nobody has goes, topic after topic, to the subscriber that has least. Topics with many partitions for each of
   their subscribers are first, because their subscribers have the least choice.
3. Topic after topic, a subscriber that has most gives partitions to the one that has least, until they differ by one.
   What changed for one topic may let another one give again, so this goes round until nothing moves, at most
   `ROUNDS_MAX` times.

Where all subscribers of a topic subscribe to the same topics, that ends in the best there is. Where subscriptions
overlap it may end one step before it: with 9, 10 and 11 partitions, where the first and the last share no topic, and
the one between them has one with each, no topic sees a difference of more than one.

*Whose turn it is.* Among those that have least, it is the turn of the first in order, and each of them gets one before
the first gets another; among those that have most, of the last in order, who gives its last partition first.

Source: the rules and the results of Kafka's assignor `uniform` for such groups; the limit of rounds is its limit.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Final

from .roster import WORK, Assignment, Roster, in_order, topic_order

__all__ = ["ROUNDS_MAX", "balanced_in_steps"]

ROUNDS_MAX: Final = 16
"""Two are enough, unless subscriptions overlap; each of these about halves what is left to do."""
NOBODY: Final = -1
SHARED_MAX: Final = 1_000_000
"""Entries in lists of subscribers that are kept, 8 bytes each; what is more is made again each time."""


def balanced_in_steps(roster: Roster, topics: Mapping[bytes, int]) -> Generator[None, None, Assignment]:
    """Return who gets which partitions."""
    return (yield from _Balance(roster, topics).assigned_in_steps())


class _Balance:
    """One division."""

    def __init__(self, roster: Roster, topics: Mapping[bytes, int]) -> None:
        self._roster = roster
        self._topics = topics
        self._sizes = [0] * len(roster.member_ids)
        """Partitions of each member."""
        self._owners: dict[bytes, list[int]] = {}
        """Topic id to the member that has each partition."""
        self._least: list[int | None] = [None] * len(roster.kinds)
        """The smallest size in each kind; None: not known since somebody's changed."""
        self._shared: dict[tuple[int, ...], list[int]] = {}
        self._shared_count = 0

    def assigned_in_steps(self) -> Generator[None, None, Assignment]:
        for topic_id in self._roster.kinds_of:
            self._owners[topic_id] = [NOBODY] * self._topics[topic_id]
            if not len(self._owners) % (WORK // 4):
                yield
        yield from self._keep_in_steps()
        order = yield from in_order(self._owners, self._topic_order)
        with_choice = []
        for topic_id in order:
            yield from self._fill_in_steps(topic_id)
            if self._has_choice(topic_id):
                with_choice.append(topic_id)
            yield
        for _ in range(ROUNDS_MAX):
            moved = 0
            for topic_id in with_choice:
                moved += yield from self._level_in_steps(topic_id)
            if not moved:
                break
        return (yield from self._result_in_steps())

    def _topic_order(self, topic_id: bytes) -> tuple[float, int, tuple[int, int]]:
        kinds = self._roster.kinds_of[topic_id]
        count = sum(len(self._roster.kinds[kind]) for kind in kinds)
        return -self._topics[topic_id] / count, count, topic_order(topic_id)

    def _has_choice(self, topic_id: bytes) -> bool:
        kinds = self._roster.kinds_of[topic_id]
        return len(kinds) > 1 or len(self._roster.kinds[kinds[0]]) > 1

    def _subscribers(self, topic_id: bytes) -> list[int]:
        kinds = tuple(self._roster.kinds_of[topic_id])
        if len(kinds) == 1:
            return self._roster.kinds[kinds[0]]
        known = self._shared.get(kinds)
        if known is None:
            known = self._roster.subscribers(kinds)
            if self._shared_count + len(known) <= SHARED_MAX:
                self._shared[kinds] = known
                self._shared_count += len(known)
        return known

    def _give(self, topic_id: bytes, partition: int, member: int) -> None:
        owners = self._owners[topic_id]
        before = owners[partition]
        if before != NOBODY:
            self._sizes[before] -= 1
            self._least[self._roster.kind_of[before]] = None
        owners[partition] = member
        self._sizes[member] += 1
        self._least[self._roster.kind_of[member]] = None

    def _keep_in_steps(self) -> Generator[None, None, None]:
        work = 0
        for member, assigned in enumerate(self._roster.assigned):
            wanted = self._roster.wanted[self._roster.kind_of[member]]
            for topic_id, partitions in assigned.items():
                owners = self._owners[topic_id] if topic_id in wanted else []
                for partition in (*partitions, NOBODY):
                    if 0 <= partition < len(owners) and owners[partition] == NOBODY:
                        self._give(topic_id, partition, member)
                    work += 1
                    if work >= WORK:
                        work = 0
                        yield

    def _fill_in_steps(self, topic_id: bytes) -> Generator[None, None, None]:
        """Give what nobody has of a topic to those of its subscribers that have least."""
        owners = self._owners[topic_id]
        if NOBODY not in owners:
            return
        order = sorted(self._subscribers(topic_id), key=self._sizes.__getitem__)
        yield
        turns = _poorest([self._sizes[member] for member in order])
        for partition, owner in enumerate(owners):
            if owner == NOBODY:
                self._give(topic_id, partition, order[next(turns)[1]])
            if partition % WORK == WORK - 1:
                yield

    def _level_in_steps(self, topic_id: bytes) -> Generator[None, None, int]:
        """Move partitions of a topic from those that have most to those that have least; return how many."""
        owners = self._owners[topic_id]
        most = max(map(self._sizes.__getitem__, owners), default=0)
        yield
        if most - self._least_of(topic_id) <= 1:
            return 0
        held: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            held.setdefault(owner, []).append(partition)
            if partition % WORK == WORK - 1:
                yield
        takers = sorted(self._subscribers(topic_id), key=self._sizes.__getitem__)
        sizes = [self._sizes[member] for member in takers]
        yield
        givers = takers[::-1]
        richest = _richest(sizes[::-1], [len(held.get(member, ())) for member in givers])
        poorest = _poorest(sizes)
        moved = 0
        for (high, giver), (low, taker) in zip(richest, poorest, strict=False):
            if high - low <= 1:
                break
            self._give(topic_id, held[givers[giver]].pop(), takers[taker])
            moved += 1
            if not moved % WORK:
                yield
        return moved

    def _least_of(self, topic_id: bytes) -> int:
        found = []
        for kind in self._roster.kinds_of[topic_id]:
            least = self._least[kind]
            if least is None:
                least = self._least[kind] = min(map(self._sizes.__getitem__, self._roster.kinds[kind]))
            found.append(least)
        return min(found)

    def _result_in_steps(self) -> Generator[None, None, Assignment]:
        lists: list[dict[bytes, list[int]]] = [{} for _ in self._roster.member_ids]
        work = 0
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                lists[owner].setdefault(topic_id, []).append(partition)
                work += 1
                if work >= WORK:
                    work = 0
                    yield
        assignment: Assignment = {}
        for member_id, given in zip(self._roster.member_ids, lists, strict=True):
            row = assignment[member_id] = {}
            work += 1
            for topic_id, partitions in given.items():
                row[topic_id] = tuple(partitions)
                work += 1 + len(partitions) // 10
                if work >= WORK:
                    work = 0
                    yield
        return assignment


def _poorest(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield without end who gets the next one, as its size before and its place; sizes are in ascending order."""
    level = sizes[0]
    end = 0
    while True:
        while end < len(sizes) and sizes[end] == level:
            end += 1
        for place in range(end):
            yield level, place
        level += 1


def _richest(sizes: Sequence[int], counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield who gives the next one, as its size before and its place, until nobody has any.

    Sizes are in descending order; `counts` says how many each of them has to give.
    """
    left = list(counts)
    level = sizes[0]
    end = 0
    line: list[int] = []
    while line or end < len(sizes):
        while end < len(sizes) and sizes[end] == level:
            line.append(end)
            end += 1
        turn = 0
        while turn < len(line):
            place = line[turn]
            if left[place]:
                left[place] -= 1
                turn += 1
                yield level, place
            else:
                # Who has none is replaced by the first of the line, who has had its turn.
                line[turn] = line[0]
                del line[0]
        if line:
            level -= 1
        elif end < len(sizes):
            level = sizes[end]
