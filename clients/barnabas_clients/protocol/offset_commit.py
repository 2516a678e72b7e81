"""OffsetCommit, API key 8: store positions of a group. Pure.

Versions: 2 retention time, gone in 5; 6 leader epoch; 7 static membership; 8 flexible; 9 members of KIP-848 groups
(`generation_id_or_member_epoch`); 10 topic ids in place of names.
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import (
    NO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    field,
    message,
    wire,
)

__all__ = [
    "OffsetCommitRequest",
    "OffsetCommitRequestPartition",
    "OffsetCommitRequestTopic",
    "OffsetCommitResponse",
    "OffsetCommitResponsePartition",
    "OffsetCommitResponseTopic",
]


class OffsetCommitRequestPartition(Struct):
    """A position: the next offset to read, not the last one read."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, wire(since=6)] = -1
    committed_metadata: String | None = ""


class OffsetCommitRequestTopic(Struct):
    """Positions in one topic."""

    name: Annotated[String, wire(until=9)] = ""
    topic_id: Annotated[Uuid, wire(since=10)] = NO_UUID
    partitions: list[OffsetCommitRequestPartition] = field(default_factory=list)


@message(api_key=8, versions=range(2, 11), flexible_since=8)
class OffsetCommitRequest(Message):
    """Generation -1 with an empty member id stands for a consumer without group management."""

    group_id: String = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, wire(since=7)] = None
    retention_time_ms: Annotated[Int64, wire(until=4)] = -1
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list)


class OffsetCommitResponsePartition(Struct):
    """The result for one position."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Struct):
    """Outcomes for one topic."""

    name: Annotated[String, wire(until=9)] = ""
    topic_id: Annotated[Uuid, wire(since=10)] = NO_UUID
    partitions: list[OffsetCommitResponsePartition] = field(default_factory=list)


@message(api_key=8, versions=range(2, 11), flexible_since=8)
class OffsetCommitResponse(Message):
    """One outcome for each partition of the request."""

    throttle_time_ms: Annotated[Int32, wire(since=3)] = 0
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)
