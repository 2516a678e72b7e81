"""Divides each topic by itself, in runs of neighbouring partitions: `range`. Pure.

Of a topic with P partitions and M subscribed members, each gets P div M partitions, and the first P mod M of them one
more. So topics with equally many partitions and the same subscribers are divided alike: the member with partition 3 of
one has partition 3 of the others, and may join them (co-partitioning). The price: with many small topics the first
members get all the odd partitions.

What members hold does not matter. Who comes first does, and static members do: they find their partitions again after
a restart.

Source: the rules and the results of Kafka's assignor of this name.
"""

from collections.abc import Generator, Mapping

from .roster import WORK, Assignment, Roster

__all__ = ["ranges_in_steps"]


def ranges_in_steps(roster: Roster, topics: Mapping[bytes, int]) -> Generator[None, None, Assignment]:
    """Return who gets which partitions."""
    assignment: Assignment = {member_id: {} for member_id in roster.member_ids}
    of_each = [assignment[member_id] for member_id in roster.member_ids]
    together: dict[tuple[int, ...], list[bytes]] = {}  # topics by the kinds that subscribe to them
    work = 0
    for topic_id, kinds in roster.kinds_of.items():
        together.setdefault(tuple(kinds), []).append(topic_id)
        work += len(kinds)
        if work >= WORK:
            work = 0
            yield
    for kinds_together, topic_ids in together.items():
        subscribed = roster.subscribers(kinds_together)
        work += len(subscribed)
        for topic_id in topic_ids:
            each, odd = divmod(topics[topic_id], len(subscribed))
            start = 0
            for place in range(len(subscribed) if each else odd):
                end = start + each + (place < odd)
                of_each[subscribed[place]][topic_id] = tuple(range(start, end))
                work += end - start + 1
                start = end
                if work >= WORK:
                    work = 0
                    yield
    return assignment
