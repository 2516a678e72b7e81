"""DescribeLogDirs, API key 35: the partitions in each directory of a broker, with their sizes. Pure.

Versions: 2 flexible; 3 an error for the request as a whole; 4 the size of the volume; 5 cordoned directories.
"""

from collections.abc import Sequence
from typing import Annotated

from barnabas_raftlog.wire.schema import Bool, Int16, Int32, Int64, Message, String, Struct, field, message, wire

__all__ = [
    "DescribableLogDirTopic",
    "DescribeLogDirsPartition",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeLogDirsResult",
    "DescribeLogDirsTopic",
]


class DescribableLogDirTopic(Struct):
    """Partitions of one topic to ask about."""

    topic: String = ""
    partitions: Sequence[Int32] = ()


@message(api_key=35, versions=range(1, 6), flexible_since=2)
class DescribeLogDirsRequest(Message):
    """Null `topics` asks about everything that the broker holds."""

    topics: list[DescribableLogDirTopic] | None = None


class DescribeLogDirsPartition(Struct):
    """`offset_lag` is the distance from the high watermark to the end of the log."""

    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Struct):
    """Partitions of one topic in one directory."""

    name: String = ""
    partitions: list[DescribeLogDirsPartition] = field(default_factory=list)


class DescribeLogDirsResult(Struct):
    """One directory; the sizes of its volume are -1 if they are unknown."""

    error_code: Int16 = 0
    log_dir: String = ""
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)
    total_bytes: Annotated[Int64, wire(since=4)] = -1
    usable_bytes: Annotated[Int64, wire(since=4)] = -1
    is_cordoned: Annotated[Bool, wire(since=5)] = False


@message(api_key=35, versions=range(1, 6), flexible_since=2)
class DescribeLogDirsResponse(Message):
    """One result for each directory of the broker."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, wire(since=3)] = 0
    results: list[DescribeLogDirsResult] = field(default_factory=list)
