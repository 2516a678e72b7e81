"""ListOffsets, API key 2: look up offsets by timestamp, or the ends of logs. Pure.

A timestamp finds the first record that is not older. Timestamps below zero are names: -1 latest, -2 earliest, -3 the
record with the largest timestamp (since 7), -4 and -5 the ends of local and remote storage (since 8 and 9), -6 earliest
pending upload (since 11).

Versions: 2 isolation level; 4 leader epoch; 6 flexible; 10 a timeout for reads of remote storage.
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import Int8, Int16, Int32, Int64, Message, String, Struct, field, message, wire

__all__ = [
    "ListOffsetsPartition",
    "ListOffsetsPartitionResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListOffsetsTopic",
    "ListOffsetsTopicResponse",
]


class ListOffsetsPartition(Struct):
    """One partition, and the timestamp or named end to look up."""

    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, wire(since=4)] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(Struct):
    """Partitions of one topic."""

    name: String = ""
    partitions: list[ListOffsetsPartition] = field(default_factory=list)


@message(api_key=2, versions=range(1, 12), flexible_since=6)
class ListOffsetsRequest(Message):
    """`replica_id` is -1 for a consumer."""

    replica_id: Int32 = -1
    isolation_level: Annotated[Int8, wire(since=2)] = 0
    topics: list[ListOffsetsTopic] = field(default_factory=list)
    timeout_ms: Annotated[Int32, wire(since=10)] = 0


class ListOffsetsPartitionResponse(Struct):
    """The record found; offset and timestamp are -1 if there is none."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, wire(since=4)] = -1


class ListOffsetsTopicResponse(Struct):
    """Answers for partitions of one topic."""

    name: String = ""
    partitions: list[ListOffsetsPartitionResponse] = field(default_factory=list)


@message(api_key=2, versions=range(1, 12), flexible_since=6)
class ListOffsetsResponse(Message):
    """OFFSET_NOT_AVAILABLE: a new leader has not confirmed its leadership yet."""

    throttle_time_ms: Annotated[Int32, wire(since=2)] = 0
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)
