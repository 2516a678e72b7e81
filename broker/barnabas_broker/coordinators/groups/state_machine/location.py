"""Says where a group lives: which partition of which topic holds its state. Pure.

The rule is Kafka's: the group id's Java hash code, its absolute value, modulo the number of partitions. Every broker
computes the same from the topic as the image has it, so nothing about a single group is ever announced.

The topic is made when a client first looks for a coordinator. Its partitions are always flushed to disk before an
answer, whatever `flush.mode` is for others: a committed offset is a promise. Segments are small, because records that
were rewritten go segment by segment.
"""

import struct
from operator import mul

from barnabas_broker.config.broker import BrokerConfig
from barnabas_metadata_quorum.controller.commands import NewTopic

__all__ = ["OFFSETS_TOPIC", "java_hash", "offsets_topic", "partition_for", "partition_of_hash"]

OFFSETS_TOPIC = "__consumer_offsets"
AUTOMATIC_REPLICAS = 3
SEGMENT_BYTES = 1 << 20
RUN = 256  # units that are hashed in one sum, not one by one: a client may ask for a name of 32,767
POWERS = tuple(pow(31, RUN - 1 - number, 1 << 32) for number in range(RUN))
RECORD_BYTES_MAX = 16 << 20  # A group is one record: 10,000 members of a kilobyte or two.


def java_hash(text: str) -> int:
    """Return Java's String.hashCode: over UTF-16 units, in 32 signed bits."""
    data = text.encode("utf-16-be", "surrogatepass")
    units = struct.unpack(f">{len(data) // 2}H", data)
    value = 0
    for start in range(0, len(units), RUN):
        run = units[start : start + RUN]
        value = value * pow(31, len(run), 1 << 32) + sum(map(mul, run, POWERS[RUN - len(run) :])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """Return the offsets partition of a group, from 0 to `partition_count` - 1."""
    return partition_of_hash(java_hash(group_id), partition_count)


def partition_of_hash(value: int, partition_count: int) -> int:
    """Return the same for whoever has the `java_hash` already: of a long name it takes two milliseconds."""
    value = abs(value)
    # In Java the smallest int has no positive counterpart; Kafka takes 0 for it.
    return 0 if value == 1 << 31 else value % partition_count


def offsets_topic(config: BrokerConfig) -> NewTopic:
    """Return what the controller should create.

    The replication factor follows from the nodes that the configuration names, not from those that are up: a client
    that comes while a cluster starts must not leave it with groups on a single broker for ever.
    """
    factor = config.offsets_topic_replication_factor or min(AUTOMATIC_REPLICAS, len(config.cluster_nodes))
    return NewTopic(
        OFFSETS_TOPIC,
        config.offsets_topic_num_partitions,
        factor,
        configs={
            "flush.mode": "fsync",
            # A majority decides, not more: otherwise one lost broker of three could stop every group.
            "min.insync.replicas": "1",
            "segment.bytes": str(SEGMENT_BYTES),
            "max.message.bytes": str(RECORD_BYTES_MAX),
        },
    )
