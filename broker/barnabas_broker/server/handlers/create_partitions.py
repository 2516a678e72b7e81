"""CreatePartitions: have the controller let topics grow, and answer when clients can use them.

As for CreateTopics: any broker takes the request, the active controller decides, and the answer waits, within the
request's timeout and at most `LEADERS_S`, until the new partitions have leaders in this broker's table.
"""

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_broker.timing.pieces import distinct
from barnabas_broker.timing.slices import made, taken
from barnabas_clients.protocol.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import (
    CreatePartitions,
    CreatePartitionsAnswer,
    GrownTopic,
    NewPartitions,
    Refused,
    check_named,
)
from barnabas_metadata_quorum.controller.topics import PARTITIONS_PER_COMMAND_MAX
from barnabas_metadata_quorum.topic_names import name_complaint

from .create_topics import LEADERS_S, NO_SUCH_NAME, code_of, leaders_of, limit_s, sorted_out

__all__ = ["REPLICAS_MAX", "handle", "refuse"]

REPLICAS_MAX = 1_000  # more brokers than a cluster has


async def handle(broker: BrokerContext, _: Exchange, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Let topics grow, then wait for leaders."""
    timeout_s = limit_s(request.timeout_ms)
    until_ms = broker.now_ms() + int(timeout_s * 1000)
    answer = CreatePartitionsAnswer(())
    try:
        check_named(len(request.topics))
        wanted, refusals = await taken(sorted_out(request.topics, _refusal))
        if wanted:
            command = CreatePartitions(tuple(await made(_wanted, wanted)), request.validate_only)
            answer = await _submitted(broker, command, timeout_s)
    except Refused as refused:
        code = code_of(refused.reason)
        text = in_words(refused.message)

        def refused_too(topic: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
            return CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=text)

        once = await taken(distinct(request.topics, lambda topic: topic.name))
        return CreatePartitionsResponse(results=await made(refused_too, once))
    if not request.validate_only:
        left_s = max(0.0, (until_ms - broker.now_ms()) / 1000)
        grown = [topic.topic_id for topic in answer.topics if topic.error is None]
        await leaders_of(broker, grown, min(LEADERS_S, left_s))
    return CreatePartitionsResponse(results=await made(_result, answer.topics) + refusals)


def refuse(request: CreatePartitionsRequest, code: ErrorCode) -> CreatePartitionsResponse:
    """Answer every topic with `code`."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name=name, error_code=code) for name in names])


async def _submitted(broker: BrokerContext, command: CreatePartitions, timeout_s: float) -> CreatePartitionsAnswer:
    answer = await broker.metadata.submit(command, timeout_s)
    assert isinstance(answer, CreatePartitionsAnswer)
    return answer


def _refusal(topic: CreatePartitionsTopic, times: int) -> CreatePartitionsTopicResult | None:
    """Return the answer if no controller need be asked."""
    rows = topic.assignments or ()
    if times > 1:
        code = ErrorCode.INVALID_REQUEST
        text = "Duplicate topic name."
    elif name_complaint(topic.name):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        text = NO_SUCH_NAME
    elif len(rows) > PARTITIONS_PER_COMMAND_MAX or any(len(row.broker_ids) > REPLICAS_MAX for row in rows):
        text = f"{PARTITIONS_PER_COMMAND_MAX} partitions may be assigned, {REPLICAS_MAX} brokers to each, not more"
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    else:
        return None
    return CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=text)


def _result(fate: GrownTopic) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=fate.name, error_code=code_of(fate.error), error_message=in_words(fate.message or None)
    )


def _wanted(topic: CreatePartitionsTopic) -> NewPartitions:
    rows = topic.assignments
    assignments = None if rows is None else tuple(tuple(row.broker_ids) for row in rows)
    return NewPartitions(topic.name, topic.count, assignments)
