"""A partition moves while in use: nothing is lost, order is kept, leftovers go."""

import shutil
from pathlib import Path
from typing import cast

from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.write_behind import fail
from broker.bad_disks import kinds

from .moving import (
    all_know_it_left,
    arrived,
    create,
    everything,
    files_are_at,
    hosts,
    in_sync,
    leader,
    move,
    partition_at,
    partition_of,
    topic_of,
    under_load,
    until,
)


def test_three_replicas_move_to_three_others_under_load(six_brokers: RunningCluster) -> None:
    async def run(cluster: Cluster) -> None:
        await create(cluster, "disjoint", 1, 2, 3)
        async with under_load(cluster, "disjoint") as load:
            await leader(cluster, "disjoint", (1, 2, 3))
            await move(cluster, "disjoint", (4, 5, 6))
            await arrived(cluster, "disjoint")
            await leader(cluster, "disjoint", (4, 5, 6))
            await in_sync(cluster, "disjoint", (4, 5, 6))
        assert load.acknowledged
        # Idempotence and acks=all: each value once, in order, whoever led when.
        assert await everything(cluster, "disjoint") == load.acknowledged
        assert (await partition_of(cluster, "disjoint")).replicas == (4, 5, 6)
        assert hosts(cluster, "disjoint") == {4, 5, 6}
        await files_are_at(cluster, "disjoint", (4, 5, 6))

    six_brokers.run(run, 60.0)


def test_a_move_goes_on_when_leader_and_controller_are_stopped_in_the_middle_of_it(six_brokers: RunningCluster) -> None:
    async def run(cluster: Cluster) -> None:
        await create(cluster, "harmed", 1, 2, 3)
        async with under_load(cluster, "harmed") as load:
            first = await leader(cluster, "harmed", (1, 2, 3))
            # It cannot end while one of the targets is away.
            await cluster.stop(6)
            await move(cluster, "harmed", (4, 5, 6))
            await until(cluster, lambda image: topic_of(image, "harmed").partitions[0].move is not None)
            await cluster.stop(first)
            controller = cluster.nodes[5].metadata.leader_id
            if controller in cluster.nodes and controller != 5:
                await cluster.stop(controller)
            for node_id in set(cluster.configs) - set(cluster.nodes):
                await cluster.start(node_id)
            await cluster.wait_ready()
            await arrived(cluster, "harmed")
            await leader(cluster, "harmed", (4, 5, 6))
        assert load.acknowledged
        assert await everything(cluster, "harmed") == load.acknowledged
        await files_are_at(cluster, "harmed", (4, 5, 6))

    six_brokers.run(run, 90.0)


def test_a_move_that_is_called_off_goes_back_and_leaves_nothing_behind(six_brokers: RunningCluster) -> None:
    async def run(cluster: Cluster) -> None:
        await create(cluster, "called-off", 1, 2, 3)
        await cluster.stop(6)
        async with under_load(cluster, "called-off") as load:
            await leader(cluster, "called-off", (1, 2, 3))
            await move(cluster, "called-off", (4, 5, 6))
            # Two of three have come, and the third one never does: whoever leads stays.
            await in_sync(cluster, "called-off", (4, 5), others=1)
            await move(cluster, "called-off", None)
            await arrived(cluster, "called-off")
            await in_sync(cluster, "called-off", (1, 2, 3))
        assert await everything(cluster, "called-off") == load.acknowledged
        assert set((await partition_of(cluster, "called-off")).replicas) == {1, 2, 3}
        await files_are_at(cluster, "called-off", (1, 2, 3))
        await cluster.start(6)
        await cluster.wait_ready()
        await files_are_at(cluster, "called-off", (1, 2, 3))

    six_brokers.run(run, 60.0)


def test_a_replica_made_anew_after_a_move_that_was_called_off_at_once_is_a_voter(six_brokers: RunningCluster) -> None:
    """The group has only the members that it began with, and the controller tells nobody any more who they were."""

    async def run(cluster: Cluster) -> None:
        await create(cluster, "unmoved", 1, 2, 3)
        async with under_load(cluster, "unmoved") as load:
            await leader(cluster, "unmoved", (1, 2, 3))
            await cluster.stop(6)
            await all_know_it_left(cluster, 6)
            await move(cluster, "unmoved", (1, 2, 6))  # No step can be taken.
            await move(cluster, "unmoved", None)
            await arrived(cluster, "unmoved")
            assert (await partition_of(cluster, "unmoved")).founders is None
        fail(cast("ReplicaLog", partition_at(cluster, 3, "unmoved").log), "its disk gave up for a moment")
        await cluster.start(6)
        await cluster.wait_ready()
        await move(cluster, "unmoved", (3, 2, 1))
        assert await leader(cluster, "unmoved", (3,)) == 3
        assert "replica made anew" in kinds(cluster.nodes[3])
        assert await everything(cluster, "unmoved") == load.acknowledged

    six_brokers.run(run, 60.0)


def test_a_partition_gets_more_replicas_and_fewer(six_brokers: RunningCluster) -> None:
    async def run(cluster: Cluster) -> None:
        await create(cluster, "grown", 1)
        async with under_load(cluster, "grown") as load:
            for replicas in ((1, 2, 3), (4, 3), (5,)):
                await move(cluster, "grown", replicas)
                await arrived(cluster, "grown")
                await in_sync(cluster, "grown", replicas)
        assert await everything(cluster, "grown") == load.acknowledged
        await files_are_at(cluster, "grown", (5,))

    six_brokers.run(run, 60.0)


def test_a_broker_that_comes_back_with_an_empty_disk_is_a_new_member(six_brokers: RunningCluster) -> None:
    async def run(cluster: Cluster) -> None:
        await create(cluster, "emptied", 4, 5, 6)
        async with under_load(cluster, "emptied") as load:
            await leader(cluster, "emptied", (4, 5, 6))
            lost = cluster.nodes[6].storage.directory_id
            await cluster.stop(6)
            # Else what is heard below may still be about the disk that is gone.
            await in_sync(cluster, "emptied", (4, 5))
            shutil.rmtree(Path(cluster.configs[6].log_dir))
            await cluster.start(6)
            await cluster.wait_ready()
            await in_sync(cluster, "emptied", (4, 5, 6))
            # Its copy counts: the other two of the three can lose one, and all is still there.
            await leader(cluster, "emptied", (4, 5, 6))
        member = partition_at(cluster, 4, "emptied").group.configuration.member(6)
        assert member is not None
        assert member.directory_id == cluster.nodes[6].storage.directory_id != lost
        assert (await partition_of(cluster, "emptied")).move is None
        assert await everything(cluster, "emptied") == load.acknowledged
        await cluster.stop(4)
        assert await everything(cluster, "emptied") == load.acknowledged
        await cluster.start(4)
        await cluster.wait_ready()

    six_brokers.run(run, 60.0)


def test_a_broker_that_was_away_while_its_partition_moved_deletes_what_it_has(six_brokers: RunningCluster) -> None:
    async def run(cluster: Cluster) -> None:
        await create(cluster, "absent", 1, 2, 6)
        await cluster.stop(6)
        await move(cluster, "absent", (1, 2, 4))
        await arrived(cluster, "absent")
        await cluster.start(6)
        await cluster.wait_ready()
        await files_are_at(cluster, "absent", (1, 2, 4))

    six_brokers.run(run, 60.0)
