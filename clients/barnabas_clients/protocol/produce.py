"""Produce, API key 0: append record batches to partitions. Pure.

Versions: 3 transactional id (the oldest that Kafka 4 speaks, KIP-896); 5 log start offset; 7 allows zstd; 8 record
errors; 9 flexible; 10 names the leader if it is another broker (KIP-951); 12 a transactional produce adds its
partition to the transaction by itself (KIP-890); 13 topic ids in place of names.

A request with `acks` 0 has no response at all.
"""

from typing import Annotated

from barnabas_raftlog.wire.schema import (
    NO_UUID,
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
    "BatchIndexAndErrorMessage",
    "LeaderIdAndEpoch",
    "NodeEndpoint",
    "PartitionProduceData",
    "PartitionProduceResponse",
    "ProduceRequest",
    "ProduceResponse",
    "TopicProduceData",
    "TopicProduceResponse",
]


class PartitionProduceData(Struct):
    """The batch for one partition. After decoding, `records` is a view of the request's buffer."""

    index: Int32 = 0
    records: Records | None = None


class TopicProduceData(Struct):
    """Batches for partitions of one topic."""

    name: Annotated[String, wire(until=12)] = ""
    topic_id: Annotated[Uuid, wire(since=13)] = NO_UUID
    partition_data: list[PartitionProduceData] = field(default_factory=list)


@message(api_key=0, versions=range(3, 14), flexible_since=9)
class ProduceRequest(Message):
    """`acks`: 0 answers nothing, 1 the leader alone, -1 the in-sync replicas."""

    transactional_id: String | None = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = field(default_factory=list)


class BatchIndexAndErrorMessage(Struct):
    """A record for which its batch was refused, and the reason."""

    batch_index: Int32 = 0
    batch_index_error_message: String | None = None


class PartitionProduceResponse(Struct):
    """`log_append_time_ms` is -1 unless the topic stamps records at append."""

    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, wire(since=5)] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], wire(since=8)] = field(default_factory=list)
    error_message: Annotated[String | None, wire(since=8)] = None
    current_leader: Annotated[LeaderIdAndEpoch, wire(since=10, tag=0)] = LeaderIdAndEpoch()


class TopicProduceResponse(Struct):
    """Outcomes for partitions of one topic."""

    name: Annotated[String, wire(until=12)] = ""
    topic_id: Annotated[Uuid, wire(since=13)] = NO_UUID
    partition_responses: list[PartitionProduceResponse] = field(default_factory=list)


@message(api_key=0, versions=range(3, 14), flexible_since=9)
class ProduceResponse(Message):
    """`node_endpoints` covers every leader in the partitions' `current_leader`."""

    responses: list[TopicProduceResponse] = field(default_factory=list)
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[list[NodeEndpoint], wire(since=10, tag=0)] = field(default_factory=list)
