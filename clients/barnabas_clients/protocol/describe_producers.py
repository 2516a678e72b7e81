"""DescribeProducers, API key 61: the producers that partitions remember, with their open transactions. Pure.

There is only version 0, which is flexible (KIP-664). It is answered by the leader of each partition.
"""

from collections.abc import Sequence

from barnabas_raftlog.wire.schema import Int16, Int32, Int64, Message, String, Struct, field, message

__all__ = [
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeProducersTopic",
    "DescribedProducersPartition",
    "DescribedProducersTopic",
    "ProducerState",
]


class DescribeProducersTopic(Struct):
    """Partitions of one topic to ask about."""

    name: String = ""
    partition_indexes: Sequence[Int32] = ()


@message(api_key=61, versions=range(1), flexible_since=0)
class DescribeProducersRequest(Message):
    """The partitions to ask about."""

    topics: list[DescribeProducersTopic] = field(default_factory=list)


class ProducerState(Struct):
    """One producer; `producer_epoch` is an int32 here. `current_txn_start_offset` is -1 without an open transaction.

    `last_timestamp_ms` is that of its last batch, `coordinator_epoch` that of its last marker; -1 if there is none.
    """

    producer_id: Int64 = 0
    producer_epoch: Int32 = 0
    last_sequence: Int32 = -1
    last_timestamp_ms: Int64 = -1
    coordinator_epoch: Int32 = 0
    current_txn_start_offset: Int64 = -1


class DescribedProducersPartition(Struct):
    """The producers of one partition, or why there is no answer."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    active_producers: list[ProducerState] = field(default_factory=list)


class DescribedProducersTopic(Struct):
    """Answers for one topic."""

    name: String = ""
    partitions: list[DescribedProducersPartition] = field(default_factory=list)


@message(api_key=61, versions=range(1), flexible_since=0)
class DescribeProducersResponse(Message):
    """One answer for each partition."""

    throttle_time_ms: Int32 = 0
    topics: list[DescribedProducersTopic] = field(default_factory=list)
