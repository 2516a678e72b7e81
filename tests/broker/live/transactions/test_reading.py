"""What readers of committed records see of transactions: on leaders, followers and observers."""

import pytest

from barnabas_broker.partition.partition import Partition
from barnabas_broker.server.handlers import fetch as fetch_handler
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.describe_producers import DescribeProducersRequest, DescribeProducersTopic
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_raftlog.records.header import verify
from broker.live.requests.test_alter_configs import SET, alter
from broker.live.test_three_brokers import Wires, all_in_sync, leader_of
from broker.reassignment.moving import in_sync
from broker.reassignment.test_observers import observe as moving_observe
from broker.replicas.test_compaction import hold_round
from broker.wire_client import batch, fetch_request, offsets_of

from .conftest import RACKS
from .producing import COMMITTED, Transactional, batches_of, create, fetched, read

LATEST = -1


def partition_at(brokers: RunningCluster, node_id: int, topic: str) -> Partition:
    return brokers.cluster.nodes[node_id].partitions.topics[topic].partitions[0]


async def rolled(partition: Partition) -> None:
    """Begin a new segment."""
    assert partition.log.roll()


def listed(wires: Wires, node_id: int, topic: str, timestamp: int, *, is_committed: bool) -> int:
    asked = ListOffsetsPartition(timestamp=timestamp)
    request = ListOffsetsRequest(
        isolation_level=COMMITTED if is_committed else 0, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    row = wires[node_id].ask(request, 7).topics[0].partitions[0]
    assert row.error_code == 0
    offset: int = row.offset
    return offset


@pytest.mark.parametrize("version", [9, 12])
def test_t16_an_aborted_a_committed_and_an_open_transaction(
    brokers: RunningCluster, wires: Wires, version: int
) -> None:
    topic = f"read-{version}"
    create(wires, topic, factor=3)
    brokers.run(lambda cluster: all_in_sync(cluster, topic))
    leader = leader_of(wires[1], topic)
    one = Transactional(wires, f"reader-{version}", version=version)
    for is_commit in (False, True):
        assert one.is_v2 or one.add(topic) == 0
        assert one.send(topic, 3).error_code == 0
        assert one.send(topic, 2).error_code == 0
        assert one.end(is_commit=is_commit) == 0
    # The markers leave when that is answered; the next transaction waits for them, and so do these readers.
    everything = [*range(5), *range(6, 11)]
    committed = [*range(6, 11)]
    assert one.is_v2 or one.add(topic) == 0
    later_ms = brokers.cluster.nodes[1].partitions.wall_ms() + 60_000  # markers have the time of now
    open_offset = one.send(topic, 4, timestamp=later_ms).base_offset
    assert open_offset == 12
    assert wires[leader].produce(topic, batch(2)).base_offset == 16
    for rack in ("", *RACKS):
        # Whoever is in a rack without the leader reads from the follower there.
        node_id = RACKS.index(rack) + 1 if rack else leader
        assert read(wires[node_id], topic, 12, is_committed=True, rack=rack) == committed
        assert read(wires[node_id], topic, 18, is_committed=False, rack=rack) == [*everything, *range(12, 18)]
        # From the last stable offset to the end of the log a fetch waits, and is never out of range.
        for offset in (12, 14):
            waiting = fetched(wires[node_id], topic, offset, rack=rack)
            assert (waiting.error_code, waiting.records) == (0, b"")
        waiting = fetched(wires[node_id], topic, 18, rack=rack)
        assert (waiting.error_code, waiting.records) == (0, b"")
        assert (waiting.last_stable_offset, waiting.high_watermark) == (12, 18)
        beyond = fetched(wires[node_id], topic, 19, rack=rack).error_code
        assert beyond == (ErrorCode.OFFSET_OUT_OF_RANGE if node_id == leader else ErrorCode.OFFSET_NOT_AVAILABLE)
    assert [listed(wires, leader, topic, LATEST, is_committed=flag) for flag in (True, False)] == [12, 18]
    assert [listed(wires, leader, topic, later_ms, is_committed=flag) for flag in (True, False)] == [-1, 12]
    assert one.end(is_commit=True) == 0
    assert read(wires[leader], topic, 19, is_committed=True) == [*committed, *range(12, 18)]
    assert listed(wires, leader, topic, later_ms, is_committed=True) == 12


def test_the_list_of_aborted_transactions_begins_before_the_fetch_and_ends_with_what_it_gets(
    brokers: RunningCluster, wires: Wires
) -> None:
    create(wires, "listed", factor=1)
    leader = leader_of(wires[1], "listed")
    long, short = Transactional(wires, "listed-long"), Transactional(wires, "listed-short")
    for _ in range(3):
        assert long.send("listed").error_code == 0
        assert short.send("listed").error_code == 0
        assert short.end(is_commit=False) == 0
        # Its next one begins when the marker is there.
    assert long.end(is_commit=False) == 0
    read(wires[leader], "listed", 10, is_committed=True)
    result = fetched(wires[leader], "listed", 0)
    rows = [(row.producer_id, row.first_offset) for row in result.aborted_transactions]
    expected = [(long.producer_id, 0), *[(short.producer_id, offset) for offset in (1, 4, 7)]]
    assert rows == expected
    assert read(wires[leader], "listed", 10, is_committed=True) == []
    # One batch, in the middle: its own transactions, of which one began before.
    result = fetched(wires[leader], "listed", 4, partition_max_bytes=1)
    assert [(row.producer_id, row.first_offset) for row in result.aborted_transactions] == expected[:1] + expected[2:3]
    assert fetched(wires[leader], "listed", 0, is_committed=False).aborted_transactions is None


def test_a_great_many_aborted_transactions_are_named_in_steps(
    brokers: RunningCluster, wires: Wires, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(wires, "many", factor=1)
    leader = leader_of(wires[1], "many")
    one = Transactional(wires, "many")
    for _ in range(6):
        assert one.send("many").error_code == 0
        assert one.end(is_commit=False) == 0
    read(wires[leader], "many", 12, is_committed=True)
    whole = fetched(wires[leader], "many", 0)
    monkeypatch.setattr(fetch_handler, "ABORTED_AT_ONCE", 2)
    assert fetched(wires[leader], "many", 0) == whole
    assert len(whole.aborted_transactions) == 6


@pytest.mark.parametrize("min_bytes", [1, 200])
def test_a_fetch_of_committed_records_is_woken_by_the_marker_and_by_nothing_else(
    brokers: RunningCluster, wires: Wires, monkeypatch: pytest.MonkeyPatch, min_bytes: int
) -> None:
    topic = f"woken-{min_bytes}"
    create(wires, topic, factor=1)
    leader = leader_of(wires[1], topic)
    one = Transactional(wires, topic)
    assert one.send(topic, 2).error_code == 0
    looks: list[int] = []
    look = fetch_handler._Fetch.look

    def counted(self: fetch_handler._Fetch) -> None:
        looks.append(self.request.isolation_level)
        look(self)

    monkeypatch.setattr(fetch_handler._Fetch, "look", counted)
    parked = wires[leader]
    request = fetch_request(topic, 0, max_wait_ms=30_000, min_bytes=min_bytes)
    request.isolation_level = COMMITTED
    parked.send(request, 12)
    waiting = brokers.cluster.nodes[leader].partitions.waiting.committed_fetches
    while not len(waiting):
        fetched(wires[leader], topic, 0, is_committed=False)
    for _ in range(5):  # Each is enough for one that reads everything.
        assert wires[leader].produce(topic, batch(body_bytes=300)).error_code == 0
    assert one.end(is_commit=True) == 0
    result = parked.receive(request, 12).responses[0].partitions[0]
    assert result.last_stable_offset == 8
    assert looks.count(COMMITTED) == 2


def test_an_operator_sees_what_holds_readers_up(brokers: RunningCluster, wires: Wires) -> None:
    create(wires, "described", factor=3)
    brokers.run(lambda cluster: all_in_sync(cluster, "described"))
    leader = leader_of(wires[1], "described")
    one = Transactional(wires, "described")
    assert one.send("described", 2).error_code == 0
    assert one.end(is_commit=True) == 0
    assert one.send("described", 3).error_code == 0
    assert wires[leader].produce("described", batch(2, producer_id=77_000, epoch=0, sequence=0)).error_code == 0
    request = DescribeProducersRequest(topics=[DescribeProducersTopic(name="described", partition_indexes=[0, 1])])
    known, unknown = wires[leader].ask(request, 0).topics[0].partitions
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows = {row.producer_id: row for row in known.active_producers}
    mine = rows[one.producer_id]
    assert (mine.producer_epoch, mine.last_sequence, mine.current_txn_start_offset) == (one.epoch, 2, 3)
    assert mine.coordinator_epoch >= 0
    other = rows[77_000]
    seen = other.producer_epoch, other.last_sequence, other.coordinator_epoch, other.current_txn_start_offset
    assert seen == (0, 1, -1, -1)
    (refused, _) = wires[leader % 3 + 1].ask(request, 0).topics[0].partitions
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert one.end(is_commit=False) == 0


def test_an_observer_serves_readers_of_committed_records(brokers: RunningCluster, wires: Wires) -> None:
    create(wires, "watched", factor=1)
    leader = leader_of(wires[1], "watched")
    observer = leader % 3 + 1
    one = Transactional(wires, "watched")

    async def observe(cluster: Cluster) -> None:
        await moving_observe(cluster, "watched", str(observer))
        await in_sync(cluster, "watched", (leader, observer))

    for is_commit in (False, True):
        assert one.send("watched", 2).error_code == 0
        assert one.end(is_commit=is_commit) == 0
    brokers.run(observe)
    assert one.send("watched").error_code == 0
    rack = RACKS[observer - 1]
    assert read(wires[observer], "watched", 6, is_committed=True, rack=rack) == [3, 4]
    waiting = fetched(wires[observer], "watched", 6, rack=rack)
    assert (waiting.error_code, waiting.records) == (0, b"")
    assert one.end(is_commit=True) == 0
    assert read(wires[observer], "watched", 8, is_committed=True, rack=rack) == [3, 4, 6]


def test_a_reader_goes_on_behind_what_compaction_has_emptied_up_to_the_last_stable_offset(
    brokers: RunningCluster, wires: Wires
) -> None:
    """Records that were aborted while another transaction was open: with nothing a reader would ask again at once."""
    create(wires, "emptied")
    wire = wires[leader_of(wires[1], "emptied")]
    one, other = Transactional(wires, "emptied-1"), Transactional(wires, "emptied-2")
    for _ in range(3):
        assert one.send("emptied", 2).error_code == 0
    partition = partition_at(brokers, leader_of(wires[1], "emptied"), "emptied")
    brokers.run(lambda _: rolled(partition))
    assert other.send("emptied").base_offset == 6
    assert one.end(is_commit=False) == 0
    assert one.send("emptied").base_offset == 8  # When it may begin the marker is there.
    # Not before: nobody writes records without a key to a compacted topic.
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    assert alter(wire, "emptied", *((key, SET, value) for key, value in settings.items())) == 0
    brokers.run(hold_round)
    header_epochs = set[int]()
    for offset in (0, 3):
        emptied = fetched(wire, "emptied", offset, max_wait_ms=10_000)
        assert (emptied.error_code, emptied.last_stable_offset) == (0, 6)
        (header,) = batches_of(emptied.records)
        assert (header.base_offset, header.end_offset, header.record_count) == (offset, 6, 0)
        verify(memoryview(emptied.records))
        header_epochs.add(header.leader_epoch)
    assert header_epochs == {partition.term}
    term = partition.term
    waiting = fetched(wire, "emptied", 6, max_wait_ms=1, current_leader_epoch=term, last_fetched_epoch=term)
    assert (waiting.error_code, waiting.records, waiting.diverging_epoch.end_offset) == (0, b"", -1)
    assert offsets_of(fetched(wire, "emptied", 0, is_committed=False).records)[0] == 6, "nothing is there before it"
    assert other.end(is_commit=True) == 0
    assert one.end(is_commit=True) == 0
    assert read(wire, "emptied", 11, is_committed=True) == [6, 8]
