"""Reads from the replica in one's own rack (KIP-392), by several clients."""

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from broker.live.test_three_brokers import Wires, all_in_sync, leader_of
from broker.wire_client import batch, fetch_request, offsets_of
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.partition.read_replicas import ReadReplica, preferred_replica
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients import Consumer, Producer, TopicPartition
from barnabas_clients.protocol.error_codes import ErrorCode

RACKS = ("red", "green", "blue")


@pytest.fixture(scope="module")
def racks() -> Iterator[RunningCluster]:
    with RunningCluster(3, racks=RACKS) as cluster:
        yield cluster


@pytest.fixture
def wires(racks: RunningCluster) -> Iterator[Wires]:
    wires = Wires(racks)
    yield wires
    wires.close()


def fetch(wire: Any, topic: str, offset: int, rack: str, *, version: int = 12, **fields: Any) -> Any:
    request = fetch_request(topic, offset, **fields)
    request.rack_id = rack
    return wire.ask(request, version).responses[0].partitions[0]


def readers_of(cluster: Cluster, topic: str, client_id: str) -> set[int]:
    """Return the brokers that have served records to a client."""
    return {
        node_id
        for node_id, node in cluster.nodes.items()
        for row in node.broker.fetches.to_list()
        if (row["topic"], row["client_id"]) == (topic, client_id)
    }


def test_a_consumer_is_sent_to_the_replica_of_its_rack_and_reads_there(racks: RunningCluster, wires: Wires) -> None:
    wires[1].create("sent", factor=3)
    leader = leader_of(wires[1], "sent")
    follower = leader % 3 + 1
    assert wires[leader].produce("sent", batch(3)).base_offset == 0
    racks.run(lambda cluster: all_in_sync(cluster, "sent"))
    # A fetch that could wait does not: the consumer should be told where to go.
    told = fetch(wires[leader], "sent", 0, RACKS[follower - 1], max_wait_ms=30_000)
    assert (told.error_code, told.preferred_read_replica, told.records) == (0, follower, b"")
    # It may have to hear first that the batch is committed, and waits for that.
    found = fetch(wires[follower], "sent", 0, RACKS[follower - 1], max_wait_ms=10_000)
    assert (found.error_code, found.preferred_read_replica, found.high_watermark) == (0, -1, 3)
    assert offsets_of(found.records) == [0]
    # A consumer in the leader's rack, in no rack of a replica, or with an older version, stays.
    for rack, version in ((RACKS[leader - 1], 12), ("elsewhere", 12), ("", 12), (RACKS[follower - 1], 10)):
        stayed = fetch(wires[leader], "sent", 0, rack, version=version)
        assert (stayed.preferred_read_replica, offsets_of(stayed.records)) == (-1, [0])


def test_a_follower_serves_nobody_who_names_no_rack(wires: Wires) -> None:
    wires[1].create("nobody", factor=3)
    follower = leader_of(wires[1], "nobody") % 3 + 1
    assert fetch(wires[follower], "nobody", 0, "").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_at_a_follower_waits_for_what_is_committed_next(racks: RunningCluster, wires: Wires) -> None:
    wires[1].create("waiting", factor=3)
    leader = leader_of(wires[1], "waiting")
    follower = leader % 3 + 1
    racks.run(lambda cluster: all_in_sync(cluster, "waiting"))
    parked = wires[follower]
    request = fetch_request("waiting", 0, max_wait_ms=30_000)
    request.rack_id = RACKS[follower - 1]
    parked.send(request, 12)
    assert wires[leader].produce("waiting", batch(2)).base_offset == 0
    assert offsets_of(parked.receive(request, 12).responses[0].partitions[0].records) == [0]


def test_in_a_session_a_consumer_is_sent_to_its_rack_each_time_and_waits_there_too(
    racks: RunningCluster, wires: Wires
) -> None:
    wires[1].create("session", factor=3)
    leader = leader_of(wires[1], "session")
    follower = leader % 3 + 1
    assert wires[leader].produce("session", batch()).base_offset == 0
    racks.run(lambda cluster: all_in_sync(cluster, "session"))

    def open_at(node_id: int) -> Any:
        request = fetch_request("session", 1, max_wait_ms=10_000, min_bytes=0)
        request.rack_id = RACKS[follower - 1]
        request.session_epoch = 0
        answer = wires[node_id].ask(request, 12)
        request.topics, request.min_bytes, request.session_id = [], 1, answer.session_id
        return request

    at_leader = open_at(leader)
    for epoch in (1, 2):
        at_leader.session_epoch = epoch
        told = wires[leader].ask(at_leader, 12)
        assert told.responses[0].partitions[0].preferred_read_replica == follower
    at_follower = open_at(follower)
    at_follower.session_epoch = 1
    waiting = wires[follower]
    waiting.send(at_follower, 12)
    assert wires[leader].produce("session", batch()).base_offset == 1
    found = waiting.receive(at_follower, 12).responses[0].partitions[0]
    assert (found.preferred_read_replica, offsets_of(found.records)) == (-1, [1])


