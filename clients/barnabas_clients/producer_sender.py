"""The sending half of a producer: complete batches go to the leaders of their partitions until they are done.

It is driven by events, with no task while there is nothing to wait for. A queue that has something to send is listed
with the broker that leads it (`_Node`); brokers with such queues are pumped once per turn of the loop. Pumping collects
at most one batch per partition into one request, up to `request_bytes_max`, and sends it, while fewer than
`in_flight_max` requests of that broker are unanswered and the connection takes more. From collecting to sending there
is no `await`: what is numbered first is sent first. Two things have to be waited for, each in a task that ends with it:
a connection with room (`_reach`), and metadata (`_learn`). An answer, a timer or new metadata lists queues again.

*Failures.* What an error code means is decided in produce_answers.py, what becomes of the batch in sequences.py. Here
are the pauses: a queue that failed waits (20 ms, growing to 1 s), unless the answer named a new leader. A request that
goes unanswered for a second makes us ask for metadata, because a broker that stands still closes nothing; when it is
not listed any more, its connection ends and with it all that waits for it. After `request_timeout_s` it ends anyway.

*Deadlines.* A batch that is not delivered within `delivery_timeout_s` of being opened fails, wherever it is.

Not here: collecting records (producer.py); throttling, which brokers enforce by not reading from us.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from barnabas_raftlog.records.compression import Compression

from .accumulator import Accumulator, Batch, PartitionQueue
from .backoff import Backoff
from .cluster_view import BrokerAddress
from .connection import Connection
from .connections import SUSPICION_S, Cluster
from .errors import ClientClosedError, ClientError, DeadlineExceededError
from .produce_answers import outcome_of
from .protocol.error_codes import STALE_METADATA, ErrorCode
from .protocol.errors import KafkaError, error_for
from .protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from .protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from .sequences import Identity, Outcome, UnderWay, Verdict

__all__ = ["LANE", "Counters", "Sender", "SenderSettings"]

LANE = "produce"
"""Answers with acks=all wait for replicas; metadata and heartbeats must not wait for them."""
_REQUEST_OVERHEAD_BYTES = 512
_log = logging.getLogger(__name__)


class SenderSettings(NamedTuple):
    """What `Producer` was told that concerns sending."""

    acks: int
    compression: Compression
    linger_s: float
    request_bytes_max: int
    delivery_timeout_s: float
    request_timeout_s: float
    in_flight_max: int
    metadata_max_age_s: float


class Counters:
    """What has happened since the start."""

    __slots__ = ("batches", "bytes_sent", "epochs", "records_delivered", "records_failed", "requests", "retries")

    def __init__(self) -> None:
        self.batches = self.bytes_sent = self.requests = self.retries = self.epochs = 0
        self.records_delivered = self.records_failed = 0


class _Node:
    """One broker, as far as we produce to it."""

    __slots__ = ("connection", "failures", "in_flight", "is_scheduled", "node_id", "ready", "task")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.connection: Connection | None = None
        self.ready: dict[PartitionQueue, None] = {}
        self.in_flight = self.failures = 0
        self.is_scheduled = False
        self.task: asyncio.Task[None] | None = None


class Sender:
    """Sends what `accumulator` holds. Used from one event loop; `close` must be called.

    `on_room` is called when memory was given back, `on_failed` with each batch that failed.
    """

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        settings: SenderSettings,
        identity: Identity | None,
        on_room: Callable[[], None],
        on_failed: Callable[[Batch], None],
    ) -> None:
        self.counters = Counters()
        self.topics: set[str] = set()
        self._cluster, self._accumulator, self._settings, self._identity = cluster, accumulator, settings, identity
        self._on_room, self._on_failed = on_room, on_failed
        self._loop = asyncio.get_running_loop()
        self._backoff, self._jitter = Backoff(), random.Random()
        self._nodes: dict[int, _Node] = {}
        self._leaderless: dict[PartitionQueue, None] = {}
        self._lingering: dict[Batch, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._learning = self._identifying = self._is_stale = self._is_closed = False
        self._linger_timer: asyncio.TimerHandle | None = None
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._age_timer: asyncio.TimerHandle | None = None
        self._pauses: set[asyncio.TimerHandle] = set()

    @property
    def requests_in_flight(self) -> int:
        return sum(node.in_flight for node in self._nodes.values())

    def start(self) -> None:
        """Get a producer id, if one is needed, and keep the metadata young."""
        self._identify()
        self._age_timer = self._loop.call_later(self._settings.metadata_max_age_s, self._on_age)

    async def close(self) -> None:
        """Send no more; whatever is not done fails. Waits only for its own tasks to end."""
        self._is_closed = True
        for timer in (self._linger_timer, self._deadline_timer, self._age_timer, *self._pauses):
            if timer is not None:
                timer.cancel()
        for batch in list(self._accumulator.incomplete):
            if not batch.is_done:
                may_be_done = batch.under_way is not None
                error = ClientClosedError(f"the producer was closed before a batch for {batch.queue} was acknowledged")
                error.may_be_done = may_be_done
                self._fail(batch, error)
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # What the producer says.

    def on_opened(self, batch: Batch) -> None:
        """A batch was opened: it lingers, and has a deadline."""
        linger_s = self._settings.linger_s
        self._lingering[batch] = None
        if self._linger_timer is None:
            self._linger_timer = self._loop.call_later(linger_s, self._on_linger)
        if self._deadline_timer is None:
            self._deadline_timer = self._loop.call_later(self._settings.delivery_timeout_s, self._on_deadline)

    def on_complete(self, queue: PartitionQueue) -> None:
        """A batch is complete or due."""
        self._list(queue)

    def hasten(self, queue: PartitionQueue) -> None:
        """Send the open batch of a queue without waiting for more."""
        if queue.open is not None and not queue.is_due:
            queue.is_due = True
            self._list(queue)

    def on_new_topic(self, topic: str) -> None:
        self.topics.add(topic)

    # Timers.

    def _on_linger(self) -> None:
        self._linger_timer = None
        now = self._loop.time()
        while self._lingering:
            batch = next(iter(self._lingering))
            due_at = batch.opened_at_s + self._settings.linger_s
            # Timers may come a clock tick early.
            if batch.queue.open is batch and due_at > now + 0.0005:
                self._linger_timer = self._loop.call_at(due_at, self._on_linger)
                return
            del self._lingering[batch]
            if batch.queue.open is batch:
                self.hasten(batch.queue)

    def _on_deadline(self) -> None:
        self._deadline_timer = None
        now = self._loop.time()
        for batch in list(self._accumulator.incomplete):
            due_at = batch.opened_at_s + self._settings.delivery_timeout_s
            if due_at > now:
                self._deadline_timer = self._loop.call_at(due_at, self._on_deadline)
                return
            if not batch.is_done:
                last = f"; last: {batch.last_error}" if batch.last_error else ""
                self._fail(
                    batch,
                    DeadlineExceededError(
                        f"a batch for {batch.queue} was not delivered within {self._settings.delivery_timeout_s:g} s{last}",
                        may_be_done=batch.under_way is not None,
                    ),
                )

    def _on_age(self) -> None:
        self._learn()
        self._age_timer = self._loop.call_later(self._settings.metadata_max_age_s, self._on_age)

    def _pause(self, queue: PartitionQueue) -> None:
        """Let a queue wait before its next attempt."""
        pause_s = self._backoff.delay_s(queue.failures, self._jitter)
        queue.failures += 1
        queue.not_before_s = self._loop.time() + pause_s

        def resume() -> None:
            self._pauses.discard(timer)
            queue.not_before_s = 0.0
            self._list(queue)

        timer = self._loop.call_later(pause_s, resume)
        self._pauses.add(timer)

    # Who gets what.

    def _list(self, queue: PartitionQueue) -> None:
        """List a queue with the broker that leads it now."""
        if self._is_closed:
            return
        leader = self._cluster.view.leader(queue.topic, queue.partition)
        if leader is None:
            self._leaderless[queue] = None
            self._learn()
            return
        node = self._nodes.get(leader.node_id)
        if node is None:
            node = self._nodes[leader.node_id] = _Node(leader.node_id)
        node.ready[queue] = None
        self._schedule(node)

    def _schedule(self, node: _Node) -> None:
        if not node.is_scheduled and node.task is None and not self._is_closed:
            node.is_scheduled = True
            self._loop.call_soon(self._pump, node)

    def _pump(self, node: _Node) -> None:
        """Send this broker what there is for it and what it takes now."""
        node.is_scheduled = False
        while node.ready and node.in_flight < self._settings.in_flight_max and not self._is_closed:
            connection = node.connection
            if connection is None or not connection.is_open or not connection.has_room:
                if node.task is None:
                    node.task = self._spawn(self._reach(node))
                return
            chosen = self._collect(node)
            if not chosen:
                return
            self._send(node, connection, chosen)

    async def _reach(self, node: _Node) -> None:
        """Wait for a connection that takes a request, then pump."""
        try:
            timeout_s = self._settings.request_timeout_s
            if node.connection is None or not node.connection.is_open:
                node.connection = await self._cluster.connect(node.node_id, timeout_s, LANE)
            await node.connection.room(timeout_s)
            node.failures = 0
        except ClientError as error:
            if isinstance(error, DeadlineExceededError) and node.connection is not None:
                await node.connection.close()
            queues, node.ready = list(node.ready), {}
            for queue in queues:
                for batch in self._accumulator.incomplete if False else queue.waiting:
                    batch.last_error = error
            self._learn()
            await asyncio.sleep(self._backoff.delay_s(node.failures, self._jitter))
            node.failures += 1
            for queue in queues:
                self._list(queue)
        finally:
            node.task = None
            if node.ready:
                self._schedule(node)

    def _collect(self, node: _Node) -> list[UnderWay[Batch]]:
        """Take one batch of each listed queue, as far as one request goes."""
        chosen: list[UnderWay[Batch]] = []
        size, now = _REQUEST_OVERHEAD_BYTES, self._loop.time()
        view = self._cluster.view
        for queue in list(node.ready):
            leader = view.leader(queue.topic, queue.partition)
            if leader is None or leader.node_id != node.node_id:
                del node.ready[queue]
                self._list(queue)
                continue
            if queue.not_before_s > now:
                del node.ready[queue]
                continue
            under_way = self._next(queue, self._settings.request_bytes_max - size if chosen else None)
            if under_way is _NO_ROOM:
                break
            # To the end of the list, so that those behind it have their turn in the next request; or out of it.
            del node.ready[queue]
            if isinstance(under_way, UnderWay):
                if queue.has_something_to_send:
                    node.ready[queue] = None
                size += under_way.item.size_bytes
                chosen.append(under_way)
        return chosen

    def _next(self, queue: PartitionQueue, room_bytes: int | None) -> "UnderWay[Batch] | _NoRoom | None":
        """Return the batch that this queue may send now, numbered; `_NO_ROOM` if it is too big."""
        sequences = queue.sequences
        for lost in sequences.take_lost():
            error = DeadlineExceededError(
                f"the leader of {queue} misses records before this batch, which may or may not be written",
                may_be_done=True,
            )
            self._close_case(lost.item, error)
        again = sequences.next_again()
        if again is not None:
            if room_bytes is not None and again.item.size_bytes > room_bytes:
                return _NO_ROOM
            epoch = again.epoch
            sequences.sent_again(again)
            self.counters.retries += 1
            self.counters.epochs += again.epoch != epoch
            return again
        if not sequences.may_begin():
            if self._identity is not None and self._identity.producer_id < 0:
                self._identify()
            return None
        if room_bytes is not None:
            first = queue.waiting[0] if queue.waiting else queue.open
            if first is not None and first.size_bytes > room_bytes:
                return _NO_ROOM
        batch = self._accumulator.take(queue)
        if batch is None:
            return None
        batch.encode(self._settings.compression)
        batch.under_way = sequences.begin(batch, batch.count)
        self.counters.batches += 1
        return batch.under_way

    # Requests and answers.

    def _send(self, node: _Node, connection: Connection, chosen: list[UnderWay[Batch]]) -> None:
        settings = self._settings
        topics: dict[str, TopicProduceData] = {}
        for under_way in chosen:
            batch = under_way.item
            batch.attempts += 1
            name = batch.queue.topic
            data = topics.get(name)
            if data is None:
                topic_id = self._cluster.view.topics[name].topic_id
                data = topics[name] = TopicProduceData(name=name)
                if topic_id is not None:
                    data.topic_id = topic_id
            frame = batch.number(settings.compression, under_way.producer_id, under_way.epoch, under_way.base_sequence)
            self.counters.bytes_sent += len(frame)
            data.partition_data.append(PartitionProduceData(index=batch.queue.partition, records=frame))
        request = ProduceRequest(
            acks=settings.acks, timeout_ms=int(settings.request_timeout_s * 1000), topic_data=list(topics.values())
        )
        self.counters.requests += 1
        try:
            if settings.acks == 0:
                connection.post(request)
                for under_way in chosen:
                    self._settle(under_way, Outcome.APPENDED, None)
                return
            answer = connection.submit(request, settings.request_timeout_s)
        except ClientError as error:
            for under_way in chosen:
                self._settle(under_way, Outcome.NOT_NOW if error.retriable else Outcome.REFUSED, error)
            return
        node.in_flight += 1
        watch = self._loop.call_later(SUSPICION_S, self._on_suspicion, answer)
        answer.add_done_callback(lambda done: self._on_answer(node, connection, chosen, watch, done))

    def _on_suspicion(self, answer: "asyncio.Future[Any]") -> None:
        """An answer is late: perhaps the cluster has moved on without that broker."""
        if not answer.done() and not self._is_closed:
            self._learn()
            self._loop.call_later(SUSPICION_S, self._on_suspicion, answer)

    def _on_answer(
        self,
        node: _Node,
        connection: Connection,
        chosen: list[UnderWay[Batch]],
        watch: asyncio.TimerHandle,
        answer: "asyncio.Future[Any]",
    ) -> None:
        watch.cancel()
        node.in_flight -= 1
        failure = None if answer.cancelled() else answer.exception()
        if answer.cancelled() or self._is_closed:
            return
        if failure is None:
            self._on_response(chosen, answer.result())
        else:
            assert isinstance(failure, ClientError)
            if isinstance(failure, DeadlineExceededError):
                # Whatever is behind the unanswered request shares its fate.
                self._spawn(connection.close())
            self._learn()
            outcome = Outcome.UNKNOWN if failure.retriable else Outcome.REFUSED
            for under_way in chosen:
                self._settle(under_way, outcome, failure)
        if node.ready:
            self._schedule(node)

    def _on_response(self, chosen: list[UnderWay[Batch]], response: ProduceResponse) -> None:
        endpoints = {
            row.node_id: BrokerAddress(row.node_id, row.host, row.port, row.rack) for row in response.node_endpoints
        }
        view = self._cluster.view
        rows: dict[tuple[str, int], PartitionProduceResponse] = {}
        for topic in response.responses:
            by_id = None if topic.name else view.topics_by_id.get(topic.topic_id)
            name = topic.name or (by_id.name if by_id is not None else "")
            for row in topic.partition_responses:
                rows[name, row.index] = row
        for under_way in chosen:
            batch = under_way.item
            queue = batch.queue
            answered = rows.get((queue.topic, queue.partition))
            if answered is None:
                # The topic is another one by now, or the broker forgot a partition.
                answered = PartitionProduceResponse(index=queue.partition, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
            if answered.error_code == ErrorCode.NONE:
                batch.base_offset, batch.append_time_ms = answered.base_offset, answered.log_append_time_ms
                self._settle(under_way, Outcome.APPENDED, None)
                continue
            hint = answered.current_leader
            if hint.leader_id >= 0:
                self._cluster.learn_leader(
                    queue.topic, queue.partition, hint.leader_id, hint.leader_epoch, endpoints.get(hint.leader_id)
                )
            error = error_for(answered.error_code, f"{queue}: {answered.error_message or 'produce was refused'}")
            self._settle(under_way, outcome_of(answered.error_code), error)

    def _settle(self, under_way: UnderWay[Batch], outcome: Outcome, error: Exception | None) -> None:
        """Take note of how an attempt of a batch ended, and decide when its queue goes on."""
        batch, queue = under_way.item, under_way.item.queue
        is_too_large = isinstance(error, KafkaError) and error.code in _TOO_LARGE
        if is_too_large and batch.count > 1 and not batch.is_done:
            outcome = Outcome.NOT_NOW
        batch.last_error = error
        leader = self._cluster.view.leader(queue.topic, queue.partition)
        verdict = queue.sequences.on_outcome(under_way, outcome)
        if verdict is Verdict.AGAIN:
            if is_too_large:
                self._split(under_way)
            elif isinstance(error, KafkaError) and error.code in STALE_METADATA:
                self._learn()
        if verdict is Verdict.DELIVERED:
            queue.failures = 0
            self._close_case(batch, None)
        elif verdict is Verdict.FAILED:
            assert error is not None
            self._close_case(batch, error)
        elif not is_too_large and outcome is not Outcome.GAP:
            del leader
            self._pause(queue)
        if queue.has_something_to_send:
            self._list(queue)

    def _split(self, under_way: UnderWay[Batch]) -> None:
        batch = under_way.item
        producer = (under_way.producer_id, under_way.epoch, under_way.base_sequence)
        parts = self._accumulator.split(batch, self._settings.compression, producer)
        batch.queue.sequences.split(under_way, [(part, part.count) for part in parts])
        for part in parts:
            part.under_way = next(each for each in batch.queue.sequences.pipeline if each.item is part)
            part.is_observed = True
            part.observers.append(lambda: self._on_part(batch))
        self._accumulator.release(batch)

    def _on_part(self, batch: Batch) -> None:
        if all(part.is_done for _, part in batch.parts) and not batch.is_done:
            del self._accumulator.incomplete[batch]
            failed = [part for _, part in batch.parts if part.error is not None]
            batch.settle()
            if failed and not batch.is_observed:
                self._on_failed(batch)

    def _close_case(self, batch: Batch, error: Exception | None) -> None:
        """No attempt of this batch is on the wire any more, nor will be: its memory is free."""
        self._accumulator.release(batch)
        batch.under_way = None
        if not batch.is_done:
            self._finish(batch, error)
        self._on_room()

    def _fail(self, batch: Batch, error: Exception) -> None:
        """Give up on a batch, whatever its state; memory that is on the wire is given back when the answer comes."""
        if batch.parts:
            for _, part in batch.parts:
                if not part.is_done:
                    self._fail(part, error)
            return
        under_way = batch.under_way
        if under_way is None:
            self._accumulator.withdraw(batch)
            self._close_case(batch, error)
            return
        under_way.item.queue.sequences.give_up(under_way)
        if under_way.is_out and not self._is_closed:
            self._finish(batch, error)
        else:
            self._close_case(batch, error)
        if batch.queue.has_something_to_send:
            self._list(batch.queue)

    def _finish(self, batch: Batch, error: Exception | None) -> None:
        del self._accumulator.incomplete[batch]
        self._lingering.pop(batch, None)
        if error is None:
            self.counters.records_delivered += batch.count
        else:
            batch.error = error
            self.counters.records_failed += batch.count
        is_lost = error is not None and not batch.observers and not batch.is_observed
        batch.settle()
        if is_lost:
            self._on_failed(batch)

    # Metadata and identity.

    def _learn(self) -> None:
        """Ask for metadata, unless that is under way."""
        self._is_stale = True
        if not self._learning and not self._is_closed:
            self._learning = True
            self._spawn(self._learn_until_led())

    async def _learn_until_led(self) -> None:
        failures = 0
        try:
            while self._is_stale or self._leaderless:
                if failures:
                    await asyncio.sleep(self._backoff.delay_s(failures - 1, self._jitter))
                failures += 1
                self._is_stale = False
                try:
                    await self._cluster.refresh(self.topics, timeout_s=self._settings.request_timeout_s)
                except (ClientError, KafkaError) as error:
                    _log.info("no metadata: %s", error)
                    self._is_stale = True
                queues, self._leaderless = list(self._leaderless), {}
                for queue in queues:
                    if queue.has_something_to_send:
                        self._list(queue)
        finally:
            self._learning = False

    def _identify(self) -> None:
        if self._identity is not None and self._identity.producer_id < 0 and not self._identifying:
            self._identifying = True
            self._spawn(self._obtain_identity(self._identity))

    async def _obtain_identity(self, identity: Identity) -> None:
        def check(response: InitProducerIdResponse) -> None:
            if response.error_code:
                raise error_for(response.error_code, "no producer id")

        failures = 0
        try:
            while True:
                try:
                    answer = await self._cluster.request_any(
                        InitProducerIdRequest(), self._settings.request_timeout_s, check
                    )
                    break
                except (ClientError, KafkaError) as error:
                    _log.warning("no producer id: %s", error)
                    for batch in self._accumulator.incomplete:
                        batch.last_error = error
                await asyncio.sleep(self._backoff.delay_s(failures, self._jitter))
                failures += 1
            identity.producer_id, identity.epoch = answer.producer_id, answer.producer_epoch
            for queue in {batch.queue: None for batch in self._accumulator.incomplete}:
                if queue.has_something_to_send:
                    self._list(queue)
        finally:
            self._identifying = False

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _NoRoom:
    """Stands for a batch that has to wait for the next request."""


_NO_ROOM = _NoRoom()
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
