"""Produce: append one batch to each named partition, and answer when `acks` is satisfied.

Everything is checked before anything is appended, partition by partition (`partition/record_rules.py`): exactly one
batch, format 2, intact, of an allowed size and compression, no control batch, and with records that can be read and are
such as the topic takes. Then, in the order of the requests, the batch gets its place in the log.
The records are a view of the request's own memory, in which the leader stamps offset and term.

- `acks` 0 gets no response; an error closes the connection, which is the only way to say so (Kafka does the same).
- `acks` 1 is answered when the leader has appended.
- `acks` -1 is answered when the batch is committed and `min.insync.replicas` have it. Below that many in-sync replicas
  nothing is appended (NOT_ENOUGH_REPLICAS). At the request's timeout the answer is REQUEST_TIMED_OUT, or
  NOT_ENOUGH_REPLICAS_AFTER_APPEND if too few replicas are in sync; the batch may commit later all the same.
- A repeated batch is answered with the original's offset, and for `acks` -1 only when the original has committed.
- A batch for a partition whose leader has just been lost, or hands its leadership over, is refused when the next one is
  known, which is then named (KIP-951): if librdkafka is told of nobody, or of this very broker again, it looks at its
  retries up to a second later. With `acks` 0 nobody waits.
- A batch that does not follow its producer's last one is called out of order only when a majority has said, after it
  came, that this node still leads. A deposed leader that has not heard of it lacks the batches of its successor, and
  clients that are called out of order give up, or begin a new epoch and may store something twice. It is not called so
  in the first seconds of a leadership: librdkafka may bring later batches first, when another replica has turned them
  away. Behind a batch that was refused for a reason that passes it is refused for the same one (see `partition`).

*Transactions.* A transactional batch needs the request's transactional id. The first one of a transaction in a
partition waits until the coordinator has said that the partition is part of it
(`coordinators/transactions/questions`): for clients that add their partitions themselves it is asked whether they did;
from version `ADDS_SINCE` on the question adds them. Meanwhile nothing is served behind the request, so that the
producer's next batch finds its predecessor, and other producers go on. A coordinator that is not there makes the batch,
and those behind it, NOT_ENOUGH_REPLICAS: clients bring it again without looking for another leader of the partition. It
waits for as long as its request does, and a client that goes takes it along.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import lru_cache, partial
from itertools import islice
from typing import NoReturn, cast

from barnabas_broker.coordinators.transactions.questions import Asked, Who
from barnabas_broker.coordinators.transactions.state_machine.codes import code_for
from barnabas_broker.coordinators.transactions.state_machine.location import java_hash
from barnabas_broker.leadership.known_leaders import ELECTION_S
from barnabas_broker.partition.checks import check_at_once, check_in_thread, is_surely_short
from barnabas_broker.partition.partition import NotEnoughReplicasError, Partition
from barnabas_broker.partition.producer_state import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from barnabas_broker.partition.record_rules import NO_TIMESTAMP, Checked, RefusedBatchError, check_header
from barnabas_broker.partition.verifications import Verification
from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.connections import Exchange, Leftover
from barnabas_broker.server.context import BrokerContext, Leader, code_of, respond
from barnabas_broker.timing.deadlines import Deadline
from barnabas_broker.timing.pieces import abandoned, let_go
from barnabas_broker.timing.turns import SLICE_S, Work
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas_metadata_quorum.controller.features import NO_TRANSACTIONS, has_transactions
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.errors import CorruptBatchError, NotLeaderError, StorageFailedError
from barnabas_raftlog.log.errors import StorageBusyError
from barnabas_raftlog.records.header import TIMESTAMP_LOG_APPEND, TRANSACTIONAL, BatchHeader, parse_header

__all__ = ["handle", "refuse"]

CONFIRM_S = 2.0  # A leader that no majority answers steps down within an election timeout.
IDS_SINCE = 13
HINTS_SINCE = 10
ADDS_SINCE = 12
"""Clients from this version on leave it to the leader to add a partition to their transaction (KIP-890)."""
API_KEY = 0
PIECE = 8  # partitions that are appended to without giving others their turn

CHECKS_MS_MAX = 30_000
"""For so long at most a request waits for threads to check its batches, whatever its client says."""

Steps = Generator[None, None, ProduceResponse | None]
Outcome = ProduceResponse | Steps | None


class _Produce:
    """One request whose answer waits for commits.

    `left` counts the partitions that are still open; `leader_ids` are the leaders that the answer names.
    """

    __slots__ = (
        "acks",
        "broker",
        "checking",
        "deadline",
        "exchange",
        "failure",
        "hosted",
        "in_lanes",
        "is_over",
        "is_taken",
        "leader_ids",
        "left",
        "leftover",
        "response",
        "rest",
        "since_ms",
        "timeout_ms",
        "transactional_id",
        "unverified",
        "waits",
    )

    def __init__(
        self,
        broker: BrokerContext,
        exchange: Exchange,
        acks: int,
        timeout_ms: int = 0,
        transactional_id: str | None = None,
    ) -> None:
        self.broker = broker
        self.exchange = exchange
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.response = ProduceResponse()
        self.hosted: HostedTopic | None = None
        self.left = 0
        self.leader_ids = set[int]()
        self.failure = ""
        self.waits: list[_Wait] = []
        self.deadline: Deadline[Callable[[], None]] | None = None
        self.is_taken = self.is_over = False  # every partition was looked at; the time for that is over
        self.checking: _Queued | None = None
        self.rest: Steps | None = None
        self.in_lanes = self.since_ms = 0
        self.transactional_id = transactional_id
        self.unverified: dict[_Unverified, None] | None = None  # those about which the coordinator was asked
        self.leftover: Leftover | None = None

    def begin_topic(self, topic: TopicProduceData) -> list[PartitionProduceResponse]:
        """Turn to the next topic of the request; return where the results of its partitions go."""
        self.hosted = self.broker.topic(topic.name, topic.topic_id, by_id=self.exchange.version >= IDS_SINCE)
        # The one that the version does not carry has its default.
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        self.response.responses.append(answer)
        return answer.partition_responses

    def take(self, topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        """Append one partition's batch, or note why not."""
        hosted = self.hosted
        acks = self.acks
        result = PartitionProduceResponse(index=data.index)
        try:
            if not -1 <= acks <= 1:
                raise RefusedBatchError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; it must be -1, 0 or 1")
            partition = _partition(hosted, data.index, by_id=self.exchange.version >= IDS_SINCE)
            _append(self, partition, data, result)
        except RefusedBatchError as refused:
            self.refuse(hosted, result, refused, topic.name or topic.topic_id.hex())
        return result

    def conclude(self, timeout_ms: int, *, keeps_frame: bool = False) -> ProduceResponse | None:
        """Return the response if it is ready, else see to it that it is given."""
        self.is_taken = True
        if self.left:
            self.park(timeout_ms)
            return None
        self._end_deadline()
        if self.acks == 0:
            self._end_silently(keeps_frame=keeps_frame)
            return None
        return self._completed()

    def refuse(
        self, hosted: HostedTopic | None, result: PartitionProduceResponse, refused: RefusedBatchError, name: str
    ) -> None:
        """Say why a batch is not appended; or later, if it is known then who leads."""
        if self.acks and hosted is not None and _is_undecided(self.broker, hosted, result.index, refused):
            _Vacancy(self, hosted.partitions[result.index], result).begin(hosted)
        else:
            self._refuse(hosted, result, refused)
            self.failure = self.failure or f"{name}-{result.index}: {refused.text}"

    def hint(self, result: PartitionProduceResponse, leader: Leader) -> None:
        """Say who leads, if anybody is known: librdkafka takes "nobody in this term" for news, and forgets the rest."""
        if leader.leader_id >= 0:
            result.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.epoch)
            self.leader_ids.add(leader.leader_id)

    def _refuse(self, hosted: HostedTopic | None, result: PartitionProduceResponse, refused: RefusedBatchError) -> None:
        result.error_code = refused.code
        result.base_offset = -1
        result.error_message = refused.text
        result.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=text)
            for number, text in refused.record_errors
        ]
        if refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and hosted is not None:
            self.hint(result, self.broker.leader_of(hosted, result.index))

    def _completed(self) -> ProduceResponse:
        """Return the response, with where those leaders are that it names (KIP-951)."""
        if self.leader_ids and self.exchange.version >= HINTS_SINCE:
            self.response.node_endpoints = self.broker.endpoints(self.leader_ids, self.exchange.listener_name)
        return self.response

    def add(self, wait: "_Wait") -> None:
        self.left += 1
        self.waits.append(wait)

    def park(self, timeout_ms: int) -> None:
        if self.deadline is not None:
            if timeout_ms <= CHECKS_MS_MAX:
                return
            # It was for the checks; commits may take as long as the client has asked for.
            timeout_ms -= self.broker.now_ms() - self.since_ms
            self._end_deadline()
        self._await(timeout_ms if self.acks else min(timeout_ms, CHECKS_MS_MAX))

    def await_check(self, queued: "_Queued") -> None:
        """Take nothing more of the request, and serve nothing behind it, until that batch was checked in a thread."""
        self.checking = queued
        self.exchange.hold()
        if self.deadline is None:
            self.since_ms = self.broker.now_ms()
            self._await(min(self.timeout_ms, CHECKS_MS_MAX))

    def on_checked(self, queued: "_Queued") -> None:
        """Go on where `await_check` has stopped."""
        if self.checking is queued:
            self.checking = None
            if self.rest is None:
                self.exchange.release()
            else:
                self._go_on_soon()

    def await_coordinator(self, unverified: "_Unverified") -> None:
        """Serve nothing behind the request until the coordinator has answered; its other partitions go on."""
        if not self.unverified:
            self.unverified = {}
            self.exchange.hold()
        self.unverified[unverified] = None

    def on_verified(self, unverified: "_Unverified") -> None:
        """Go on where `await_coordinator` has stopped."""
        assert self.unverified is not None
        del self.unverified[unverified]
        if not self.unverified:
            self.unverified = None
            self.exchange.release()

    def close_one(self) -> None:
        self.left -= 1
        # Before all were taken: everything was answered while the request was still being read.
        if self.left == 0 and self.is_taken:
            self._end_deadline()
            call_each((self,), _Produce._answer, _Produce._give_up)
            self.waits.clear()  # They know this request; it should go with its last reference, not with a collection.

    def leave_lane(self) -> None:
        """One of its batches has left its lane; if it was the last, nobody needs the bytes of the request any more."""
        self.in_lanes -= 1
        if not self.in_lanes and self.leftover is not None:
            self.leftover.end()
            self.leftover = None
            if self.rest is None:
                self.exchange.forget_frame()

    def _await(self, timeout_ms: int) -> None:
        self.exchange.abandon = self._abandon
        self.deadline = self.broker.timers.add(timeout_ms, self._on_timeout)

    def _end_deadline(self) -> None:
        if self.deadline is not None:
            self.broker.timers.cancel(self.deadline)
            self.deadline = None

    def _go_on_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.broker.meter.run, "produce", self._go_on)

    def _go_on(self) -> None:
        """Take the rest of the request; the connection is held until its turns have begun, which hold it then."""
        rest, self.rest = self.rest, None
        if rest is None:
            return
        exchange = self.exchange
        work = Work(exchange, _finishing(self, rest), self._give_up, is_produce=True, name="Produce")
        try:
            call_each((work,), exchange.turns.begin, lambda _, error: self._give_up(error))
        finally:
            exchange.release()

    def answer(self, response: ProduceResponse) -> None:
        """Give the answer; what lanes need of the request yet counts as before."""
        respond(self.exchange, response)
        self._keep_counted()

    def _answer(self) -> None:
        if self.acks == 0:
            self._end_silently()
            self._keep_counted()
        else:
            self.answer(self._completed())

    def _end_silently(self, *, keeps_frame: bool = False) -> None:
        if self.failure:
            self.exchange.connection.close(f"produce with acks=0 failed: {self.failure}")
        self.exchange.answer((), keeps_frame=keeps_frame)

    def _keep_counted(self) -> None:
        """Count the bytes of the request in the account of the node as long as a lane needs them.

        The connection is not served meanwhile, or one whose requests are soon over could fill the lanes.
        """
        if self.in_lanes and self.leftover is None:
            self.leftover = Leftover(self.exchange)

    def _give_up(self, error: Exception) -> None:
        """Nobody can tell the fate of the batches; the client learns that there will be no answer."""
        self.exchange.give_up(f"a produce cannot be answered: {error}")

    def _on_timeout(self) -> None:
        self.deadline = None
        self.is_over = True
        call_each(list(self.waits), lambda wait: wait.on_timeout(), lambda _, error: self._give_up(error))
        if self.checking is not None and self.rest is not None:
            # The others are refused. They might be repeated before this one was checked.
            self.checking = None
            self._go_on_soon()

    def _abandon(self) -> None:
        """The client is gone. Its batches stay; only the answer is nobody's.

        Those in lanes are not appended any more, unless the client had asked for no answer; those about which the
        coordinator was asked are not in any case.
        """
        self._keep_counted()
        for unverified in list(self.unverified or ()):
            unverified.give_up()
        if self.acks == 0:
            return
        self._end_deadline()
        for wait in self.waits:
            if not wait.is_closed:
                wait.is_closed = True
                wait.forget()
        self.waits.clear()
        rest, self.rest = self.rest, None
        if rest is not None:
            exchange = self.exchange
            exchange.turns.begin(Work(exchange, _abandoned(exchange, rest), self._give_up, is_produce=True))


