"""Describes the directories of brokers, and the size of every replica in them: functions over a `Cluster`.

Only a broker itself knows what it holds, so each one is asked, all at the same time, with one request.
"""

import asyncio
from collections.abc import Collection, Iterable

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.protocol.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from barnabas_clients.protocol.errors import error_for
from barnabas_clients.topic_partition import TopicPartition

from .attempts import raise_for
from .offsets import left_s
from .values import LogDir, ReplicaSize

__all__ = ["ask_log_dirs", "describe_log_dirs"]


async def describe_log_dirs(
    cluster: Cluster,
    timeout_s: float,
    broker_ids: Collection[int] | None = None,
    partitions: Collection[TopicPartition] | None = None,
) -> dict[int, list[LogDir]]:
    """Return the directories of brokers, or of all in the metadata; with `partitions`, only replicas of those.

    Raises:
        KafkaError: a broker refuses the question as a whole.
        DeadlineExceededError: a broker did not answer in time, or is not in the cluster.
    """
    deadline = asyncio.get_running_loop().time() + timeout_s
    found: dict[int, list[LogDir]] = {}

    async def attempt(until: float) -> None:
        wanted = sorted(set(cluster.view.brokers if broker_ids is None else broker_ids) - found.keys())
        answers = await asyncio.gather(
            *(ask_log_dirs(cluster, node_id, until, partitions) for node_id in wanted), return_exceptions=True
        )
        failures: list[BaseException] = []
        for node_id, answer in zip(wanted, answers, strict=True):
            if isinstance(answer, BaseException):
                failures.append(answer)
            else:
                found[node_id] = answer
        if failures:
            raise failures[0]

    await cluster.retry("describing log directories", left_s(deadline), attempt)
    return dict(sorted(found.items()))


async def ask_log_dirs(
    cluster: Cluster, node_id: int, deadline: float, partitions: Collection[TopicPartition] | None = None
) -> list[LogDir]:
    """Ask one broker once.

    Raises:
        KafkaError: it refuses. ClientError: it does not answer, or is not in the metadata.
    """
    topics = None
    if partitions is not None:
        topics = [
            DescribableLogDirTopic(topic=topic, partitions=numbers) for topic, numbers in _by_topic(partitions).items()
        ]
    request = DescribeLogDirsRequest(topics=topics)
    response: DescribeLogDirsResponse = await cluster.ask_broker(node_id, request, left_s(deadline))
    raise_for(response.error_code, f"log directories of broker {node_id}", None)
    return [_log_dir(result) for result in response.results]


def _log_dir(result: DescribeLogDirsResult) -> LogDir:
    return LogDir(
        path=result.log_dir,
        error=error_for(result.error_code, result.log_dir) if result.error_code else None,
        replicas={
            TopicPartition(topic.name, row.partition_index): ReplicaSize(
                row.partition_size, row.offset_lag, row.is_future_key
            )
            for topic in result.topics
            for row in topic.partitions
        },
        total_bytes=result.total_bytes,
        usable_bytes=result.usable_bytes,
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for key in sorted(partitions):
        by_topic.setdefault(key.topic, []).append(key.partition)
    return by_topic
