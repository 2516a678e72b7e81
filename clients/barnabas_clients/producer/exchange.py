"""Builds the request for some batches, and says what the answer means for each. Pure.

The question that decides everything is whether the batch may be in the log although the answer is an error. Kafka's
errors do not say it, so the rules here rest on what brokers do. A leader that is deposed, times out or misses replicas
answers so *after* it has appended. An error that it finds before it appends means that the batch was not appended. Of
codes that are not listed, UNKNOWN_SERVER_ERROR and newer ones among them, nobody knows.
"""

from collections.abc import Sequence
from typing import Final

from barnabas_clients.cluster.view import ClusterView
from barnabas_clients.protocol.error_codes import RETRIABLE, ErrorCode
from barnabas_clients.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas_raftlog.wire.schema import NO_UUID

from .accumulator import Batch
from .sequences import Outcome, UnderWay
from .settings import ProducerSettings

__all__ = ["TOO_LARGE", "outcome_of", "request_of", "rows_of"]

TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""A batch that is refused with one of these may be accepted in parts."""

_APPENDED: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_GAP: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
# Checked before the append. The result may be another a moment later.
_NOT_NOW: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        # The producer's transaction before this one is being completed.
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
# Checked before the append. The result stays the same.
_REFUSED: Final = TOO_LARGE | {
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.UNSUPPORTED_VERSION,
}


def request_of(chosen: Sequence[UnderWay[Batch]], view: ClusterView, settings: ProducerSettings) -> ProduceRequest:
    """Return the request for these numbered batches, at most one of a partition, of topics in `view`.

    Those of a transactional producer are all of its present transaction. It holds views of the batches' own memory.
    """
    topics: dict[str, TopicProduceData] = {}
    for under_way in chosen:
        batch = under_way.item
        name = batch.queue.topic
        data = topics.get(name)
        if data is None:
            topic_id = view.topics[name].topic_id
            data = topics[name] = TopicProduceData(name=name)
            if topic_id is not None:
                data.topic_id = topic_id
        data.partition_data.append(PartitionProduceData(index=batch.queue.partition, records=batch.frame))
    return ProduceRequest(
        transactional_id=settings.transactional_id,
        acks=settings.acks,
        timeout_ms=int(settings.request_timeout_s * 1000),
        topic_data=list(topics.values()),
    )


def outcome_of(code: int) -> Outcome:
    """Return what the error code of a partition in a produce answer says about its batch."""
    if code in _APPENDED:
        return Outcome.APPENDED
    if code in _GAP:
        return Outcome.GAP
    if code in _FENCED:
        return Outcome.FENCED
    if code in _NOT_NOW:
        return Outcome.NOT_NOW
    if code in _REFUSED:
        return Outcome.REFUSED
    return Outcome.UNKNOWN if code in RETRIABLE else Outcome.DOUBTFUL


def rows_of(request: ProduceRequest, response: ProduceResponse) -> dict[tuple[str, int], PartitionProduceResponse]:
    """Return the outcomes by topic name and partition. Partitions that the request did not name are left out.

    An answer is about the topic that was asked, even if a topic with another id has its name by now.
    """
    names = {topic.topic_id: topic.name for topic in request.topic_data if topic.topic_id != NO_UUID}
    rows = {}
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id)
        if name:
            for row in topic.partition_responses:
                rows[name, row.index] = row
    return rows