class _Wait:
    """One partition of a request, waiting for its index to commit (PendingAppend)."""

    __slots__ = ("is_closed", "partition", "produce", "result")

    def __init__(self, produce: _Produce, partition: Partition, result: PartitionProduceResponse) -> None:
        self.produce = produce
        self.partition = partition
        self.result = result
        self.is_closed = False

    def on_committed(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.produce.close_one()

    def on_timeout(self) -> None:
        if not self.is_closed:
            _note_too_few(self.produce.broker, self.partition)
            enough = self.partition.has_enough_replicas
            self.on_failed(ErrorCode.REQUEST_TIMED_OUT if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            self.forget()

    def forget(self) -> None:
        """Wait no more; it is closed."""
        self.partition.forget(self)

    def on_failed(self, code: ErrorCode) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.result.error_code = code
        self.result.base_offset = -1
        self.result.log_start_offset = -1
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.produce.hint(self.result, self.produce.broker.partition_leader(self.partition))
        self.produce.close_one()


class _Queued(_Wait):
    """One partition of a request whose batch stands in the partition's lane (`lanes.Queued`).

    It is appended in the term in which it came, or not at all. If its time is over it keeps its place: what comes
    behind it may be the next one of its producer. `is_tried`: it was tried on the loop, and takes longer.
    """

    __slots__ = ("frame", "guard", "header", "hosted", "is_tried", "rules", "term")

    def __init__(
        self,
        produce: _Produce,
        partition: Partition,
        result: PartitionProduceResponse,
        checked: Checked,
        guard: Verification | None = None,
        *,
        is_tried: bool = False,
    ) -> None:
        super().__init__(produce, partition, result)
        self.header = checked.header
        self.frame: memoryview | None = checked.frame
        self.hosted = produce.broker.partitions.topics_by_id.get(partition.topic_id)
        self.guard = guard
        self.rules = partition.rules
        self.term = partition.term
        self.is_tried = is_tried

    def begin(self) -> None:
        """Stand at the end of the lane; the request goes no further if a thread may be needed."""
        produce = self.produce
        produce.add(self)
        produce.in_lanes += 1
        if self.is_tried or not is_surely_short(self.header, self._batch, self.rules):
            produce.await_check(self)
        produce.broker.lanes.add(self.partition, self)

    def take_turn(self) -> Callable[[bool], Checked] | None:
        if self.is_given_up:
            self._leave()
            return None
        batch = self.header, self._batch, self.rules, self.produce.broker.partitions.wall_ms()
        try:
            self._check_led()
            checked = None if self.is_tried else check_at_once(*batch)
            if checked is None:
                return partial(check_in_thread, *batch)
            self._append(checked)
        except RefusedBatchError as refused:
            self._refuse(refused)
        return None

    def conclude(self, checked: Checked | None, error: BaseException | None) -> None:
        if self.is_given_up:
            self._leave()
        elif isinstance(error, RefusedBatchError):
            self._refuse(error)
        elif error is not None:
            raise error
        else:
            try:
                self._check_led()
                if checked is None:
                    raise RefusedBatchError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker is about to stop")
                self._append(checked)
            except RefusedBatchError as refused:
                self._refuse(refused)

    def fail(self, error: Exception) -> None:
        self._refuse(RefusedBatchError(code_of(error), f"{type(error).__name__}: {error}"))

    def on_timeout(self) -> None:
        if not self.is_closed:
            self.on_failed(ErrorCode.REQUEST_TIMED_OUT)

    def forget(self) -> None:
        """It stays in its lane, and leaves that when its turn comes."""

    @property
    def is_given_up(self) -> bool:
        produce = self.produce
        return produce.exchange.is_gone and (produce.acks != 0 or produce.is_over)

    @property
    def _batch(self) -> memoryview:
        assert self.frame is not None, "it has left its lane"
        return self.frame

    def _check_led(self) -> None:
        _check_led(self.produce.broker, self.partition, self.term, self.header.producer_id)

    def _append(self, checked: Checked) -> None:
        if not self.is_closed:
            _store(self.produce, self.partition, checked, self.result, self.term, self.guard)
        else:
            with suppress(OutOfOrderSequenceError):
                _place(self.produce, self.partition, checked, self.term, self.guard)
        self._leave()

    def _refuse(self, refused: RefusedBatchError) -> None:
        if not self.is_closed:
            self.produce.refuse(self.hosted, self.result, refused, self.partition.topic_name)
        self._leave()

    def _leave(self) -> None:
        """It is out of the lane, and its request may go on; what else its answer waits for is noted."""
        if self.frame is None:
            return
        self.frame = None
        self.produce.leave_lane()
        self.produce.on_checked(self)
        if not self.is_closed:
            self.is_closed = True
            self.produce.close_one()


class _Unverified(_Wait):
    """One partition of a request whose batch would begin a transaction, until the coordinator has spoken."""

    __slots__ = ("asked", "checked", "guard", "hosted")

    def __init__(
        self,
        produce: _Produce,
        partition: Partition,
        result: PartitionProduceResponse,
        checked: Checked,
        guard: Verification,
    ) -> None:
        super().__init__(produce, partition, result)
        self.checked: Checked | None = checked  # as far as its header is
        self.guard = guard
        self.hosted = produce.hosted
        self.asked: Asked | None = None

    def begin(self, who: Who) -> None:
        produce = self.produce
        produce.add(self)
        produce.await_coordinator(self)
        place = self.partition.topic_name, self.partition.index
        self.asked = produce.broker.questions.ask(who, place, self.on_answer, self.fail)

    def on_answer(self, code: ErrorCode) -> None:
        checked = self.checked
        if checked is None:
            return
        produce, partition = self.produce, self.partition
        if produce.exchange.is_gone:
            self.give_up()
            return
        producer_id = checked.header.producer_id
        try:
            if code is not ErrorCode.NONE:
                _refuse_unverified(produce, partition, producer_id, self.guard, code)
            _check_led(produce.broker, partition, self.guard.term, producer_id)
            _enter(produce, partition, checked, self.result, self.guard.term, self.guard)
        except RefusedBatchError as refused:
            produce.refuse(self.hosted, self.result, refused, partition.topic_name)
        self._leave()

    def fail(self, error: Exception) -> None:
        """Something went wrong with it; the traceback has been logged."""
        if self.checked is not None:
            refused = RefusedBatchError(code_of(error), f"{type(error).__name__}: {error}")
            self.produce.refuse(self.hosted, self.result, refused, self.partition.topic_name)
            self._leave()

    def on_timeout(self) -> None:
        checked = self.checked
        if checked is None:
            return
        try:
            _turn_away(self.partition, checked.header, "the transaction coordinator has not answered in time")
        except RefusedBatchError as refused:
            self.produce.refuse(self.hosted, self.result, refused, self.partition.topic_name)
        self._leave()

    def forget(self) -> None:
        """It was given up before."""

    def give_up(self) -> None:
        """The client is gone, and nobody is to hear of it."""
        if self.checked is not None:
            self._leave()

    def _leave(self) -> None:
        self.checked = None
        self.is_closed = True
        if self.asked is not None:
            self.asked.withdraw()
        self.produce.on_verified(self)
        self.produce.close_one()


class _Gap(_Wait):
    """One partition of a request whose batch is out of order, if this node still leads."""

    __slots__ = ()

    def begin(self, text: str) -> None:
        self.produce.add(self)
        self.produce.broker.spawn(self.judge(text))

    async def judge(self, text: str) -> None:
        """Ask a majority, then answer. Nothing else is done, so it does not matter if the client has gone."""
        code = self.partition.not_leading_code
        with suppress(TimeoutError, NotLeaderError):
            async with asyncio.timeout(CONFIRM_S):
                await self.partition.group.confirm()
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self.result.error_message = text
        self.on_failed(code)


class _Vacancy(_Wait):
    """One partition of a request that is refused, as soon as it can be said who leads."""

    __slots__ = ()

    def begin(self, hosted: HostedTopic) -> None:
        self.produce.add(self)
        self.produce.broker.spawn(self.refuse(hosted))

    async def refuse(self, hosted: HostedTopic) -> None:
        """Wait for an election or a hand-over, then answer; a client that has gone meanwhile changes nothing."""
        partition = self.partition
        known_leaders = self.produce.broker.known_leaders

        def is_undecided() -> bool:
            return partition.is_handing_over or known_leaders.expects_leader_of(hosted.topic, partition.index)

        await known_leaders.wait_while(is_undecided, ELECTION_S)
        self.on_failed(self.partition.not_leading_code)


def handle(broker: BrokerContext, exchange: Exchange, request: ProduceRequest) -> Outcome:
    """Append, and answer now if nothing has to be waited for."""
    produce = _Produce(broker, exchange, request.acks, request.timeout_ms, request.transactional_id)
    if len(request.topic_data) != 1:
        return _going_on(produce, _in_steps(produce, request))
    topic = request.topic_data[0]
    results = produce.begin_topic(topic)
    if len(topic.partition_data) == 1:
        results.append(produce.take(topic, topic.partition_data[0]))
        return produce.conclude(request.timeout_ms)
    clock = asyncio.get_running_loop().time
    until_s = clock() + SLICE_S
    for number, data in enumerate(topic.partition_data):
        if number == PIECE or produce.checking is not None or clock() >= until_s:
            return _going_on(produce, _in_steps(produce, request, results))
        results.append(produce.take(topic, data))
    return produce.conclude(request.timeout_ms)


def _going_on(produce: _Produce, steps: Steps) -> Steps:
    """Take steps until a batch must be checked in a thread; the others are taken when it was (`_Produce._go_on`)."""
    while produce.checking is None:
        try:
            next(steps)
        except StopIteration as end:
            response: ProduceResponse | None = end.value
            return response
        yield
    produce.rest = steps
    return None


def _finishing(produce: _Produce, rest: Steps) -> Generator[None, None, None]:
    response = yield from _going_on(produce, rest)
    if response is not None:
        produce.answer(response)


def _abandoned(exchange: Exchange, rest: Steps) -> Generator[None, None, None]:
    """Free what a request holds whose client has gone before all of it was taken."""
    yield from abandoned(rest)
    exchange.forget_frame()


def _in_steps(
    produce: _Produce, request: ProduceRequest, results: list[PartitionProduceResponse] | None = None
) -> Steps:
    """Take every partition in a step of its own; `results`: those of the first topic that were taken before."""
    for topic in request.topic_data:
        results = produce.begin_topic(topic) if results is None else results
        for data in islice(topic.partition_data, len(results), None):
            results.append(produce.take(topic, data))
            yield
        if not results:
            yield
        results = None
    response = produce.conclude(request.timeout_ms, keeps_frame=True)
    if response is None:
        yield from let_go(request)
        produce.exchange.forget_frame()  # Nobody has a view of it but logs, perhaps.
    return response


def refuse(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    """Answer every partition with `code`; acks 0 gets no answer."""
    if request.acks == 0:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _partition(hosted: HostedTopic | None, index: int, *, by_id: bool) -> Partition:
    if hosted is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise RefusedBatchError(code, "this broker knows no such topic")
    if hosted.topic.name in INTERNAL_TOPICS:
        raise RefusedBatchError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, "only the cluster itself writes to an internal topic"
        )
    partition = hosted.partitions.get(index)
    if partition is None:
        if not 0 <= index < len(hosted.topic.partitions):
            raise RefusedBatchError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic has no such partition")
        raise RefusedBatchError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has no replica of it")
    return partition


def _is_undecided(broker: BrokerContext, hosted: HostedTopic, index: int, refused: RefusedBatchError) -> bool:
    """Tell whether the leader of a partition that did not take a batch will soon be known."""
    partition = hosted.partitions.get(index)
    if partition is None or refused.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return False
    if partition.is_leader:
        return partition.is_handing_over
    return broker.known_leaders.expects_leader_of(hosted.topic, index)


def _note_too_few(broker: BrokerContext, partition: Partition) -> None:
    """Tell an operator if acks=all is refused here for want of replicas: once, until there are enough again."""
    if not partition.has_enough_replicas and not partition.is_refusing:
        partition.is_refusing = True
        about = f"in sync are {list(partition.isr)}, min.insync.replicas is {partition.min_insync}"
        broker.events.add("acks=all refused", f"{partition.topic_name}-{partition.index}", about)


def _append(
    produce: _Produce, partition: Partition, data: PartitionProduceData, result: PartitionProduceResponse
) -> None:
    if not partition.is_leader:
        failed = partition.group.failed
        raise RefusedBatchError(partition.not_leading_code, str(failed) if failed else "this broker does not lead it")
    frame = data.records
    if not isinstance(frame, memoryview) or not frame:
        raise RefusedBatchError(
            ErrorCode.INVALID_RECORD, "a produce request carries exactly one batch for each partition"
        )
    _check_time(produce, partition, frame)
    wall_ms = produce.broker.partitions.wall_ms()
    header = check_header(frame, partition.rules, produce.exchange.version, wall_ms)
    if header.attributes & TRANSACTIONAL:
        who = _who(produce, header)
        bumps_epoch = not who.verify_only
        guard = partition.verification(*header[-4:-1], bumps_epoch=bumps_epoch)
        if guard is not None:
            _Unverified(produce, partition, result, Checked(header, frame), guard).begin(who)
            return
    _enter(produce, partition, Checked(header, frame), result, partition.term)


def _enter(
    produce: _Produce,
    partition: Partition,
    found: Checked,
    result: PartitionProduceResponse,
    term: int,
    guard: Verification | None = None,
) -> None:
    """Store a batch whose header was found right, or let it have its turn in the partition's lane."""
    is_next = partition not in produce.broker.lanes
    wall_ms = produce.broker.partitions.wall_ms()
    checked = check_at_once(*found, partition.rules, wall_ms) if is_next else None
    if checked is not None:
        _store(produce, partition, checked, result, term, guard)
        return
    if produce.broker.lanes.are_full:
        _turn_away(partition, found.header, "too many batches wait to be checked here")
    _Queued(produce, partition, result, found, guard, is_tried=is_next).begin()


@lru_cache(maxsize=64)
def _hash_of(name: str) -> int:
    """Return the hash of a transactional id. 64 are kept, of 32 KiB at most: a request may name many partitions."""
    return java_hash(name)


def _who(produce: _Produce, header: BatchHeader) -> Who:
    """Return who writes a transactional batch; refuse it if that may not be."""
    name = produce.transactional_id
    if name is None:
        about = "a transactional batch in a request without a transactional id"
        raise RefusedBatchError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, about)
    if not has_transactions(produce.broker.image):
        raise RefusedBatchError(ErrorCode.INVALID_RECORD, f"a transactional batch; {NO_TRANSACTIONS}")
    verify_only = produce.exchange.version < ADDS_SINCE
    return Who(name, _hash_of(name), header.producer_id, header.producer_epoch, verify_only)


def _refuse_unverified(
    produce: _Produce, partition: Partition, producer_id: int, guard: Verification, code: ErrorCode
) -> NoReturn:
    """Say what it means to a client that the coordinator has refused its partition, as Kafka does."""
    version = produce.exchange.version
    about = f"the transaction coordinator says {code.name}"
    if code in _PASSING or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_SINCE):
        said = ErrorCode.NOT_ENOUGH_REPLICAS
    else:
        said = code_for(API_KEY, version, code)
    if said in _COMES_AGAIN:
        partition.turn_away(producer_id, NotEnoughReplicasError(about))
    else:
        partition.forget_verification(producer_id, guard)
    raise RefusedBatchError(said, about)


# What the coordinator says and older clients of Produce do not expect. NOT_ENOUGH_REPLICAS has them come again, and is
# the one such code that does not make them look for another leader.
_PASSING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
}
_COMES_AGAIN = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


def _check_led(broker: BrokerContext, partition: Partition, term: int, producer_id: int) -> None:
    """Refuse a batch if the partition is not led here any more, or in another term than that in which it came."""
    if broker.partitions.find(partition.topic_id, partition.index) is not partition:
        if partition.topic_id not in broker.partitions.topics_by_id:
            raise RefusedBatchError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        raise RefusedBatchError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has no replica of it any more")
    if not partition.is_leader or partition.term != term:
        partition.turn_away(producer_id, NotLeaderError(partition.leader_id))
        raise RefusedBatchError(partition.not_leading_code, "this broker does not lead it any more as it did")


def _check_time(produce: _Produce, partition: Partition, frame: memoryview) -> None:
    """Refuse a batch if the time of its request was over before its turn came."""
    if produce.is_over:
        try:
            header = parse_header(frame)
        except CorruptBatchError as error:
            raise RefusedBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        _turn_away(partition, header, "other batches of the request took too long to be checked")


def _turn_away(partition: Partition, header: BatchHeader, text: str) -> NoReturn:
    """Refuse a batch that should come again, with those behind it."""
    partition.turn_away(header.producer_id, StorageBusyError(text))
    raise RefusedBatchError(ErrorCode.REQUEST_TIMED_OUT, text)


