"""Fetches ahead from the leaders of all assigned partitions, within a bound of memory.

There is no loop that runs for ever. `pump` looks at all partitions and starts the steps that are due: requests (at most
two to each broker, fetch_plan.py), lookups of unknown positions, a refresh of the metadata. It never waits. It is
called after each change: an answer came, a partition was added or sought, room became free, a pause is over. Each step
is a task that ends with its answer and calls `pump` again.

*Refusals.* A broker that does not lead any more says so, and often names the leader. That hint is taken; without one,
the metadata is refreshed. Pauses grow from 20 ms to 1 s for each partition. An error that no retry mends is kept as the
partition's `failure`, and raised to the reader who gets there.

*Sessions* (fetch_session.py). Each lane to a broker has one, as long as the broker keeps it. A partition that an answer
of a session leaves out has nothing new.

*Silent brokers.* If an answer is overdue by a second, the metadata is refreshed, at another broker, every second.
Partitions that are led elsewhere by then are taken from the silent request and fetched there. Its answer, if it still
comes, is thrown away. After `request_timeout_s` its connection is dropped.

Limits: two requests to each broker, one lookup at a time for each partition, one refresh; `buffer_bytes` for everything
buffered and in flight, beyond which only one batch that is larger than all of it goes. Records that wait for a paused
partition are dropped if others need the room.

Not here: the use of the records (reader.py, consumer.py), and decisions on the assignment (membership.py).
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, cast

from barnabas_clients import chance
from barnabas_clients.admin.offsets import offsets_in, offsets_request
from barnabas_clients.backoff import Backoff
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.cluster.topic_view import BrokerAddress
from barnabas_clients.errors import ClientError, DeadlineExceededError
from barnabas_clients.protocol.errors import ErrorCode, KafkaError, error_for
from barnabas_clients.protocol.fetch import FetchRequest, FetchResponse, PartitionData
from barnabas_clients.protocol.list_offsets import ListOffsetsRequest
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.tasks import Tasks

from .decoder import FetchedRecords
from .errors import LogTruncatedError, NoOffsetError
from .fetch_plan import FetchSettings, fetch_request, fetchable, hinted_address, shares, source_of
from .fetch_session import FetchSession
from .partition_queue import COMMITTED, PartitionQueue
from .record import ConsumerRecord

__all__ = ["Fetcher"]

logger = logging.getLogger("barnabas_clients.consumer")

LANES = ("fetch", "fetch-2")
# A broker answers a fetch at its `max_wait_ms`. One that is a second late is stopped, cut off or very busy.
OVERDUE_S = 1.0
LOOKUP_TIMEOUT_S = 5.0
# A partition's share of an answer that is smaller than one in so many bytes is copied, so as not to keep the answer.
SMALL_SHARE = 16
LATENCY_SHARE = 1 / 8
BACKOFF = Backoff()

Place = OffsetAndMetadata | KafkaError
"""The position of a partition, or the error in its place."""
Committed = Callable[[Collection[TopicPartition], float], Awaitable[Mapping[TopicPartition, Place]]]
"""Returns the group's position for each partition that has one, or the error of one that is refused."""

# A retry of these helps only if the metadata has changed.
_REFUSED_FOR_NOW = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class Flight:
    """A request under way for some partitions, which hold it as their ticket. `node_id` is -1 for a lookup."""

    __slots__ = ("asked_at_s", "bytes_max", "node_id", "queues", "watch")

    def __init__(self, queues: list[PartitionQueue], node_id: int = -1, bytes_max: int = 0) -> None:
        self.queues = queues
        self.node_id = node_id
        self.bytes_max = bytes_max
        self.asked_at_s = 0.0
        self.watch: asyncio.TimerHandle | None = None
        for queue in queues:
            queue.ticket = self

    def give_up(self) -> None:
        """Let its partitions be asked for again, by another request."""
        for queue in self.queues:
            if queue.ticket is self:
                queue.ticket = None

    @property
    def is_wanted(self) -> bool:
        return any(queue.ticket is self for queue in self.queues)


class FetchCounts(NamedTuple):
    """Counts since the beginning: requests answered, bytes of records they brought, and partitions refused.

    `latency_s` is the time from a request that brought records to its answer, smoothed over about eight of them.
    """

    fetches: int = 0
    fetched_bytes: int = 0
    refusals: int = 0
    latency_s: float = 0.0

    def with_answer(self, frame_bytes: int, latency_s: float) -> "FetchCounts":
        """Return the counts after an answer. One without records waited for some, and says nothing of the latency."""
        smoothed_s = self.latency_s + (latency_s - self.latency_s) * LATENCY_SHARE if self.latency_s else latency_s
        return self._replace(
            fetches=self.fetches + 1,
            fetched_bytes=self.fetched_bytes + frame_bytes,
            latency_s=smoothed_s if frame_bytes else self.latency_s,
        )


