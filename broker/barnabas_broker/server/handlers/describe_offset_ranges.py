"""DescribeOffsetRanges: tell how large ranges of offsets are, and where to cut them into parts of a size.

Only a confirmed leader answers, as in ListOffsets: OFFSET_NOT_AVAILABLE otherwise. A range must lie between the start
of the log and the high watermark (OFFSET_OUT_OF_RANGE), and must not end before it starts; target and number of parts
must be positive (INVALID_REQUEST). Topics are named by id.

A row of the answer has `PARTS_MAX` parts at most, and so have all rows together, but that each has one if its range has
offsets: so whoever asks for the rest makes progress. The log says how it is done (`measuring`): nothing is read but
rows of an index, on the loop if the page cache has them, else in a thread.
"""

from barnabas_broker.partition.partition import Partition
from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.slices import Slices
from barnabas_clients.protocol.describe_offset_ranges import (
    DescribeOffsetRangesRequest,
    DescribeOffsetRangesResponse,
    OffsetRange,
    OffsetRangePart,
    OffsetRangeResult,
    OffsetRangesTopic,
    OffsetRangesTopicResult,
)
from barnabas_clients.protocol.error_codes import ErrorCode

from .list_offsets import led_partition

__all__ = ["PARTS_MAX", "handle", "refuse"]

PARTS_MAX = 10_000
"""In one answer, beyond the first of each range. Such an answer has 170 KB."""


async def handle(
    broker: BrokerContext, exchange: Exchange, request: DescribeOffsetRangesRequest
) -> DescribeOffsetRangesResponse | None:
    """Measure each range. None: the client has gone meanwhile."""
    response = DescribeOffsetRangesResponse()
    slices = Slices()
    parts_left = PARTS_MAX
    for topic in request.topics:
        result = OffsetRangesTopicResult(topic_id=topic.topic_id)
        response.topics.append(result)
        for asked in topic.partitions:
            hosted = broker.topic("", topic.topic_id, by_id=True)
            row = await _one(hosted, asked, max(1, parts_left))
            parts_left -= len(row.parts)
            result.partitions.append(row)
            await slices.yield_if_due()
            if exchange.is_gone:
                return None
        await slices.yield_if_due()
    return response


def refuse(request: DescribeOffsetRangesRequest, code: ErrorCode) -> DescribeOffsetRangesResponse:
    """Answer every range with `code`."""

    def refused(topic: OffsetRangesTopic) -> OffsetRangesTopicResult:
        rows = [OffsetRangeResult(partition_index=asked.partition_index, error_code=code) for asked in topic.partitions]
        return OffsetRangesTopicResult(topic_id=topic.topic_id, partitions=rows)

    return DescribeOffsetRangesResponse(topics=[refused(topic) for topic in request.topics])


async def _one(hosted: HostedTopic | None, asked: OffsetRange, parts_left: int) -> OffsetRangeResult:
    result = OffsetRangeResult(partition_index=asked.partition_index)
    if hosted is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        return result
    partition = led_partition(hosted, asked.partition_index, asked.current_leader_epoch)
    if not isinstance(partition, Partition):
        result.error_code = partition
    elif not partition.can_serve:
        result.error_code = ErrorCode.OFFSET_NOT_AVAILABLE
    elif asked.start_offset > asked.end_offset or asked.target_bytes <= 0 or asked.parts_max <= 0:
        result.error_code = ErrorCode.INVALID_REQUEST
    elif asked.start_offset < partition.log.log_start_offset or asked.end_offset > partition.high_watermark:
        result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        parts = await partition.log.range_parts(
            asked.start_offset, asked.end_offset, asked.target_bytes, min(asked.parts_max, parts_left)
        )
        result.parts = [OffsetRangePart(end_offset=one.end_offset, size_bytes=one.size_bytes) for one in parts]
    return result
