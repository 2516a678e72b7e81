"""CreatePartitions, API key 37: give topics more partitions. Pure.

Versions: 2 flexible; 3 may answer THROTTLING_QUOTA_EXCEEDED.
"""

from collections.abc import Sequence

from barnabas_raftlog.wire.schema import Bool, Int16, Int32, Message, String, Struct, field, message

__all__ = [
    "CreatePartitionsAssignment",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreatePartitionsTopic",
    "CreatePartitionsTopicResult",
]


class CreatePartitionsAssignment(Struct):
    """The brokers that shall hold one new partition."""

    broker_ids: Sequence[Int32] = ()


class CreatePartitionsTopic(Struct):
    """`count` is the new total; null `assignments` lets the controller place them."""

    name: String = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = None


@message(api_key=37, versions=range(4), flexible_since=2)
class CreatePartitionsRequest(Message):
    """`validate_only` checks and creates nothing."""

    topics: list[CreatePartitionsTopic] = field(default_factory=list)
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Struct):
    """The result for one topic."""

    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


@message(api_key=37, versions=range(4), flexible_since=2)
class CreatePartitionsResponse(Message):
    """One result for each topic of the request."""

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = field(default_factory=list)
