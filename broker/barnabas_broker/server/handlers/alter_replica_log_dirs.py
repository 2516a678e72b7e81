"""AlterReplicaLogDirs: move replicas of this broker between its directories, of which there is one.

So a replica that should be in that directory is there, and nothing is done; another directory is LOG_DIR_NOT_FOUND. As
in Kafka a partition whose replicas are elsewhere is REPLICA_NOT_AVAILABLE, and one that is named twice is answered
once, for the directory that is named last. Kafka would keep the wish for a replica that may come: here it comes true.
"""

from collections.abc import Generator

from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from barnabas_clients.protocol.error_codes import ErrorCode

from .describe_log_dirs import directory_of

__all__ = ["handle", "refuse"]

PIECE = 200  # partitions between two yields


def handle(
    broker: BrokerContext, _: Exchange, request: AlterReplicaLogDirsRequest
) -> Generator[None, None, AlterReplicaLogDirsResponse]:
    """Answer without waiting for anybody."""
    fates: dict[str, dict[int, ErrorCode]] = {}
    here = directory_of(broker)
    for directory in request.dirs:
        for topic in directory.topics:
            yield
            rows = fates.setdefault(topic.name, {})
            hosted = broker.partitions.topics.get(topic.name)
            for number, index in enumerate(topic.partitions, 1):
                rows[index] = _fate(hosted, index) if directory.path == here else ErrorCode.LOG_DIR_NOT_FOUND
                if not number % PIECE:
                    yield
    results = []
    for name, rows in fates.items():
        result = AlterReplicaLogDirTopicResult(topic_name=name)
        for number, (index, code) in enumerate(rows.items(), 1):
            result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
            if not number % PIECE:
                yield
        if result.partitions:
            results.append(result)
        yield
    return AlterReplicaLogDirsResponse(results=results)


def _fate(hosted: HostedTopic | None, index: int) -> ErrorCode:
    if hosted is None or not 0 <= index < len(hosted.topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = hosted.partitions.get(index)
    is_here = partition is not None and not partition.is_witness
    return ErrorCode.NONE if is_here else ErrorCode.REPLICA_NOT_AVAILABLE


def refuse(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    """Answer every partition with `code`."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )
