"""Batches that are checked in a thread: their order, their answers, and what becomes of them meanwhile.

Those of a kilobyte and more count as large here, and the test holds the thread.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from raftlog.records.bombs import BOMBS

from barnabas_broker.partition.checks import check_at_once, check_in_thread, is_surely_short
from barnabas_broker.partition.partition import Partition
from barnabas_broker.server.handlers import produce
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_clients.protocol.registry import encode_request
from barnabas_raftlog.records.compression import Compression
from broker.wire_client import Wire, batch, produce_request

T = TypeVar("T")
LARGE_BYTES = 1_000
WAIT_S = 20.0


def large(**fields: Any) -> bytes:
    return batch(body_bytes=LARGE_BYTES, **fields)


class Gate:
    """Holds every check in a thread until the test lets it go, and tells of those that have come so far."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.checked = list[int]()  # sizes
        self._begun = threading.Semaphore(0)
        self._queued = threading.Semaphore(0)
        self._open = threading.Semaphore(0)

    def check(self, header: Any, frame: memoryview, *rest: Any) -> Any:
        self.checked.append(len(frame))
        self._begun.release()
        assert self._open.acquire(timeout=WAIT_S), "the test has forgotten it"
        if self.error is not None:
            raise self.error
        return check_in_thread(header, frame, *rest)

    def wait_begun(self) -> None:
        """Return when one more check is held."""
        assert self._begun.acquire(timeout=WAIT_S)

    def wait_queued(self, count: int = 1) -> None:
        """Return when so many batches more have joined a lane."""
        for _ in range(count):
            assert self._queued.acquire(timeout=WAIT_S)

    def note_queued(self) -> None:
        self._queued.release()

    def let_go(self, count: int = 1) -> None:
        self._open.release(count)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    held = Gate()
    begin = produce._Queued.begin

    def noted(queued: produce._Queued) -> None:
        begin(queued)
        held.note_queued()

    def at_once(header: Any, frame: memoryview, *rest: Any) -> Any:
        return None if len(frame) >= LARGE_BYTES else check_at_once(header, frame, *rest)

    def is_short(header: Any, frame: memoryview, rules: Any) -> bool:
        return len(frame) < LARGE_BYTES and is_surely_short(header, frame, rules)

    monkeypatch.setattr(produce._Queued, "begin", noted)
    monkeypatch.setattr(produce, "check_at_once", at_once)
    monkeypatch.setattr(produce, "is_surely_short", is_short)
    monkeypatch.setattr(produce, "check_in_thread", held.check)
    yield held
    held.let_go(1_000)


@pytest.fixture
def other(one_broker: RunningCluster) -> Iterator[Wire]:
    """A second client."""
    wire = Wire("127.0.0.1", one_broker.cluster.nodes[1].port)
    yield wire
    wire.close()


def call(running: RunningCluster, act: Callable[[], T]) -> T:
    """Do something on the loop of the broker."""

    async def run(_: Cluster) -> T:
        return act()

    return running.run(run)


def partition_of(running: RunningCluster, topic: str, index: int = 0) -> Partition:
    return running.cluster.nodes[1].partitions.topics[topic].partitions[index]


def end_offset(running: RunningCluster, topic: str, index: int = 0) -> int:
    return call(running, lambda: partition_of(running, topic, index).log.log_end_offset)


def held_bytes(running: RunningCluster) -> int:
    return call(running, lambda: running.cluster.nodes[1].listener.bytes_in_use)


def is_idle(running: RunningCluster) -> bool:
    """Tell whether nothing is left in lanes, and nothing counts any more."""
    node = running.cluster.nodes[1]
    return call(running, lambda: (len(node.broker.lanes), len(node._check_threads), node.listener.bytes_in_use)) == (
        (0, 0, 0)
    )


def answer(wire: Wire, request: ProduceRequest, version: int = 9) -> Any:
    return wire.receive(request, version).responses[0].partition_responses[0]


def send_together(wire: Wire, *requests: ProduceRequest) -> None:
    """Send them so that the broker reads them at once."""
    wire.socket.sendall(b"".join(b"".join(encode_request(request, 9, 1, "test")) for request in requests))


