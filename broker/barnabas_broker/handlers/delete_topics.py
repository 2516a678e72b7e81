"""DeleteTopics: have the controller delete topics by name, or since version 6 by id.

Internal topics stay: to delete the offsets topic would be to forget every group of the cluster.
"""

from barnabas_broker.connections import Exchange
from barnabas_broker.context import BrokerContext, in_words
from barnabas_clients.protocol.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.commands import Refused
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS
from barnabas_raftlog.wire.schema import NO_UUID

from .create_topics import code_of, limit_s

__all__ = ["handle", "refuse"]


async def handle(broker: BrokerContext, _: Exchange, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete; this broker's own view includes it when the answer leaves."""
    if not broker.config.delete_topic_enable:
        return refuse(request, ErrorCode.TOPIC_DELETION_DISABLED)
    topics = broker.partitions.topics_by_id
    internal = {one for one in _ids(request) if one in topics and topics[one].topic.name in INTERNAL_TOPICS}
    internal_names = INTERNAL_TOPICS.intersection(_names(request))
    names = [name for name in _names(request) if name not in internal_names]
    topic_ids = [one for one in _ids(request) if one not in internal]
    kept = [_internal(name, NO_UUID) for name in sorted(internal_names)]
    kept += [_internal(topics[one].topic.name, one) for one in sorted(internal)]
    if kept and not names and not topic_ids:
        return DeleteTopicsResponse(responses=kept)
    timeout_s = limit_s(request.timeout_ms)
    try:
        deleted = await broker.metadata.delete_topics(names, topic_ids, timeout_s)
    except Refused as refused:
        response = refuse(request, code_of(refused.reason))
        for result in response.responses:
            result.error_message = in_words(refused.message)
        return response
    results = [
        DeletableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_code=code_of(topic.error),
            error_message=in_words(topic.message or None),
        )
        for topic in deleted
    ]
    return DeleteTopicsResponse(responses=results + kept)


def refuse(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """Answer every topic with `code`."""
    named = [DeletableTopicResult(name=name, error_code=code) for name in _names(request)]
    identified = [DeletableTopicResult(name=None, topic_id=one, error_code=code) for one in _ids(request)]
    return DeleteTopicsResponse(responses=named + identified)


def _internal(name: str, topic_id: bytes) -> DeletableTopicResult:
    text = f"{name} is internal: the cluster cannot do without it"
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, error_message=in_words(text)
    )


def _names(request: DeleteTopicsRequest) -> list[str]:
    return [*request.topic_names, *(topic.name for topic in request.topics if topic.name is not None)]


def _ids(request: DeleteTopicsRequest) -> list[bytes]:
    return [topic.topic_id for topic in request.topics if topic.name is None and topic.topic_id != NO_UUID]
