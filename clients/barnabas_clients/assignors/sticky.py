"""Divides as evenly as possible, with few partitions moved: `sticky`. Pure.

balance.py says how few. The rule is eager: members give everything up before they join. So their last partitions go
into the user data of their subscriptions, in Kafka's layout: `previous [topic string, partitions [i32]]`, and since its
version 1 the generation of that assignment, i32. (KIP-54, KIP-341.)
"""

import struct
from collections.abc import Collection, Mapping

from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.errors import MalformedMessageError

from .assignor import NO_GENERATION, Assignment, RebalanceProtocol, Subscription
from .balance import Claim, balance
from .subscription import PartitionReader, encode_partitions

__all__ = ["STICKY"]


class _Sticky:
    """The assignor `sticky`."""

    name = "sticky"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, previous: Collection[TopicPartition], generation_id: int) -> bytes | None:
        # Null before the first assignment, as in Kafka.
        if generation_id == NO_GENERATION:
            return None
        return encode_partitions(previous) + struct.pack(">i", generation_id)

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
        claims = {member_id: _claim(subscription.user_data) for member_id, subscription in members.items()}
        return balance(partition_counts, members, claims)


def _claim(user_data: bytes | None) -> Claim:
    """Read a member's claim. Bytes that cannot be read are no claim, so that one odd member does not stop its group."""
    if not user_data:
        return Claim(frozenset(), NO_GENERATION)
    try:
        reader = PartitionReader(user_data)
        partitions = frozenset(reader.partitions())
        return Claim(partitions, NO_GENERATION if reader.is_at_end else reader.int32())
    except MalformedMessageError:
        return Claim(frozenset(), NO_GENERATION)


STICKY = _Sticky()
