"""Declares an assignor, the rule that divides partitions among the members of a group. Pure.

Every member sends a `Subscription` for each assignor that it supports. The coordinator picks an assignor that all of
them support, and hands all subscriptions to one member, the leader, whose assignor computes the division. So members of
different implementations work together if the names, and the bytes (subscription.py), are the same. The names here are
Apache Kafka's, and each assignor keeps the promises of Kafka's assignor of that name.

An assignor is a value without state. The member keeps what a sticky one must remember from generation to generation,
and passes it as `previous` and `generation_id` when the next subscription is written.
"""

from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import NamedTuple, Protocol

from barnabas_clients.topic_partition import TopicPartition

__all__ = ["NO_GENERATION", "Assignment", "Assignor", "RebalanceProtocol", "Subscription", "in_member_order"]

NO_GENERATION = -1
"""Stands for no generation."""

Assignment = dict[str, list[TopicPartition]]
"""Member id to its partitions. All members are there, also those that get none."""


class RebalanceProtocol(IntEnum):
    """The treatment of partitions before a member joins again. The highest that all assignors share is used."""

    EAGER = 0
    """All are given up: during the rebalance nobody consumes."""
    COOPERATIVE = 1
    """All are kept, and only those that the new assignment takes away are given up, before another join (KIP-429)."""


class Subscription(NamedTuple):
    """The topics that one member wants, and the facts that it tells of itself.

    `owned` are the partitions that it held when it joined, and `generation_id` their generation (-1: none). `user_data`
    belongs to its assignor. `group_instance_id` is not in the bytes: it comes with the join.
    """

    topics: frozenset[str]
    user_data: bytes | None = None
    owned: frozenset[TopicPartition] = frozenset()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None
    group_instance_id: str | None = None


class Assignor(Protocol):
    """One rule. The members of a group agree on its `name`."""

    @property
    def name(self) -> str: ...

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]: ...

    def user_data(self, previous: Collection[TopicPartition], generation_id: int) -> bytes | None:
        """Return the user data of a member's subscription. `previous` is its last assignment, of `generation_id`.

        Before the first assignment `previous` is empty and `generation_id` -1.
        """
        ...

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
        """Divide the partitions 0 to count - 1 of each topic among the members that subscribe to it.

        A topic that is missing in `partition_counts` does not exist (yet), and nobody gets any of it.
        """
        ...


def in_member_order(members: Mapping[str, Subscription]) -> list[str]:
    """Return the member ids as Kafka's assignors order them: static members by instance id, then the others by id.

    So a static member keeps its place if it comes back under a new member id (KIP-345). Texts are compared by UTF-16
    units, as in Java.
    """

    def place(member_id: str) -> tuple[bool, bytes]:
        instance_id = members[member_id].group_instance_id
        text = member_id if instance_id is None else instance_id
        return instance_id is None, text.encode("utf-16-be", "surrogatepass")

    return sorted(members, key=place)
