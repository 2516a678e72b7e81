"""OffsetForLeaderEpoch: say where an epoch ended, for clients that check for truncation (KIP-320).

A confirmed leader answers: the end of its newest epoch is the high watermark to a consumer, because records beyond may
still go away.
"""

from collections.abc import Generator

from barnabas_broker.partition.partition import Partition
from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

from .list_offsets import led_partition

__all__ = ["handle", "refuse"]


def handle(
    broker: BrokerContext, _: Exchange, request: OffsetForLeaderEpochRequest
) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    """Look up each partition's epoch."""
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        result = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(result)
        for asked in topic.partitions:
            result.partitions.append(_one(broker.partitions.topics.get(topic.topic), asked))
            yield
        yield
    return response


def refuse(request: OffsetForLeaderEpochRequest, code: ErrorCode) -> OffsetForLeaderEpochResponse:
    """Answer every partition with `code`."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[EpochEndOffset(partition=asked.partition, error_code=code) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _one(hosted: HostedTopic | None, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = led_partition(hosted, asked.partition, asked.current_leader_epoch)
    if not isinstance(partition, Partition):
        return EpochEndOffset(partition=asked.partition, error_code=partition)
    if not partition.can_serve:
        return EpochEndOffset(partition=asked.partition, error_code=ErrorCode.OFFSET_NOT_AVAILABLE)
    found = partition.log.epoch_end_offset(asked.leader_epoch)
    if found is None:
        return EpochEndOffset(partition=asked.partition)
    epoch, end_offset = found
    return EpochEndOffset(
        partition=asked.partition, leader_epoch=epoch, end_offset=min(end_offset, partition.high_watermark)
    )
