"""Divides partitions for both sticky assignors: as evenly as possible, with few moves. Pure.

It takes three steps.

1. *Claims.* A member keeps a partition that it claims, if that still exists and the member still subscribes to it. Of
   two claims the one of the newer generation counts. Of two in the same generation none counts, because one of them is
   wrong.
2. *Placing.* Unclaimed partitions go to the members with the least load. Topics with few subscribers come first,
   because they have the least choice.
3. *Evening.* One member may have at least two partitions more than another, to which it could pass one: directly, or
   along a chain of members (a gives b one that b may have, b gives another one to c). While there are such members, one
   is passed on along the shortest chain. When no such chain is left, no division is more even: sorted by size, the
   loads are the least possible.

If all subscriptions are equal, every chain has length one, and the number of moves is the least possible. With
different subscriptions each single improvement is the shortest possible, and the sum may exceed the optimum.

Costs: placing is P log M for P partitions and M members. An improvement looks at each member at most once for each
topic. With equal subscriptions it looks at two heaps.
"""

import heapq
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from barnabas_clients.topic_partition import TopicPartition

from .assignor import Assignment, Subscription, in_member_order

__all__ = ["Claim", "balance", "owners_by_claim"]


class Claim(NamedTuple):
    """The partitions that a member says it holds, and their generation (-1: it does not say)."""

    partitions: frozenset[TopicPartition]
    generation_id: int


def owners_by_claim(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription], claims: Mapping[str, Claim]
) -> dict[TopicPartition, str]:
    """Return the member whose claim counts, for each partition (step 1)."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id in sorted(claims):
        partitions, generation_id = claims[member_id]
        for partition in partitions:
            known = best.get(partition)
            if known is None or generation_id > known[0]:
                best[partition] = (generation_id, member_id)
            elif generation_id == known[0]:
                best[partition] = (generation_id, None)
    return {
        partition: owner
        for partition, (_, owner) in best.items()
        if owner is not None
        and partition.topic in members[owner].topics
        and 0 <= partition.partition < partition_counts.get(partition.topic, 0)
    }


def balance(
    partition_counts: Mapping[str, int], members: Mapping[str, Subscription], claims: Mapping[str, Claim]
) -> Assignment:
    """Divide the partitions. The same input always gives the same answer."""
    division = _Division(partition_counts, members, owners_by_claim(partition_counts, members, claims))
    division.place()
    if len({frozenset(subscription.topics & partition_counts.keys()) for subscription in members.values()}) == 1:
        division.even_out_equals()
    else:
        division.even_out()
    return division.result()


class _Held(NamedTuple):
    """The partitions of one topic that one member has: its own by claim, and those it was given. Never both empty."""

    kept: list[int]
    given: list[int]


class _Division:
    """A division in progress.

    Members are numbered in member order. `held[m][topic]` are the partitions of member m, and `loads[m]` their number
    in all topics.
    """

    def __init__(
        self,
        partition_counts: Mapping[str, int],
        members: Mapping[str, Subscription],
        owners: Mapping[TopicPartition, str],
    ) -> None:
        self.member_ids = in_member_order(members)
        self.owners = owners
        numbers = {member_id: number for number, member_id in enumerate(self.member_ids)}
        self.numbers = numbers
        self.counts = partition_counts
        self.subscribers: dict[str, tuple[int, ...]] = {}
        for topic in sorted(partition_counts):
            subscribed = tuple(number for member_id, number in numbers.items() if topic in members[member_id].topics)
            if subscribed:
                self.subscribers[topic] = subscribed
        self.held: list[dict[str, _Held]] = [{} for _ in numbers]
        self.loads = [0] * len(numbers)
        for topic, partition in sorted(owners):
            self._give(numbers[owners[TopicPartition(topic, partition)]], topic, partition)

    def place(self) -> None:
        """Give away the partitions that nobody holds (step 2)."""
        classes: dict[tuple[int, ...], list[str]] = {}
        for topic, subscribed in self.subscribers.items():
            classes.setdefault(subscribed, []).append(topic)
        for subscribed, topics in sorted(classes.items(), key=lambda entry: (len(entry[0]), entry[1])):
            least = [(self.loads[number], number) for number in subscribed]
            heapq.heapify(least)
            for topic in topics:
                for partition in range(self.counts[topic]):
                    if TopicPartition(topic, partition) not in self.owners:
                        load, number = least[0]
                        self._give(number, topic, partition)
                        heapq.heapreplace(least, (load + 1, number))

    def even_out_equals(self) -> None:
        """Even out (step 3) if all members may have all partitions."""
        most = [(-load, number) for number, load in enumerate(self.loads)]
        least = [(load, number) for number, load in enumerate(self.loads)]
        heapq.heapify(most)
        heapq.heapify(least)
        while -most[0][0] - least[0][0] >= 2:
            giver = most[0][1]
            taker = least[0][1]
            self._pass_on(giver, taker, next(iter(self.held[giver])))
            heapq.heapreplace(most, (-self.loads[giver], giver))
            heapq.heapreplace(least, (self.loads[taker], taker))

    def even_out(self) -> None:
        """Even out (step 3) for any subscriptions, until no chain is left."""
        improved = True
        while improved:
            improved = False
            for giver in sorted(range(len(self.loads)), key=lambda number: (-self.loads[number], number)):
                while chain := self._chain_from(giver):
                    for source, target, topic in chain:
                        self._pass_on(source, target, topic)
                    improved = True

    def result(self) -> Assignment:
        return {
            member_id: [
                TopicPartition(topic, partition)
                for topic, (kept, given) in sorted(mine.items())
                for partition in sorted(kept + given)
            ]
            for member_id, mine in zip(self.member_ids, self.held, strict=True)
        }

    def _chain_from(self, giver: int) -> list[tuple[int, int, str]]:
        """Return the shortest chain of (source, target, topic) from `giver` to a member with 2 less; empty if none."""
        enough = self.loads[giver] - 2
        if enough < 0:
            return []
        came_from: dict[int, tuple[int, str] | None] = {giver: None}
        seen_topics: set[str] = set()
        reached = deque([giver])
        while reached:
            source = reached.popleft()
            for topic in sorted(self.held[source]):
                if topic in seen_topics:
                    continue
                seen_topics.add(topic)
                for target in self.subscribers[topic]:
                    if target in came_from:
                        continue
                    came_from[target] = (source, topic)
                    if self.loads[target] <= enough:
                        return _walk_back(came_from, target)
                    reached.append(target)
        return []

    def _pass_on(self, source: int, target: int, topic: str) -> None:
        held = self.held[source][topic]
        # A partition that the source was only just given goes first: it does not count as moved yet.
        partition = (held.given or held.kept).pop()
        if not held.kept and not held.given:
            del self.held[source][topic]
        self.loads[source] -= 1
        self._give(target, topic, partition)

    def _give(self, number: int, topic: str, partition: int) -> None:
        held = self.held[number].setdefault(topic, _Held([], []))
        is_its_own = self.owners.get(TopicPartition(topic, partition)) == self.member_ids[number]
        (held.kept if is_its_own else held.given).append(partition)
        self.loads[number] += 1


def _walk_back(came_from: Mapping[int, tuple[int, str] | None], target: int) -> list[tuple[int, int, str]]:
    """Return the chain from its far end on, so that each member has the partition that it passes on."""
    chain = []
    step = came_from[target]
    while step is not None:
        source, topic = step
        chain.append((source, target, topic))
        target = source
        step = came_from[source]
    return chain