class Fetcher:
    """Keeps `queues` supplied. Lives on one event loop; `close` ends every task it started.

    `on_news` is called whenever `take` may find something new.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: FetchSettings,
        on_news: Callable[[], None],
        *,
        reset: int | None,
        committed: Committed,
        request_timeout_s: float = 30.0,
    ) -> None:
        """Take the other parts. `reset` is a timestamp as in ListOffsets, or None if the application decides."""
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.counts = FetchCounts()
        self._cluster = cluster
        self._settings = settings
        self._on_news = on_news
        self._reset = reset
        self._committed = committed
        self._request_timeout_s = request_timeout_s
        self._ready: deque[PartitionQueue] = deque()
        self._flights: dict[tuple[int, str], Flight] = {}
        self._sessions: dict[tuple[int, str], FetchSession] = {}  # as many as brokers and lanes were ever used
        self._asked_at: dict[int, float] = {}
        self._tasks = Tasks(self._on_bug)
        self._timer: asyncio.TimerHandle | None = None
        self._stale: set[str] = set()
        self._is_refreshing = False
        self._refresh_failures = 0
        self._refresh_not_before_s = 0.0
        self._served = 0
        self._is_closed = False
        self._random = chance.new_generator()

    @property
    def buffered_bytes(self) -> int:
        """The memory of fetched records that were not handed out. Each answer counts whole, and once."""
        frames = {id(chunk.frame): len(chunk.frame) for queue in self.queues.values() for chunk in queue.chunks}
        return sum(frames.values())

    # Called by the consumer.

    def add(self, partitions: Collection[TopicPartition], reset: int) -> None:
        """Begin with partitions. Those that are here already stay as they are."""
        for partition in sorted(partitions):
            if partition not in self.queues:
                queue = self.queues[partition] = PartitionQueue(partition, self._settings.partition_bytes)
                queue.reset = reset
        self.pump()

    def put_back(self, queue: PartitionQueue) -> None:
        """Go on with a partition that was removed, at its old position."""
        queue.recover()
        self.queues[queue.partition] = queue
        self.pump()

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions and their fetched records."""
        for partition in partitions:
            queue = self.queues.pop(partition, None)
            if queue is not None:
                queue.drop()
                if queue.is_ready:
                    self._ready.remove(queue)
                    queue.is_ready = False
        self.pump()

    def make_ready(self, queue: PartitionQueue) -> None:
        """Let `take` look at a queue that may have something."""
        if not queue.is_ready and queue.has_data:
            queue.is_ready = True
            self._ready.append(queue)
            self._on_news()

    def take(
        self, records_max: int, *, is_first: bool = True
    ) -> tuple[PartitionQueue, list[ConsumerRecord], int] | None:
        """Return records of one partition and the offset behind them; None if there are none to hand out.

        A partition is read until the records of one fetch are used up. Then the next one has its turn.

        With `is_first` false the records join others that were taken for the same answer. An exception would lose
        those. So a record that cannot be read ends the answer, and the next call meets it first.

        Raises:
            BarnabasError: the next record of a partition cannot be read. The next call looks at the others first.
        """
        ready = self._ready
        while ready:
            queue = ready[0]
            if queue.is_paused or not queue.has_data:
                ready.popleft().is_ready = False
                continue
            chunks = len(queue.chunks)
            try:
                records, next_offset = queue.take(records_max)
            except BarnabasError:
                if not is_first:
                    return None
                ready.rotate(-1)
                raise
            if len(queue.chunks) != chunks:
                ready.rotate(-1)
                self.pump()
            if records:
                return queue, records, next_offset
            # Markers of transactions and compacted records take offsets, and the application never holds them.
            if queue.finished == queue.position:
                queue.finished = next_offset
            queue.position = next_offset
        return None

    def failing_since(self) -> tuple[float, str] | None:
        """Return since when no partition can be read, and why; None while one can be read, or could."""
        since = 0.0
        reasons = []
        for queue in self.queues.values():
            if queue.is_paused:
                continue
            if queue.failing_since_s is None or queue.has_data:
                return None
            since = max(since, queue.failing_since_s)
            reasons.append(f"{queue.partition}: {queue.reason}")
        return (since, "; ".join(sorted(reasons)[:3])) if reasons else None

    async def close(self) -> None:
        """End every task. Waits for no broker."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for flight in self._flights.values():
            if flight.watch is not None:
                flight.watch.cancel()
        await self._tasks.close()

    # The steps that are due.

    def pump(self) -> None:
        """Start every request, lookup and refresh that is due. Never waits."""
        if self._is_closed:
            return
        now_s = self._now()
        by_leader: dict[int, list[PartitionQueue]] = {}
        committed: list[PartitionQueue] = []
        ends: dict[tuple[int, int], list[PartitionQueue]] = {}
        view = self._cluster.view
        wake_s = math.inf
        for queue in self.queues.values():
            leader = source_of(queue, view, now_s) if queue.reset is None else view.leader(*queue.partition)
            self._leave_old_leader(queue, leader)
            if queue.ticket is not None or queue.failure is not None:
                continue
            if queue.not_before_s > now_s:
                wake_s = min(wake_s, queue.not_before_s)
            elif queue.reset == COMMITTED:
                committed.append(queue)
            elif queue.reset is None and not fetchable(queue, self._settings):
                continue
            elif leader is None:
                self._stale.add(queue.partition.topic)
                self._note_failing(queue, now_s, "it has no leader that is known")
            elif queue.reset is None:
                by_leader.setdefault(leader.node_id, []).append(queue)
            else:
                # Each leader by itself: one that cannot answer holds nobody else back.
                ends.setdefault((leader.node_id, queue.reset), []).append(queue)
        if committed:
            self._tasks.spawn(self._look_up(Flight(committed), None))
        for (node_id, reset), queues in ends.items():
            specs = dict.fromkeys((queue.partition for queue in queues), reset)
            request = offsets_request(view, specs, read_committed=self._settings.read_committed)
            self._tasks.spawn(self._look_up(Flight(queues, node_id), request))
        for node_id in sorted(by_leader, key=lambda node_id: self._asked_at.get(node_id, 0.0)):
            self._fetch_from(node_id, by_leader[node_id], now_s)
        self._wake_at(min(wake_s, self._refresh_if_due(now_s)))

    def _leave_old_leader(self, queue: PartitionQueue, leader: BrokerAddress | None) -> None:
        ticket = queue.ticket
        if isinstance(ticket, Flight) and ticket.node_id >= 0 and leader and leader.node_id != ticket.node_id:
            queue.ticket = None

    def _refresh_if_due(self, now_s: float) -> float:
        """Refresh the metadata if it is due. Return when to look again."""
        if self._is_refreshing:
            return math.inf
        if not self._stale:
            self._refresh_failures = 0
            return math.inf
        if self._refresh_not_before_s > now_s:
            return self._refresh_not_before_s
        self._is_refreshing = True
        self._tasks.spawn(self._refresh())
        return math.inf

    def _fetch_from(self, node_id: int, queues: list[PartitionQueue], now_s: float) -> None:
        for lane in LANES:
            if (node_id, lane) in self._flights:
                queues = [queue for queue in queues if not queue.is_calm]
                continue
            if not queues:
                return
            bytes_max = min(self._room(), self._settings.max_bytes, sum(queue.bytes_max for queue in queues))
            if bytes_max <= 0:
                return
            request = fetch_request(queues, self._cluster.view, self._settings, bytes_max, now_s)
            flight = self._flights[node_id, lane] = Flight(queues, node_id, bytes_max)
            self._asked_at[node_id] = flight.asked_at_s = now_s
            loop = asyncio.get_running_loop()
            flight.watch = loop.call_later(self._settings.max_wait_s + OVERDUE_S, self._suspect, flight)
            self._tasks.spawn(self._fetch(flight, lane, request))
            return

    def _room(self) -> int:
        """Return the number of bytes that the next request may bring; 0 for no request."""
        buffered = self.buffered_bytes
        in_flight = sum(flight.bytes_max for flight in self._flights.values() if flight.is_wanted)
        share = max(self._settings.buffer_bytes // (len(LANES) * max(1, len(self._cluster.view.brokers))), 1)
        left = self._settings.buffer_bytes - buffered - in_flight
        if left >= share or not (buffered or in_flight):
            return min(left, share)
        for queue in self.queues.values():
            if queue.is_paused and queue.chunks:
                queue.drop()
        left += buffered - self.buffered_bytes
        return min(left, share) if left >= share else 0

    def _suspect(self, flight: Flight) -> None:
        """Refresh the metadata, now and every second: the answer is overdue, and perhaps others lead by now."""
        if self._is_closed:
            return
        now_s = self._now()
        broker = self._cluster.view.brokers.get(flight.node_id)
        for queue in flight.queues:
            if queue.ticket is flight:
                self._stale.add(queue.partition.topic)
                queue.leave_preferred(now_s)
                self._note_failing(queue, now_s, f"broker {flight.node_id} at {broker and broker[1:3]} does not answer")
        flight.watch = asyncio.get_running_loop().call_later(OVERDUE_S, self._suspect, flight)
        self.pump()

    def _wake_at(self, wake_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake_s != math.inf:
            self._timer = asyncio.get_running_loop().call_at(wake_s, self.pump)

    # The steps themselves.

    async def _fetch(self, flight: Flight, lane: str, request: FetchRequest) -> None:
        timeout_s = self._settings.max_wait_s + self._request_timeout_s
        session = self._sessions.setdefault((flight.node_id, lane), FetchSession())
        may_be_brief = session.is_open
        try:
            sent = session.request(request)
            response = await self._cluster.ask_broker(flight.node_id, sent, timeout_s, lane)
            if not session.take(response):
                flight.give_up()
            elif response.error_code:
                raise error_for(response.error_code, f"a fetch from broker {flight.node_id}")
            else:
                self._take_answer(flight, request, response, may_be_brief=may_be_brief)
        except (ClientError, KafkaError) as error:
            session.lose()
            self._refuse_all(flight, error)
            if isinstance(error, DeadlineExceededError):
                await self._cluster.drop(flight.node_id, lane, f"it did not answer a fetch within {timeout_s:g} s")
        finally:
            if flight.watch is not None:
                flight.watch.cancel()
            del self._flights[flight.node_id, lane]
        self.pump()

    def _take_answer(
        self, flight: Flight, request: FetchRequest, response: FetchResponse, *, may_be_brief: bool
    ) -> None:
        """Divide an answer. `request` names all partitions; with `may_be_brief` those without news are left out."""
        frame_bytes = sum(
            len(cast("memoryview", row.records))
            for topic in response.responses
            for row in topic.partitions
            if row.records
        )
        self.counts = self.counts.with_answer(frame_bytes, self._now() - flight.asked_at_s)
        for queue, row in shares(response, request, flight.queues):
            if queue.ticket is not flight:
                continue
            queue.ticket = None
            if row is None and may_be_brief:
                queue.recover()
                queue.is_calm = True
            elif row is None:
                self._refuse(queue, error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"{queue.partition} was left out"))
            elif row.error_code:
                self._take_error(queue, row, response)
            elif row.diverging_epoch.end_offset >= 0:
                self._take_truncation(queue, row.diverging_epoch.end_offset, row.diverging_epoch.epoch)
            else:
                self._take_records(queue, row, frame_bytes)

    def _take_records(self, queue: PartitionQueue, row: PartitionData, frame_bytes: int) -> None:
        queue.recover()
        queue.high_watermark = row.high_watermark
        if row.preferred_read_replica >= 0:
            queue.prefer(row.preferred_read_replica, self._now())
            return
        # Decoded records are one view of the answer. Only an encoder is given several.
        records = cast("memoryview", row.records) if row.records else memoryview(b"")
        queue.is_calm = not records
        if not records:
            return
        if len(records) * SMALL_SHARE < frame_bytes:
            # A view keeps the whole answer in memory.
            records = memoryview(bytes(records))
        aborted = None
        if self._settings.read_committed:
            aborted = [(found.producer_id, found.first_offset) for found in row.aborted_transactions or ()]
        self._served += 1
        queue.served = self._served
        chunk = FetchedRecords(queue.partition, records, queue.fetch_offset, aborted)
        if queue.add(chunk, self._settings.partition_bytes):
            self.make_ready(queue)

    def _take_error(self, queue: PartitionQueue, row: PartitionData, response: FetchResponse) -> None:
        error = error_for(row.error_code, f"{queue.partition} at {queue.fetch_offset}")
        # A replica that does not lead may just be behind.
        is_certain = queue.preferred_id < 0 and not queue.is_lent
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE and is_certain and queue.position == queue.fetch_offset:
            if self._reset is None:
                self._fail(queue, error)
            else:
                logger.warning("%s; going on as auto_offset_reset says", error)
                queue.begin_by(self._reset)
            return
        leader = row.current_leader
        if leader.leader_id >= 0:
            address = hinted_address(leader.leader_id, response.node_endpoints)
            view = self._cluster.view
            self._cluster.learn_leader(*queue.partition, leader.leader_id, leader.leader_epoch, address)
            if self._cluster.view is not view:
                # The hint is new. To follow it at once cannot go in circles, because epochs only grow.
                return
        self._refuse(queue, error)

    def _take_truncation(self, queue: PartitionQueue, end_offset: int, epoch: int) -> None:
        """Go on after the log was cut below the records that were fetched of it (KIP-320)."""
        if queue.is_lent:
            self._refuse(queue, error_for(ErrorCode.OFFSET_OUT_OF_RANGE, f"{queue.partition} was cut at {end_offset}"))
            return
        if end_offset >= queue.position:
            queue.drop()
            return
        error = LogTruncatedError(queue.partition, queue.position, end_offset)
        if self._reset is None:
            self._fail(queue, error)
        else:
            logger.warning("%s; going on there", error)
            queue.begin_at(end_offset, epoch)

    async def _look_up(self, flight: Flight, request: ListOffsetsRequest | None) -> None:
        """Find positions: an end of the log by `request`, or without one the positions that the group has stored.

        Each partition has its own answer: the refusal of one keeps no other one waiting.
        """
        try:
            if request is not None:
                found = await self._find_ends(flight, request)
            else:
                found = await self._committed([queue.partition for queue in flight.queues], LOOKUP_TIMEOUT_S)
        except (ClientError, KafkaError) as error:
            self._refuse_all(flight, error)
            found = {}
        for queue in flight.queues:
            if queue.ticket is not flight:
                continue
            # Each of the branches below takes the ticket away.
            place = found.get(queue.partition)
            if isinstance(place, KafkaError):
                self._refuse(queue, place)
            elif place is not None:
                was_committed = queue.reset == COMMITTED
                queue.begin_at(place.offset, place.leader_epoch)
                queue.found = place.offset
                queue.committed = place.offset if was_committed else queue.committed
            elif self._reset is None:
                self._fail(queue, NoOffsetError(queue.partition))
            else:
                queue.begin_by(self._reset)
        self._on_news()
        self.pump()

    async def _find_ends(self, flight: Flight, request: ListOffsetsRequest) -> Mapping[TopicPartition, Place]:
        response = await self._cluster.ask_broker(flight.node_id, request, LOOKUP_TIMEOUT_S)
        answers = offsets_in(response)
        found = dict[TopicPartition, Place]()
        for queue in flight.queues:
            answer = answers.get(queue.partition)
            if isinstance(answer, KafkaError):
                found[queue.partition] = answer
            elif answer is None or answer.offset < 0:
                found[queue.partition] = error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"no end of {queue.partition}")
            else:
                # No epoch: the answer has that of the record there, not of the one before.
                found[queue.partition] = OffsetAndMetadata(answer.offset)
        return found

    async def _refresh(self) -> None:
        topics = frozenset(self._stale)
        self._stale.clear()
        try:
            await self._cluster.refresh(topics, timeout_s=self._request_timeout_s)
        except (ClientError, KafkaError) as error:
            self._stale |= topics
            logger.debug("metadata: %s", error)
        finally:
            self._is_refreshing = False
        pause_s = BACKOFF.delay_s(self._refresh_failures, self._random)
        self._refresh_failures += 1
        self._refresh_not_before_s = self._now() + pause_s
        self._on_news()
        self.pump()

    # Failures.

    def _refuse_all(self, flight: Flight, error: ClientError | KafkaError) -> None:
        for queue in flight.queues:
            if queue.ticket is flight:
                self._refuse(queue, error)

    def _refuse(self, queue: PartitionQueue, error: ClientError | KafkaError) -> None:
        """Try again after a pause, or keep the error for the application if no retry helps."""
        queue.leave_preferred(self._now())
        self.counts = self.counts._replace(refusals=self.counts.refusals + 1)
        code = error.code if isinstance(error, KafkaError) else None
        if not (error.retriable or code in _REFUSED_FOR_NOW or code == ErrorCode.OFFSET_OUT_OF_RANGE):
            self._fail(queue, error)
            return
        pause_s = BACKOFF.delay_s(queue.failures, self._random)
        self._note_failing(queue, self._now(), str(error))
        queue.refuse(str(error), self._now(), pause_s)
        self._stale.add(queue.partition.topic)
        logger.debug("%s: %s", queue.partition, error)

    def _fail(self, queue: PartitionQueue, error: BarnabasError) -> None:
        queue.ticket = None
        queue.failure = error
        self.make_ready(queue)

    def _note_failing(self, queue: PartitionQueue, now_s: float, reason: str) -> None:
        queue.reason = reason
        if queue.failing_since_s is None:
            queue.failing_since_s = now_s
            self._on_news()

    def _on_bug(self, error: BaseException) -> None:
        """Tell the reader of a bug of ours: no other exception leaves these tasks."""
        failure = ClientError(f"fetching has ended, by a fault of this client: {error!r}")
        failure.__cause__ = error
        for queue in self.queues.values():
            queue.failure = failure
            self.make_ready(queue)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
