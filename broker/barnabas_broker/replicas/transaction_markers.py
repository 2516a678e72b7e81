"""Ends transactions in the partitions that this broker leads, as the transaction coordinator says.

A marker is appended like any batch, and is answered when it is committed and `min.insync.replicas` have it. If it was
in the log already, because its sender has not heard of it, the answer waits for that one. Topics are found by their
names, at the moment at which a marker is written: what was deleted and made anew meanwhile has no transaction, and a
marker does no harm there.

*Partitions of coordinators.* The marker of a partition that a shard works on must come through the shard, or its table
would not hear of it (`ends`). All other internal topics have no transactions.

*In their order.* A link may break, and its sender ask again over another one while the request of the first is still
being carried out. Were the first to append a marker behind the second, it might end the producer's next transaction,
which with version 1 has the same epoch. So what brokers ask is carried out in the order in which it came: none begins
before the one before it has appended all of its markers.

*A great many.* A request may name a hundred thousand partitions. Each is one step between two pauses, and the answer is
the same object all along, in which each fills its own row.

Limits: one waiter a partition that is named, so as many as requests name things; `WAIT_S` for each request. Who asks is
bounded elsewhere: an operator's client by its connection, and another broker, which has one request under way at a
time, by its sender.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping

from barnabas_broker.partition.partition import NotEnoughReplicasError, Partition
from barnabas_broker.partition.producer_state import CoordinatorFencedError, InvalidProducerEpochError
from barnabas_broker.timing.slices import Slices, taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS
from barnabas_raftlog.errors import NotLeaderError, StorageFailedError
from barnabas_raftlog.log.errors import StorageBusyError
from barnabas_raftlog.records.markers import EndMarker

from .partitions import Partitions

__all__ = ["METHOD", "VERSION", "EndInShard", "MarkersHere", "bumps_epoch"]

METHOD = "transactions.write_markers"
"""The question of another broker, and its answer: the messages in `VERSION`."""
VERSION = 2
PLACES_MAX = 100_000
WAIT_S = 30.0  # Kafka's request.timeout.ms
EPOCH_BUMPED_SINCE = 2

EndInShard = Callable[[int, EndMarker, bool, Callable[[ErrorCode], None]], None]
"""Ends a transaction in a partition that a shard works on: its number, the marker, whether that has the raised epoch of
transactions of version 2, and who is told, once."""


def bumps_epoch(marker: WritableTxnMarker) -> bool:
    """Tell whether a marker has the epoch of its producer's next transaction. Version 1 of the request cannot say."""
    return marker.transaction_version >= EPOCH_BUMPED_SINCE


class _Writing:
    """One request: how many of its markers are on their way, and who waits for the last of them."""

    __slots__ = ("appended", "done", "left", "places")

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.left = 0
        self.places: list[_Place] = []
        self.appended: asyncio.Future[None] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()

    def end_appending(self) -> None:
        if not self.appended.done():
            self.appended.set_result(None)

    async def wait(self) -> None:
        """Return when none is on its way any more, or the time is up."""
        if self.left:
            await asyncio.wait([self.done], timeout=WAIT_S)

    def close_one(self) -> None:
        self.left -= 1
        if not self.left and self.appended.done() and not self.done.done():
            self.done.set_result(None)


