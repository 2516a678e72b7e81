"""TxnOffsetCommit, API key 28: store positions of a group that count when a transaction commits. Pure.

Versions: 2 leader epoch; 3 flexible, and the member that commits, checked if it is named; 4 may answer
TRANSACTION_ABORTABLE; 5 adds the group to the transaction by itself (KIP-890), so a client asks in it only if
`transaction.version` 2 is among the finalized features; 6 topic ids in place of names, and tells a group that does not
exist and a stale epoch from other generations (KIP-1319).
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
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitRequestPartition",
    "TxnOffsetCommitRequestTopic",
    "TxnOffsetCommitResponse",
    "TxnOffsetCommitResponsePartition",
    "TxnOffsetCommitResponseTopic",
]


class TxnOffsetCommitRequestPartition(Struct):
    """A position: the next offset to read, not the last one read."""

    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, wire(since=2)] = -1
    committed_metadata: String | None = ""


class TxnOffsetCommitRequestTopic(Struct):
    """Positions in one topic."""

    name: Annotated[String, wire(until=5)] = ""
    topic_id: Annotated[Uuid, wire(since=6)] = NO_UUID
    partitions: list[TxnOffsetCommitRequestPartition] = field(default_factory=list)


@message(api_key=28, versions=range(7), flexible_since=3)
class TxnOffsetCommitRequest(Message):
    """Generation -1 with an empty member id and no instance id: the member is not checked."""

    transactional_id: String = ""
    group_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    generation_id_or_member_epoch: Annotated[Int32, wire(since=3)] = -1
    member_id: Annotated[String, wire(since=3)] = ""
    group_instance_id: Annotated[String | None, wire(since=3)] = None
    topics: list[TxnOffsetCommitRequestTopic] = field(default_factory=list)


class TxnOffsetCommitResponsePartition(Struct):
    """The result for one position."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class TxnOffsetCommitResponseTopic(Struct):
    """Outcomes for one topic."""

    name: Annotated[String, wire(until=5)] = ""
    topic_id: Annotated[Uuid, wire(since=6)] = NO_UUID
    partitions: list[TxnOffsetCommitResponsePartition] = field(default_factory=list)


@message(api_key=28, versions=range(7), flexible_since=3)
class TxnOffsetCommitResponse(Message):
    """One result for each position."""

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic] = field(default_factory=list)
