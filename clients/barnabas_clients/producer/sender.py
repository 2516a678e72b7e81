"""Sends complete batches to the leaders of their partitions, until they are done.

Events drive it, and there is no task while there is nothing to wait for. A queue that has something to send is listed
with the broker that leads it (`BrokerLane`). Brokers with such queues are pumped once per turn of the loop. Pumping
collects at most one batch per partition into one request, up to `request_bytes_max`, and sends it. It goes on while
fewer than `in_flight_max` requests of that broker are unanswered and the connection takes more. Between collecting and
sending there is no `await`, so batches are sent in the order of their numbers. Two waits have a task that ends with
them: for a connection with room (`_reach`), and for metadata (upkeep.py). An answer, a timer or new metadata lists
queues again.

*Failures.* exchange.py decides what an error code means, and sequences.py what becomes of the batch. The pauses are
here: a queue that failed waits (20 ms, growing to 1 s), unless the answer named a new leader. A request that has been
unanswered for a second makes us ask for metadata, because a broker that stands still closes nothing. If the metadata
does not list the broker any more, or names other leaders, its connection ends, and so do all requests in it. After
`request_timeout_s` it ends anyway.

*Deadlines.* A batch that is not delivered within `delivery_timeout_s` of being opened fails, wherever it is.

*Transactions.* The conversation with the coordinators (conversation.py) says whether a batch may leave, hears of each
batch that has failed, and ends the transaction when no batch of it is under way. When a transaction fails, its batches
that are not on the wire fail with it; those of one that is aborted are not sent if they never were.

Not here: collecting records (producer.py); throttling, which brokers enforce by not reading from us.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas_clients.backoff import Backoff, Jitter
from barnabas_clients.cluster.cluster import SUSPICION_S, Cluster
from barnabas_clients.cluster.connection import Connection
from barnabas_clients.cluster.topic_view import BrokerAddress
from barnabas_clients.errors import (
    ClientClosedError,
    ClientError,
    ConnectionLostError,
    DeadlineExceededError,
    TransactionAbortedError,
)
from barnabas_clients.protocol.error_codes import STALE_METADATA, ErrorCode
from barnabas_clients.protocol.errors import KafkaError, error_for
from barnabas_clients.protocol.metadata import MetadataRequest
from barnabas_clients.protocol.produce import ProduceRequest, ProduceResponse
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.records.header import TRANSACTIONAL

from .accumulator import Accumulator, Batch, PartitionQueue
from .exchange import TOO_LARGE, outcome_of, request_of, rows_of
from .metrics import Counters
from .sequences import Identity, Outcome, UnderWay, Verdict
from .settings import ProducerSettings
from .transaction_numbers import TransactionIdentity
from .transactions.situations import FAILED, Situation
from .upkeep import Upkeep

if TYPE_CHECKING:
    from .conversation import Conversation

__all__ = ["LANE", "Sender"]

LANE = "produce"
"""A lane of its own: answers with acks=all wait for replicas, and metadata must not wait behind them."""
REST_S = 600.0
"""A leader remembers a silent producer for a day (producer.id.expiration.ms), unless it is configured otherwise."""
_REQUEST_OVERHEAD_BYTES = 512
_CLOCK_S = 0.001
_log = logging.getLogger("barnabas_clients.producer")


class BrokerLane:
    """The way to one broker: its connection, its queues that have something to send, its requests under way."""

    __slots__ = ("connection", "failures", "in_flight", "is_reaching", "is_scheduled", "node_id", "ready")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.connection: Connection | None = None
        self.ready: dict[PartitionQueue, None] = {}
        self.in_flight = 0
        self.failures = 0
        self.is_scheduled = False
        self.is_reaching = False


class Asked:
    """A request under way, and its connection. It is suspect if the answer is late."""

    __slots__ = ("chosen", "connection", "node", "request")

    def __init__(
        self, node: BrokerLane, connection: Connection, chosen: list[UnderWay[Batch]], request: ProduceRequest
    ) -> None:
        self.node = node
        self.connection = connection
        self.chosen = chosen
        self.request = request


class Sender:
    """Sends what `accumulator` holds. Used from one event loop; `close` must be called.

    `on_room` is called when memory was given back, `on_failed` with each batch that failed unwatched, `on_metadata`
    when there is a new view of the cluster.
    """

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator,
        settings: ProducerSettings,
        identity: Identity | None,
        jitter: Jitter,
        conversation: "Conversation | None" = None,
        *,
        on_room: Callable[[], None],
        on_failed: Callable[[Batch], None],
        on_metadata: Callable[[], None],
    ) -> None:
        self.counters = Counters()
        self._cluster = cluster
        self._accumulator = accumulator
        self._settings = settings
        self._identity = identity
        self._on_room = on_room
        self._on_failed = on_failed
        self._on_metadata = on_metadata
        self._conversation = conversation
        # In the header of each batch.
        self._attributes = settings.compression | (0 if conversation is None else TRANSACTIONAL)
        if conversation is not None:
            conversation.on_news = self._on_transaction_news
        self._loop = asyncio.get_running_loop()
        self._backoff = Backoff()
        self._jitter = jitter
        self._upkeep = Upkeep(
            cluster,
            settings.request_timeout_s,
            jitter,
            on_learned=self._on_learned,
            on_identity=self._list_all,
            on_trouble=self._on_trouble,
        )
        self._nodes: dict[int, BrokerLane] = {}
        self._leaderless: dict[PartitionQueue, None] = {}
        self._suspects: dict[Asked, None] = {}
        self._lingering: deque[Batch] = deque()
        self._is_closed = False
        self._linger_timer: asyncio.TimerHandle | None = None
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._age_timer: asyncio.TimerHandle | None = None

    @property
    def topics(self) -> set[str]:
        """The topics whose metadata is kept young. The producer adds to it."""
        return self._upkeep.topics

    @property
    def requests_in_flight(self) -> int:
        return sum(node.in_flight for node in self._nodes.values())

    def start(self) -> None:
        """Ask for a producer id, if one is needed, and keep the metadata young."""
        self._identify()
        self._age_timer = self._loop.call_later(self._settings.metadata_max_age_s, self._on_age)

    async def close(self) -> None:
        """Send no more. Batches that are not done fail. Waits only for its own tasks, which it ends."""
        self._is_closed = True
        for timer in (self._linger_timer, self._deadline_timer, self._age_timer):
            if timer is not None:
                timer.cancel()

        def closed(batch: Batch) -> ClientError:
            return ClientClosedError(f"the producer was closed before a batch for {batch.queue} was acknowledged")

        for batch in list(self._accumulator.incomplete):
            if not batch.is_done:
                self._fail(batch, closed)
        await self._upkeep.close()

    # Called by the producer.

    def on_opened(self, batch: Batch) -> None:
        """Let a batch that was opened linger, and give it a deadline."""
        while self._lingering and self._lingering[0].queue.open is not self._lingering[0]:
            self._lingering.popleft()
        self._lingering.append(batch)
        if self._linger_timer is None:
            self._linger_timer = self._loop.call_later(self._settings.linger_s, self._on_linger)
        self._limit_time()

    def on_adopted(self, batch: Batch) -> None:
        """Give a batch that came encoded a deadline, and send it."""
        self._limit_time()
        self._list(batch.queue)

    def on_complete(self, queue: PartitionQueue) -> None:
        """Send a batch that is complete."""
        self._list(queue)

    def send_now(self, queue: PartitionQueue) -> None:
        """Send the open batch of a queue without waiting for more."""
        if queue.open is not None and not queue.is_due:
            queue.is_due = True
            self._list(queue)

    async def confirm(self, deadline: float) -> None:
        """Wait until the brokers have read all requests without acks. They answer in order, so one answer is the proof.

        Raises:
            DeadlineExceededError: a broker has not answered by `deadline`.
        """
        for node in list(self._nodes.values()):
            if node.connection is not None and node.connection.is_open:
                try:
                    await node.connection.request(MetadataRequest(topics=[]), deadline - self._loop.time())
                except ConnectionLostError as error:
                    # A caller who needs to know what became of the records asks for acks.
                    _log.warning("records without acks may be lost: %s", error)

    # Transactions.

    def enter_all(self) -> None:
        """Send what there is, and make all of it a part of the transaction, which takes no more."""
        assert self._conversation is not None
        for batch in list(self._accumulator.incomplete):
            queue = batch.queue
            self._conversation.touch(_partition_of(queue))
            if queue.open is batch:
                self._accumulator.complete(queue)
                self._list(queue)

    def give_up_transaction(self) -> None:
        """Give up all batches of the transaction, also those that are on the wire."""
        self._withdraw(numbered=True, out=True)

    def _on_transaction_news(self) -> None:
        assert self._conversation is not None
        machine = self._conversation.machine
        identity = self._identity
        assert isinstance(identity, TransactionIdentity)
        identity.producer_id, identity.epoch = machine.owner.producer_id, machine.owner.epoch
        identity.is_second = machine.is_second
        if machine.situation in FAILED:
            self._withdraw(numbered=True, out=False)
        elif machine.situation is Situation.ABORTING:
            self._withdraw(numbered=False, out=False)
        self._list_all()

    def _withdraw(self, *, numbered: bool, out: bool) -> None:
        """Let batches fail with their transaction: those that were never sent, those that wait, those on the wire."""
        assert self._conversation is not None
        machine = self._conversation.machine
        error = machine.error

        def why(batch: Batch) -> ClientError:
            return TransactionAbortedError(str(batch.queue), error)

        for batch in list(self._accumulator.incomplete):
            under_way = batch.under_way
            if batch.is_done or batch.parts or (under_way is not None and (not numbered or under_way.is_out > out)):
                continue
            self._fail(batch, why)
            if under_way is not None and batch.error is not None:
                # Nobody knows whether it will be in the log: its number, and so its epoch, is used up.
                machine.on_batch_failed(ClientError(str(batch.error)))

    def _identify(self) -> None:
        """Ask for a producer id, unless the coordinator of transactions gives it."""
        if self._identity is not None and self._conversation is None:
            self._upkeep.identify(self._identity)

    # Timers.

    def _on_linger(self) -> None:
        self._linger_timer = None
        now = self._loop.time()
        while self._lingering:
            batch = self._lingering[0]
            if batch.queue.open is batch:
                due_at = batch.opened_at_s + self._settings.linger_s
                # Loops with a coarse clock call timers a little early.
                if due_at > now + _CLOCK_S:
                    self._linger_timer = self._loop.call_at(due_at, self._on_linger)
                    return
                self.send_now(batch.queue)
            self._lingering.popleft()

    def _on_deadline(self) -> None:
        self._deadline_timer = None
        now = self._loop.time()
        limit_s = self._settings.delivery_timeout_s

        def late(batch: Batch) -> ClientError:
            return DeadlineExceededError(
                f"a batch for {batch.queue} was not acknowledged within {limit_s:g} s; last: {batch.trouble}"
            )

        for batch in list(self._accumulator.incomplete):
            if batch.opened_at_s + limit_s > now + _CLOCK_S:
                self._deadline_timer = self._loop.call_at(batch.opened_at_s + limit_s, self._on_deadline)
                return
            if not batch.is_done:
                self._fail(batch, late)

    def _on_age(self) -> None:
        self._upkeep.learn()
        self._age_timer = self._loop.call_later(self._settings.metadata_max_age_s, self._on_age)

    def _limit_time(self) -> None:
        """See to the deadline of a batch that is new. It is later than those of the others."""
        if self._deadline_timer is None:
            self._deadline_timer = self._loop.call_later(self._settings.delivery_timeout_s, self._on_deadline)

    def _pause(self, queue: PartitionQueue) -> None:
        """Let a queue wait before its next attempt."""
        now = self._loop.time()
        if queue.not_before_s <= now:
            queue.not_before_s = now + self._backoff.delay_s(queue.failures, self._jitter)
            queue.failures += 1
            self._loop.call_at(queue.not_before_s, self._list, queue)

    # Queues and brokers.

    def _list(self, queue: PartitionQueue) -> None:
        """List a queue with the broker that leads it now."""
        if self._is_closed or not queue.has_something_to_send:
            return
        leader = self._cluster.view.leader(queue.topic, queue.partition)
        if leader is None:
            self._leaderless[queue] = None
            self._upkeep.learn()
            return
        node = self._nodes.get(leader.node_id)
        if node is None:
            node = self._nodes[leader.node_id] = BrokerLane(leader.node_id)
        node.ready[queue] = None
        self._schedule(node)

    def _schedule(self, node: BrokerLane) -> None:
        if not node.is_scheduled and not node.is_reaching and not self._is_closed:
            node.is_scheduled = True
            self._loop.call_soon(self._pump, node)

    def _pump(self, node: BrokerLane) -> None:
        """Send requests to this broker, as long as there are batches for it and it takes more."""
        node.is_scheduled = False
        while node.ready and node.in_flight < self._settings.in_flight_max and not self._is_closed:
            connection = node.connection
            if connection is None or not connection.is_open or not connection.has_room:
                if not node.is_reaching:
                    node.is_reaching = True
                    self._upkeep.spawn(self._reach(node))
                return
            chosen = self._collect(node)
            if not chosen:
                return
            self._send(node, connection, chosen)

    async def _reach(self, node: BrokerLane) -> None:
        """Wait for a connection that takes a request, then pump."""
        try:
            timeout_s = self._settings.request_timeout_s
            if node.connection is None or not node.connection.is_open:
                node.connection = await self._cluster.connect(node.node_id, timeout_s, LANE)
            await node.connection.room(timeout_s)
            node.failures = 0
        except ClientError as error:
            if node.connection is not None:
                # A new connection is worth a try, whatever keeps this one from taking requests.
                await node.connection.close(error.reason)
            queues, node.ready = list(node.ready), {}
            self._on_trouble(error)
            self._upkeep.learn()
            await asyncio.sleep(self._backoff.delay_s(node.failures, self._jitter))
            node.failures += 1
            for queue in queues:
                self._list(queue)
        finally:
            node.is_reaching = False
            if node.ready:
                self._schedule(node)

    def _list_all(self) -> None:
        for queue in {batch.queue: None for batch in self._accumulator.incomplete}:
            self._list(queue)

    def _on_learned(self) -> bool:
        """Take new metadata. Return whether more is needed: for a queue without a leader, or for a suspect."""
        self._on_metadata()
        view = self._cluster.view
        for suspect in self._suspects:
            leaders = [view.leader(each.item.queue.topic, each.item.queue.partition) for each in suspect.chosen]
            if any(leader is not None and leader.node_id != suspect.node.node_id for leader in leaders):
                # It stands still, and others lead. They recognise the batches that it has appended.
                self._upkeep.spawn(suspect.connection.close("it does not answer, and others lead its partitions"))
        for node in self._nodes.values():
            # A queue need not wait behind unanswered requests if another broker leads it now.
            for queue in list(node.ready):
                leader = view.leader(queue.topic, queue.partition)
                if leader is None or leader.node_id != node.node_id:
                    del node.ready[queue]
                    self._leaderless[queue] = None
        queues, self._leaderless = self._leaderless, {}
        for queue in queues:
            if self._cluster.view.leader(queue.topic, queue.partition) is not None:
                self._list(queue)
            elif queue.has_something_to_send:
                self._leaderless[queue] = None
        return bool(self._leaderless or self._suspects)

    def _on_trouble(self, error: Exception) -> None:
        for batch in self._accumulator.incomplete:
            if batch.under_way is None:
                batch.last_error = error

    def _collect(self, node: BrokerLane) -> list[UnderWay[Batch]]:
        """Take one batch of each listed queue, as many as fit into one request."""
        chosen: list[UnderWay[Batch]] = []
        size = _REQUEST_OVERHEAD_BYTES
        now = self._loop.time()
        view = self._cluster.view
        for queue in list(node.ready):
            leader = view.leader(queue.topic, queue.partition)
            if leader is None or leader.node_id != node.node_id:
                del node.ready[queue]
                self._list(queue)
                continue
            if queue.not_before_s > now + _CLOCK_S:
                del node.ready[queue]
                continue
            if chosen and size + queue.next_bytes > self._settings.request_bytes_max:
                break
            # Out of the list, or to its end, so that the queues behind it have their turn in the next request.
            del node.ready[queue]
            under_way = self._next(queue)
            if under_way is not None:
                if queue.has_something_to_send:
                    node.ready[queue] = None
                size += under_way.item.size_bytes
                chosen.append(under_way)
        return chosen

    def _next(self, queue: PartitionQueue) -> UnderWay[Batch] | None:
        """Return the batch that this queue may send now, with its number, if there is one."""
        sequences = queue.sequences
        for lost in sequences.take_lost():
            error = DeadlineExceededError(
                f"the leader of {queue} misses records before this batch, which may or may not be written",
                may_be_done=True,
            )
            self._close_case(lost.item, error)
        under_way = sequences.next_again()
        if under_way is not None:
            epoch = under_way.epoch
            sequences.sent_again(under_way)
            self.counters.retries += 1
            self.counters.epochs += under_way.epoch != epoch
        elif sequences.may_begin():
            under_way = self._begin(queue)
        else:
            self._identify()
        if under_way is None:
            return None
        batch = under_way.item
        compression = self._settings.compression
        try:
            if batch.frame is None:
                batch.encode(compression)
            batch.number(self._attributes, under_way.producer_id, under_way.epoch, under_way.base_sequence)
        except Exception as cause:  # noqa: BLE001 - one batch that cannot be encoded must not stop those behind it
            _log.exception("a batch for %s cannot be encoded", queue)
            broken = ClientError(f"a batch for {queue} cannot be encoded: {cause!r}")
            broken.__cause__ = cause
            self._settle(under_way, Outcome.REFUSED, broken)
            return None
        return under_way

    def _begin(self, queue: PartitionQueue) -> UnderWay[Batch] | None:
        """Number the next batch that has not been sent yet, if one is complete or due."""
        if not queue.waiting and (queue.open is None or not queue.is_due):
            return None
        if self._conversation is not None and not self._conversation.may_send(_partition_of(queue)):
            return None
        batch = self._accumulator.take(queue)
        if batch is None:
            return None
        sequences = queue.sequences
        now = self._loop.time()
        if now - queue.used_at_s > REST_S and not sequences.pipeline:
            sequences.rest()
        queue.used_at_s = now
        batch.under_way = sequences.begin(batch, batch.count)
        self.counters.batches += 1
        return batch.under_way

    # Requests and answers.

    def _send(self, node: BrokerLane, connection: Connection, chosen: list[UnderWay[Batch]]) -> None:
        settings = self._settings
        request = request_of(chosen, self._cluster.view, settings)
        versions = None if self._conversation is None else self._conversation.produce_versions
        self.counters.bytes_sent += sum(under_way.item.size_bytes for under_way in chosen)
        self.counters.requests += 1
        try:
            if settings.acks == 0:
                connection.post(request)
                for under_way in chosen:
                    self._settle(under_way, Outcome.APPENDED, None)
                return
            answer = connection.submit(request, settings.request_timeout_s, versions)
        except ClientError as error:
            for under_way in chosen:
                self._settle(under_way, Outcome.NOT_NOW if error.retriable else Outcome.REFUSED, error)
            return
        node.in_flight += 1
        asked = Asked(node, connection, chosen, request)
        watch = self._loop.call_later(SUSPICION_S, self._on_late, asked)
        answer.add_done_callback(lambda done: self._on_answer(asked, watch, done))

    def _on_late(self, asked: Asked) -> None:
        """Ask for metadata when an answer is late: perhaps the cluster has moved on without that broker."""
        self._suspects[asked] = None
        self._upkeep.learn()

    def _on_answer(self, asked: Asked, watch: asyncio.TimerHandle, answer: "asyncio.Future[Any]") -> None:
        watch.cancel()
        self._suspects.pop(asked, None)
        node = asked.node
        chosen = asked.chosen
        node.in_flight -= 1
        failure = None if answer.cancelled() else answer.exception()
        if answer.cancelled() or self._is_closed:
            for under_way in chosen:
                self._accumulator.release(under_way.item)
            return
        if failure is None:
            self._on_response(asked, answer.result())
        else:
            assert isinstance(failure, ClientError)
            if isinstance(failure, DeadlineExceededError):
                # The requests behind the unanswered one share its fate.
                self._upkeep.spawn(asked.connection.close(failure.reason))
            self._upkeep.learn()
            for under_way in chosen:
                # It was sent, and no answer says what became of it.
                self._settle(under_way, Outcome.UNKNOWN, failure)
        if node.ready:
            self._schedule(node)

    def _on_response(self, asked: Asked, response: ProduceResponse) -> None:
        endpoints = {
            row.node_id: BrokerAddress(row.node_id, row.host, row.port, row.rack) for row in response.node_endpoints
        }
        rows = rows_of(asked.request, response)
        for under_way in asked.chosen:
            batch = under_way.item
            queue = batch.queue
            answered = rows.get((queue.topic, queue.partition))
            if answered is None:
                error: ClientError | KafkaError = ClientError(f"{queue}: the answer does not mention it")
                self._settle(under_way, Outcome.UNKNOWN, error)
                continue
            if answered.error_code == ErrorCode.NONE:
                batch.base_offset = answered.base_offset
                batch.append_time_ms = answered.log_append_time_ms
                self._settle(under_way, Outcome.APPENDED, None)
                continue
            hint = answered.current_leader
            is_moved = False
            if hint.leader_id >= 0:
                before = self._cluster.view
                self._cluster.learn_leader(
                    queue.topic, queue.partition, hint.leader_id, hint.leader_epoch, endpoints.get(hint.leader_id)
                )
                is_moved = self._cluster.view is not before
            error = error_for(answered.error_code, f"{queue}: {answered.error_message or 'produce was refused'}")
            if answered.record_errors:
                error.record_errors = {
                    row.batch_index: f"{queue}: {row.batch_index_error_message or answered.error_message or 'refused'}"
                    for row in answered.record_errors
                }
            self._settle(under_way, outcome_of(answered.error_code), error, is_moved=is_moved)

    def _settle(
        self,
        under_way: UnderWay[Batch],
        outcome: Outcome,
        error: ClientError | KafkaError | None,
        *,
        is_moved: bool = False,
    ) -> None:
        """Record how an attempt of a batch ended, and decide when its queue goes on."""
        batch = under_way.item
        queue = under_way.item.queue
        code = error.code if isinstance(error, KafkaError) else ErrorCode.NONE
        is_divisible = code in TOO_LARGE and batch.count > 1 and not batch.is_done
        batch.last_error = error
        verdict = queue.sequences.on_outcome(under_way, Outcome.NOT_NOW if is_divisible else outcome)
        if verdict is Verdict.DELIVERED:
            queue.failures = 0
            queue.was_lost = False
            self._close_case(batch, None)
        elif verdict is Verdict.FAILED:
            assert error is not None
            error.may_be_done = under_way.may_be_appended
            self._close_case(batch, error)
        elif is_divisible:
            self._split(under_way)
        elif not is_moved:
            if code in STALE_METADATA:
                self._upkeep.learn()
            self._pause(queue)
        self._list(queue)

    def _split(self, under_way: UnderWay[Batch]) -> None:
        """Go on with the halves of a batch that is too large for the topic."""
        batch = under_way.item
        sequences = under_way.item.queue.sequences
        numbers = (under_way.producer_id, under_way.epoch, under_way.base_sequence)
        parts = self._accumulator.split(batch, self._settings.compression, numbers)
        for part, numbered in zip(
            parts, sequences.split(under_way, [(part, part.count) for part in parts]), strict=True
        ):
            part.under_way = numbered
            part.observers.append(lambda: self._on_part(batch))
        batch.under_way = None
        self._accumulator.release(batch)

    def _on_part(self, batch: Batch) -> None:
        if not batch.is_done and all(part.is_done for _, part in batch.parts):
            del self._accumulator.incomplete[batch]
            batch.settle()

    def _close_case(self, batch: Batch, error: ClientError | KafkaError | None) -> None:
        """Free the memory of a batch: no attempt of it is on the wire any more, nor will be."""
        self._accumulator.release(batch)
        batch.under_way = None
        if not batch.is_done:
            self._finish(batch, error)
        self._on_room()

    def _fail(self, batch: Batch, why: Callable[[Batch], ClientError]) -> None:
        """Give up a batch in any state. Memory that is on the wire is given back when the answer comes."""
        if batch.parts:
            for _, part in batch.parts:
                if not part.is_done:
                    self._fail(part, why)
            return
        error = why(batch)
        error.may_be_done = batch.may_be_written
        under_way = batch.under_way
        if under_way is None:
            self._accumulator.withdraw(batch)
            self._close_case(batch, error)
            return
        batch.queue.sequences.give_up(under_way)
        if under_way.is_out and not self._is_closed:
            self._finish(batch, error)
        else:
            self._close_case(batch, error)
        self._list(batch.queue)

    def _finish(self, batch: Batch, error: ClientError | KafkaError | None) -> None:
        del self._accumulator.incomplete[batch]
        if error is None:
            self.counters.records_delivered += batch.count
        else:
            batch.error = error
            self.counters.records_failed += batch.count
        batch.settle()
        if self._conversation is not None:
            # Whoever commits is told, so that no failure is silent.
            self._conversation.on_batch_done(None if isinstance(error, TransactionAbortedError) else error)
        elif error is not None and not batch.is_watched:
            self._on_failed(batch)


def _partition_of(queue: PartitionQueue) -> TopicPartition:
    return TopicPartition(queue.topic, queue.partition)
