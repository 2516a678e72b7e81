"""CreatePartitions: have the controller let topics grow, and answer when clients can use the new partitions.

As for CreateTopics: any broker takes the request, the active controller decides, and the answer waits, within the
request's timeout and at most `LEADERS_S`, until the new partitions have leaders in this broker's table.
"""

from collections import Counter

from barnabas_broker.connections import Exchange
from barnabas_broker.context import BrokerContext, in_words
from barnabas_broker.pieces import distinct
from barnabas_broker.time_slices import made, taken
from barnabas_clients.protocol.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.commands import (
    CreatePartitions,
    CreatePartitionsAnswer,
    GrownTopic,
    NewPartitions,
    RefusalReason,
    Refused,
    check_named,
)

from .create_topics import LEADERS_S, code_of, leaders_of, limit_s

__all__ = ["handle", "refuse"]

DUPLICATE = RefusalReason.INVALID_REQUEST, "Duplicate topic name."


async def handle(broker: BrokerContext, _: Exchange, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Let topics grow, then wait for leaders."""
    timeout_s = limit_s(request.timeout_ms)
    until_ms = broker.now_ms() + int(timeout_s * 1000)
    try:
        check_named(len(request.topics))
        times = Counter(topic.name for topic in request.topics)
        once = [topic for topic in request.topics if times[topic.name] == 1]
        command = CreatePartitions(tuple(await made(_wanted, once)), request.validate_only)
        answer = await broker.metadata.submit(command, timeout_s)
    except Refused as refused:
        code, text = code_of(refused.reason), in_words(refused.message)

        def refusal(topic: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
            return CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=text)

        once = await taken(distinct(request.topics, lambda topic: topic.name))
        return CreatePartitionsResponse(results=await made(refusal, once))
    assert isinstance(answer, CreatePartitionsAnswer)
    if not request.validate_only:
        left_s = max(0.0, (until_ms - broker.now_ms()) / 1000)
        grown = [topic.topic_id for topic in answer.topics if topic.error is None]
        await leaders_of(broker, grown, min(LEADERS_S, left_s))
    # A name that stands in the request twice is answered once, as Kafka does.
    twice = [GrownTopic(name, *DUPLICATE) for name, count in times.items() if count > 1]
    return CreatePartitionsResponse(results=await made(_result, [*answer.topics, *twice]))


def refuse(request: CreatePartitionsRequest, code: ErrorCode) -> CreatePartitionsResponse:
    """Answer every topic with `code`."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name=name, error_code=code) for name in names])


def _result(fate: GrownTopic) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=fate.name, error_code=code_of(fate.error), error_message=in_words(fate.message or None)
    )


def _wanted(topic: CreatePartitionsTopic) -> NewPartitions:
    rows = topic.assignments
    assignments = None if rows is None else tuple(tuple(row.broker_ids) for row in rows)
    return NewPartitions(topic.name, topic.count, assignments)
