"""ListOffsets: find the first, the last, or the first offset at a time of partitions.

Only a confirmed leader answers: an unconfirmed one knows less than clients may have seen, and says
OFFSET_NOT_AVAILABLE (LEADER_NOT_AVAILABLE before version 5, which does not know the former). The times -1 to -5 are
names: -1 latest, -2 earliest, -3 the largest timestamp, -4 earliest in local storage, -5 last in tiered storage (there
is none: -1, as Kafka says without tiering), -6 earliest that waits for tiering (the same).

*Isolation.* To readers of committed records the log ends at the last stable offset: that is the latest, and a record at
or behind it is not found by its time.

A partition that is asked for twice in one request is refused, once, as in Kafka.

A timestamp too far ahead to be written now is answered only if a record has it: a batch that says so and cannot be read
is answered with timestamp -1.
"""

from collections.abc import Generator, Sequence

from barnabas_broker.partition.partition import Partition
from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.pieces import PIECE, cleared
from barnabas_broker.timing.slices import Slices, taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from barnabas_raftlog.errors import StorageFailedError

__all__ = ["handle", "led_partition", "refuse"]

READ_COMMITTED = 1  # the isolation level
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING = -6
NAMES_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
NOT_AVAILABLE_SINCE = 5


def led_partition(hosted: HostedTopic | None, index: int, current_leader_epoch: int) -> Partition | ErrorCode:
    """Return the partition if this broker leads it in the epoch that the client believes in."""
    if hosted is None or not 0 <= index < len(hosted.topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = hosted.partitions.get(index)
    if partition is None or not partition.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if current_leader_epoch >= 0 and current_leader_epoch != partition.term:
        older = current_leader_epoch < partition.term
        return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
    return partition


async def handle(broker: BrokerContext, exchange: Exchange, request: ListOffsetsRequest) -> ListOffsetsResponse | None:
    """Look everything up; timestamps may be read from disk. None: the client has gone meanwhile."""
    response = ListOffsetsResponse()
    slices = Slices()
    twice = await taken(_named_twice(request.topics))
    is_committed = request.isolation_level == READ_COMMITTED
    for topic in request.topics:
        result = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(result)
        refused = twice.get(topic.name, {})
        for asked in topic.partitions:
            index = asked.partition_index
            if index in refused:
                if refused[index]:
                    continue
                refused[index] = True
                row = ListOffsetsPartitionResponse(partition_index=index, error_code=ErrorCode.INVALID_REQUEST)
            else:
                hosted = broker.partitions.topics.get(topic.name)
                row = await _one(
                    hosted, asked, exchange.version, broker.partitions.wall_ms(), is_committed=is_committed
                )
            result.partitions.append(row)
            await slices.yield_if_due()
            if exchange.is_gone:
                return None
        await slices.yield_if_due()
    return response


def _named_twice(topics: Sequence[ListOffsetsTopic]) -> Generator[None, None, dict[str, dict[int, bool]]]:
    """Return the partitions that are asked for more than once, of each topic; whether each was answered: not yet."""
    seen: dict[str, set[int]] = {}
    twice: dict[str, dict[int, bool]] = {}
    for topic in topics:
        known = seen.setdefault(topic.name, set())
        for number, asked in enumerate(topic.partitions, 1):
            index = asked.partition_index
            if index in known:
                twice.setdefault(topic.name, {})[index] = False
            known.add(index)
            if not number % PIECE:
                yield
        yield
    yield from cleared(seen)
    return twice


def refuse(request: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    """Answer every partition with `code`."""

    def refused(topic: ListOffsetsTopic) -> ListOffsetsTopicResponse:
        results = [
            ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
            for asked in topic.partitions
        ]
        return ListOffsetsTopicResponse(name=topic.name, partitions=results)

    return ListOffsetsResponse(topics=[refused(topic) for topic in request.topics])


async def _one(
    hosted: HostedTopic | None, asked: ListOffsetsPartition, version: int, wall_ms: int, *, is_committed: bool
) -> ListOffsetsPartitionResponse:
    result = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    partition = led_partition(hosted, asked.partition_index, asked.current_leader_epoch)
    if not isinstance(partition, Partition):
        result.error_code = partition
    elif not partition.can_serve:
        new = version >= NOT_AVAILABLE_SINCE
        result.error_code = ErrorCode.OFFSET_NOT_AVAILABLE if new else ErrorCode.LEADER_NOT_AVAILABLE
    elif asked.timestamp < EARLIEST_PENDING or version < NAMES_SINCE.get(asked.timestamp, 0):
        result.error_code = ErrorCode.UNSUPPORTED_VERSION
    else:
        try:
            end = partition.readable_end(is_committed=is_committed)
            await _look_up(partition, asked.timestamp, end, result, wall_ms + partition.rules.after_max_ms)
        except StorageFailedError:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result


async def _look_up(
    partition: Partition, timestamp: int, end: int, result: ListOffsetsPartitionResponse, believed_ms: int
) -> None:
    log = partition.log
    if timestamp == LATEST:
        result.offset = end
        result.leader_epoch = partition.term
    elif timestamp in {EARLIEST, EARLIEST_LOCAL}:
        result.offset = log.log_start_offset
        result.leader_epoch = log.epoch_at_offset(log.log_start_offset)
    elif timestamp in {LATEST_TIERED, EARLIEST_PENDING}:
        return  # There is no tiered storage, so there is no such offset.
    else:
        if timestamp == MAX_TIMESTAMP:
            found = await log.max_timestamp(end, believed_ms)
        else:
            found = await log.offset_for_timestamp(timestamp, end, believed_ms)
        if found is not None:
            result.offset, result.timestamp, result.leader_epoch = found
