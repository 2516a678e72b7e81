"""Batches of transactions: verified, refused, in order while the coordinator is asked, through a change of leaders."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas_broker.coordinators.transactions.questions import Asked
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas_raftlog.records.header import CONTROL, TRANSACTIONAL
from broker.live.test_three_brokers import Wires, all_in_sync, leader_of
from broker.reassignment import moving
from broker.wire_client import batch

from .producing import Transactional, create, read, transactional_request


def produce(wires: Wires, topic: str, name: str | None, records: bytes, version: int = 12) -> ErrorCode:
    request = transactional_request(name, topic, records)
    leader = leader_of(wires[min(wires.cluster.nodes)], topic)
    return ErrorCode(wires[leader].ask(request, version).responses[0].partition_responses[0].error_code)


class Held:
    """The coordinators' answers to one broker, held until `let_go`, which may be other codes."""

    def __init__(self, brokers: RunningCluster, node_id: int) -> None:
        self._brokers = brokers
        self._questions: Any = brokers.cluster.nodes[node_id].broker.questions
        self._ask = self._questions._ask
        self._code: ErrorCode | None = None
        self._may_go = asyncio.Event()
        self.is_asked = threading.Event()
        self.count = 0
        self._questions._ask = self.ask

    async def ask(self, node_id: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        self.count += 1
        self.is_asked.set()
        await self._may_go.wait()
        if self._code is not None:
            return AddPartitionsToTxnResponse(error_code=self._code)
        response: AddPartitionsToTxnResponse = await self._ask(node_id, request)
        return response

    def let_go(self, code: ErrorCode | None = None) -> None:
        async def go(_: Cluster) -> None:
            self._code = code
            self._may_go.set()

        self._brokers.run(go)

    def close(self) -> None:
        self.let_go()
        self._questions._ask = self._ask


@pytest.fixture
def held(brokers: RunningCluster) -> Iterator[Callable[[int], Held]]:
    made: list[Held] = []

    def make(node_id: int) -> Held:
        made.append(Held(brokers, node_id))
        return made[-1]

    yield make
    for one in made:
        one.close()


def end_of(brokers: RunningCluster, node_id: int, topic: str) -> int:
    offset: int = brokers.cluster.nodes[node_id].partitions.topics[topic].partitions[0].log.log_end_offset
    return offset


@pytest.mark.parametrize(("version", "absent"), [(9, "INVALID_TXN_STATE"), (11, "TRANSACTION_ABORTABLE")])
def test_t10_a_partition_that_was_not_added_is_refused_as_the_client_can_understand(
    wires: Wires, version: int, absent: str
) -> None:
    topic = f"absent-{version}"
    create(wires, topic)
    one = Transactional(wires, topic, version=version)
    first = one.batch(topic)
    assert produce(wires, topic, topic, first, version) is ErrorCode[absent]
    assert one.add(topic) == 0
    assert produce(wires, topic, topic, first, version) is ErrorCode.NONE
    assert one.end(is_commit=True) == 0
    # Part of no transaction any more.
    assert produce(wires, topic, topic, one.batch(topic), version) in {
        ErrorCode[absent],
        ErrorCode.NOT_ENOUGH_REPLICAS,  # the markers of the last one are on their way
    }


def test_who_shows_another_id_or_another_producer_is_refused(brokers: RunningCluster, wires: Wires) -> None:
    create(wires, "hostile")
    leader = leader_of(wires[1], "hostile")
    one, other = Transactional(wires, "hostile-1"), Transactional(wires, "hostile-2")
    mine: dict[str, Any] = {"producer_id": one.producer_id, "epoch": one.epoch, "attributes": TRANSACTIONAL}
    refused = {
        "no id": (None, mine),
        "an id that nobody has": ("hostile-3", mine),
        "the id of another": ("hostile-2", mine),
        "the producer of another": ("hostile-1", mine | {"producer_id": other.producer_id}),
        "an old epoch": ("hostile-1", mine),
        "an epoch to come": ("hostile-1", mine | {"epoch": one.epoch + 9}),
        "a control batch": ("hostile-1", mine | {"attributes": TRANSACTIONAL | CONTROL}),
        "no producer": ("hostile-1", {"attributes": TRANSACTIONAL}),
    }
    Transactional(wires, "hostile-1")  # a newer instance
    found = {
        what: produce(wires, "hostile", name, batch(**({"sequence": 0} | fields)))
        for what, (name, fields) in refused.items()
    }
    wrong = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert found == {
        "no id": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "an id that nobody has": wrong,
        "the id of another": wrong,
        "the producer of another": wrong,
        "an old epoch": ErrorCode.INVALID_PRODUCER_EPOCH,  # T11: never PRODUCER_FENCED here
        "an epoch to come": ErrorCode.INVALID_PRODUCER_EPOCH,
        "a control batch": ErrorCode.INVALID_RECORD,
        "no producer": ErrorCode.INVALID_RECORD,
    }
    assert end_of(brokers, leader, "hostile") == 0
    partition = brokers.cluster.nodes[leader].partitions.topics["hostile"].partitions[0]
    assert len(partition._verifications) == 0, "who is refused leaves nothing behind"


def test_t8_while_its_transaction_is_open_a_producer_writes_nothing_else(wires: Wires) -> None:
    create(wires, "mixed")
    one = Transactional(wires, "mixed")
    assert one.send("mixed").error_code == 0
    plain = one.batch("mixed", attributes=0)
    assert produce(wires, "mixed", "mixed", plain) is ErrorCode.INVALID_TXN_STATE
    assert one.end(is_commit=True) == 0


def test_t7_a_new_producer_of_version_2_begins_with_sequence_0(brokers: RunningCluster, wires: Wires) -> None:
    create(wires, "middle")
    one = Transactional(wires, "middle")
    one.sequences["middle"] = 3
    records = one.batch("middle")
    assert produce(wires, "middle", "middle", records) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_batches_behind_one_that_is_verified_keep_their_order_and_others_go_on(
    brokers: RunningCluster, wires: Wires, held: Callable[[int], Held]
) -> None:
    create(wires, "ordered", factor=3)
    leader = leader_of(wires[1], "ordered")
    one = Transactional(wires, "ordered")
    answers = held(leader)
    wire = wires[leader]
    requests = [transactional_request("ordered", "ordered", one.batch("ordered")) for _ in range(4)]
    wire.send(requests[0], 12)
    assert answers.is_asked.wait(10)
    for request in requests[1:]:
        wire.send(request, 12)
    assert wires[leader].produce("ordered", batch(1)).base_offset == 0
    assert answers.count == 1, "nothing is served behind the first"
    answers.let_go()
    rows = [wire.receive(request, 12).responses[0].partition_responses[0] for request in requests]
    assert [(row.error_code, row.base_offset) for row in rows] == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert answers.count == 1, "once the transaction has begun nobody is asked"
    assert one.end(is_commit=True) == 0


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_batch_whose_client_goes_while_it_is_verified_is_not_appended(
    brokers: RunningCluster,
    wires: Wires,
    held: Callable[[int], Held],
    monkeypatch: pytest.MonkeyPatch,
    acks: int,
) -> None:
    topic = f"gone-{acks}"
    create(wires, topic)
    leader = leader_of(wires[1], topic)
    one = Transactional(wires, topic)
    answers = held(leader)
    wire = wires[leader]
    records = one.batch(topic)
    wire.send(transactional_request(topic, topic, records, acks=acks), 12)
    assert answers.is_asked.wait(10)
    questions = brokers.cluster.nodes[leader].broker.questions
    withdrawn = threading.Event()
    withdraw = Asked.withdraw

    def noted(asked: Asked) -> None:
        withdraw(asked)
        withdrawn.set()

    monkeypatch.setattr(Asked, "withdraw", noted)
    wire.close()
    assert withdrawn.wait(10)
    assert len(questions) == 0
    answers.let_go()
    # It is asked for again, by the same producer on another connection.
    row = one._produce(topic, transactional_request(topic, topic, records))
    assert (row.error_code, row.base_offset) == (0, 0)
    assert end_of(brokers, leader, topic) == 1
    assert one.end(is_commit=True) == 0


def test_a_request_that_ends_before_the_coordinator_has_spoken_is_to_come_again(
    brokers: RunningCluster, wires: Wires, held: Callable[[int], Held]
) -> None:
    create(wires, "late")
    leader = leader_of(wires[1], "late")
    one = Transactional(wires, "late")
    answers = held(leader)
    wire = wires[leader]
    batches = [one.batch("late"), one.batch("late")]
    requests = [transactional_request("late", "late", records, timeout_ms=1) for records in batches]
    row = wire.ask(requests[0], 12).responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
    answers.let_go()
    # T20: what was sent behind it is not called out of order.
    assert produce(wires, "late", "late", batches[1]) is ErrorCode.REQUEST_TIMED_OUT
    assert end_of(brokers, leader, "late") == 0
    assert [produce(wires, "late", "late", records) for records in batches] == [ErrorCode.NONE] * 2
    assert one.end(is_commit=True) == 0


@pytest.mark.parametrize(
    ("said", "version", "heard"),
    [
        (ErrorCode.NOT_COORDINATOR, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 9, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.PRODUCER_FENCED, 12, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 12, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_t9_what_the_coordinator_says_is_put_for_the_client(
    wires: Wires, held: Callable[[int], Held], said: ErrorCode, version: int, heard: ErrorCode
) -> None:
    topic = f"said-{said.value}-{version}"
    create(wires, topic)
    one = Transactional(wires, topic, version=version)
    answers = held(leader_of(wires[1], topic))
    answers.let_go(said)
    assert produce(wires, topic, topic, one.batch(topic), version) is heard
    # Version 2 has it asked again for a while: the markers of the last transaction may be on their way.
    is_asked_again = said is ErrorCode.CONCURRENT_TRANSACTIONS and version >= 12
    assert (answers.count > 1) == is_asked_again


def test_a_transaction_goes_on_through_a_change_of_leaders(brokers: RunningCluster, wires: Wires) -> None:
    create(wires, "failover", factor=3)
    brokers.run(lambda cluster: all_in_sync(cluster, "failover"))
    leader = leader_of(wires[1], "failover")
    one, other = Transactional(wires, "failover-1"), Transactional(wires, "failover-2")
    assert one.send("failover", 2).error_code == 0
    assert other.send("failover", 1).error_code == 0
    brokers.run(lambda cluster: cluster.stop(leader))
    successor = brokers.run(lambda cluster: moving.leader(cluster, "failover"))
    assert successor != leader
    # The transaction has begun, and its log is here: nobody has to be asked.
    assert one.send("failover", 2).error_code == 0
    assert other.send("failover", 1).error_code == 0
    assert one.end(is_commit=True) == 0
    assert other.end(is_commit=False) == 0
    expected = [0, 1, 3, 4]
    assert read(wires[successor], "failover", 8, is_committed=True) == expected

    async def restart(cluster: Cluster) -> None:
        await cluster.start(leader)
        await cluster.wait_ready()
        await all_in_sync(cluster, "failover")

    brokers.run(restart)
    now = brokers.run(lambda cluster: moving.leader(cluster, "failover"))
    assert read(wires[now], "failover", 8, is_committed=True) == expected


def test_the_marker_of_a_partition_that_moves_finds_its_new_leader(brokers: RunningCluster, wires: Wires) -> None:
    brokers.run(lambda cluster: moving.create(cluster, "moved", 1))
    one = Transactional(wires, "moved")
    assert one.send("moved", 3).error_code == 0

    async def move(cluster: Cluster) -> None:
        await moving.move(cluster, "moved", [2])
        await moving.arrived(cluster, "moved")
        await moving.leader(cluster, "moved", (2,))

    brokers.run(move, 60.0)
    assert one.end(is_commit=True) == 0
    assert read(wires[2], "moved", 4, is_committed=True) == [0, 1, 2]
    assert end_of(brokers, 2, "moved") == 4


def test_an_operator_ends_a_transaction_that_hangs(brokers: RunningCluster, wires: Wires) -> None:
    create(wires, "hanging")
    leader = leader_of(wires[1], "hanging")
    one = Transactional(wires, "hanging")
    assert one.send("hanging", 2).error_code == 0
    marker = WritableTxnMarker(
        producer_id=one.producer_id,
        producer_epoch=one.epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name="hanging", partition_indexes=[0, 1])],
        coordinator_epoch=0,
    )
    (written,) = wires[leader].ask(WriteTxnMarkersRequest(markers=[marker]), 1).markers
    codes = [row.error_code for row in written.topics[0].partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert read(wires[leader], "hanging", 3, is_committed=True) == []
