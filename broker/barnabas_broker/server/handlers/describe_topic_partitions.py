"""DescribeTopicPartitions: say who leads and holds the partitions of topics, a page at a time.

Topics come in the order of their names, partitions in theirs. A page has as many partitions as the client asks for, and
no more than `max.request.partition.size.limit`; its cursor names where the next one begins. Topics that do not exist
take no room, and are left out where all topics are asked for. Nobody waits for a leader here.

A cursor that names no topic of the request, or a partition below 0, is INVALID_REQUEST for every topic, as in Kafka.
There are no lists of eligible leaders (KIP-966): a majority of the replicas has everything, so they are empty.
"""

from collections.abc import Generator, Iterator

from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.pieces import distinct, sorted_names
from barnabas_clients.protocol.describe_topic_partitions import (
    DescribedTopic,
    DescribedTopicPartition,
    DescribeTopicPartitionsCursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS, name_complaint

from . import operations
from .shown_partitions import ShownPartitions

__all__ = ["handle", "refuse"]

PIECE = 32  # rows between two yields
START = DescribeTopicPartitionsCursor()


def handle(
    broker: BrokerContext, exchange: Exchange, request: DescribeTopicPartitionsRequest
) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    """Show one page."""
    cursor = request.cursor or START
    names = yield from _names(broker, request, cursor.topic_name)
    if names is None or cursor.partition_index < 0:
        return refuse(request, ErrorCode.INVALID_REQUEST)
    left = max(1, min(request.response_partition_limit, broker.config.max_request_partition_size_limit))
    response = DescribeTopicPartitionsResponse()
    for number, name in enumerate(names, 1):
        if not number % PIECE:
            yield
        if not left:
            response.next_cursor = DescribeTopicPartitionsCursor(topic_name=name)
            break
        hosted = broker.partitions.topics.get(name)
        if hosted is None:
            if request.topics:
                response.topics.append(_unknown(name))
            continue
        start = cursor.partition_index if name == cursor.topic_name else 0
        count = len(hosted.topic.partitions)
        end = min(count, start + left)
        response.topics.append((yield from _topic(broker, exchange, hosted, range(start, end))))
        if end < count:
            response.next_cursor = DescribeTopicPartitionsCursor(topic_name=name, partition_index=end)
            break
        left -= max(0, end - start)
    return response


def refuse(request: DescribeTopicPartitionsRequest, code: ErrorCode) -> DescribeTopicPartitionsResponse:
    """Answer every named topic with `code`; where all are asked for there is no place for it."""
    topics = [DescribedTopic(name=topic.name, error_code=code) for topic in request.topics]
    return DescribeTopicPartitionsResponse(topics=topics)


def _names(
    broker: BrokerContext, request: DescribeTopicPartitionsRequest, first: str
) -> Generator[None, None, Iterator[str] | None]:
    """Return the names from the cursor's on, in order; None if the cursor's is none of those that are asked for."""
    if not request.topics:
        names = yield from sorted_names(broker.partitions.topics)
        return (name for name in names if name >= first)
    once = yield from distinct(request.topics, _name)
    named = [topic.name for topic in once]
    if first and first not in named:
        return None
    names = yield from sorted_names(named)
    return (name for name in names if name >= first)


def _name(topic: TopicRequest) -> str:
    return topic.name


def _unknown(name: str) -> DescribedTopic:
    code = ErrorCode.INVALID_TOPIC_EXCEPTION if name_complaint(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return DescribedTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=operations.OF_TOPICS,
    )


def _topic(
    broker: BrokerContext, exchange: Exchange, hosted: HostedTopic, indexes: range
) -> Generator[None, None, DescribedTopic]:
    partitions = ShownPartitions(broker, exchange.listener_name)
    rows = []
    for index in indexes:
        shown = partitions.one(hosted, index)
        rows.append(
            DescribedTopicPartition(
                partition_index=index,
                leader_id=shown.leader.leader_id,
                leader_epoch=shown.leader.epoch,
                replica_nodes=shown.replicas,
                isr_nodes=shown.in_sync,
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=shown.offline,
            )
        )
        if not len(rows) % PIECE:
            yield
    topic = hosted.topic
    return DescribedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=rows,
        topic_authorized_operations=operations.OF_TOPICS,
    )
