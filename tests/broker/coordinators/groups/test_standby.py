"""Every replica knows as much as a replay of the whole log would tell it."""

import pytest
from broker.wire_client import Wire

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.groups.state_machine.location import OFFSETS_TOPIC
from barnabas_broker.coordinators.groups.table import GroupTable
from barnabas_broker.coordinators.runtime import coordinator as coordinator_module
from barnabas_broker.coordinators.runtime.standby import Standby
from barnabas_broker.partition.partition import Partition
from barnabas_broker.testing import Cluster, RunningCluster

from .conftest import QUICK
from .group_client import GroupClient, rebalance

LAG = 3


def replicas(cluster: Cluster) -> list[tuple[GroupCoordinator, Partition]]:
    return [
        (node.broker.coordinator, partition)
        for node in cluster.nodes.values()
        for partition in node.partitions.topics[OFFSETS_TOPIC].partitions.values()
    ]


async def whole(partition: Partition) -> GroupTable:
    """Return what the whole log says."""
    standby = Standby(GroupTable)
    await standby.advance(partition.log, partition.producers.commit_index, lambda: True)
    return standby.table


def known(table: GroupTable) -> tuple[dict[object, object], object]:
    return {key: table.offsets.get(key) for key in table.offsets.keys()}, table.saved  # noqa: SIM118


async def check(cluster: Cluster) -> int:
    """Compare every replica with its log; return how many had to read ahead."""
    read_ahead = 0
    for coordinator, partition in replicas(cluster):
        expected = await whole(partition)
        runtime = coordinator.runtime.shards.get(partition.index)
        if runtime is not None:
            assert await coordinator.find_shard("g") is runtime.shard
            assert known(runtime.standby.table) == known(expected)
            continue
        observer = partition.observer
        assert isinstance(observer, coordinator_module.Replica)
        if observer._reading is not None:
            await observer._reading
        standby = observer._standby
        read_ahead += standby.applied_index > 0
        assert partition.producers.commit_index - standby.applied_index <= LAG
        await standby.advance(partition.log, partition.producers.commit_index, lambda: True)
        assert known(standby.table) == known(expected)
    return read_ahead


async def hand_over(cluster: Cluster) -> None:
    """Let another broker lead each partition, and wait until that one serves."""
    leaders = [(one, partition) for one, partition in replicas(cluster) if partition.is_leader]
    for _, partition in leaders:
        await partition.group.confirm()  # one that has just stood still hands nothing over before
        partition.transfer(next(node_id for node_id in partition.replicas if node_id != partition.host.node_id))
    for coordinator, partition in leaders:
        while partition.is_leader:
            await coordinator._partitions.known_leaders.leaders_changed()


def test_a_replica_that_reads_ahead_knows_what_the_log_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "STANDBY_ENTRIES", LAG)
    with RunningCluster(3, settings=QUICK | {"offsets.topic.num.partitions": 1}) as brokers:
        host, _, port = brokers.bootstrap.partition(",")[0].rpartition(":")
        wire = Wire(host, int(port))
        wire.create("t", 4, 1)
        wire.close()
        member = GroupClient(brokers.bootstrap, "g", "t")
        rebalance(member)
        for round_number in range(6):
            simple = GroupClient(brokers.bootstrap, f"simple-{round_number % 3}")
            simple.commit_surely("t", {round_number % 3: round_number, 3: round_number})
            member.commit_surely("t", {0: round_number})
            if round_number % 2:
                simple.delete_surely()
            brokers.run(hand_over)
            simple.lose()
        assert brokers.run(check) > 0
        assert member.until_known(member.committed, lambda _: 0) == {("t", 0): 5}
        member.lose()
