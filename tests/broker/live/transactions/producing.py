"""A transactional producer that says exactly what a test wants, and readers of what it wrote."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from barnabas_clients.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from barnabas_clients.protocol.end_txn import EndTxnRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_raftlog.records.header import CONTROL, TRANSACTIONAL, parse_header
from broker.live.test_three_brokers import Wires, leader_of
from broker.wire_client import Wire, batch, fetch_request, produce_request

__all__ = ["COMMITTED", "Transactional", "batches_of", "create", "fetched", "read", "transactional_request"]

COMMITTED = 1
ATTEMPTS = 5_000
PASSING = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


def until_decided(ask: Callable[[], Any]) -> Any:
    """Ask until the answer is not one that says "later"; each time is a round trip."""
    answer = ask()
    for _ in range(ATTEMPTS):
        if answer.error_code not in PASSING:
            return answer
        answer = ask()
    raise AssertionError(f"still {ErrorCode(answer.error_code).name}")


def create(wires: Wires, topic: str, factor: int = 1) -> None:
    """Create a topic and wait until every broker knows it, with its leader: any of them may coordinate."""
    wires[1].create(topic, factor=factor)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])

    def ask(wire: Wire) -> Any:
        known = wire.ask(request, 9).topics[0]
        return known if known.error_code else known.partitions[0]

    for node_id in wires.cluster.nodes:
        until_decided(partial(ask, wires[node_id]))


def transactional_request(name: str | None, topic: str, records: bytes, **fields: Any) -> Any:
    request = produce_request(topic, records, **fields)
    request.transactional_id = name
    return request


class Transactional:
    """Asks whoever coordinates now. `version` is that of Produce: from 12 on it speaks version 2 of transactions."""

    def __init__(self, wires: Wires, name: str, *, version: int = 12) -> None:
        self.wires = wires
        self.name = name
        self.version = version
        self.sequences: dict[str, int] = {}
        until_decided(self._find)
        self.init()

    @property
    def is_v2(self) -> bool:
        return self.version >= 12

    def _find(self) -> Any:
        node_id = min(self.wires.cluster.nodes)
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.name])
        answer = self.wires[node_id].ask(request, 4).coordinators[0]
        self.coordinator_id = answer.node_id
        return answer

    @property
    def coordinator(self) -> Wire:
        return self.wires[self.coordinator_id]

    def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        answer = until_decided(lambda: self.ask_coordinator(request, 5))
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    def ask_coordinator(self, request: Any, version: int) -> Any:
        if self.coordinator_id not in self.wires.cluster.nodes:
            self._find()
            return SimpleNamespace(error_code=ErrorCode.NOT_COORDINATOR)
        answer = self.coordinator.ask(request, version)
        if answer.error_code == ErrorCode.NOT_COORDINATOR:
            self._find()
        return answer

    def add(self, topic: str) -> int:
        """Add a topic's partition to the transaction, as clients of version 1 do."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )

        def ask() -> Any:
            (row,) = self.coordinator.ask(request, 3).results_by_topic_v3_and_below[0].results_by_partition
            return SimpleNamespace(error_code=row.partition_error_code)

        code: int = until_decided(ask).error_code
        return code

    def batch(self, topic: str, count: int = 1, **fields: int) -> bytes:
        """Return the next batch for a topic."""
        fields = {"producer_id": self.producer_id, "epoch": self.epoch, "attributes": TRANSACTIONAL} | fields
        sequence = self.sequences.get(topic, 0)
        self.sequences[topic] = sequence + count
        return batch(count, sequence=sequence, **fields)

    def send(self, topic: str, count: int = 1, **fields: int) -> Any:
        """Write a batch as a client does, which repeats it where it should; return the partition's response."""
        request = transactional_request(self.name, topic, self.batch(topic, count, **fields))
        return until_decided(lambda: self._produce(topic, request))

    def _produce(self, topic: str, request: Any) -> Any:
        leader_id = leader_of(self.wires[min(self.wires.cluster.nodes)], topic)
        node_id = leader_id if leader_id in self.wires.cluster.nodes else min(self.wires.cluster.nodes)
        return self.wires[node_id].ask(request, self.version).responses[0].partition_responses[0]

    def end(self, *, is_commit: bool) -> int:
        """End the transaction, as a client does."""
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )
        answer = until_decided(lambda: self.ask_coordinator(request, 5 if self.is_v2 else 4))
        if self.is_v2 and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        code: int = answer.error_code
        return code


def batches_of(records: bytes | memoryview) -> list[Any]:
    """Return the headers of fetched batches."""
    headers = []
    position = 0
    while position < len(records):
        headers.append(parse_header(records, position))
        position += headers[-1].size_bytes
    return headers


def fetched(
    wire: Wire, topic: str, offset: int = 0, *, is_committed: bool = True, rack: str = "", **fields: Any
) -> Any:
    """Fetch from partition 0 and return the partition's response."""
    request = fetch_request(topic, offset, **fields)
    request.isolation_level = COMMITTED if is_committed else 0
    request.rack_id = rack
    return wire.ask(request, 12).responses[0].partitions[0]


def read(wire: Wire, topic: str, end_offset: int, *, is_committed: bool, rack: str = "") -> list[int]:
    """Return the offsets of the records that an application sees up to `end_offset`; wait until they are there."""
    seen: list[int] = []
    offset = 0
    while offset < end_offset:
        result = fetched(wire, topic, offset, is_committed=is_committed, rack=rack, max_wait_ms=10_000)
        assert result.error_code == 0, ErrorCode(result.error_code)
        aborted = _Aborted(result.aborted_transactions or ())
        for header in batches_of(result.records):
            offset = header.end_offset
            if not header.record_count:  # What compaction has emptied, up to the last stable offset of just now.
                continue
            if not aborted.hides(header) and not header.attributes & CONTROL:
                seen += range(header.base_offset, header.end_offset)
    return seen


class _Aborted:
    """What a client does with the list: a producer's batches go from where a transaction begins to its next marker."""

    def __init__(self, rows: Any) -> None:
        self._rows = sorted((row.first_offset, row.producer_id) for row in rows)
        self._hidden = set[int]()

    def hides(self, header: Any) -> bool:
        while self._rows and self._rows[0][0] <= header.end_offset - 1:
            self._hidden.add(self._rows.pop(0)[1])
        if header.attributes & CONTROL:
            self._hidden.discard(header.producer_id)
            return False
        return bool(header.attributes & TRANSACTIONAL) and header.producer_id in self._hidden
