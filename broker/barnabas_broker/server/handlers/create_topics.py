"""CreateTopics: have the controller create topics, and answer when clients can use them.

Any broker takes the request; the active controller decides, this broker passes it on. The answer waits until the new
partitions have leaders in this broker's table (within the request's timeout, and at most `LEADERS_S`), so that the
caller's next metadata request finds them. A request that names too many topics is refused for all of them at once.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Protocol, TypeVar

from barnabas_broker.config.entries import topic_entries
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_broker.timing.pieces import PIECE, times_of
from barnabas_broker.timing.slices import Slices, made, taken
from barnabas_clients.protocol.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import (
    CONFIGS_MAX,
    CreatedTopic,
    NewTopic,
    RefusalReason,
    Refused,
    check_named,
)
from barnabas_metadata_quorum.controller.topics import PARTITIONS_PER_COMMAND_MAX
from barnabas_metadata_quorum.topic_names import name_complaint

__all__ = ["NO_SUCH_NAME", "code_of", "handle", "leaders_of", "limit_s", "refuse", "sorted_out"]

LEADERS_S = 5.0
AWAITED_AT_ONCE = 500  # topics of which it is asked whether they have leaders
TIMEOUT_S_MAX = 60.0
NO_SUCH_NAME = "No topic can have this name."
_CODES = {
    RefusalReason.INVALID_TOPIC: ErrorCode.INVALID_TOPIC_EXCEPTION,
    RefusalReason.TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    RefusalReason.UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}

N = TypeVar("N", bound="_Named")
R = TypeVar("R")


class _Named(Protocol):
    name: str


def code_of(reason: RefusalReason | None) -> ErrorCode:
    """Return Kafka's code for what the controller said; the names are the same where Kafka has one."""
    if reason is None:
        return ErrorCode.NONE
    return _CODES.get(reason) or ErrorCode[reason.value]


def limit_s(timeout_ms: int) -> float:
    """Return how long a request may take if the client says this: at most a minute."""
    return min(max(timeout_ms, 0) / 1000, TIMEOUT_S_MAX)


async def handle(broker: BrokerContext, _: Exchange, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create, then wait for leaders."""
    until_ms = broker.now_ms() + min(request.timeout_ms, int(TIMEOUT_S_MAX * 1000))
    try:
        check_named(len(request.topics))
    except Refused as refused:
        return CreateTopicsResponse(topics=await made(partial(_refused, refused), request.topics))
    wanted, results = await taken(sorted_out(request.topics, partial(_refusal, broker)))
    if not wanted:
        return CreateTopicsResponse(topics=results)
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


def sorted_out(
    topics: Sequence[N], refusal: Callable[[N, int], R | None]
) -> Generator[None, None, tuple[list[N], list[R]]]:
    """Return the topics that are not refused, and the refusals of the others, one for each name.

    `refusal` is told of a topic how many times it is named. More than once is a contradiction: it must be refused, as
    Kafka does.
    """
    times = yield from times_of(topic.name for topic in topics)
    wanted = list[N]()
    refusals = list[R]()
    for number, topic in enumerate(topics, 1):
        count = times[topic.name]
        refused = refusal(topic, count) if count else None
        if refused is not None:
            refusals.append(refused)
            times[topic.name] = 0
        elif count:
            wanted.append(topic)
        if not number % PIECE:
            yield
    return wanted, refusals


async def leaders_of(broker: BrokerContext, topic_ids: Sequence[bytes], timeout_s: float) -> None:
    """Return when every partition of these topics has a leader in this broker's table, or the time is up."""
    until_ms = broker.now_ms() + timeout_s * 1000
    slices = Slices()
    for first in range(0, len(topic_ids), AWAITED_AT_ONCE):
        left_s = max(0.0, (until_ms - broker.now_ms()) / 1000)
        await broker.known_leaders.wait_for_leaders(topic_ids[first : first + AWAITED_AT_ONCE], left_s)
        if not left_s:
            break
        await slices.yield_if_due()


def refuse(request: CreateTopicsRequest, code: ErrorCode) -> CreateTopicsResponse:
    """Answer every topic with `code`."""
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=code) for topic in request.topics]
    )


def _refusal(broker: BrokerContext, topic: CreatableTopic, times: int) -> CreatableTopicResult | None:
    """Return the answer if no controller need be asked."""
    if times > 1:
        code = ErrorCode.INVALID_REQUEST
        text = "The topic is named twice in the request."
    elif complaint := name_complaint(topic.name):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        text = f"Topic name is invalid: {complaint}"
    elif len(topic.configs) > CONFIGS_MAX:
        code = ErrorCode.INVALID_CONFIG
        text = f"There are more than {CONFIGS_MAX} configurations."
    elif _is_assigned_twice(broker, topic):
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        text = "A partition is assigned more than once."
    else:
        return None
    return CreatableTopicResult(name=topic.name, error_code=code, error_message=in_words(text))


def _is_assigned_twice(broker: BrokerContext, topic: CreatableTopic) -> bool:
    """Tell whether this is what is wrong with a topic. Kafka looks at its name and counts first.

    The controller is told of each partition once, and could not find out. It refuses more than a command may make.
    """
    if topic.name in broker.partitions.topics or (topic.num_partitions, topic.replication_factor) != (-1, -1):
        return False
    rows = topic.assignments[: PARTITIONS_PER_COMMAND_MAX + 1]
    return len({row.partition_index for row in rows}) < len(rows)


def _refused(refused: Refused, topic: CreatableTopic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name, error_code=code_of(refused.reason), error_message=in_words(refused.message)
    )


def _new_topic(broker: BrokerContext, topic: CreatableTopic) -> NewTopic:
    assignments = {row.partition_index: tuple(row.broker_ids) for row in topic.assignments}
    partitions = topic.num_partitions
    factor = topic.replication_factor
    if not assignments:
        # The configuration of the broker that was asked decides, not that of the controller.
        partitions = broker.config.num_partitions if partitions == -1 else partitions
        factor = broker.config.replication_factor if factor == -1 else factor
    return NewTopic(
        name=topic.name,
        partition_count=partitions,
        replication_factor=factor,
        assignments=assignments,
        configs={row.name: row.value for row in topic.configs},
    )


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
            for entry in topic_entries(topic.name, topic.configs, broker.settings)
        ],
    )
