"""Moves partitions to other brokers (KIP-455), and lists moves: functions over a `Cluster`.

A request for a move returns when the controller has recorded it, which is long before it is done. Moves under way can
be listed. If the answer is lost, the request is repeated, which changes nothing. A repeated cancellation that finds
nothing to cancel counts as done.

Cancellation of a call: the move may happen nevertheless, and nothing is left behind here.

Not here: the choice of brokers, which `barnabas reassign` makes.
"""

from collections.abc import Collection, Mapping, Sequence

from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from barnabas_clients.topic_partition import TopicPartition

from .attempts import raise_for
from .offsets import left_s
from .values import PartitionReassignment

__all__ = ["alter_partition_reassignments", "list_partition_reassignments"]


async def alter_partition_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None], timeout_s: float
) -> None:
    """Move partitions to other brokers, the preferred leader first. None cancels the move that is under way.

    Raises:
        KafkaError: the first refusal, which names the partition; others may be on their way.
        DeadlineExceededError: no answer in time; they may be on their way.
    """
    by_topic: dict[str, list[ReassignablePartition]] = {}
    for key, replicas in sorted(targets.items()):
        wanted = ReassignablePartition(
            partition_index=key.partition, replicas=None if replicas is None else tuple(replicas)
        )
        by_topic.setdefault(key.topic, []).append(wanted)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=int(timeout_s * 1000),
        topics=[ReassignableTopic(name=name, partitions=rows) for name, rows in by_topic.items()],
    )
    may_be_done = False

    async def attempt(deadline: float) -> None:
        nonlocal may_be_done
        try:
            response: AlterPartitionReassignmentsResponse = await cluster.ask_controller(request, left_s(deadline))
        except ClientError as error:
            may_be_done |= error.may_be_done
            raise
        raise_for(response.error_code, "moving partitions", response.error_message)
        for topic in response.responses:
            for row in topic.partitions:
                if row.error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS and may_be_done:
                    continue
                raise_for(row.error_code, str(TopicPartition(topic.name, row.partition_index)), row.error_message)

    await cluster.retry("moving partitions", timeout_s, attempt)


async def list_partition_reassignments(
    cluster: Cluster, timeout_s: float, partitions: Collection[TopicPartition] | None = None
) -> dict[TopicPartition, PartitionReassignment]:
    """Return the moves under way, of some partitions or of all.

    Raises:
        DeadlineExceededError: no answer in time.
    """
    topics = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for key in sorted(partitions):
            by_topic.setdefault(key.topic, []).append(key.partition)
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()
        ]

    def check(response: ListPartitionReassignmentsResponse) -> None:
        raise_for(response.error_code, "listing moves of partitions", response.error_message)

    request = ListPartitionReassignmentsRequest(timeout_ms=int(timeout_s * 1000), topics=topics)
    response: ListPartitionReassignmentsResponse = await cluster.request_controller(request, timeout_s, check)
    return {
        TopicPartition(topic.name, row.partition_index): PartitionReassignment(
            tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
        )
        for topic in response.topics
        for row in topic.partitions
    }
