"""ListPartitionReassignments, API key 46: list partitions that move to other brokers (KIP-455). Pure.

One version, and that is flexible.
"""

from collections.abc import Sequence

from barnabas_raftlog.wire.schema import Int16, Int32, Message, String, Struct, field, message

__all__ = [
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListPartitionReassignmentsTopics",
    "OngoingPartitionReassignment",
    "OngoingTopicReassignment",
]


class ListPartitionReassignmentsTopics(Struct):
    """Partitions of one topic to ask about."""

    name: String = ""
    partition_indexes: Sequence[Int32] = ()


@message(api_key=46, versions=range(1), flexible_since=0)
class ListPartitionReassignmentsRequest(Message):
    """Null `topics` asks about all partitions of the cluster."""

    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Struct):
    """`replicas` are those to come and those to go together. Without `removing_replicas` they are the target."""

    partition_index: Int32 = 0
    replicas: Sequence[Int32] = ()
    adding_replicas: Sequence[Int32] = ()
    removing_replicas: Sequence[Int32] = ()


class OngoingTopicReassignment(Struct):
    """Partitions of one topic that are moving."""

    name: String = ""
    partitions: list[OngoingPartitionReassignment] = field(default_factory=list)


@message(api_key=46, versions=range(1), flexible_since=0)
class ListPartitionReassignmentsResponse(Message):
    """The moves under way. A partition that was asked for and is missing stands still, or does not exist."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    topics: list[OngoingTopicReassignment] = field(default_factory=list)
