"""DescribeQuorum, API key 55: the leader of the metadata quorum, and how far its voters and observers are. Pure.

Versions: 0 flexible already; 1 when each replica was heard last (KIP-836); 2 texts of errors, directories and
addresses (KIP-853).
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
    UInt16,
    Uuid,
    field,
    message,
    wire,
)

__all__ = [
    "DescribeQuorumListener",
    "DescribeQuorumNode",
    "DescribeQuorumPartition",
    "DescribeQuorumPartitionResult",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "DescribeQuorumTopic",
    "DescribeQuorumTopicResult",
    "ReplicaState",
]


class DescribeQuorumPartition(Struct):
    """A partition to describe."""

    partition_index: Int32 = 0


class DescribeQuorumTopic(Struct):
    """Partitions of one topic."""

    topic_name: String = ""
    partitions: list[DescribeQuorumPartition] = field(default_factory=list)


@message(api_key=55, versions=range(3), flexible_since=0)
class DescribeQuorumRequest(Message):
    """The one partition that there is: 0 of `__cluster_metadata`."""

    topics: list[DescribeQuorumTopic] = field(default_factory=list)


class ReplicaState(Struct):
    """One replica; times are those of the leader's wall clock, in ms, or -1."""

    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, wire(since=2)] = NO_UUID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, wire(since=1)] = -1
    last_caught_up_timestamp: Annotated[Int64, wire(since=1)] = -1


class DescribeQuorumPartitionResult(Struct):
    """The state of the quorum as its leader knows it."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, wire(since=2)] = None
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[ReplicaState] = field(default_factory=list)
    observers: list[ReplicaState] = field(default_factory=list)


class DescribeQuorumTopicResult(Struct):
    """Partitions of one topic."""

    topic_name: String = ""
    partitions: list[DescribeQuorumPartitionResult] = field(default_factory=list)


class DescribeQuorumListener(Struct):
    """An address of a node."""

    name: String = ""
    host: String = ""
    port: UInt16 = 0


class DescribeQuorumNode(Struct):
    """A voter's addresses."""

    node_id: Int32 = 0
    listeners: list[DescribeQuorumListener] = field(default_factory=list)


@message(api_key=55, versions=range(3), flexible_since=0)
class DescribeQuorumResponse(Message):
    """What the leader says."""

    error_code: Int16 = 0
    error_message: Annotated[String | None, wire(since=2)] = None
    topics: list[DescribeQuorumTopicResult] = field(default_factory=list)
    nodes: Annotated[list[DescribeQuorumNode], wire(since=2)] = field(default_factory=list)
