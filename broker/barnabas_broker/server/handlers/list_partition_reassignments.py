"""ListPartitionReassignments: list the partitions that are on their way, from this broker's own image.

The image is first brought to where the controller is: another broker may have answered the request that began a move,
and a client that asks here next must find it. In Kafka, too, it is the controller that answers.

A move that was called off is listed until the partition is back: its former target is shown as being removed.
Partitions and topics that do not exist are passed over, as Kafka passes them over.
"""

from collections.abc import Generator, Iterable, Sequence

from barnabas_broker.coordinators.runtime.catching_up import catch_up
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_broker.timing.slices import taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from barnabas_metadata_quorum.controller.commands import Refused
from barnabas_metadata_quorum.image.image import PartitionPlacement, Topic

from .create_topics import code_of, limit_s

__all__ = ["handle", "refuse"]

PIECE = 200  # partitions between two yields


async def handle(
    broker: BrokerContext, _: Exchange, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Answer when this broker knows what the controller knew when it was asked."""
    try:
        await catch_up(broker.metadata, limit_s(request.timeout_ms))
    except Refused as refused:
        return ListPartitionReassignmentsResponse(
            error_code=code_of(refused.reason), error_message=in_words(refused.message)
        )
    except TimeoutError:
        text = f"this broker has not yet heard all that the controller knows: it is at {broker.image.version}"
        return ListPartitionReassignmentsResponse(error_code=ErrorCode.REQUEST_TIMED_OUT, error_message=text)
    return ListPartitionReassignmentsResponse(topics=await taken(_ongoing(broker, request)))


def refuse(_: ListPartitionReassignmentsRequest, code: ErrorCode) -> ListPartitionReassignmentsResponse:
    """Refuse the request as a whole."""
    return ListPartitionReassignmentsResponse(error_code=code)


def _ongoing(
    broker: BrokerContext, request: ListPartitionReassignmentsRequest
) -> Generator[None, None, list[OngoingTopicReassignment]]:
    """Return those that are asked for and on their way, all of the same image."""
    topics = []
    image = broker.image
    asked: Iterable[tuple[Topic | None, Sequence[int]]]
    if request.topics is None:
        asked = ((topic, range(len(topic.partitions))) for topic in image.topics.values())
    else:
        asked = ((image.topic_named(topic.name), topic.partition_indexes) for topic in request.topics)
    for topic, indexes in asked:
        yield
        if topic is None:
            continue
        partitions = []
        for number, index in enumerate(indexes, 1):
            if 0 <= index < len(topic.partitions) and topic.partitions[index].move is not None:
                partitions.append(_row(index, topic.partitions[index]))
            if not number % PIECE:
                yield
        if partitions:
            topics.append(OngoingTopicReassignment(name=topic.name, partitions=partitions))
    return topics


def _row(index: int, partition: PartitionPlacement) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=partition.replicas,
        adding_replicas=partition.adding,
        removing_replicas=partition.removing,
    )
