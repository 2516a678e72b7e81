"""DescribeOffsetRanges, API key 25188: how large ranges are, and where to cut them. Barnabas alone has it. Pure.

Whoever reads a topic in parallel wants parts of equal work, cut where batches begin, so that none is fetched twice. The
leader of a partition tells that from its sparse index, without reading a record. Sizes are about right: to half an
index interval (2 KiB) or half a batch at each end.
"""

from barnabas_raftlog.wire.schema import NO_UUID, Int16, Int32, Int64, Message, Struct, Uuid, field, message

__all__ = [
    "DescribeOffsetRangesRequest",
    "DescribeOffsetRangesResponse",
    "OffsetRange",
    "OffsetRangePart",
    "OffsetRangeResult",
    "OffsetRangesTopic",
    "OffsetRangesTopicResult",
]


class OffsetRange(Struct):
    """Offsets [start_offset, end_offset) of a partition, to be cut every `target_bytes` into `parts_max` at most."""

    partition_index: Int32 = 0
    current_leader_epoch: Int32 = -1
    start_offset: Int64 = 0
    end_offset: Int64 = 0
    target_bytes: Int64 = 9223372036854775807
    parts_max: Int32 = 2147483647


class OffsetRangesTopic(Struct):
    """Ranges of one topic; several of one partition, if wanted."""

    topic_id: Uuid = NO_UUID
    partitions: list[OffsetRange] = field(default_factory=list)


@message(api_key=25188, versions=range(1), flexible_since=0)
class DescribeOffsetRangesRequest(Message):
    """Ask the leader of these partitions."""

    topics: list[OffsetRangesTopic] = field(default_factory=list)


class OffsetRangePart(Struct):
    """The offsets from the end of the part before it, or the start of the range, up to `end_offset` (exclusive)."""

    end_offset: Int64 = 0
    size_bytes: Int64 = 0


class OffsetRangeResult(Struct):
    """The parts of one range, in order. They may not reach its end: the broker has a limit, too. Ask for the rest."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    parts: list[OffsetRangePart] = field(default_factory=list)


class OffsetRangesTopicResult(Struct):
    """Results for the ranges of one topic, in the order of the question."""

    topic_id: Uuid = NO_UUID
    partitions: list[OffsetRangeResult] = field(default_factory=list)


@message(api_key=25188, versions=range(1), flexible_since=0)
class DescribeOffsetRangesResponse(Message):
    """Topics are in the order of the question."""

    throttle_time_ms: Int32 = 0
    topics: list[OffsetRangesTopicResult] = field(default_factory=list)
