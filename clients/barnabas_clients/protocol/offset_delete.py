"""OffsetDelete, API key 47: forget offsets that a group has committed (KIP-496). Pure.

There is only version 0, which is not flexible.
"""

from barnabas_raftlog.wire.schema import Int16, Int32, Message, String, Struct, field, message

__all__ = [
    "OffsetDeleteRequest",
    "OffsetDeleteRequestPartition",
    "OffsetDeleteRequestTopic",
    "OffsetDeleteResponse",
    "OffsetDeleteResponsePartition",
    "OffsetDeleteResponseTopic",
]


class OffsetDeleteRequestPartition(Struct):
    """A partition of a topic."""

    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Struct):
    """A topic."""

    name: String = ""
    partitions: list[OffsetDeleteRequestPartition] = field(default_factory=list)


@message(api_key=47, versions=range(1), flexible_since=1)
class OffsetDeleteRequest(Message):
    """The partitions whose offsets the group is to forget."""

    group_id: String = ""
    topics: list[OffsetDeleteRequestTopic] = field(default_factory=list)


class OffsetDeleteResponsePartition(Struct):
    """The result for one partition's offset."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Struct):
    """A topic."""

    name: String = ""
    partitions: list[OffsetDeleteResponsePartition] = field(default_factory=list)


@message(api_key=47, versions=range(1), flexible_since=1)
class OffsetDeleteResponse(Message):
    """A top-level error, and one for each partition."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)
