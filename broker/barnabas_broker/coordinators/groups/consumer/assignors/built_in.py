"""Divides the partitions of a group by the assignor of a name. Pure.

A group's coordinator calls `assign_in_steps` on the loop, in slices, when a new target assignment is wanted: what it
returns is a target, and members get there by and by.

    subscriptions = {"a": MemberSubscription(frozenset({topic_id})), "b": MemberSubscription(frozenset({topic_id}))}
    assign("uniform", subscriptions, {topic_id: 5})  # {"a": {topic_id: (0, 1)}, "b": {topic_id: (2, 3, 4)}}
"""

from collections.abc import Generator, Mapping
from typing import Final

from barnabas_raftlog.steps import at_once

from .ranges import ranges_in_steps
from .roster import Assignment, MemberSubscription, Rule, roster_in_steps
from .uniform import uniform_in_steps

__all__ = ["ASSIGNORS", "DEFAULT", "assign", "assign_in_steps"]

ASSIGNORS: Final[Mapping[str, Rule]] = {"uniform": uniform_in_steps, "range": ranges_in_steps}
"""The assignors by name, in the order of Kafka's `group.consumer.assignors`."""
DEFAULT: Final = "uniform"
"""That of a group none of whose members names one."""


def assign_in_steps(
    name: str, members: Mapping[str, MemberSubscription], topics: Mapping[bytes, int]
) -> Generator[None, None, Assignment]:
    """Return a new target assignment; yield between pieces of work of 2 ms at most.

    `topics` is the number of partitions by topic id, of those that exist; there may be more of them than anybody
    subscribes to. Neither may change before the end. The result follows from the arguments alone, whatever the order
    of dictionaries and sets.

    Raises:
        KeyError: there is no such assignor. Whoever is asked for it says so first (UNSUPPORTED_ASSIGNOR).
    """
    rule = ASSIGNORS[name]
    roster = yield from roster_in_steps(members, topics)
    return (yield from rule(roster, topics))


def assign(name: str, members: Mapping[str, MemberSubscription], topics: Mapping[bytes, int]) -> Assignment:
    """Return a new target assignment, at once: see `assign_in_steps`."""
    return at_once(assign_in_steps(name, members, topics))
