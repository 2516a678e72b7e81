"""What an assignor is: the rule by which the leader of a group divides partitions among its members. Pure.

Every member sends a `Subscription` for each assignor it supports. The coordinator picks an assignor that all of them
support, and hands all subscriptions to one member, the leader, whose assignor computes who gets what. So members of
different implementations work together as long as the names, and the bytes (subscription.py), are the same; the names
here are Apache Kafka's, and each assignor gives what Kafka's of that name promises.

An assignor is a value without state. What a sticky one must remember from generation to generation is the member's to
keep, and comes in as `previous` and `generation_id` when the next subscription is written.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

from barnabas_clients.topic_partition import TopicPartition

__all__ = ["NO_GENERATION", "Assignment", "Assignor", "RebalanceProtocol", "Subscription", "in_member_order"]

NO_GENERATION = -1
"""The generation of whoever is in none."""

Assignment = dict[str, list[TopicPartition]]
"""Member id to its partitions; every member is there, also those that get nothing."""


class RebalanceProtocol(IntEnum):
    """What members do with their partitions before they join again. The highest that all assignors share is used."""

    EAGER = 0
    """Give up all of them: during the rebalance nobody consumes."""
    COOPERATIVE = 1
    """Keep all of them, and give up only what the new assignment takes away; then join once more (KIP-429)."""


class Subscription(NamedTuple):
    """What one member wants, and what it says of itself.

    `owned` and `generation_id` are what the member held when it joined and since which generation (-1: none);
    `user_data` is its assignor's own. `group_instance_id` is not in the bytes: it comes with the join.
    """

    topics: frozenset[str]
    user_data: bytes | None = None
    owned: frozenset[TopicPartition] = frozenset()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    group_instance_id: str | None = None


class Assignor(Protocol):
    """One rule. `name` is what the group agrees on."""

    @property
    def name(self) -> str: ...

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]: ...

    def user_data(self, previous: Collection[TopicPartition], generation_id: int) -> bytes | None:
        """Return what goes into the member's subscription: `previous` is its last assignment, of `generation_id`.

        Before the first assignment `previous` is empty and `generation_id` -1.
        """
        ...

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
        """Divide the partitions 0 to count - 1 of each topic among the members that subscribe to it.

        A subscribed topic that is missing in `partition_counts` does not exist (yet), and nobody gets any of it.
        """
        ...


def in_member_order(members: Mapping[str, Subscription]) -> list[str]:
    """Return the member ids as Kafka's assignors order them: static members by instance id, then the others by id.

    So a static member keeps its place when it comes back under a new member id (KIP-345). Text is compared as Java
    does, by UTF-16 units.
    """

    def place(member_id: str) -> tuple[bool, bytes]:
        instance_id = members[member_id].group_instance_id
        text = member_id if instance_id is None else instance_id
        return instance_id is None, text.encode("utf-16-be", "surrogatepass")

    return sorted(members, key=place)
