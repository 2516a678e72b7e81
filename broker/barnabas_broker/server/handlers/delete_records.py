"""DeleteRecords: let the logs of partitions start later. The records before that are gone.

The leader of a partition proposes the new start to its replicas, and the answer waits until a majority has it: from
then on no leader of this partition will ever show a deleted record. (Kafka waits until every replica that is alive has
deleted.) A replica that is down deletes when it is back.

The low watermark in the answer is where the log starts now, which may be above what was asked for. An offset of -1 is
the high watermark; one below the present start changes nothing. One between the high watermark and the end of the log
is that of records which are on their way to a majority, as behind a produce with acks=1: their commit is waited for
first, up to the timeout. (Kafka refuses it, and its followers are rarely so far behind that anybody sees that.) Beyond
the end it is OFFSET_OUT_OF_RANGE. Internal topics
are refused: their records belong to the coordinators, which tidy up for themselves. If a partition is named twice the
last one counts, as in Kafka.
"""

import asyncio
from functools import partial

from barnabas_broker.partition.partition import Partition
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.pieces import distinct
from barnabas_broker.timing.slices import Slices, made, taken
from barnabas_clients.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS
from barnabas_raftlog.errors import NotLeaderError, StorageFailedError
from barnabas_raftlog.log.errors import StorageBusyError

from .create_topics import limit_s
from .list_offsets import led_partition

__all__ = ["handle", "refuse"]

_Waits = list[tuple["_Wait", DeleteRecordsPartitionResult]]

HIGH_WATERMARK = -1
AWAITED_AT_ONCE = 500  # partitions


class _Wait:
    """One partition's new start, on its way to a majority (PendingAppend).

    `uncommitted_offset`: that start, if the records before it are on their way yet, and it has not been proposed.
    """

    def __init__(
        self, partition: Partition, answered: "asyncio.Future[ErrorCode]", uncommitted_offset: int | None = None
    ) -> None:
        self.partition = partition
        self.answered = answered
        self.uncommitted_offset = uncommitted_offset
        self.is_closed = False

    def on_committed(self) -> None:
        self.on_failed(ErrorCode.NONE)

    def on_failed(self, code: ErrorCode) -> None:
        if not self.answered.done():
            self.answered.set_result(code)


async def handle(broker: BrokerContext, _: Exchange, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Propose all, then wait for all; cancelled, proposals may still take effect."""
    waits: _Waits = []
    topics = []
    until_ms = broker.now_ms() + int(limit_s(request.timeout_ms) * 1000)
    slices = Slices()
    try:
        for topic in request.topics:
            once = await taken(distinct(topic.partitions, _index))
            results = await made(partial(_begin, broker, topic, waits), once)
            if results:
                topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
            await slices.yield_if_due()
        await _all(broker, waits, until_ms)
        late = [number for number, (wait, _) in enumerate(waits) if wait.uncommitted_offset is not None]
        for number in late:
            waits[number] = _propose_late(broker, *waits[number])
            await slices.yield_if_due()
        if late:
            await _all(broker, waits, until_ms)
        while waits:
            _end(broker, *waits.pop())
            await slices.yield_if_due()
    finally:
        for wait, result in waits:
            _end(broker, wait, result)
    return DeleteRecordsResponse(topics=topics)


def refuse(request: DeleteRecordsRequest, code: ErrorCode) -> DeleteRecordsResponse:
    """Answer every partition with `code`."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_refused(asked.partition_index, code) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _refused(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=code)


def _index(asked: DeleteRecordsPartition) -> int:
    return asked.partition_index


def _begin(
    broker: BrokerContext,
    topic: DeleteRecordsTopic,
    waits: _Waits,
    asked: DeleteRecordsPartition,
) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    hosted = broker.partitions.topics.get(topic.name)
    if hosted is not None and topic.name in INTERNAL_TOPICS:
        return _refused(index, ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = led_partition(hosted, index, -1)
    if not isinstance(partition, Partition):
        return _refused(index, partition)
    # Before leadership is confirmed, the high watermark may be older than what clients have seen.
    if broker.is_stopping or not partition.can_serve:
        return _refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    offset = partition.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
    if not 0 <= offset <= partition.log.log_end_offset:
        return _refused(index, ErrorCode.OFFSET_OUT_OF_RANGE)
    result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=partition.log.log_start_offset)
    answered = asyncio.get_running_loop().create_future()
    if offset > partition.high_watermark:
        wait = _Wait(partition, answered, uncommitted_offset=offset)
        if partition.wait_for(partition.log.last_index, wait):
            waits.append((wait, result))
            return result
    awaited = _drop_before(partition, offset)
    if isinstance(awaited, ErrorCode):
        return _refused(index, awaited)
    wait = _Wait(partition, answered)
    if partition.wait_for(awaited, wait):
        waits.append((wait, result))
    return result


def _drop_before(partition: Partition, offset: int) -> int | ErrorCode:
    """Propose a start; return the index to wait for, or why there is none."""
    try:
        return partition.drop_before(offset)
    except NotLeaderError:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    except StorageBusyError:
        return ErrorCode.REQUEST_TIMED_OUT
    except StorageFailedError:
        return ErrorCode.KAFKA_STORAGE_ERROR


async def _all(broker: BrokerContext, waits: _Waits, until_ms: int) -> None:
    """Wait for all, or until that time."""
    for first in range(0, len(waits), AWAITED_AT_ONCE):
        left_s = max(0, until_ms - broker.now_ms()) / 1000
        await asyncio.wait([wait.answered for wait, _ in waits[first : first + AWAITED_AT_ONCE]], timeout=left_s)


def _propose_late(
    broker: BrokerContext, wait: _Wait, result: DeleteRecordsPartitionResult
) -> tuple[_Wait, DeleteRecordsPartitionResult]:
    """Go on with a partition whose records have committed by now, and return what is waited for next."""
    partition, offset = wait.partition, wait.uncommitted_offset
    if not wait.answered.done() or wait.answered.result() is not ErrorCode.NONE or offset is None:
        return wait, result
    answered = asyncio.get_running_loop().create_future()
    next_wait = _Wait(partition, answered)
    if broker.is_stopping or not partition.can_serve or partition.high_watermark < offset:
        answered.set_result(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return next_wait, result
    awaited = _drop_before(partition, offset)
    if isinstance(awaited, ErrorCode):
        answered.set_result(awaited)
    elif not partition.wait_for(awaited, next_wait):
        answered.set_result(ErrorCode.NONE)
    return next_wait, result


def _end(broker: BrokerContext, wait: _Wait, result: DeleteRecordsPartitionResult) -> None:
    """Wait no more, and say how it ended."""
    wait.is_closed = True
    wait.partition.forget(wait)
    is_decided = wait.answered.done() and not (wait.answered.result() is ErrorCode.NONE and wait.uncommitted_offset)
    code = wait.answered.result() if is_decided else ErrorCode.REQUEST_TIMED_OUT
    if code is not ErrorCode.NONE:
        result.error_code = code
        result.low_watermark = -1
        return
    partition = wait.partition
    result.low_watermark = wait.partition.log.log_start_offset
    broker.events.add("records deleted", str(partition), f"asked to: it starts at {result.low_watermark}")
