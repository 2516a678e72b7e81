"""Observers: brokers that keep a copy for consumers in their rack, and never lead."""

import pytest

from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients import Admin, ConfigResource
from barnabas_clients.protocol.errors import InvalidConfigError

from .conftest import RACKS
from .moving import arrived, create, everything, files_are_at, hosts, in_sync, leader, move, partition_at, under_load

OBSERVERS = "replica.observers"


async def observe(cluster: Cluster, name: str, value: str | None) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.alter_configs(ConfigResource.topic(name), {OBSERVERS: value})


def readers_of(cluster: Cluster, topic: str) -> set[int]:
    """Return the brokers that have served records to consumers of this project."""
    return {
        node_id
        for node_id, node in cluster.nodes.items()
        for row in node.broker.fetches.to_list()
        if (row["topic"], row["client_id"]) == (topic, "barnabas-consumer")
    }


def account(cluster: Cluster, topic: str) -> str:
    """Say who read what from whom, and what happened meanwhile: for when another broker served than should have."""
    nodes = cluster.nodes.items()
    reads = [f"{node_id}: {row}" for node_id, node in nodes for row in node.broker.fetches.to_list()]
    events = [f"{node_id}: {one}" for node_id, node in nodes for one in node.events.to_list()]
    about = [line for line in events if f"'{topic}-0'" in line or "'links'" in line or "fenced" in line]
    return "\n".join([*(line for line in reads if topic in line), *about])


def test_an_observer_keeps_a_copy_that_consumers_of_its_rack_read(six_brokers: RunningCluster) -> None:
    async def run(cluster: Cluster) -> None:
        # Red and blue have replicas, green has an observer.
        await create(cluster, "watched", 1, 3, 4, configs={OBSERVERS: "5"})
        async with under_load(cluster, "watched") as load:
            # The leader after the move need not be the preferred one. If that took over while somebody reads, the
            # reader would rightly turn to it for a while.
            await leader(cluster, "watched", (1,))
            await in_sync(cluster, "watched", (1, 3, 4, 5))
        assert partition_at(cluster, 1, "watched").group.configuration.learner_ids == {5}
        assert await everything(cluster, "watched", client_rack=RACKS[4]) == load.acknowledged
        assert readers_of(cluster, "watched") == {5}, account(cluster, "watched")
        async with Admin(cluster.bootstrap) as admin:
            (topic,) = await admin.describe_topics(["watched"])
        # Clients are told of it as the last replica, or Java's consumer would not read there.
        assert topic.partitions[0].replicas[3:] == (5,)
        await files_are_at(cluster, "watched", (1, 3, 4, 5))

    six_brokers.run(run, 60.0)


def test_an_observer_counts_for_no_promise_and_is_never_elected(six_brokers: RunningCluster) -> None:
    async def run(cluster: Cluster) -> None:
        await create(cluster, "alone", 1, configs={OBSERVERS: "2,3", "min.insync.replicas": "1"})
        await in_sync(cluster, "alone", (1, 2, 3))
        assert partition_at(cluster, 1, "alone").copies_in_sync == 1
        async with under_load(cluster, "alone") as load:
            pass
        await cluster.stop(1)
        # Both have all of it, and neither leads; the replica leads again as soon as it is back.
        for node_id in (2, 3):
            assert partition_at(cluster, node_id, "alone").log.log_end_offset == len(load.acknowledged)
            assert not partition_at(cluster, node_id, "alone").is_leader
        await cluster.start(1)
        await cluster.wait_ready()
        assert await leader(cluster, "alone") == 1

    six_brokers.run(run, 60.0)


def test_observers_come_and_go_and_may_become_replicas(six_brokers: RunningCluster) -> None:
    async def run(cluster: Cluster) -> None:
        await create(cluster, "changing", 1, 2, 3)
        async with under_load(cluster, "changing") as load:
            await leader(cluster, "changing", (1, 2, 3))
            await observe(cluster, "changing", "4,5")
            await in_sync(cluster, "changing", (1, 2, 3, 4, 5))
            # One of them becomes a replica, one a voter less, and the other one goes.
            await move(cluster, "changing", (1, 2, 4))
            await in_sync(cluster, "changing", (1, 2, 4, 5))
            await observe(cluster, "changing", None)
            await in_sync(cluster, "changing", (1, 2, 4))
            await arrived(cluster, "changing")
        assert await everything(cluster, "changing") == load.acknowledged
        await files_are_at(cluster, "changing", (1, 2, 4))
        assert hosts(cluster, "changing") == {1, 2, 4}

    six_brokers.run(run, 60.0)


def test_only_registered_brokers_can_observe(six_brokers: RunningCluster) -> None:
    async def run(cluster: Cluster) -> None:
        await create(cluster, "refused", 1)
        for value in ("9", "x", "2,2"):
            with pytest.raises(InvalidConfigError, match=f"{OBSERVERS}={value}"):
                await observe(cluster, "refused", value)

    six_brokers.run(run, 60.0)
