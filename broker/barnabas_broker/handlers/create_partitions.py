"""CreatePartitions: have the controller let topics grow, and answer when clients can use the new partitions.

As for CreateTopics: any broker takes the request, the active controller decides, and the answer waits, within the
request's timeout and at most `LEADERS_S`, until the new partitions have leaders in this broker's table.
"""

from barnabas_broker.connections import Exchange
from barnabas_broker.context import BrokerContext, in_words
from barnabas_clients.protocol.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.commands import CreatePartitions, CreatePartitionsAnswer, NewPartitions, Refused

from .create_topics import LEADERS_S, code_of, limit_s

__all__ = ["handle", "refuse"]


async def handle(broker: BrokerContext, _: Exchange, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Let topics grow, then wait for leaders."""
    timeout_s = limit_s(request.timeout_ms)
    until_ms = broker.now_ms() + int(timeout_s * 1000)
    command = CreatePartitions(tuple(_wanted(topic) for topic in request.topics), request.validate_only)
    try:
        answer = await broker.metadata.submit(command, timeout_s)
    except Refused as refused:
        response = refuse(request, code_of(refused.reason))
        for result in response.results:
            result.error_message = in_words(refused.message)
        return response
    assert isinstance(answer, CreatePartitionsAnswer)
    if not request.validate_only:
        left_s = max(0.0, (until_ms - broker.now_ms()) / 1000)
        grown = [topic.topic_id for topic in answer.topics if topic.error is None]
        await broker.partitions.wait_for_leaders(grown, min(LEADERS_S, left_s))
    # A name that stands in the request twice is answered once, as Kafka does.
    fates = {topic.name: topic for topic in answer.topics}
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(
                name=fate.name, error_code=code_of(fate.error), error_message=in_words(fate.message or None)
            )
            for fate in fates.values()
        ]
    )


def refuse(request: CreatePartitionsRequest, code: ErrorCode) -> CreatePartitionsResponse:
    """Answer every topic with `code`."""
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name=name, error_code=code) for name in names])


def _wanted(topic: CreatePartitionsTopic) -> NewPartitions:
    rows = topic.assignments
    assignments = None if rows is None else tuple(tuple(row.broker_ids) for row in rows)
    return NewPartitions(topic.name, topic.count, assignments)