def _place(
    produce: _Produce, partition: Partition, checked: Checked, term: int, guard: Verification | None
) -> tuple[int, int]:
    """Give a batch that was found right its place in the log; return its offset, and the index to wait for.

    Raises:
        RefusedBatchError: it has none.
        OutOfOrderSequenceError: it should have none if this node still leads.
    """
    needs_replicas = produce.acks == -1
    header, frame = checked
    try:
        return partition.append(header, _own(frame), needs_replicas=needs_replicas, came_in_term=term, guard=guard)
    except NotEnoughReplicasError as error:
        _note_too_few(produce.broker, partition)
        raise RefusedBatchError(ErrorCode.NOT_ENOUGH_REPLICAS, str(error)) from error
    except NotLeaderError as error:
        raise RefusedBatchError(partition.not_leading_code, str(error)) from error
    except InvalidProducerEpochError as error:
        raise RefusedBatchError(ErrorCode.INVALID_PRODUCER_EPOCH, str(error)) from error
    except InvalidTransactionStateError as error:
        raise RefusedBatchError(ErrorCode.INVALID_TXN_STATE, str(error)) from error
    except StorageBusyError as error:
        # The disk is behind. The one retriable code after which clients wait without looking for another leader.
        raise RefusedBatchError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
    except StorageFailedError as error:
        raise RefusedBatchError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error


