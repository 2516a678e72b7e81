"""One exchange with a broker: the request for some batches, and what an error code in the answer means for one. Pure.

The question that decides everything is whether the batch may be in the log although the answer is an error. Kafka's
errors do not say, so here is what we know of brokers: a leader that is deposed, times out or misses replicas answers so
*after* it has appended; what it checks before it appends was surely not appended. Every code that is not listed is
counted among those of which nobody knows.
"""

from collections.abc import Sequence
from typing import Final

from .accumulator import Batch
from .cluster_view import ClusterView
from .producer_settings import ProducerSettings
from .protocol.error_codes import RETRIABLE, ErrorCode
from .protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from .sequences import Outcome, UnderWay

__all__ = ["TOO_LARGE", "outcome_of", "request_of", "rows_of"]

TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""A batch refused so may be accepted in parts."""

_APPENDED: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_GAP: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
# Checked before anything is appended, and true again a moment later only by the sender's doing.
_NOT_NOW: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


def request_of(chosen: Sequence[UnderWay[Batch]], view: ClusterView, settings: ProducerSettings) -> ProduceRequest:
    """Return the request that carries these batches, at most one of a partition, of topics that `view` knows.

    It holds views of the batches' own memory.
    """
    topics: dict[str, TopicProduceData] = {}
    for under_way in chosen:
        batch = under_way.item
        batch.attempts += 1
        name = batch.queue.topic
        data = topics.get(name)
        if data is None:
            topic_id = view.topics[name].topic_id
            data = topics[name] = TopicProduceData(name=name)
            if topic_id is not None:
                data.topic_id = topic_id
        frame = batch.number(settings.compression, under_way.producer_id, under_way.epoch, under_way.base_sequence)
        data.partition_data.append(PartitionProduceData(index=batch.queue.partition, records=frame))
    return ProduceRequest(
        acks=settings.acks, timeout_ms=int(settings.request_timeout_s * 1000), topic_data=list(topics.values())
    )


def outcome_of(code: int) -> Outcome:
    """Return what the error code of one partition in a produce answer says about its batch."""
    if code in _APPENDED:
        return Outcome.APPENDED
    if code in _GAP:
        return Outcome.GAP
    if code in _FENCED:
        return Outcome.FENCED
    if code in _NOT_NOW:
        return Outcome.NOT_NOW
    if code in RETRIABLE:
        return Outcome.UNKNOWN
    return Outcome.REFUSED


def rows_of(response: ProduceResponse, view: ClusterView) -> dict[tuple[str, int], PartitionProduceResponse]:
    """Return the outcomes by topic name and partition; those of topic ids that `view` does not know are left out."""
    rows = {}
    for topic in response.responses:
        name = topic.name
        if not name:
            found = view.topics_by_id.get(topic.topic_id)
            if found is None:
                continue
            name = found.name
        for row in topic.partition_responses:
            rows[name, row.index] = row
    return rows
