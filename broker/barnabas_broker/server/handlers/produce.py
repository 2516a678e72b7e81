"""Produce: append one batch to each named partition, and answer when `acks` is satisfied.

Everything is checked before anything is appended, partition by partition (`partition/record_rules.py`): exactly one
batch, format 2, intact, of an allowed size and compression, neither control nor transactional, and with records that
can be read and are such as the topic takes. Then, in the order of the requests, the batch gets its place in the log.
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
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import cast

from barnabas_broker.leadership.known_leaders import ELECTION_S
from barnabas_broker.partition.partition import NotEnoughReplicasError, Partition
from barnabas_broker.partition.producer_state import InvalidProducerEpochError, OutOfOrderSequenceError
from barnabas_broker.partition.record_rules import NO_TIMESTAMP, Checked, RefusedBatchError, check_header, check_records
from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, Leader, respond
from barnabas_broker.timing.deadlines import Deadline
from barnabas_broker.timing.pieces import let_go
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
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.errors import NotLeaderError, StorageFailedError
from barnabas_raftlog.log.errors import StorageBusyError
from barnabas_raftlog.records.header import TIMESTAMP_LOG_APPEND, parse_header

__all__ = ["handle", "refuse"]

CONFIRM_S = 2.0  # A leader that no majority answers steps down within an election timeout.
IDS_SINCE = 13
HINTS_SINCE = 10
PIECE = 8  # partitions that are appended to without giving others their turn

Outcome = ProduceResponse | Generator[None, None, ProduceResponse | None] | None


class _Produce:
    """One request whose answer waits for commits.

    `left` counts the partitions that are still open; `leader_ids` are the leaders that the answer names.
    """

    __slots__ = (
        "acks",
        "broker",
        "deadline",
        "exchange",
        "failure",
        "hosted",
        "leader_ids",
        "left",
        "response",
        "waits",
    )

    def __init__(self, broker: BrokerContext, exchange: Exchange, acks: int) -> None:
        self.broker = broker
        self.exchange = exchange
        self.acks = acks
        self.response = ProduceResponse()
        self.hosted: HostedTopic | None = None
        self.left = 0
        self.leader_ids = set[int]()
        self.failure = ""
        self.waits: list[_Wait] = []
        self.deadline: Deadline[Callable[[], None]] | None = None

    def begin_topic(self, topic: TopicProduceData) -> list[PartitionProduceResponse]:
        """Turn to the next topic of the request; return where the results of its partitions go."""
        self.hosted = self.broker.topic(topic.name, topic.topic_id, by_id=self.exchange.version >= IDS_SINCE)
        # The one that the version does not carry has its default.
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        self.response.responses.append(answer)
        return answer.partition_responses

    def take(self, topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        """Append one partition's batch, or note why not."""
        broker = self.broker
        hosted = self.hosted
        acks = self.acks
        result = PartitionProduceResponse(index=data.index)
        try:
            if not -1 <= acks <= 1:
                raise RefusedBatchError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {acks}; it must be -1, 0 or 1")
            partition = _partition(hosted, data.index, by_id=self.exchange.version >= IDS_SINCE)
            _append(self, partition, data, result, acks)
        except RefusedBatchError as refused:
            if acks and hosted is not None and _is_undecided(broker, hosted, data.index, refused):
                _Vacancy(self, hosted.partitions[data.index], result).begin(hosted)
            else:
                self._refuse(result, refused)
                self.failure = self.failure or f"{topic.name or topic.topic_id.hex()}-{data.index}: {refused.text}"
        return result

    def conclude(self, timeout_ms: int, *, keeps_frame: bool = False) -> ProduceResponse | None:
        """Return the response if it is ready, else see to it that it is given."""
        if self.acks == 0:
            if self.failure:
                self.exchange.connection.close(f"produce with acks=0 failed: {self.failure}")
            self.exchange.answer((), keeps_frame=keeps_frame)
            return None
        if self.left:
            self.park(timeout_ms)
            return None
        return self._completed()

    def hint(self, result: PartitionProduceResponse, leader: Leader) -> None:
        """Say who leads, if anybody is known: librdkafka takes "nobody in this term" for news, and forgets the rest."""
        if leader.leader_id >= 0:
            result.current_leader = LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.epoch)
            self.leader_ids.add(leader.leader_id)

    def _refuse(self, result: PartitionProduceResponse, refused: RefusedBatchError) -> None:
        result.error_code = refused.code
        result.base_offset = -1
        result.error_message = refused.text
        result.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=text)
            for number, text in refused.record_errors
        ]
        if refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and self.hosted is not None:
            self.hint(result, self.broker.leader_of(self.hosted, result.index))

    def _completed(self) -> ProduceResponse:
        """Return the response, with where those leaders are that it names (KIP-951)."""
        if self.leader_ids and self.exchange.version >= HINTS_SINCE:
            self.response.node_endpoints = self.broker.endpoints(self.leader_ids, self.exchange.listener_name)
        return self.response

    def add(self, wait: "_Wait") -> None:
        self.left += 1
        self.waits.append(wait)

    def park(self, timeout_ms: int) -> None:
        self.exchange.abandon = self._abandon
        self.deadline = self.broker.timers.add(timeout_ms, self._on_timeout)

    def close_one(self) -> None:
        self.left -= 1
        # Zero before `park`: everything was answered while the request was still being read.
        if self.left == 0 and self.deadline is not None:
            self.broker.timers.cancel(self.deadline)
            call_each((self,), _Produce._answer, _Produce._give_up)
            self.waits.clear()  # They know this request; it should go with its last reference, not with a collection.

    def _answer(self) -> None:
        respond(self.exchange, self._completed())

    def _give_up(self, error: Exception) -> None:
        """Nobody can tell the fate of the batches; the client learns that there will be no answer."""
        self.exchange.give_up(f"a produce cannot be answered: {error}")

    def _on_timeout(self) -> None:
        call_each(list(self.waits), _Wait.on_timeout, lambda _, error: self._give_up(error))

    def _abandon(self) -> None:
        """The client is gone. Its batches stay; only the answer is nobody's."""
        if self.deadline is not None:
            self.broker.timers.cancel(self.deadline)
        for wait in self.waits:
            if not wait.is_closed:
                wait.is_closed = True
                wait.partition.forget(wait)
        self.waits.clear()


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
    produce = _Produce(broker, exchange, request.acks)
    if len(request.topic_data) == 1 and len(request.topic_data[0].partition_data) <= PIECE:
        topic = request.topic_data[0]
        results = produce.begin_topic(topic)
        for data in topic.partition_data:
            results.append(produce.take(topic, data))
        return produce.conclude(request.timeout_ms)
    return _in_steps(produce, request)


