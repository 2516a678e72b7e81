"""Fake brokers that take produce requests as Kafka's do, under a test's control.

`Leaders` share one log per partition, with the checks of idempotence of a naive leader. A test decides what happens to
a request: `fate` decides about each batch, `ending` about the answer. In any case two things are checked here: a number
that stands for records in the log is never given to other records, and `broken` has the differences that `check` finds
between a producer's promises and the logs.
"""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import NamedTuple

from clients.fake_broker import Answer, FakeBroker, FakeCluster, Hangup

from barnabas_clients.errors import ClientError
from barnabas_clients.producer.delivery import Receipt
from barnabas_clients.producer.sequences import SEQUENCE_MODULUS, Outcome
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_clients.protocol.leader_hints import LeaderIdAndEpoch, NodeEndpoint
from barnabas_clients.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas_raftlog.records.header import parse_header
from barnabas_raftlog.records.reader import Record, read_records
from barnabas_raftlog.wire.schema import Records

from .naive_leader import Copy, NaiveLeader

__all__ = ["HONEST", "Ending", "Fate", "Leaders", "PartitionLog", "Sent", "check"]

CODES = {
    Outcome.APPENDED: ErrorCode.NONE,
    Outcome.GAP: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Outcome.FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}


class Fate(NamedTuple):
    """The fate of a batch: it is taken or not, and the answer is the leader's own (None) or this code."""

    code: int | None = None
    is_taken: bool = True


HONEST = Fate()


class Ending(Enum):
    """The fate of a request and its answer."""

    ANSWERED = auto()
    HALF_ANSWERED = auto()
    """The connection ends in the middle of the answer."""
    UNANSWERED = auto()
    """The connection ends when the batches are in the log."""
    EMPTY = auto()
    """An answer comes, when the batches are in the log, and does not mention them."""
    UNREAD = auto()
    """The connection ends before anything was looked at."""


