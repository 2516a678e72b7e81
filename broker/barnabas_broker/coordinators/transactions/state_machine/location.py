"""Says where a transactional id lives: which partition of which topic holds its state. Pure.

The rule is that of groups, and Kafka's: the id's Java hash code, its absolute value, modulo the number of partitions.
Every broker computes the same from the topic as the image has it.

Not here: the settings from which the topic is made.
"""

from barnabas_broker.coordinators.groups.state_machine.location import (
    OFFSETS_TOPIC,
    java_hash,
    partition_for,
    partition_of_hash,
)

from .messages import Place

__all__ = ["TRANSACTION_TOPIC", "java_hash", "offsets_place", "partition_for", "partition_of_hash"]

TRANSACTION_TOPIC = "__transaction_state"


def offsets_place(group_id: str, partition_count: int) -> Place:
    """Return the partition that AddOffsetsToTxn adds: the one in which the group's offsets are."""
    return OFFSETS_TOPIC, partition_for(group_id, partition_count)