def several(topic: str, batches: list[bytes], *, acks: int = -1, timeout_ms: int = 10_000) -> ProduceRequest:
    """Return a request for a batch of each partition."""
    data = [PartitionProduceData(index=index, records=records) for index, records in enumerate(batches)]
    topics = [TopicProduceData(name=topic, topic_id=bytes(16), partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def test_what_comes_for_the_partition_meanwhile_is_appended_behind_it_and_other_partitions_go_on(
    one_broker: RunningCluster, wire: Wire, other: Wire, gate: Gate
) -> None:
    wire.create("order", 2)
    requests = [produce_request("order", records) for records in (large(), batch(3))]
    wire.send(requests[0], 9)
    gate.wait_begun()
    other.send(requests[1], 9)
    gate.wait_queued(2)
    with contextlib.closing(Wire("127.0.0.1", one_broker.cluster.nodes[1].port)) as third:
        assert third.produce("order", batch(), partition=1).base_offset == 0
    assert end_offset(one_broker, "order") == 0
    gate.let_go()
    assert answer(wire, requests[0]).base_offset == 0
    assert answer(other, requests[1]).base_offset == 1
    assert is_idle(one_broker)


def test_nothing_more_is_served_from_its_connection_meanwhile(
    one_broker: RunningCluster, wire: Wire, other: Wire, gate: Gate
) -> None:
    wire.create("connection", 2)
    requests = [produce_request("connection", large()), produce_request("connection", batch(), partition=1)]
    send_together(wire, *requests)
    gate.wait_begun()
    assert other.produce("connection", batch(5), partition=1).base_offset == 0, "the other one's has not come before"
    gate.let_go()
    assert [answer(wire, request).base_offset for request in requests] == [0, 5]


def test_the_sequence_is_judged_when_the_turn_of_a_batch_comes(
    one_broker: RunningCluster, wire: Wire, other: Wire, topic: str, gate: Gate
) -> None:
    batches = [large(producer_id=70, epoch=0, sequence=0), batch(producer_id=70, epoch=0, sequence=1)]
    requests = [produce_request(topic, records) for records in batches]
    wire.send(requests[0], 9)
    gate.wait_begun()
    other.send(requests[1], 9)
    gate.wait_queued(2)
    gate.let_go()
    assert [answer(wire, requests[0]).base_offset, answer(other, requests[1]).base_offset] == [0, 1]
    gate.let_go(1)
    assert wire.produce(topic, batches[0]).base_offset == 0, "a repetition"
    assert end_offset(one_broker, topic) == 2


def test_a_batch_is_not_appended_in_another_term_than_that_in_which_it_came(
    one_broker: RunningCluster, wire: Wire, topic: str, gate: Gate
) -> None:
    request = produce_request(topic, large(producer_id=71, epoch=0, sequence=0))
    wire.send(request, 9)
    gate.wait_begun()
    partition = partition_of(one_broker, topic)
    term = partition.term

    def lose_and_regain() -> None:
        partition.on_leadership(term + 1, 2, is_leader=False, confirmed=False)
        partition.on_leadership(term + 2, 1, is_leader=True, confirmed=True)

    call(one_broker, lose_and_regain)
    gate.let_go()
    assert answer(wire, request).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert end_offset(one_broker, topic) == 0
    follower = batch(producer_id=71, epoch=0, sequence=1)
    assert wire.produce(topic, follower).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the one before it comes again"
    assert is_idle(one_broker)


def test_a_batch_for_a_topic_that_is_deleted_meanwhile_is_refused(
    one_broker: RunningCluster, wire: Wire, other: Wire, topic: str, gate: Gate
) -> None:
    request = produce_request(topic, large())
    wire.send(request, 9)
    gate.wait_begun()
    assert other.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5).responses[0].error_code == 0
    gate.let_go()
    assert answer(wire, request).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert is_idle(one_broker)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_request_whose_time_is_over_is_answered_and_its_batch_may_be_appended_yet(
    one_broker: RunningCluster, wire: Wire, other: Wire, gate: Gate, acks: int
) -> None:
    name = f"late-{acks}"
    wire.create(name, 2)
    request = produce_request(name, large(), acks=acks, timeout_ms=1)
    behind = produce_request(name, batch(), partition=1)
    send_together(wire, request, behind)
    assert answer(wire, request).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert held_bytes(one_broker) > LARGE_BYTES, "what the lane needs counts on"
    assert other.produce(name, batch(), partition=1).base_offset == 0, "its connection is not served before that"
    gate.wait_begun()
    gate.let_go()
    assert answer(wire, behind).base_offset == 1
    assert end_offset(one_broker, name) == 1
    assert is_idle(one_broker)


def test_what_is_in_a_lane_counts_in_the_account_of_the_node(
    one_broker: RunningCluster, wire: Wire, other: Wire, topic: str, gate: Gate
) -> None:
    requests = [produce_request(topic, records, acks=0) for records in (large(), batch())]
    wire.send(requests[0], 9)
    gate.wait_begun()
    other.send(requests[1], 9)
    gate.wait_queued(2)
    assert held_bytes(one_broker) > LARGE_BYTES + 81, "also if nobody waits for an answer"
    gate.let_go()
    assert wire.fetch(topic, 0, max_wait_ms=10_000).error_code == 0
    assert is_idle(one_broker)


def test_a_batch_of_a_client_that_has_gone_is_dropped_and_nothing_of_it_is_left(
    one_broker: RunningCluster, wire: Wire, other: Wire, topic: str, gate: Gate
) -> None:
    for _ in range(2):
        with contextlib.closing(Wire("127.0.0.1", one_broker.cluster.nodes[1].port)) as gone:
            gone.send(produce_request(topic, large()), 9)
            gate.wait_queued()
    gate.wait_begun()
    request = produce_request(topic, batch())
    other.send(request, 9)
    gate.wait_queued()
    _wait_for_connections(one_broker, 2)
    gate.let_go()
    assert answer(other, request).base_offset == 0
    assert len(gate.checked) == 1, "the second one was not even begun"
    assert is_idle(one_broker)


def test_a_batch_for_which_no_answer_was_asked_is_stored_though_its_client_has_gone(
    one_broker: RunningCluster, wire: Wire, topic: str, gate: Gate
) -> None:
    with contextlib.closing(Wire("127.0.0.1", one_broker.cluster.nodes[1].port)) as gone:
        gone.send(produce_request(topic, large(), acks=0), 9)
        gate.wait_begun()
    _wait_for_connections(one_broker, 1)
    assert held_bytes(one_broker) > LARGE_BYTES
    request = produce_request(topic, batch())
    wire.send(request, 9)
    gate.wait_queued(2)
    gate.let_go()
    assert answer(wire, request).base_offset == 1
    assert is_idle(one_broker)


def _wait_for_connections(running: RunningCluster, count: int) -> None:
    """Return when the broker knows that the others have gone."""
    listener = running.cluster.nodes[1].listener
    while call(running, lambda: len(listener)) > count:
        pass


def test_no_answer_was_asked_for_and_the_batch_is_refused_so_the_connection_ends(
    one_broker: RunningCluster, wire: Wire, topic: str, gate: Gate
) -> None:
    wire.send(produce_request(topic, large(producer_id=72, epoch=0, sequence=9), acks=0), 9)
    gate.let_go()
    assert wire.is_closed_by_peer()


def test_an_error_in_the_thread_is_answered_and_logged_and_what_is_behind_goes_on(
    one_broker: RunningCluster, wire: Wire, other: Wire, topic: str, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    gate.error = RuntimeError("a bug in the check")
    requests = [produce_request(topic, records) for records in (large(), batch())]
    wire.send(requests[0], 9)
    gate.wait_begun()
    other.send(requests[1], 9)
    gate.wait_queued(2)
    gate.let_go()
    assert answer(wire, requests[0]).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert answer(other, requests[1]).base_offset == 0
    assert "a bug in the check" in caplog.text
    assert wire.produce(topic, batch()).base_offset == 1
    assert not one_broker.cluster.nodes[1].failure.done()
    assert is_idle(one_broker)


def test_the_batches_of_a_request_are_checked_one_after_the_other(
    one_broker: RunningCluster, wire: Wire, gate: Gate
) -> None:
    wire.create("many", 20)
    request = several("many", [large(), *[batch()] * 18, large()])
    wire.send(request, 9)
    gate.wait_begun()
    assert [end_offset(one_broker, "many", index) for index in (0, 1, 19)] == [0, 0, 0]
    gate.let_go(2)
    results = wire.receive(request, 9).responses[0].partition_responses
    assert [(row.index, row.error_code, row.base_offset) for row in results] == [(index, 0, 0) for index in range(20)]
    assert is_idle(one_broker)


def test_batches_behind_one_that_takes_too_long_are_sent_back_to_come_again(
    one_broker: RunningCluster, wire: Wire, other: Wire, gate: Gate
) -> None:
    wire.create("late", 2)
    mine = {"producer_id": 73, "epoch": 0}
    request = several("late", [large(), batch(sequence=0, **mine)], timeout_ms=1)
    wire.send(request, 9)
    results = wire.receive(request, 9).responses[0].partition_responses
    assert [row.error_code for row in results] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    second = batch(sequence=1, **mine)
    assert other.produce("late", second, partition=1).error_code == ErrorCode.REQUEST_TIMED_OUT, "not out of order"
    for sequence in range(2):
        records = batch(sequence=sequence, **mine)
        assert other.produce("late", records, partition=1).base_offset == sequence
    gate.let_go()
    assert wire.produce("late", batch()).base_offset == 1
    assert is_idle(one_broker)


def test_a_request_waits_for_threads_no_longer_than_the_broker_says(
    one_broker: RunningCluster, wire: Wire, topic: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "CHECKS_MS_MAX", 1)
    request = several(topic, [large(), batch()], timeout_ms=2**31 - 1)
    wire.send(request, 9)
    results = wire.receive(request, 9).responses[0].partition_responses
    codes = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [row.error_code for row in results] == codes


def test_the_batches_of_a_request_are_taken_in_several_turns_if_they_take_long(
    one_broker: RunningCluster, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "SLICE_S", 0.0)
    wire.create("turns", 5)
    request = several("turns", [batch()] * 5)
    wire.send(request, 9)
    results = wire.receive(request, 9).responses[0].partition_responses
    assert [(row.index, row.error_code, row.base_offset) for row in results] == [(index, 0, 0) for index in range(5)]


def test_beyond_so_many_batches_for_the_threads_one_more_is_sent_back(
    one_broker: RunningCluster, wire: Wire, other: Wire, topic: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas_broker.partition.lanes.CHECKS_MAX", 1)
    request = produce_request(topic, large())
    wire.send(request, 9)
    gate.wait_begun()
    assert other.produce(topic, large()).error_code == ErrorCode.REQUEST_TIMED_OUT
    gate.let_go()
    assert answer(wire, request).base_offset == 0


def test_too_few_replicas_are_noticed_when_the_turn_of_a_batch_comes(
    one_broker: RunningCluster, wire: Wire, topic: str, gate: Gate
) -> None:
    request = produce_request(topic, large())
    wire.send(request, 9)
    gate.wait_begun()
    partition = partition_of(one_broker, topic)
    call(one_broker, lambda: setattr(partition, "min_insync", 2))
    gate.let_go()
    assert answer(wire, request).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert end_offset(one_broker, topic) == 0


def test_a_broker_that_stops_answers_what_is_in_its_lanes(gate: Gate) -> None:
    with RunningCluster(1) as running, contextlib.closing(Wire("127.0.0.1", running.cluster.nodes[1].port)) as wire:
        wire.create("stopped")
        request = produce_request("stopped", large())
        wire.send(request, 9)
        gate.wait_begun()
        node = running.cluster.nodes[1]
        stopping = call(running, lambda: running.cluster.stop(1))

        async def begin(_: Cluster) -> Any:
            return asyncio.ensure_future(stopping)

        stopped = running.run(begin)
        assert answer(wire, request).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        gate.let_go()

        async def wait(_: Cluster) -> None:
            await stopped

        running.run(wait)
        assert node.state == "stopping"


@pytest.mark.slow
def test_fifty_bombs_at_once_keep_nobody_waiting_and_stay_within_the_account(
    one_broker: RunningCluster, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()

    def held(header: Any, frame: memoryview, rules: Any, wall_ms: int, is_long: bool) -> Any:
        check = gate.check if is_long else check_in_thread
        return check(header, frame, rules, wall_ms, is_long)

    monkeypatch.setattr(produce, "check_in_thread", held)
    wire.create("bombs", 10)
    kinds = {
        "zstd of a value that claims 100 MiB of 1 GiB": ErrorCode.INVALID_RECORD,
        "zstd of a value of 128 MiB": ErrorCode.MESSAGE_TOO_LARGE,
    }
    bombs = [(BOMBS[name].batch(), code) for name, code in kinds.items()] * 25
    clients = [Wire("127.0.0.1", one_broker.cluster.nodes[1].port) for _ in bombs]
    account = one_broker.cluster.nodes[1].listener.account
    account.total_max = 0
    requests = [produce_request("bombs", bomb, partition=number % 9) for number, (bomb, _) in enumerate(bombs)]
    for client, request in zip(clients, requests, strict=True):
        client.send(request, 9)
    gate.wait_begun()
    compressed = batch(100, attributes=Compression.LZ4, body_bytes=3 << 20)
    for offset in range(3):
        assert wire.produce("bombs", batch(), partition=9).base_offset == 101 * offset
        assert wire.produce("bombs", compressed, partition=9).base_offset == 101 * offset + 1, "it needs a thread, too"
    gate.let_go(50)
    for client, request, (_, code) in zip(clients, requests, bombs, strict=True):
        assert answer(client, request).error_code == code
        client.close()
    assert account.total_max < 4 << 20
    _wait_for_connections(one_broker, 1)
    assert is_idle(one_broker)
