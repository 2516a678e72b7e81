"""DeleteRecords, API key 21: move the start of partitions' logs forward. Pure.

Versions: 2 flexible.
"""

from barnabas_raftlog.wire.schema import Int16, Int32, Int64, Message, String, Struct, field, message

__all__ = [
    "DeleteRecordsPartition",
    "DeleteRecordsPartitionResult",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteRecordsTopic",
    "DeleteRecordsTopicResult",
]


class DeleteRecordsPartition(Struct):
    """Delete before `offset`; -1 means the high watermark."""

    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Struct):
    """Partitions of one topic."""

    name: String = ""
    partitions: list[DeleteRecordsPartition] = field(default_factory=list)


@message(api_key=21, versions=range(3), flexible_since=2)
class DeleteRecordsRequest(Message):
    """`timeout_ms` bounds the wait for replicas."""

    topics: list[DeleteRecordsTopic] = field(default_factory=list)
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Struct):
    """`low_watermark` is the new start of the log."""

    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Struct):
    """Outcomes for partitions of one topic."""

    name: String = ""
    partitions: list[DeleteRecordsPartitionResult] = field(default_factory=list)


@message(api_key=21, versions=range(3), flexible_since=2)
class DeleteRecordsResponse(Message):
    """One outcome for each partition of the request."""

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list)
