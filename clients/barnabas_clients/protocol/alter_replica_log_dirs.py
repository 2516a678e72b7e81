"""AlterReplicaLogDirs, API key 34: move a broker's replicas between its directories (KIP-113). Pure.

Versions: 2 flexible.
"""

from collections.abc import Sequence

from barnabas_raftlog.wire.schema import Int16, Int32, Message, String, Struct, field, message

__all__ = [
    "AlterReplicaLogDir",
    "AlterReplicaLogDirPartitionResult",
    "AlterReplicaLogDirTopic",
    "AlterReplicaLogDirTopicResult",
    "AlterReplicaLogDirsRequest",
    "AlterReplicaLogDirsResponse",
]


class AlterReplicaLogDirTopic(Struct):
    """Partitions of one topic."""

    name: String = ""
    partitions: Sequence[Int32] = ()


class AlterReplicaLogDir(Struct):
    """A directory, by its absolute path, and the partitions that should be in it."""

    path: String = ""
    topics: list[AlterReplicaLogDirTopic] = field(default_factory=list)


@message(api_key=34, versions=range(1, 3), flexible_since=2)
class AlterReplicaLogDirsRequest(Message):
    """Goes to the broker whose replicas are meant."""

    dirs: list[AlterReplicaLogDir] = field(default_factory=list)


class AlterReplicaLogDirPartitionResult(Struct):
    """The fate of one partition."""

    partition_index: Int32 = 0
    error_code: Int16 = 0


class AlterReplicaLogDirTopicResult(Struct):
    """The fates of partitions of one topic."""

    topic_name: String = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = field(default_factory=list)


@message(api_key=34, versions=range(1, 3), flexible_since=2)
class AlterReplicaLogDirsResponse(Message):
    """One fate for each partition."""

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = field(default_factory=list)