def _in_steps(produce: "_Produce", request: ProduceRequest) -> Generator[None, None, ProduceResponse | None]:
    for topic in request.topic_data:
        results = produce.begin_topic(topic)
        for data in topic.partition_data:
            results.append(produce.take(topic, data))
            yield
        if not results:
            yield
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
    produce: _Produce, partition: Partition, data: PartitionProduceData, result: PartitionProduceResponse, acks: int
) -> None:
    if not partition.is_leader:
        failed = partition.group.failed
        raise RefusedBatchError(partition.not_leading_code, str(failed) if failed else "this broker does not lead it")
    frame = data.records
    if not isinstance(frame, memoryview) or not frame:
        raise RefusedBatchError(
            ErrorCode.INVALID_RECORD, "a produce request carries exactly one batch for each partition"
        )
    rules = partition.rules
    wall_ms = produce.broker.partitions.wall_ms()
    header = check_header(frame, rules, produce.exchange.version, wall_ms)
    _store(produce, partition, check_records(header, frame, rules, wall_ms), result, acks)


def _store(
    produce: _Produce, partition: Partition, checked: Checked, result: PartitionProduceResponse, acks: int
) -> None:
    """Give a batch that was found right its place in the log, and see to its answer."""
    end_offset = partition.log.log_end_offset
    try:
        base_offset, index = partition.append(checked.header, _own(checked.frame), needs_replicas=acks == -1)
    except NotEnoughReplicasError as error:
        _note_too_few(produce.broker, partition)
        raise RefusedBatchError(ErrorCode.NOT_ENOUGH_REPLICAS, str(error)) from error
    except NotLeaderError as error:
        raise RefusedBatchError(partition.not_leading_code, str(error)) from error
    except OutOfOrderSequenceError as error:
        if acks == 0:
            raise RefusedBatchError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(error)) from error
        _Gap(produce, partition, result).begin(str(error))
        return
    except InvalidProducerEpochError as error:
        raise RefusedBatchError(ErrorCode.INVALID_PRODUCER_EPOCH, str(error)) from error
    except StorageBusyError as error:
        # The disk is behind. The one retriable code after which clients wait without looking for another leader.
        raise RefusedBatchError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
    except StorageFailedError as error:
        raise RefusedBatchError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    result.base_offset = base_offset
    result.log_start_offset = partition.log.log_start_offset
    if checked.header.attributes & TIMESTAMP_LOG_APPEND:
        # A repetition arrived when its original did.
        is_new = base_offset == end_offset
        result.log_append_time_ms = checked.header.max_timestamp if is_new else _stamped_at(partition, base_offset)
    if acks == -1:
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
