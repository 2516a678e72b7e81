"""Three brokers in this process: replication, who leads, stopping one in good order, starting again."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest
from barnabas_clients.protocol.describe_cluster import DescribeClusterRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_metadata_quorum.controller.commands import NewTopic
from broker.reassignment import moving
from broker.wire_client import Wire, batch, fetch_request, offsets_of, produce_request


class Wires:
    """A connection to each broker, made anew when asked for after a restart."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.cluster = cluster.cluster
        self._open: list[Wire] = []

    def __getitem__(self, node_id: int) -> Wire:
        wire = Wire("127.0.0.1", self.cluster.nodes[node_id].port)
        self._open.append(wire)
        return wire

    def close(self) -> None:
        for wire in self._open:
            wire.close()


@pytest.fixture
def wires(three_brokers: RunningCluster) -> Iterator[Wires]:
    wires = Wires(three_brokers)
    yield wires
    wires.close()


def leader_of(wire: Wire, topic: str) -> int:
    partition = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9).topics[0].partitions[0]
    leader_id: int = partition.leader_id
    return leader_id


async def all_in_sync(cluster: Cluster, topic: str) -> None:
    """Wait until everybody is in sync as every broker sees it."""
    for node in cluster.nodes.values():
        hosted = node.partitions.topics[topic]
        while len(node.broker.leader_of(hosted, 0).isr) < 3:
            await node.partitions.known_leaders.leaders_changed()


def test_a_batch_is_on_all_brokers_and_read_from_the_leader(three_brokers: RunningCluster, wires: Wires) -> None:
    # In sync is also who is a little behind; with a minimum of three the answer waits until all of them have it.
    wires[1].create("replicated", factor=3, min_insync_replicas="3")
    leader = leader_of(wires[1], "replicated")
    three_brokers.run(lambda cluster: all_in_sync(cluster, "replicated"))
    assert wires[leader].produce("replicated", batch(3)).base_offset == 0
    for node in three_brokers.cluster.nodes.values():
        assert node.partitions.topics["replicated"].partitions[0].log.log_end_offset == 3
    assert offsets_of(wires[leader].fetch("replicated", 0).records) == [0]


def test_a_follower_names_the_leader_and_where_it_is(three_brokers: RunningCluster, wires: Wires) -> None:
    topic_id = wires[1].create("hinted", factor=3)
    leader = leader_of(wires[1], "hinted")
    follower = leader % 3 + 1
    response = wires[follower].ask(produce_request("hinted", batch()), 10)
    result = response.responses[0].partition_responses[0]
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    term = three_brokers.cluster.nodes[leader].partitions.topics["hinted"].partitions[0].term
    assert (result.current_leader.leader_id, result.current_leader.leader_epoch) == (leader, term)
    expected = [(leader, three_brokers.cluster.nodes[leader].port)]
    assert [(one.node_id, one.port) for one in response.node_endpoints] == expected
    response = wires[follower].ask(fetch_request("", 0, topic_id=topic_id), 16)
    result = response.responses[0].partitions[0]
    assert (result.error_code, result.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, leader)
    assert [(one.node_id, one.port) for one in response.node_endpoints] == expected


def test_min_insync_replicas_above_a_majority_waits_for_all(three_brokers: RunningCluster, wires: Wires) -> None:
    wires[1].create("all-three", factor=3, min_insync_replicas="3")
    three_brokers.run(lambda cluster: all_in_sync(cluster, "all-three"))
    wire = wires[leader_of(wires[1], "all-three")]
    assert [wire.produce("all-three", batch()).base_offset for _ in range(3)] == [0, 1, 2]