class PartitionLog:
    """One partition; `records` is what is in it, by offset."""

    def __init__(self, *, takes_any_first: bool = False) -> None:
        self.table = NaiveLeader(takes_any_first=takes_any_first)
        self.records: list[Record] = []
        self._places: dict[tuple[int, int, int, int], int] = {}
        # (producer id, epoch, sequence) of each record in the log, and its value
        self._numbers: dict[tuple[int, int, int], bytes | None] = {}

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records]

    def take(self, frame: bytes) -> tuple[ErrorCode, int]:
        """Append a batch, or refuse it; return the code and the offset of its first record."""
        header = parse_header(frame)
        records = list(read_records(frame))
        before = len(self.table.log)
        copy = Copy(
            item=before,
            size=len(records),
            producer_id=header.producer_id,
            epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
        outcome = self.table.take(copy)
        numbered = {
            (copy.producer_id, copy.epoch, (copy.base_sequence + place) % SEQUENCE_MODULUS): record.value
            for place, record in enumerate(records)
            if copy.producer_id >= 0
        }
        if len(self.table.log) > before:
            self._places[copy[1:]] = len(self.records)
            self._numbers |= numbered
            self.records += records
        for number, value in numbered.items():
            held = self._numbers.get(number, value)
            assert held == value, f"{number} stands for {held!r}, and comes with {value!r}"
        return CODES[outcome], self._places.get(copy[1:], -1)


class Leaders(FakeCluster):
    """Brokers that share the logs of one topic, "t". The first leads every partition until `move` says otherwise."""

    def __init__(self, *brokers: FakeBroker, partitions: int = 1, takes_any_first: bool = False) -> None:
        super().__init__(*brokers)
        self.topics["t"] = [(brokers[0].node_id, 1)] * partitions
        self.logs = [PartitionLog(takes_any_first=takes_any_first) for _ in range(partitions)]
        self.producer_ids = 0
        self.fate: Callable[[int, list[Record]], Fate] = lambda _partition, _records: HONEST
        self.ending: Callable[[ProduceRequest], Ending] = lambda _request: Ending.ANSWERED
        self.gives_hints = False
        for broker in brokers:
            broker.answers[InitProducerIdRequest] = self.init_producer_id
            broker.answers[ProduceRequest] = lambda request, broker=broker: self.produce(broker, request)  # type: ignore[misc]

    def move(self, partition: int, node_id: int) -> None:
        """Let another broker lead a partition."""
        self.topics["t"][partition] = (node_id, self.topics["t"][partition][1] + 1)

    async def init_producer_id(self, _: InitProducerIdRequest) -> Answer:
        self.producer_ids += 1
        return InitProducerIdResponse(producer_id=self.producer_ids, producer_epoch=0)

    async def produce(self, broker: FakeBroker, request: ProduceRequest) -> Answer:
        ending = self.ending(request)
        if ending is Ending.UNREAD:
            return Hangup()
        response = ProduceResponse(responses=[self._topic(broker, topic) for topic in request.topic_data])
        if ending is Ending.EMPTY:
            return ProduceResponse()
        if self.gives_hints:
            response.node_endpoints = [
                NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port) for each in self.brokers
            ]
        if request.acks == 0:
            return b""
        parts = {Ending.HALF_ANSWERED: 0.5, Ending.UNANSWERED: 0.0}
        return Hangup(response, parts[ending]) if ending in parts else response

    def _topic(self, broker: FakeBroker, topic: TopicProduceData) -> TopicProduceResponse:
        rows = [self._partition(broker, part.index, _joined(part.records)) for part in topic.partition_data]
        return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)

    def _partition(self, broker: FakeBroker, index: int, frame: bytes) -> PartitionProduceResponse:
        leader_id, epoch = self.topics["t"][index]
        row = PartitionProduceResponse(index=index, base_offset=-1)
        if leader_id != broker.node_id:
            row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if self.gives_hints:
                row.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
            return row
        fate = self.fate(index, list(read_records(frame)))
        if fate.is_taken:
            row.error_code, row.base_offset = self.logs[index].take(frame)
        if fate.code is not None:
            row.error_code = fate.code
            row.base_offset = -1
        return row


def _joined(records: Records | None) -> bytes:
    """Return a request's batch; decoded, it is a view."""
    assert isinstance(records, bytes | bytearray | memoryview)
    return bytes(records)


class Sent(NamedTuple):
    """A record that was given to a producer, and what the producer has said of it."""

    partition: int
    value: bytes
    told: Receipt | ClientError | KafkaError


def check(logs: list[PartitionLog], sent: Iterable[Sent], *, is_idempotent: bool = True) -> list[str]:
    """Return what is wrong with what a producer has said; `sent` is in the order of sending.

    Delivered means: in the log, at the offset that was said. Failed without `may_be_done`: not in the log. Nothing is
    twice in a log, and every log has the order of sending.
    """
    wrong: list[str] = []
    order = dict[tuple[int, bytes], int]()
    for place, (partition, value, told) in enumerate(sent):
        order[partition, value] = place
        values = logs[partition].values
        if isinstance(told, Receipt):
            offset = values.index(value) if value in values else None
            is_right = offset is not None and (told.offset == -1 or values[told.offset : told.offset + 1] == [value])
            if not is_right or told.partition != partition:
                wrong.append(f"{partition} {value!r} was told {told}, and is at {offset}")
        elif value in values and not told.may_be_done:
            wrong.append(f"{partition} {value!r} was told {told!r}, not done, and is at {values.index(value)}")
    for partition, log in enumerate(logs):
        places = [order[partition, value or b""] for value in log.values]
        if is_idempotent and len(set(places)) != len(places):
            wrong.append(f"{partition}: something is there twice: {log.values}")
        if is_idempotent and places != sorted(places):
            wrong.append(f"{partition}: out of order: {log.values}")
    return wrong
