"""AlterPartitionReassignments: have the controller send partitions on their way, or call them back.

Any broker takes the request, the active controller decides, and the answer says that a move has begun, not that it has
ended: that is for ListPartitionReassignments. The moves themselves are led by the partitions' leaders.
"""

from itertools import compress, islice
from operator import not_

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_broker.timing.slices import made
from barnabas_clients.protocol.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import (
    AlterReassignments,
    AlterReassignmentsAnswer,
    Reassignment,
    ReassignmentFate,
    Refused,
    check_named,
)
from barnabas_metadata_quorum.topic_names import name_complaint

from .create_partitions import REPLICAS_MAX
from .create_topics import NO_SUCH_NAME, code_of, limit_s

__all__ = ["handle", "refuse"]


async def handle(
    broker: BrokerContext, _: Exchange, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Ask the controller, and return what it says of each partition."""
    timeout_s = limit_s(request.timeout_ms)
    try:
        check_named(sum(await made(_count, request.topics)), "partitions")
        are_possible = await made(_is_possible, request.topics)
        topics = list(compress(request.topics, are_possible))
        wanted = await made(_wanted, ((topic.name, partition) for topic in topics for partition in topic.partitions))
        command = AlterReassignments(tuple(wanted), request.allow_replication_factor_change)
        answer = await broker.metadata.submit(command, timeout_s) if wanted else AlterReassignmentsAnswer(())
    except Refused as refused:
        response = refuse(request, code_of(refused.reason))
        response.error_message = in_words(refused.message)
        return response
    assert isinstance(answer, AlterReassignmentsAnswer)
    others = compress(request.topics, map(not_, are_possible))
    known = iter(await made(_result, answer.partitions))
    unknown = iter(await made(_unknown, (partition for topic in others for partition in topic.partitions)))
    possible = iter(are_possible)

    def answered(topic: ReassignableTopic) -> ReassignableTopicResponse:
        results = islice(known if next(possible) else unknown, len(topic.partitions))
        return ReassignableTopicResponse(name=topic.name, partitions=list(results))

    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=await made(answered, request.topics),
    )


def _is_possible(topic: ReassignableTopic) -> bool:
    """Tell whether a topic can have this name; if not the controller need not be asked."""
    return name_complaint(topic.name) is None


def _unknown(partition: ReassignablePartition) -> ReassignablePartitionResponse:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    text = NO_SUCH_NAME
    return ReassignablePartitionResponse(partition_index=partition.partition_index, error_code=code, error_message=text)


def _count(topic: ReassignableTopic) -> int:
    return len(topic.partitions) or 1


def _wanted(named: tuple[str, ReassignablePartition]) -> Reassignment:
    name, partition = named
    # Of so many brokers some are unknown, or named twice, and the controller says so of the first thousand, too.
    replicas = None if partition.replicas is None else tuple(partition.replicas[:REPLICAS_MAX])
    return Reassignment(name, partition.partition_index, replicas)


def _result(fate: ReassignmentFate) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=fate.partition, error_code=code_of(fate.error), error_message=in_words(fate.message or None)
    )


def refuse(request: AlterPartitionReassignmentsRequest, code: ErrorCode) -> AlterPartitionReassignmentsResponse:
    """Refuse the request as a whole."""
    allowed = request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(allow_replication_factor_change=allowed, error_code=code)