def test_stopping_the_leader_moves_it_and_loses_nothing(three_brokers: RunningCluster, wires: Wires) -> None:
    wires[1].create("moving", factor=3)
    three_brokers.run(lambda cluster: all_in_sync(cluster, "moving"))
    leader = leader_of(wires[1], "moving")
    wire = wires[leader]
    first = batch(producer_id=9, epoch=0, sequence=0)
    assert wire.produce("moving", first).base_offset == 0
    parked = wires[leader]
    request = fetch_request("moving", 1, max_wait_ms=30_000)
    parked.send(request, 12)
    other = wires[leader % 3 + 1]

    three_brokers.run(lambda cluster: cluster.stop(leader))

    # Those that waited were told at once. The others lead already, unless this machine has just stalled.
    result = parked.receive(request, 12).responses[0].partitions[0]
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    successor = three_brokers.run(lambda cluster: moving.leader(cluster, "moving"))
    three_brokers.run(lambda cluster: moving.all_know_it_left(cluster, leader))
    # Clients still hear of who has just left; the cluster's description is about who is there.
    assert {broker.node_id for broker in other.ask(MetadataRequest(topics=None), 9).brokers} == {1, 2, 3}
    assert {broker.broker_id for broker in other.ask(DescribeClusterRequest(), 0).brokers} == {1, 2, 3} - {leader}
    # The new leader knows the producer from the log.
    assert wires[successor].produce("moving", first).base_offset == 0
    assert wires[successor].produce("moving", batch(producer_id=9, epoch=0, sequence=1)).base_offset == 1

    async def restart(cluster: Cluster) -> None:
        await cluster.start(leader)
        await cluster.wait_ready()
        await all_in_sync(cluster, "moving")

    three_brokers.run(restart)
    assert three_brokers.cluster.nodes[leader].partitions.topics["moving"].partitions[0].log.log_end_offset == 2


def test_a_stopped_cluster_comes_back_with_everything() -> None:
    with RunningCluster(1) as running:
        node = running.cluster.nodes[1]
        wire = Wire("127.0.0.1", node.port)
        wire.create("kept")
        known = batch(2, producer_id=3, epoch=0, sequence=0)
        assert wire.produce("kept", known).base_offset == 0

        async def restart(cluster: Cluster) -> None:
            await cluster.stop(1)
            await cluster.start(1)
            await cluster.wait_ready()

        running.run(restart)
        wire.close()
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        assert offsets_of(wire.fetch("kept", 0).records) == [0]
        assert wire.produce("kept", known).base_offset == 0
        assert wire.produce("kept", batch(producer_id=3, epoch=0, sequence=2)).base_offset == 2
        assert wire.produce("kept", batch(producer_id=3, epoch=0, sequence=5)).error_code
        wire.close()


def test_a_topic_deleted_while_a_broker_is_away_leaves_nothing_on_its_disk(
    three_brokers: RunningCluster, wires: Wires
) -> None:
    wires[1].create("forgotten", factor=3)
    node = three_brokers.cluster.nodes[3]
    replicas = Path(node.config.log_dir) / "replicas"
    assert list(replicas.glob("forgotten-*"))
    three_brokers.run(lambda cluster: cluster.stop(3))
    deletion = DeleteTopicsRequest(topic_names=["forgotten"], timeout_ms=5_000)
    assert wires[1].ask(deletion, 5).responses[0].error_code == 0

    async def restart(cluster: Cluster) -> None:
        await cluster.start(3)
        await cluster.wait_ready()

    three_brokers.run(restart)
    assert "replica removed" in {event["kind"] for event in three_brokers.cluster.nodes[3].events.to_list()}
    assert not [path for path in replicas.glob("forgotten-*") if not path.name.endswith((".deleted", ".removed"))]


async def test_what_is_deleted_goes_without_the_garbage_collector() -> None:
    """It hardly ever looks at what is old, and a replica takes 14 KiB."""
    async with Cluster(3) as cluster:
        metadata = cluster.nodes[1].metadata
        partitions = cluster.nodes[1].partitions
        gc.disable()
        try:
            [created] = await metadata.create_topics([NewTopic("passing", 5, 3)], 60)
            await partitions.known_leaders.wait_for_leaders([created.topic_id], 60)
            await all_open(cluster)
            # Partition and group have each theirs.
            held = [weakref.ref(partition.log) for node in cluster.nodes.values() for partition in node.partitions]
            assert len(held) == 3 * 5
            [deleted] = await metadata.delete_topics(["passing"], [], 60)
            assert deleted.error is None
            async with asyncio.timeout(60):
                while any(one() is not None for one in held):  # noqa: ASYNC110 - nobody says so
                    await asyncio.sleep(0)
        finally:
            gc.enable()


async def all_open(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        while not node.partitions.is_reconciled:
            await node.partitions.known_leaders.leaders_changed()
