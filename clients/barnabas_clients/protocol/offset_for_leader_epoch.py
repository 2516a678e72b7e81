"""OffsetForLeaderEpoch, API key 23: look up the end of a leader epoch (KIP-101, KIP-320). Pure.

Clients use it to find out that a log was truncated. Versions: 3 replica id; 4 flexible.
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import Int16, Int32, Int64, Message, String, Struct, field, message, wire

__all__ = [
    "EpochEndOffset",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "OffsetForLeaderPartition",
    "OffsetForLeaderTopic",
    "OffsetForLeaderTopicResult",
]


class OffsetForLeaderPartition(Struct):
    """The epoch to look up; `current_leader_epoch` fences stale callers."""

    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Struct):
    """Partitions of one topic."""

    topic: String = ""
    partitions: list[OffsetForLeaderPartition] = field(default_factory=list)


@message(api_key=23, versions=range(2, 5), flexible_since=4)
class OffsetForLeaderEpochRequest(Message):
    """`replica_id` is -1 for a consumer, -2 for a debugging tool."""

    replica_id: Annotated[Int32, wire(since=3)] = -2
    topics: list[OffsetForLeaderTopic] = field(default_factory=list)


class EpochEndOffset(Struct):
    """The end of the epoch asked for, or of the newest before it, in one partition."""

    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    """Answers for partitions of one topic."""

    topic: String = ""
    partitions: list[EpochEndOffset] = field(default_factory=list)


@message(api_key=23, versions=range(2, 5), flexible_since=4)
class OffsetForLeaderEpochResponse(Message):
    """One answer for each partition of the request."""

    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list)
