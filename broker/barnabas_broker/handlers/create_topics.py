"""CreateTopics: have the controller create topics, and answer when clients can use them.

Any broker takes the request; the active controller decides, this broker passes it on. The answer waits until the new
partitions have leaders in this broker's table (within the request's timeout, and at most `LEADERS_S`), so that the
caller's next metadata request finds them. A request that names too many topics is refused for all of them at once.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from barnabas_broker.config_entries import topic_entries
from barnabas_broker.connections import Exchange
from barnabas_broker.context import BrokerContext, in_words
from barnabas_broker.time_slices import Slices, made
from barnabas_clients.protocol.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.commands import CONFIGS_MAX, CreatedTopic, NewTopic, RefusalReason, Refused, check_named

__all__ = ["code_of", "handle", "leaders_of", "limit_s", "refuse"]

LEADERS_S = 5.0
AWAITED_AT_ONCE = 500  # topics of which it is asked whether they have leaders: 2 us each
TIMEOUT_S_MAX = 60.0
_CODES = {
    RefusalReason.INVALID_TOPIC: ErrorCode.INVALID_TOPIC_EXCEPTION,
    RefusalReason.TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    RefusalReason.UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


def code_of(reason: RefusalReason | None) -> ErrorCode:
    """Return Kafka's code for what the controller said; the names are the same where Kafka has one."""
    if reason is None:
        return ErrorCode.NONE
    return _CODES.get(reason) or ErrorCode[reason.value]


def limit_s(timeout_ms: int) -> float:
    """Return how long a request may take of which the client says this: at most a minute."""
    return min(max(timeout_ms, 0) / 1000, TIMEOUT_S_MAX)


async def handle(broker: BrokerContext, _: Exchange, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create, then wait for leaders."""
    until_ms = broker.now_ms() + min(request.timeout_ms, int(TIMEOUT_S_MAX * 1000))
    try:
        check_named(len(request.topics))
    except Refused as refused:
        return CreateTopicsResponse(topics=await made(partial(_refused, refused), request.topics))
    names = [topic.name for topic in request.topics]
    # One name twice in a request is a contradiction; none of the two is done (as Kafka does).
    counts = Counter(names)
    twice = {name for name, count in counts.items() if count > 1}
    results = [
        CreatableTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="The topic is named twice in the request."
        )
        for name in counts
        if name in twice
    ]
    once = [topic for topic in request.topics if topic.name not in twice]
    wanted = [topic for topic in once if len(topic.configs) <= CONFIGS_MAX]
    text = f"There are more than {CONFIGS_MAX} configurations."
    results += [
        CreatableTopicResult(name=topic.name, error_code=ErrorCode.INVALID_CONFIG, error_message=text)
        for topic in once
        if len(topic.configs) > CONFIGS_MAX
    ]
    try:
        created = await broker.metadata.create_topics(
            await made(partial(_new_topic, broker), wanted),
            max(0.0, (until_ms - broker.now_ms()) / 1000),
            validate_only=request.validate_only,
        )
    except Refused as refused:
        return CreateTopicsResponse(topics=results + await made(partial(_refused, refused), wanted))
    if not request.validate_only:
        left_s = max(0.0, (until_ms - broker.now_ms()) / 1000)
        new_ids = [topic.topic_id for topic in created if topic.error is None]
        await leaders_of(broker, new_ids, min(LEADERS_S, left_s))
    return CreateTopicsResponse(topics=results + await made(partial(_result, broker), created))


async def leaders_of(broker: BrokerContext, topic_ids: Sequence[bytes], timeout_s: float) -> None:
    """Return when every partition of these topics has a leader in this broker's table, or the time is up."""
    until_ms, slices = broker.now_ms() + timeout_s * 1000, Slices()
    for first in range(0, len(topic_ids), AWAITED_AT_ONCE):
        left_s = max(0.0, (until_ms - broker.now_ms()) / 1000)
        await broker.partitions.wait_for_leaders(topic_ids[first : first + AWAITED_AT_ONCE], left_s)
        if not left_s:
            break
        await slices.breathe()


def refuse(request: CreateTopicsRequest, code: ErrorCode) -> CreateTopicsResponse:
    """Answer every topic with `code`."""
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=code) for topic in request.topics]
    )


def _refused(refused: Refused, topic: CreatableTopic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name, error_code=code_of(refused.reason), error_message=in_words(refused.message)
    )


def _new_topic(broker: BrokerContext, topic: CreatableTopic) -> NewTopic:
    assignments = {row.partition_index: tuple(row.broker_ids) for row in topic.assignments}
    partitions, factor = topic.num_partitions, topic.replication_factor
    if not assignments:
        # The configuration of the broker that was asked decides, not that of whoever is the controller.
        partitions = broker.config.num_partitions if partitions == -1 else partitions
        factor = broker.config.replication_factor if factor == -1 else factor
    return NewTopic(topic.name, partitions, factor, assignments, {row.name: row.value for row in topic.configs})


def _result(broker: BrokerContext, topic: CreatedTopic) -> CreatableTopicResult:
    if topic.error is not None:
        return CreatableTopicResult(
            name=topic.name, error_code=code_of(topic.error), error_message=in_words(topic.message or None)
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        num_partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name, value=entry.value, read_only=entry.is_read_only, config_source=entry.source
            )
            for entry in topic_entries(topic.name, topic.configs, broker.config)
        ],
    )
