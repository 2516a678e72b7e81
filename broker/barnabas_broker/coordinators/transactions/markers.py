"""Has the leaders of a transaction's partitions write the markers that end it.

A coordinator hands over what it owes when the outcome of a transaction has committed (`send`), all of it again when it
has read a log (a new coordinator does not know which markers are written), and is told of each marker that is written
(`written`). A marker is written at least once: a broker that has it already says so. One whose topic is deleted counts
as written, when an image that is current does not have it either.

Markers for a broker leave together: one request at a time, over the links between brokers, in version 2 of
WriteTxnMarkers; those for partitions that this broker leads go the same way without a link. Which, when, and when again
is `marker_queues`' affair.

Tasks: one for each broker that is being asked, one for the work in steps while there is some, one while the image is
being confirmed. None of them, and no timer, belongs to a transaction; while nothing is to be done there is none, and
what waits for a leader is woken by news. So ten thousand transactions that a new coordinator finds prepared cost some
memory, and no callback more than one slice.

When a coordinator's partition ends, `forget`: nothing is sent for it any more, and `written` is not called, whatever
answers come yet.

Not here: the record that a transaction is complete, and what a partition does with a marker.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias

from barnabas_broker.coordinators.runtime.shard_host import ShardHost
from barnabas_broker.timing.deadlines import Deadline
from barnabas_broker.timing.slices import Slices
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas_raftlog.errors import BarnabasError

from .marker_queues import MarkerQueues, MarkerRequest, Owed
from .state_machine.messages import Markers, Place
from .state_machine.producers import Producer

__all__ = ["METHOD", "VERSION", "Leaders", "MarkerSender", "Written"]

METHOD: Final = "transactions.write_markers"
VERSION: Final = 2
ASK_S = 30.0
"""Kafka's request.timeout.ms. A link that fails ends a request sooner, and another leader makes it matter less."""
CONFIRM_AGAIN_MS = 1_000

Ask: TypeAlias = Callable[[int, str, bytes, float], Awaitable[bytes]]
"""Ask a node (`NodeLinks.call`)."""
WriteHere: TypeAlias = Callable[[WriteTxnMarkersRequest], Awaitable[WriteTxnMarkersResponse]]
Written: TypeAlias = Callable[[str, Producer, Place], None]
Codes: TypeAlias = dict[tuple[int, str, int], int]
"""The answer for each producer id, topic and partition."""


class Leaders(Protocol):
    """Who leads the places of markers (`whereabouts`)."""

    def find(self, place: Place) -> int:
        """Return the node that leads, NOBODY if none is known that can be reached, GONE if the image has no such."""

    def news(self) -> asyncio.Future[None]:
        """Return what is done at the next change, from now on, of what `find` returns."""

    async def confirm(self) -> None:
        """Return when the image shows all that the controller had said before this call.

        Raises:
            BarnabasError, TimeoutError: that could not be found out.
        """


