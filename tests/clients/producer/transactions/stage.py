"""Brokers that serve transactions to a producer, in virtual time: a naive coordinator, and leaders with their checks.

What a request does and how it is answered is the test's: `trouble` may refuse it, or hang up before or after it.
"""

from collections import deque
from typing import Any

from clients.fake_broker import Answer, FakeBroker, Hangup
from clients.producer.leaders import PartitionLog
from clients.producer.virtual import Stage

from barnabas_clients import Producer
from barnabas_clients.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas_clients.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas_clients.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from barnabas_clients.protocol.end_txn import EndTxnRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.produce import ProduceRequest
from barnabas_clients.protocol.txn_offset_commit import TxnOffsetCommitRequest
from barnabas_raftlog.records.header import TRANSACTIONAL, parse_header
from barnabas_raftlog.wire.schema import Message

from .naive_coordinator import NaiveCoordinator, answer_with

__all__ = ["LOST", "SERVED", "TransactionStage"]

ASKED = (
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
)
LOST = "lost"
"""The connection ends before the request is looked at."""
SERVED = "served"
"""The connection ends when the request has been carried out."""
Trouble = int | str | None
SECOND_SINCE = 5
"""The version of EndTxn and TxnOffsetCommit with which the second protocol begins."""
PRODUCE_SECOND_SINCE = 12


class TransactionLog(PartitionLog):
    """One partition, whose leader asks the coordinator about each batch. `transactional`: whether each was marked."""

    def __init__(self, coordinator: NaiveCoordinator, number: int) -> None:
        super().__init__()
        self.is_second = False
        self.transactional: list[bool] = []
        self._coordinator = coordinator
        self._number = number

    def take(self, frame: bytes) -> tuple[ErrorCode, int]:
        header = parse_header(frame)
        self.transactional.append(bool(header.attributes & TRANSACTIONAL))
        owner = header.producer_id, header.producer_epoch
        if code := self._coordinator.write(owner, ("t", self._number), set(), is_second=self.is_second):
            return ErrorCode(code), -1
        before = len(self.records)
        taken = super().take(frame)
        self._coordinator.written |= {record.value for record in self.records[before:]}
        return taken


class TransactionStage(Stage):
    """A stage whose first broker coordinates; the level of `transaction.version` is `level`."""

    def __init__(self, seed: int = 0, brokers: int = 1, *, partitions: int = 1, level: int = 2) -> None:
        super().__init__(seed, brokers, partitions=partitions)
        self.level = level
        self.coordinator = NaiveCoordinator()
        self.coordinator_node = 1
        self.asked: list[Message] = []
        self.trouble: dict[type[Message], deque[Trouble]] = {}
        self.logs = [TransactionLog(self.coordinator, number) for number in range(partitions)]
        self.leaders.logs[:] = self.logs
        for broker in self.brokers:
            broker.answers[ApiVersionsRequest] = lambda request, broker=broker: self._versions(broker, request)  # type: ignore[misc]
            broker.answers[FindCoordinatorRequest] = self._find
            for api in ASKED:
                broker.answers[api] = lambda request, broker=broker: self._serve(broker, request)  # type: ignore[misc]
            broker.answers[ProduceRequest] = lambda request, broker=broker: self._produce(broker, request)  # type: ignore[misc]

    @property
    def transactional(self) -> list[bool]:
        """Whether each batch was marked as one of a transaction."""
        return [is_marked for log in self.logs for is_marked in log.transactional]

    @property
    def committed(self) -> list[set[Any]]:
        """What was committed, transaction by transaction."""
        return [set(tags) for is_commit, tags in self.coordinator.ends if is_commit]

    @property
    def aborted(self) -> list[set[Any]]:
        return [set(tags) for is_commit, tags in self.coordinator.ends if not is_commit]

    def answer(self, api: type[Message], *codes: Trouble) -> None:
        """Let this become of the next requests of this API."""
        self.trouble.setdefault(api, deque()).extend(codes)

    def count(self, api: type[Message]) -> int:
        return sum(isinstance(request, api) for request in self.asked)

    def transactional_producer(self, **settings: Any) -> Producer:
        return self.producer(**({"transactional_id": "tx", "timeout_s": 20, "request_timeout_s": 5} | settings))

    async def _versions(self, broker: FakeBroker, request: ApiVersionsRequest) -> Answer:
        answer = await FakeBroker.api_versions(broker, request)
        assert isinstance(answer, ApiVersionsResponse)
        answer.finalized_features_epoch = self.level
        answer.finalized_features = [FinalizedFeatureKey(name="transaction.version", max_version_level=self.level)]
        return answer

    async def _find(self, request: FindCoordinatorRequest) -> Answer:
        code = self._next_trouble(request)
        if isinstance(code, str):
            return Hangup()
        assert request.key_type == (request.coordinator_keys[0] == "tx")
        broker = self.brokers[self.coordinator_node - 1]
        row = Coordinator(key=request.coordinator_keys[0], node_id=broker.node_id, host=broker.host, port=broker.port)
        row.error_code = code or 0
        return FindCoordinatorResponse(coordinators=[row])

    async def _serve(self, broker: FakeBroker, request: Message) -> Answer:
        version = broker.seen[-1][1]
        self.asked.append(request)
        code = self._next_trouble(request)
        if code == LOST:
            return Hangup()
        if broker.node_id != self.coordinator_node:
            code = ErrorCode.NOT_COORDINATOR
        if isinstance(code, int):
            return answer_with(request, code)
        answer = self.coordinator.serve(request, is_second=version >= SECOND_SINCE)
        return Hangup() if code == SERVED else answer

    async def _produce(self, broker: FakeBroker, request: ProduceRequest) -> Answer:
        assert request.transactional_id == "tx"
        for log in self.logs:
            log.is_second = broker.seen[-1][1] >= PRODUCE_SECOND_SINCE
        return await self.leaders.produce(broker, request)

    def _next_trouble(self, request: Message) -> Trouble:
        waiting = self.trouble.get(type(request))
        return waiting.popleft() if waiting else None
