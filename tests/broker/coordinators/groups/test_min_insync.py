"""min.insync.replicas of the offsets topic above what a commit guarantees, one replica away: real brokers."""

from functools import partial

from broker.wire_client import Wire

from barnabas_broker.coordinators.groups.state_machine.location import OFFSETS_TOPIC
from barnabas_broker.coordinators.groups.state_machine.records import OffsetKey
from barnabas_broker.partition.partition import Partition
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_metadata_quorum.controller.commands import AlterConfigs, ConfigChange, ConfiguredTopic

from .conftest import QUICK
from .group_client import GroupClient

SETTINGS = QUICK | {"offsets.topic.num.partitions": 1, "auto.leader.rebalance.enable": False}


def replica(cluster: Cluster, node_id: int) -> Partition:
    return cluster.nodes[node_id].partitions.topics[OFFSETS_TOPIC].partitions[0]


async def ask_for_three(cluster: Cluster) -> None:
    change = ConfigChange("min.insync.replicas", value="3")
    await cluster.nodes[1].metadata.submit(AlterConfigs((ConfiguredTopic(OFFSETS_TOPIC, (change,)),)), 10.0)
    for node_id in cluster.nodes:
        while replica(cluster, node_id).min_insync != 3:
            await cluster.leaders_changed(0.05)


async def until_committed(cluster: Cluster, leader_id: int, offset: int) -> int:
    """Wait until that is committed; return how many answers are held back."""
    runtime = cluster.nodes[leader_id].broker.coordinator.runtime.shards[0]
    while (value := runtime.shard.offsets.get(OffsetKey("g", "t", 0))) is None or value.offset != offset:
        await cluster.leaders_changed(0.05)
    return len(runtime.partition._short)


async def hand_over(cluster: Cluster, leader_id: int, next_id: int) -> None:
    old = replica(cluster, leader_id)
    while 0 not in cluster.nodes[next_id].broker.coordinator.runtime.shards:
        if (
            old.can_serve and not old.is_handing_over
        ):  # One that has just stood still is not sure, and hands nothing on.
            old.transfer(next_id)
        await cluster.leaders_changed(0.05)


def test_committed_offset_never_goes_back_while_a_replica_is_away() -> None:
    with RunningCluster(3, settings=SETTINGS) as brokers:
        client = GroupClient(brokers.bootstrap, "g")
        wire: Wire = client.find()
        wire.create("t")
        assert client.commit("t", {0: 10}) == [ErrorCode.NONE]
        brokers.run(ask_for_three)
        leader_id = client.coordinator_id
        next_id, away_id = (node_id for node_id in (1, 2, 3) if node_id != leader_id)
        brokers.run(partial(Cluster.stop, node_id=away_id))
        partitions = [OffsetCommitRequestPartition(committed_offset=20)]
        request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])
        wire.send(request, 8)
        held_back = brokers.run(partial(until_committed, leader_id=leader_id, offset=20))
        assert held_back == 1, "it is committed, and not acknowledged: too few have it"
        for old_id, new_id in ((leader_id, next_id), (next_id, leader_id)):
            brokers.run(partial(hand_over, leader_id=old_id, next_id=new_id))
            client.lose()
            assert client.until_known(client.committed, lambda _: 0) == {("t", 0): 20}
            assert client.coordinator_id == new_id
        client.lose()