class MarkerSender:
    """See the module. One for each broker, for all partitions of the coordinator's log that it leads."""

    def __init__(
        self, node_id: int, host: ShardHost, leaders: Leaders, ask: Ask, write_here: WriteHere, written: Written
    ) -> None:
        self._node_id = node_id
        self._host = host
        self._leaders = leaders
        self._ask = ask
        self._write_here = write_here
        self._written = written
        self._queues = MarkerQueues(leaders.find)
        self._news: asyncio.Future[None] | None = None
        self._deadline: Deadline[Callable[[], None]] | None = None
        self._is_working = False
        self._is_confirming = False
        self._is_closed = False

    def send(self, shard_partition: int, coordinator_epoch: int, transactional_id: str, markers: Markers) -> None:
        """Have these written, in the name of the leadership of a partition that is `coordinator_epoch`, its term.

        They leave in a later turn, with all that is sent in this one.
        """
        assert -(1 << 31) <= coordinator_epoch < 1 << 31, coordinator_epoch
        self._queues.add(shard_partition, coordinator_epoch, transactional_id, markers)
        self._listen()
        self._work_soon()

    def forget(self, shard_partition: int) -> None:
        """Call `written` no more for what was sent for this partition until now, and ask nobody any more."""
        self._queues.forget(shard_partition)
        self._work_soon()

    def status(self) -> dict[str, Any]:
        """Return what is owed, and why it is not written."""
        return self._queues.status()

    def close(self) -> None:
        """Begin nothing more. The tasks end with the host."""
        self._is_closed = True
        if self._news is not None:
            self._news.cancel()
            self._news = None
        self._disarm()

    # News and time.

    def _listen(self) -> None:
        """Hear of the next news; before anything is looked up, so that none goes unheard."""
        if self._news is None and not self._is_closed:
            self._news = self._leaders.news()
            self._news.add_done_callback(self._on_news)

    def _on_news(self, news: asyncio.Future[None]) -> None:
        if news.cancelled() or self._is_closed:
            return
        self._news = None
        if not self._queues.is_idle:
            self._listen()
            self._queues.on_news(self._host.now_ms())
            self._work_soon()

    def _on_deadline(self) -> None:
        self._deadline = None
        self._work_soon()

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._host.timers.cancel(self._deadline)
            self._deadline = None

    def _arm(self) -> None:
        at_ms = self._queues.next_at_ms
        if self._deadline is not None and self._deadline.at_ms != at_ms:
            self._disarm()
        if at_ms is not None and self._deadline is None:
            self._deadline = self._host.timers.add(at_ms - self._host.now_ms(), self._on_deadline)

    # Work.

    def _work_soon(self) -> None:
        if self._is_working or self._is_closed:
            return
        if self._queues.has_work(self._host.now_ms()):
            self._is_working = True
            self._host.spawn(self._work())
        else:
            self._arm()

    async def _work(self) -> None:
        queues = self._queues
        slices = Slices()
        while queues.has_work(self._host.now_ms()):
            for _ in queues.in_steps(self._host.now_ms):
                await slices.yield_if_due()
            while queues.is_wanting:
                if (request := queues.next_request()) is not None:
                    self._host.spawn(self._carry_out(request))
                await slices.yield_if_due()
        self._is_working = False
        self._arm()
        self._confirm_soon()

    async def _carry_out(self, request: MarkerRequest) -> None:
        """Ask one broker, and take in what it answers, a slice at a time."""
        try:
            codes = await self._codes(request)
        except (BarnabasError, OSError, TimeoutError) as error:
            reason = f"node {request.node_id} does not answer: {str(error) or type(error).__name__}"
            self._queues.fail(request, reason, self._host.now_ms())
        else:
            slices = Slices(is_used=True)
            for queue, owed in request.pairs:
                code = codes.get((owed.producer.producer_id, *queue.place), ErrorCode.UNKNOWN_SERVER_ERROR)
                if self._queues.judge(request, queue, owed, code, self._host.now_ms()):
                    self._written(owed.transactional_id, owed.producer, queue.place)
                await slices.yield_if_due()
            self._queues.finish(request)
        self._work_soon()

    async def _codes(self, request: MarkerRequest) -> Codes:
        message = _message(request)
        if request.node_id == self._node_id:
            async with asyncio.timeout(ASK_S):
                answer = await self._write_here(message)
        else:
            body = await self._ask(request.node_id, METHOD, message.to_bytes(VERSION), ASK_S)
            answer = WriteTxnMarkersResponse.decode(body, VERSION)
        return {
            (marker.producer_id, topic.name, row.partition_index): row.error_code
            for marker in answer.markers
            for topic in marker.topics
            for row in topic.partitions
        }

    # What is not in the image.

    def _confirm_soon(self) -> None:
        if self._queues.missing and not self._is_confirming and not self._is_closed:
            self._is_confirming = True
            self._host.spawn(self._confirm())

    async def _confirm(self) -> None:
        missing = list(self._queues.missing)
        try:
            await self._leaders.confirm()
        except (BarnabasError, TimeoutError):
            self._host.timers.add(CONFIRM_AGAIN_MS, self._confirm_again)
            return
        slices = Slices(is_used=True)
        for queue in missing:
            for owed in self._queues.take_missing(queue):
                if self._queues.settle(owed):
                    self._written(owed.transactional_id, owed.producer, queue.place)
                await slices.yield_if_due()
            await slices.yield_if_due()
        self._confirm_again()
        self._work_soon()

    def _confirm_again(self) -> None:
        self._is_confirming = False
        self._confirm_soon()


def _message(request: MarkerRequest) -> WriteTxnMarkersRequest:
    """Return what is asked: one row for each transaction, in it the partitions by topic."""
    by_owed: dict[Owed, dict[str, list[int]]] = {}
    for queue, owed in request.pairs:
        name, index = queue.place
        by_owed.setdefault(owed, {}).setdefault(name, []).append(index)
    return WriteTxnMarkersRequest(markers=[_marker(owed, topics) for owed, topics in by_owed.items()])


def _marker(owed: Owed, topics: dict[str, list[int]]) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=owed.producer.producer_id,
        producer_epoch=owed.producer.epoch,
        transaction_result=owed.is_commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=owed.coordinator_epoch,
        transaction_version=owed.version,
    )
