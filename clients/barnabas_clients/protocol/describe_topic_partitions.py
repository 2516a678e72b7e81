"""DescribeTopicPartitions, API key 75: partitions of topics, a page at a time (KIP-966). Pure.

There is only version 0, which is flexible. An answer that is not complete has a cursor, which the next request brings.
"""

from collections.abc import Sequence

from barnabas_raftlog.wire.schema import (
    NO_UUID,
    Bool,
    FrozenStruct,
    Int16,
    Int32,
    Message,
    String,
    Struct,
    Uuid,
    field,
    message,
)

__all__ = [
    "DescribeTopicPartitionsCursor",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribedTopic",
    "DescribedTopicPartition",
    "TopicRequest",
]


class TopicRequest(Struct):
    """A topic to describe."""

    name: String = ""


class DescribeTopicPartitionsCursor(FrozenStruct):
    """The first partition of a page."""

    topic_name: String = ""
    partition_index: Int32 = 0


@message(api_key=75, versions=range(1), flexible_since=0)
class DescribeTopicPartitionsRequest(Message):
    """No topics: all of them. The topics before the one of the cursor are left out."""

    topics: list[TopicRequest] = field(default_factory=list)
    response_partition_limit: Int32 = 2000
    cursor: DescribeTopicPartitionsCursor | None = None


class DescribedTopicPartition(Struct):
    """One partition; `leader_id` is -1 if nobody leads. The lists of eligible leaders are null if they are not kept."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: Sequence[Int32] = ()
    isr_nodes: Sequence[Int32] = ()
    eligible_leader_replicas: Sequence[Int32] | None = None
    last_known_elr: Sequence[Int32] | None = None
    offline_replicas: Sequence[Int32] = ()


class DescribedTopic(Struct):
    """One topic, with the partitions of this page, or why there is none."""

    error_code: Int16 = 0
    name: String | None = ""
    topic_id: Uuid = NO_UUID
    is_internal: Bool = False
    partitions: list[DescribedTopicPartition] = field(default_factory=list)
    topic_authorized_operations: Int32 = -2147483648


@message(api_key=75, versions=range(1), flexible_since=0)
class DescribeTopicPartitionsResponse(Message):
    """Topics sorted by name. `next_cursor` is where the next page begins; null: this is the last one."""

    throttle_time_ms: Int32 = 0
    topics: list[DescribedTopic] = field(default_factory=list)
    next_cursor: DescribeTopicPartitionsCursor | None = None
