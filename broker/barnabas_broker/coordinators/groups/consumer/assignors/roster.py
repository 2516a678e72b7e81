"""Says what an assignor is given and returns, and brings a group into an order that nobody's dictionaries decide. Pure.

An assignor gets the members of one group and the topics that exist, with their numbers of partitions. What members
subscribe to and does not exist is nobody's; what they hold and is not there any more, or what two of them hold, counts
for none, or for the first of them.

*Order.* Static members come first, by instance id, then the others, by member id: a member that comes back under
another member id finds its place. Texts and topic ids are compared as Java does, in which Kafka's server is written:
texts by their UTF-16 code units, ids as two signed numbers. So a tie goes as it goes there where Kafka has a rule for
it; where Kafka takes what a hash map gives it, it goes by this order.

*Kinds.* Members that subscribe to the same topics are one kind. Most groups have one, and few have more than a handful;
what has to be known for each topic is known by kinds. So ten thousand topics and a thousand members are not ten million
entries.

*Pieces.* Everything here runs on the broker's loop, in generators that yield after about `WORK` small things, 2 ms at
most. What is done for each topic looks at all its subscribers in one go: `group.max.size` bounds them.
"""

import struct
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from heapq import merge
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

__all__ = [
    "WORK",
    "Assigned",
    "Assignment",
    "MemberSubscription",
    "Roster",
    "Rule",
    "in_order",
    "roster_in_steps",
    "topic_order",
]

WORK: Final = 2_000
"""Small things (a partition that is given to someone, a topic that is looked at) between two yields: 1 to 2 ms."""

Assigned: TypeAlias = Mapping[bytes, Collection[int]]
"""Partitions by topic id."""
Assignment: TypeAlias = dict[str, dict[bytes, tuple[int, ...]]]
"""Member id to topic id to partitions in ascending order. All members are there; a topic only where there are some."""

T = TypeVar("T")

_TWO_NUMBERS = struct.Struct(">qq")
_NOTHING: Final[Assigned] = {}


class MemberSubscription(NamedTuple):
    """What an assignor knows of one member.

    `topic_ids` are 16 bytes each, of names and expressions together. Members with equal subscriptions had better share
    one set: equal sets are compared item by item. `assigned` is what it has been given so far, the target of the last
    assignment, whether it got there or not.
    """

    topic_ids: frozenset[bytes]
    instance_id: str | None = None
    assigned: Assigned = _NOTHING


class Roster(NamedTuple):
    """One group in order. A member is its number in `member_ids` from here on; a kind its number in `kinds`."""

    member_ids: list[str]
    assigned: list[Assigned]
    """What each member has been given so far."""
    kinds: list[list[int]]
    """Members, in ascending order, by kind."""
    kind_of: list[int]
    """The kind of each member."""
    wanted: list[frozenset[bytes]]
    """The topics that exist that each kind subscribes to."""
    kinds_of: dict[bytes, list[int]]
    """Topic id to the kinds that subscribe to it, for topics that exist; ids are in no order."""

    def is_of_one_kind(self) -> bool:
        return len(self.kinds) == 1

    def subscribers(self, kinds: Collection[int]) -> list[int]:
        """Return the members of these kinds in ascending order; not to be written to."""
        if len(kinds) == 1:
            (kind,) = kinds
            return self.kinds[kind]
        return sorted(member for kind in kinds for member in self.kinds[kind])


Rule: TypeAlias = Callable[[Roster, Mapping[bytes, int]], Generator[None, None, Assignment]]
"""An assignor: yields between pieces of work."""


def topic_order(topic_id: bytes) -> tuple[int, int]:
    """Return what topic ids are sorted by."""
    most, least = _TWO_NUMBERS.unpack(topic_id)
    return most, least


def in_order(items: Iterable[T], key: Callable[[T], Any]) -> Generator[None, None, list[T]]:
    """Return items sorted, in pieces: to sort a hundred thousand of them takes 100 ms."""
    left = list(items)
    runs = []
    for start in range(0, len(left), WORK):
        runs.append(sorted(left[start : start + WORK], key=key))
        yield
    if len(runs) <= 1:
        return runs[0] if runs else []
    found = []
    for number, item in enumerate(merge(*runs, key=key), 1):
        found.append(item)
        if not number % (WORK // 4):
            yield
    return found


def roster_in_steps(
    members: Mapping[str, MemberSubscription], topics: Mapping[bytes, int]
) -> Generator[None, None, Roster]:
    """Return the group in order. Members whose subscriptions differ by what does not exist are of one kind."""
    member_ids = yield from in_order(
        members, lambda member_id: _member_order(member_id, members[member_id].instance_id)
    )
    existing: dict[frozenset[bytes], frozenset[bytes]] = {}  # of each subscription what exists
    work = 0
    kind_numbers: dict[frozenset[bytes], int] = {}
    kinds: list[list[int]] = []
    kind_of: list[int] = []
    for number, member_id in enumerate(member_ids):
        wanted = members[member_id].topic_ids
        # Equal sets that are not one are compared item by item.
        work += 1 + len(wanted) // 20
        if wanted not in existing:
            existing[wanted] = yield from _existing(wanted, topics)
        kind = kind_numbers.setdefault(existing[wanted], len(kinds))
        if kind == len(kinds):
            kinds.append([])
        kinds[kind].append(number)
        kind_of.append(kind)
        if work >= WORK:
            work = 0
            yield
    kinds_of: dict[bytes, list[int]] = {}
    for wanted, kind in kind_numbers.items():
        for topic_id in wanted:
            kinds_of.setdefault(topic_id, []).append(kind)
            work += 1
            if work >= WORK:
                work = 0
                yield
    assigned = [members[member_id].assigned for member_id in member_ids]
    return Roster(member_ids, assigned, kinds, kind_of, list(kind_numbers), kinds_of)


def _existing(wanted: frozenset[bytes], topics: Mapping[bytes, int]) -> Generator[None, None, frozenset[bytes]]:
    missing = []
    for number, topic_id in enumerate(wanted, 1):
        if topic_id not in topics:
            missing.append(topic_id)
        if not number % WORK:
            yield
    return wanted.difference(missing) if missing else wanted


def _member_order(member_id: str, instance_id: str | None) -> tuple[bool, bytes, bytes]:
    return instance_id is None, _code_units(instance_id or ""), _code_units(member_id)


def _code_units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
