"""Divides as `sticky` does, while members go on with the partitions they keep: `cooperative-sticky`. Pure.

Members join with their partitions in hand. A partition that is to move is in nobody's assignment at first: its old
owner sees it missing, gives it up and joins again, and only the rebalance after that gives it to the new owner. So no
partition has two owners at any time, and the others are never interrupted. (KIP-429.)

A member's partitions stand in its subscription, and since version 2 its generation too. Older members put the
generation into the user data, i32. So do we, for leaders that are older.
"""

import struct
from collections.abc import Collection, Mapping

from barnabas_clients.topic_partition import TopicPartition

from .assignor import NO_GENERATION, Assignment, RebalanceProtocol, Subscription
from .balance import Claim, balance, owners_by_claim

__all__ = ["COOPERATIVE_STICKY"]

_GENERATION = struct.Struct(">i")


class _CooperativeSticky:
    """The assignor `cooperative-sticky`."""

    name = "cooperative-sticky"
    protocols = frozenset({RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE})

    def user_data(self, previous: Collection[TopicPartition], generation_id: int) -> bytes | None:
        return _GENERATION.pack(generation_id)

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
        claims = {member_id: _claim(subscription) for member_id, subscription in members.items()}
        assignment = balance(partition_counts, members, claims)
        owners = owners_by_claim(partition_counts, members, claims)
        # A claim that does not count may come from a member that still has the partition in hand.
        holders: dict[TopicPartition, set[str]] = {}
        for member_id, subscription in members.items():
            for partition in subscription.owned:
                holders.setdefault(partition, set()).add(member_id)

        def is_free_for(partition: TopicPartition, member_id: str) -> bool:
            return owners.get(partition) == member_id or holders.get(partition, set()) <= {member_id}

        return {
            member_id: [partition for partition in mine if is_free_for(partition, member_id)]
            for member_id, mine in assignment.items()
        }


def _claim(subscription: Subscription) -> Claim:
    generation_id = subscription.generation_id
    data = subscription.user_data
    if generation_id == NO_GENERATION and data is not None and len(data) >= _GENERATION.size:
        generation_id = _GENERATION.unpack_from(data)[0]
    return Claim(subscription.owned, generation_id)


COOPERATIVE_STICKY = _CooperativeSticky()
