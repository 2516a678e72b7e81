"""DeleteTopics: have the controller delete topics by name, or since version 6 by id.

Internal topics stay: to delete the offsets topic would be to forget every group of the cluster. A topic that is named
twice, by name or id, is not deleted, and answered once. The controller is not asked for names that no topic can have.
"""

from collections import Counter
from collections.abc import Generator, Sequence

from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_broker.timing.pieces import PIECE
from barnabas_broker.timing.slices import Slices, made, taken
from barnabas_clients.protocol.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import DeletedTopic, Refused, check_named
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS, name_complaint
from barnabas_raftlog.wire.schema import NO_UUID

from .create_topics import NO_SUCH_NAME, code_of, limit_s

__all__ = ["handle", "refuse"]


async def handle(broker: BrokerContext, _: Exchange, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete; this broker's own view includes it when the answer leaves."""
    if not broker.config.delete_topic_enable:
        return await _refused(request, ErrorCode.TOPIC_DELETION_DISABLED)
    try:
        check_named(len(request.topic_names) + len(request.topics))
    except Refused as refused:
        return await _refused(request, code_of(refused.reason), refused.message)
    # To go through ten thousand names takes a millisecond or two each time.
    slices = Slices()
    topics = broker.partitions.topics_by_id
    all_ids = _ids(request)
    all_names, kept = await taken(_sorted_out(_names(request)))
    kept += await made(_unclear, _unclear_in(request))
    await slices.yield_if_due()
    internal = {one for one in all_ids if one in topics and topics[one].topic.name in INTERNAL_TOPICS}
    internal_names = INTERNAL_TOPICS.intersection(all_names)
    await slices.yield_if_due()
    twice = _named_twice(broker, all_names, all_ids)
    twice_ids = {*twice.values()}
    await slices.yield_if_due()
    names = [name for name in all_names if name not in internal_names and name not in twice]
    topic_ids = [one for one in all_ids if one not in internal and one not in twice_ids]
    await slices.yield_if_due()
    kept += [_internal(name, NO_UUID) for name in sorted(internal_names)]
    kept += [_internal(topics[one].topic.name, one) for one in sorted(internal) if one in topics]
    kept += _named_more_than_once(all_names, all_ids, twice)
    if kept and not names and not topic_ids:
        return DeleteTopicsResponse(responses=kept)
    timeout_s = limit_s(request.timeout_ms)
    try:
        deleted = await broker.metadata.delete_topics(names, topic_ids, timeout_s)
    except Refused as refused:
        return await _refused(request, code_of(refused.reason), refused.message)
    return DeleteTopicsResponse(responses=await made(_result, deleted) + kept)


def refuse(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """Answer every topic with `code`."""
    named = [DeletableTopicResult(name=name, error_code=code) for name in _names(request)]
    identified = [DeletableTopicResult(name=None, topic_id=one, error_code=code) for one in _ids(request)]
    unclear = [
        DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code)
        for topic in _unclear_in(request)
    ]
    return DeleteTopicsResponse(responses=named + identified + unclear)


async def _refused(request: DeleteTopicsRequest, code: ErrorCode, text: str | None = None) -> DeleteTopicsResponse:
    message = in_words(text)

    def named(name: str) -> DeletableTopicResult:
        return DeletableTopicResult(name=name, error_code=code, error_message=message)

    def identified(topic: DeleteTopicState) -> DeletableTopicResult:
        return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message)

    results = await made(named, request.topic_names)
    return DeleteTopicsResponse(responses=results + await made(identified, request.topics))


def _result(topic: DeletedTopic) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=code_of(topic.error),
        error_message=in_words(topic.message or None),
    )


def _sorted_out(names: Sequence[str]) -> Generator[None, None, tuple[list[str], list[DeletableTopicResult]]]:
    """Return the names that topics can have, and the answers for the others."""
    possible = []
    results = []
    for number, name in enumerate(names, 1):
        if name_complaint(name) is None:
            possible.append(name)
        else:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            text = NO_SUCH_NAME
            results.append(DeletableTopicResult(name=name, error_code=code, error_message=text))
        if not number % PIECE:
            yield
    return possible, results


def _internal(name: str, topic_id: bytes) -> DeletableTopicResult:
    text = f"{name} is internal: the cluster cannot do without it"
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, error_message=in_words(text)
    )


def _named_twice(broker: BrokerContext, names: list[str], topic_ids: list[bytes]) -> dict[str, bytes]:
    """Return the names and ids of the topics that a request names more than once, be it by name and by id."""
    by_name = broker.partitions.topics
    by_id = broker.partitions.topics_by_id
    named = [by_name[name].topic for name in names if name in by_name]
    named += [by_id[one].topic for one in topic_ids if one in by_id]
    times = Counter(topic.name for topic in named)
    return {topic.name: topic.topic_id for topic in named if times[topic.name] > 1}


def _named_more_than_once(
    names: list[str], topic_ids: list[bytes], twice: dict[str, bytes]
) -> list[DeletableTopicResult]:
    """Answer for these topics, with what the request has of each: its name, its id, or both."""
    by_name, by_id = set(names), set(topic_ids)
    code, text = ErrorCode.INVALID_REQUEST, "the request names this topic more than once"
    return [
        DeletableTopicResult(
            name=name if name in by_name else None,
            topic_id=topic_id if topic_id in by_id else NO_UUID,
            error_code=code,
            error_message=text,
        )
        for name, topic_id in twice.items()
        if name not in INTERNAL_TOPICS
    ]


def _names(request: DeleteTopicsRequest) -> list[str]:
    named = (topic.name for topic in request.topics if topic.name is not None and topic.topic_id == NO_UUID)
    return [*request.topic_names, *named]


def _ids(request: DeleteTopicsRequest) -> list[bytes]:
    return [topic.topic_id for topic in request.topics if topic.name is None and topic.topic_id != NO_UUID]


def _unclear_in(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """Return what has both a name and an id, which may belong to two topics, or neither."""
    return [topic for topic in request.topics if (topic.name is None) == (topic.topic_id == NO_UUID)]


def _unclear(topic: DeleteTopicState) -> DeletableTopicResult:
    code, text = ErrorCode.INVALID_REQUEST, "a topic goes by its name or by its id: not by both, nor by neither"
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=text)