def _store(
    produce: _Produce,
    partition: Partition,
    checked: Checked,
    result: PartitionProduceResponse,
    term: int,
    guard: Verification | None = None,
) -> None:
    """Give a batch that was found right its place in the log, and see to its answer."""
    end_offset = partition.log.log_end_offset
    try:
        base_offset, index = _place(produce, partition, checked, term, guard)
    except OutOfOrderSequenceError as error:
        if produce.acks == 0:
            raise RefusedBatchError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(error)) from error
        _Gap(produce, partition, result).begin(str(error))
        return
    result.base_offset = base_offset
    result.log_start_offset = partition.log.log_start_offset
    if checked.header.attributes & TIMESTAMP_LOG_APPEND:
        # A repetition arrived when its original did.
        is_new = base_offset == end_offset
        result.log_append_time_ms = checked.header.max_timestamp if is_new else _stamped_at(partition, base_offset)
    if produce.acks == -1:
        wait = _Wait(produce, partition, result)
        if partition.wait_for(index, wait):
            produce.add(wait)


def _stamped_at(partition: Partition, base_offset: int) -> int:
    """Return when the batch at an offset arrived; -1 if that is not known, or not without asking the disk."""
    frames = partition.log.read(base_offset, partition.log.log_end_offset, 1)
    if not frames:
        return NO_TIMESTAMP
    header = parse_header(frames[0])
    return header.max_timestamp if header.attributes & TIMESTAMP_LOG_APPEND else NO_TIMESTAMP


def _own(frame: memoryview) -> memoryview:
    """Return a batch that may be kept: the same, or a copy if it is the lesser part of the request it came in.

    A batch in the memory of a log keeps the whole request there, and the log counts the batch only.
    """
    request = cast("bytearray", frame.obj)
    return frame if 2 * len(frame) >= len(request) else memoryview(bytearray(frame))
