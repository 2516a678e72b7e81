"""ListPartitionReassignments: which partitions are on their way, from this broker's own image.

The image is first brought to where the controller is: another broker may have answered the request that began a move,
and who asks here next must find it. In Kafka, too, it is the controller that answers.

A move that was called off is listed until the partition is back: its former target as what is being removed. Partitions
and topics that do not exist are passed over, as Kafka passes them over.
"""

from collections.abc import Iterable

from barnabas_broker.connections import Exchange
from barnabas_broker.context import BrokerContext, in_words
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from barnabas_metadata_quorum.commands import ReadIndex, ReadIndexAnswer, Refused
from barnabas_metadata_quorum.image import Topic

from .create_topics import code_of, limit_s

__all__ = ["handle", "refuse"]


async def handle(
    broker: BrokerContext, _: Exchange, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Answer when this broker knows what the controller knew when it was asked."""
    try:
        read = await broker.metadata.submit(ReadIndex(), limit_s(request.timeout_ms))
    except Refused as refused:
        return ListPartitionReassignmentsResponse(
            error_code=code_of(refused.reason), error_message=in_words(refused.message)
        )
    assert isinstance(read, ReadIndexAnswer)
    if broker.image.version < read.version:
        text = f"this broker has not yet heard all that the controller knows: it is at {broker.image.version}"
        return ListPartitionReassignmentsResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=text)
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
