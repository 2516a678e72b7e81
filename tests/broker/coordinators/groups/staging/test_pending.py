"""Clients that ask for stable positions see what a transaction has written, as real brokers have it.

What is staged, and the marker, are appended by the coordinator itself here: nothing else is between a test and those.
"""

import pytest
from broker.coordinators.groups.group_client import GroupClient
from broker.coordinators.runtime.replica_world import writer_for

from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.state_machine.records import CommittedOffset, OffsetKey
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas_clients.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas_raftlog.records.markers import EndMarker

NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
Found = dict[int, tuple[int, int]]  # offset and error code by partition


@pytest.fixture
def staging(brokers: RunningCluster, client: GroupClient, topic: str) -> "Producer":
    client.commit_surely(topic, {0: 10, 1: 11})
    return Producer(brokers, client.group_id, topic)


class Producer:
    """A producer whose transaction commits offsets of one group and topic."""

    def __init__(self, brokers: RunningCluster, group_id: str, topic: str) -> None:
        self.brokers = brokers
        self.group_id = group_id
        self.topic = topic

    def stage(self, index: int, offset: int) -> None:
        key = OffsetKey(self.group_id, self.topic, index)

        async def write(cluster: Cluster) -> None:
            shard = await shard_of(cluster, self.group_id)
            assert shard.staging.write(writer_for(shard.runtime.partition, 7), [(key, CommittedOffset(offset))], None)
            assert await shard.runtime.wait_committed()

        self.brokers.run(write)

    def end(self, *, is_commit: bool) -> None:
        async def write(cluster: Cluster) -> None:
            shard = await shard_of(cluster, self.group_id)
            shard.staging.end(EndMarker(7, 0, is_commit, 1), None, bumps_epoch=False)
            assert await shard.runtime.wait_committed()

        self.brokers.run(write)


async def shard_of(cluster: Cluster, group_id: str) -> GroupShard:
    for node in cluster.nodes.values():
        shard = await node.broker.coordinator.find_shard(group_id)
        if isinstance(shard, GroupShard):
            return shard
    raise AssertionError("nobody coordinates it")


def fetch(client: GroupClient, topic: str, *indexes: int, require_stable: bool = True) -> Found:
    """Ask for positions, all of the group if none is named."""
    named = [OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)]
    group = OffsetFetchRequestGroup(group_id=client.group_id, topics=named if indexes else None)
    answer = client.ask(OffsetFetchRequest(groups=[group], require_stable=require_stable), 9).groups[0]
    assert answer.error_code == NONE
    return {
        one.partition_index: (one.committed_offset, one.error_code)
        for found in answer.topics
        for one in found.partitions
    }


def test_t17_a_position_that_is_pending_is_unstable_until_the_transaction_has_ended(
    client: GroupClient, topic: str, staging: Producer
) -> None:
    staging.stage(0, 20)
    staging.stage(2, 22)
    assert fetch(client, topic, 0, 1, 2) == {0: (-1, UNSTABLE), 1: (11, NONE), 2: (-1, UNSTABLE)}
    assert fetch(client, topic) == {0: (-1, UNSTABLE), 1: (11, NONE)}, "of those that it has"
    assert fetch(client, topic, 0, 1, 2, require_stable=False) == {0: (10, NONE), 1: (11, NONE), 2: (-1, NONE)}
    staging.end(is_commit=True)
    assert fetch(client, topic, 0, 1, 2) == {0: (20, NONE), 1: (11, NONE), 2: (22, NONE)}


def test_a_version_with_one_group_tells_it_too(client: GroupClient, topic: str, staging: Producer) -> None:
    staging.stage(0, 20)
    asked = OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
    request = OffsetFetchRequest(group_id=client.group_id, topics=[asked], require_stable=True)
    (one,) = client.ask(request, 7).topics[0].partitions
    assert (one.committed_offset, one.error_code) == (-1, UNSTABLE)
    staging.end(is_commit=False)
    assert fetch(client, topic, 0) == {0: (10, NONE)}


@pytest.mark.slow
def test_t17_it_is_so_with_the_next_coordinator(
    brokers: RunningCluster, client: GroupClient, topic: str, staging: Producer
) -> None:
    staging.stage(0, 20)
    client.find()
    old = client.coordinator_id
    brokers.run(lambda cluster: cluster.stop(old))
    client.lose()
    assert client.until_known(client.committed, lambda _: 0) == {(topic, 0): 10, (topic, 1): 11}
    assert client.coordinator_id != old
    assert fetch(client, topic, 0, 1) == {0: (-1, UNSTABLE), 1: (11, NONE)}
    staging.end(is_commit=True)
    assert fetch(client, topic, 0, 1) == {0: (20, NONE), 1: (11, NONE)}
    brokers.run(lambda cluster: cluster.start(old))
    brokers.run(lambda cluster: cluster.wait_ready())


def test_a_position_that_is_only_pending_can_be_deleted(client: GroupClient, topic: str, staging: Producer) -> None:
    staging.stage(2, 22)
    asked = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=2)])
    answer = client.ask(OffsetDeleteRequest(group_id=client.group_id, topics=[asked]), 0)
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (NONE, NONE)
    staging.end(is_commit=True)
    assert fetch(client, topic, 2) == {2: (-1, NONE)}