class _Place:
    """One marker on its way in one partition (PendingAppend); a shard that takes it tells `on_done`."""

    __slots__ = ("is_closed", "partition", "result", "writing")

    def __init__(
        self, writing: _Writing, partition: Partition | None, result: WritableTxnMarkerPartitionResult
    ) -> None:
        self.writing = writing
        self.partition = partition
        self.result = result
        self.is_closed = False
        writing.left += 1
        writing.places.append(self)

    def on_committed(self) -> None:
        self._close(ErrorCode.NONE)

    def on_failed(self, code: ErrorCode) -> None:
        self._close(code)

    def on_done(self, code: ErrorCode) -> None:
        self._close(_PARTITIONS_ERRORS.get(code, code))

    def give_up(self) -> None:
        """Wait no more; the marker may commit all the same."""
        partition = self.partition
        if self.is_closed:
            return
        if partition is None:
            self._close(ErrorCode.REQUEST_TIMED_OUT)
        else:
            enough = partition.has_enough_replicas
            self._close(ErrorCode.REQUEST_TIMED_OUT if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            partition.forget(self)

    def _close(self, code: ErrorCode) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.result.error_code = code
            self.writing.close_one()


class MarkersHere:
    """See the module. Owned by the loop.

    `ends` has the way to the shards of a coordinator, by the name of its topic.
    """

    def __init__(self, partitions: Partitions, ends: Mapping[str, EndInShard]) -> None:
        self._partitions = partitions
        self._ends = ends
        self._last: asyncio.Future[None] | None = None  # done when all that came before is appended

    async def answer(self, _source: int, body: bytes) -> bytes:
        """Write the markers that another broker's coordinator sends.

        Raises:
            MalformedMessageError: the body is something else.
        """
        response = await self._in_turn(WriteTxnMarkersRequest.decode_in_steps(body, VERSION, elements_max=PLACES_MAX))
        return b"".join(await taken(response.encode_in_steps(VERSION)))

    async def write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Write those of this broker's coordinator; return when each is committed or has failed."""
        return await self._in_turn(_as_it_is(request))

    async def write_out_of_turn(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """Do the same for an operator. Cancelled, some may commit all the same."""
        return await self._write(_Writing(), request)

    async def _in_turn(self, decoding: Generator[None, None, WriteTxnMarkersRequest]) -> WriteTxnMarkersResponse:
        writing = _Writing()
        last, self._last = self._last, writing.appended
        try:
            if last is not None:
                await asyncio.shield(last)
            request = await taken(decoding)
            return await self._write(writing, request)
        finally:
            writing.end_appending()

    async def _write(self, writing: _Writing, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        response = WriteTxnMarkersResponse()
        slices = Slices()
        try:
            for marker in request.markers:
                written = WritableTxnMarkerResult(producer_id=marker.producer_id)
                response.markers.append(written)
                for topic in marker.topics:
                    results = WritableTxnMarkerTopicResult(name=topic.name)
                    written.topics.append(results)
                    for index in topic.partition_indexes:
                        result = WritableTxnMarkerPartitionResult(partition_index=index)
                        results.partitions.append(result)
                        self._begin(writing, marker, topic.name, result)
                        await slices.yield_if_due()
                    await slices.yield_if_due()
                await slices.yield_if_due()
            writing.end_appending()
            await writing.wait()
            while writing.left:
                writing.places.pop().give_up()
                await slices.yield_if_due()
        finally:
            if writing.left:
                for place in writing.places:
                    place.give_up()
        return response

    def _begin(
        self, writing: _Writing, marker: WritableTxnMarker, topic: str, result: WritableTxnMarkerPartitionResult
    ) -> None:
        """Append one marker, or note why not."""
        found = self._find(topic, result.partition_index)
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            result.error_code = ErrorCode.INVALID_REQUEST
        elif not isinstance(found, Partition):
            result.error_code = found
        else:
            end = EndMarker(
                marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch
            )
            if (end_in_shard := self._ends.get(topic)) is not None:
                place = _Place(writing, None, result)
                end_in_shard(found.index, end, bumps_epoch(marker), place.on_done)
            elif topic in INTERNAL_TOPICS:
                result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            else:
                result.error_code = _append(writing, found, end, result, bumps_epoch=bumps_epoch(marker))

    def _find(self, topic: str, index: int) -> Partition | ErrorCode:
        hosted = self._partitions.topics.get(topic)
        if hosted is None or not 0 <= index < len(hosted.topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return hosted.partitions.get(index) or ErrorCode.NOT_LEADER_OR_FOLLOWER


def _append(
    writing: _Writing,
    partition: Partition,
    marker: EndMarker,
    result: WritableTxnMarkerPartitionResult,
    *,
    bumps_epoch: bool,
) -> ErrorCode:
    """Append a marker and wait for it; or return why not, or NONE if it is there already."""
    try:
        index = partition.append_marker(marker, bumps_epoch=bumps_epoch)
    except NotLeaderError:
        return partition.not_leading_code
    except NotEnoughReplicasError:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    except StorageBusyError:
        return ErrorCode.REQUEST_TIMED_OUT
    except StorageFailedError:
        return ErrorCode.KAFKA_STORAGE_ERROR
    except InvalidProducerEpochError:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    except CoordinatorFencedError:
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    place = _Place(writing, partition, result)
    if not partition.wait_for(index, place):
        place.on_committed()
    return ErrorCode.NONE


def _as_it_is(request: WriteTxnMarkersRequest) -> Generator[None, None, WriteTxnMarkersRequest]:
    yield from ()
    return request


# A shard answers as a coordinator; who sends markers knows the errors of partitions, as in Kafka.
_PARTITIONS_ERRORS = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
