"""ListPartitionReassignments: which partitions are on their way, from this broker's own image.

A move that was called off is listed until the partition is back: its former target as what is being removed. Partitions
and topics that do not exist are passed over, as Kafka passes them over.
"""

from collections.abc import Iterable

from barnabas_broker.connections import Exchange
from barnabas_broker.context import BrokerContext
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from barnabas_metadata_quorum.image import Topic

__all__ = ["handle", "refuse"]


def handle(
    broker: BrokerContext, _: Exchange, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Answer at once."""
    response = ListPartitionReassignmentsResponse()
    if request.topics is None:
        for topic in broker.image.topics.values():
            _add(response, topic, range(len(topic.partitions)))
        return response
    for asked in request.topics:
        found = broker.image.topic_named(asked.name)
        if found is not None:
            _add(response, found, asked.partition_indexes)
    return response


def refuse(_: ListPartitionReassignmentsRequest, code: ErrorCode) -> ListPartitionReassignmentsResponse:
    """Refuse the request as a whole."""
    return ListPartitionReassignmentsResponse(error_code=code)


def _add(response: ListPartitionReassignmentsResponse, topic: Topic, indexes: Iterable[int]) -> None:
    ongoing = [
        OngoingPartitionReassignment(
            partition_index=index,
            replicas=partition.replicas,
            adding_replicas=partition.adding,
            removing_replicas=partition.removing,
        )
        for index in indexes
        if 0 <= index < len(topic.partitions) and (partition := topic.partitions[index]).move is not None
    ]
    if ongoing:
        response.topics.append(OngoingTopicReassignment(name=topic.name, partitions=ongoing))
