"""Fetch, API key 1: read record batches from partitions, or wait for them. Pure.

Versions: 4 isolation level (the oldest that Kafka 4 speaks, KIP-896); 5 log start offset; 7 fetch sessions
(KIP-227); 9 leader epoch; 10 allows zstd; 11 rack and preferred read replica (KIP-392); 12 flexible, diverging
epochs; 13 topic ids in place of names; 15 replica state in a tag; 16 endpoints of leaders (KIP-951); 17 directory
id; 18 high watermark of a follower (KIP-1166).

`PartitionData.records` defaults to empty, not null: real brokers never send null, and some clients trip over it.
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import (
    NO_UUID,
    FrozenStruct,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Struct,
    Uuid,
    field,
    message,
    wire,
)

from .leader_hints import LeaderIdAndEpoch, NodeEndpoint

__all__ = [
    "AbortedTransaction",
    "EpochEndOffset",
    "FetchPartition",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchableTopicResponse",
    "ForgottenTopic",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionData",
    "ReplicaState",
    "SnapshotId",
]


class ReplicaState(FrozenStruct):
    """The replica that fetches, if one does."""

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Struct):
    """The offset from which to read one partition, and the most bytes to read."""

    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, wire(since=9)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, wire(since=12)] = -1
    log_start_offset: Annotated[Int64, wire(since=5)] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, wire(since=17, tag=0)] = NO_UUID
    high_watermark: Annotated[Int64, wire(since=18, tag=1)] = 9223372036854775807


class FetchTopic(Struct):
    """Partitions of one topic to read, in the order in which they should be served."""

    topic: Annotated[String, wire(until=12)] = ""
    topic_id: Annotated[Uuid, wire(since=13)] = NO_UUID
    partitions: list[FetchPartition] = field(default_factory=list)


class ForgottenTopic(Struct):
    """Partitions to drop from a fetch session."""

    topic: Annotated[String, wire(until=12)] = ""
    topic_id: Annotated[Uuid, wire(since=13)] = NO_UUID
    partitions: Sequence[Int32] = ()


@message(api_key=1, versions=range(4, 19), flexible_since=12)
class FetchRequest(Message):
    """Session id 0 and epoch -1: no session. Epoch 0: open one with these partitions."""

    cluster_id: Annotated[String | None, wire(since=12, tag=0)] = None
    replica_id: Annotated[Int32, wire(until=14)] = -1
    replica_state: Annotated[ReplicaState, wire(since=15, tag=1)] = ReplicaState()
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2147483647
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, wire(since=7)] = 0
    session_epoch: Annotated[Int32, wire(since=7)] = -1
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: Annotated[list[ForgottenTopic], wire(since=7)] = field(default_factory=list)
    rack_id: Annotated[String, wire(since=11)] = ""


class EpochEndOffset(FrozenStruct):
    """The largest epoch before the fetcher's log and this one diverge, and its end."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


class SnapshotId(FrozenStruct):
    """A snapshot to fetch in place of the log. Never set by this broker."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    """From `first_offset` on, skip the records of `producer_id` up to its abort marker."""

    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Struct):
    """The records of one partition. After decoding, `records` is a view of the response's buffer."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, wire(since=5)] = -1
    diverging_epoch: Annotated[EpochEndOffset, wire(since=12, tag=0)] = EpochEndOffset()
    current_leader: Annotated[LeaderIdAndEpoch, wire(since=12, tag=1)] = LeaderIdAndEpoch()
    snapshot_id: Annotated[SnapshotId, wire(since=12, tag=2)] = SnapshotId()
    aborted_transactions: list[AbortedTransaction] | None = field(default_factory=list)
    preferred_read_replica: Annotated[Int32, wire(since=11)] = -1
    records: Records | None = b""


class FetchableTopicResponse(Struct):
    """The records of partitions of one topic."""

    topic: Annotated[String, wire(until=12)] = ""
    topic_id: Annotated[Uuid, wire(since=13)] = NO_UUID
    partitions: list[PartitionData] = field(default_factory=list)


@message(api_key=1, versions=range(4, 19), flexible_since=12)
class FetchResponse(Message):
    """With a session, partitions without news are left out."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, wire(since=7)] = 0
    session_id: Annotated[Int32, wire(since=7)] = 0
    responses: list[FetchableTopicResponse] = field(default_factory=list)
    node_endpoints: Annotated[list[NodeEndpoint], wire(since=16, tag=0)] = field(default_factory=list)