def test_a_follower_judges_offsets_and_epochs_as_far_as_it_knows(racks: RunningCluster, wires: Wires) -> None:
    wires[1].create("judging", factor=3)
    leader = leader_of(wires[1], "judging")
    follower = leader % 3 + 1
    assert wires[leader].produce("judging", batch(4)).base_offset == 0
    racks.run(lambda cluster: all_in_sync(cluster, "judging"))
    rack = RACKS[follower - 1]
    wire = wires[follower]
    assert offsets_of(fetch(wire, "judging", 0, rack, max_wait_ms=10_000).records) == [0]
    # The leader may have what is not here: only that one may say that nobody has it.
    assert fetch(wire, "judging", 5, rack).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert fetch(wires[leader], "judging", 5, rack).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(wire, "judging", -1, rack).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    term = racks.cluster.nodes[leader].partitions.topics["judging"].partitions[0].term
    for epoch, code in ((term + 1, ErrorCode.UNKNOWN_LEADER_EPOCH), (term - 1, ErrorCode.FENCED_LEADER_EPOCH)):
        assert fetch(wire, "judging", 0, rack, current_leader_epoch=epoch).error_code == code
    # It calls nothing diverged that it does not know to be committed, however old the consumer's epoch is.
    ahead = fetch(wire, "judging", 5, rack, last_fetched_epoch=term)
    assert (ahead.error_code, ahead.diverging_epoch.end_offset) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)


def test_our_consumer_reads_in_its_rack_and_goes_to_the_leader_when_that_replica_is_gone(
    racks: RunningCluster, wires: Wires
) -> None:
    wires[1].create("ours", factor=3)
    leader = leader_of(wires[1], "ours")
    follower = leader % 3 + 1
    racks.run(lambda cluster: all_in_sync(cluster, "ours"))

    async def read(cluster: Cluster) -> None:
        async with (
            Producer(cluster.bootstrap) as producer,
            Consumer(
                cluster.bootstrap, client_id="in-rack", client_rack=RACKS[follower - 1], auto_offset_reset="earliest"
            ) as consumer,
        ):
            await consumer.assign([TopicPartition("ours", 0)])
            for number in range(3):
                await producer.send_and_wait("ours", b"%d" % number)
                assert (await anext(consumer)).value == b"%d" % number
            assert readers_of(cluster, "ours", "in-rack") == {follower}
            await cluster.stop(follower)
            for number in range(3, 6):
                await producer.send_and_wait("ours", b"%d" % number)
                assert (await anext(consumer)).value == b"%d" % number
            assert readers_of(cluster, "ours", "in-rack") <= {1, 2, 3} - {follower}
            await cluster.start(follower)
            await cluster.wait_ready()

    racks.run(read)


@pytest.mark.interop
def test_librdkafka_reads_in_its_rack(racks: RunningCluster, wires: Wires) -> None:
    wires[1].create("theirs", factor=3)
    leader = leader_of(wires[1], "theirs")
    follower = leader % 3 + 1
    racks.run(lambda cluster: all_in_sync(cluster, "theirs"))
    config = {"bootstrap.servers": racks.bootstrap}
    consumer = confluent_kafka.Consumer(
        config | {"group.id": "unused", "client.id": "rd", "client.rack": RACKS[follower - 1]}
    )
    consumer.assign([confluent_kafka.TopicPartition("theirs", 0, 0)])
    producer = confluent_kafka.Producer(config)
    for number in range(100):
        producer.produce("theirs", value=b"%d" % number)
    assert producer.flush(20) == 0
    found: list[bytes | None] = []
    while len(found) < 100:
        messages = consumer.consume(100, 10)
        assert messages, f"only {len(found)} came"
        found += [message.value() for message in messages]
    assert found == [b"%d" % number for number in range(100)]
    consumer.close()
    assert readers_of(racks.cluster, "theirs", "rd") == {follower}


def test_the_most_caught_up_of_the_rack_is_preferred_and_the_leader_where_it_does() -> None:
    replicas = [ReadReplica(4, "a", 7), ReadReplica(2, "a", 9), ReadReplica(3, "a", 9), ReadReplica(5, "b", 99)]
    assert preferred_replica("a", "x", 7, replicas) == 2
    assert preferred_replica("a", "a", 7, replicas) is None
    assert preferred_replica("a", None, 10, replicas) is None
    assert preferred_replica("", None, 0, replicas) is None
    assert preferred_replica("c", "x", 0, replicas) is None


@given(
    st.sampled_from(("", "a", "b")),
    st.sampled_from((None, "a", "b")),
    st.integers(0, 5),
    st.lists(st.builds(ReadReplica, st.integers(1, 5), st.sampled_from((None, "a", "b")), st.integers(0, 5))),
)
def test_nobody_is_sent_to_another_rack_or_to_where_it_would_wait(
    rack: str, leader_rack: str | None, offset: int, replicas: list[ReadReplica]
) -> None:
    chosen = preferred_replica(rack, leader_rack, offset, replicas)
    good = {one.node_id for one in replicas if one.rack == rack != leader_rack and rack and one.end_offset >= offset}
    assert chosen in good if good else chosen is None
