"""Expired offsets, empty groups, offsets of deleted topics and a long log's beginning go."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from barnabas_broker.coordinators.groups import expiry as expiry_module
from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.runtime.shard import REWRITE_BYTES
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from .conftest import QUICK
from .group_client import GroupClient, rebalance

NONE = ErrorCode.NONE
MINUTE_MS = 60_000
RETENTION_MINUTES = 10_080  # the default


@pytest.fixture(scope="module")
def brokers() -> Iterator[RunningCluster]:
    """Brokers of this module's own: time passes here for all of their groups at once."""
    with RunningCluster(3, settings=QUICK | {"offsets.topic.num.partitions": 2}) as cluster:
        yield cluster


def coordinators(cluster: Cluster) -> list[GroupCoordinator]:
    return [node.broker.coordinator for node in cluster.nodes.values()]


def let_pass(brokers: RunningCluster, minutes: float) -> None:
    """Let `minutes` pass on every wall clock, look for what has expired, and wait until that is in the log."""

    async def look(cluster: Cluster) -> None:
        for coordinator in coordinators(cluster):
            coordinator.host.wall_ms = later(coordinator.host.wall_ms, int(minutes * MINUTE_MS))
            await coordinator.expiry.round()
            for shard in coordinator.active_shards():
                assert await shard.runtime.wait_committed()

    brokers.run(look)


def later(clock: Callable[[], int], by_ms: int) -> Callable[[], int]:
    return lambda: clock() + by_ms


def shard_with(cluster: Cluster, group_id: str) -> GroupShard:
    return next(
        shard
        for coordinator in coordinators(cluster)
        for shard in coordinator.active_shards()
        if group_id in shard.groups
    )


def is_known(brokers: RunningCluster, group_id: str) -> bool:
    async def ask(cluster: Cluster) -> bool:
        return any(group_id in shard.groups for one in coordinators(cluster) for shard in one.active_shards())

    return brokers.run(ask)


def test_offsets_of_a_group_that_nobody_uses_expire_and_the_group_with_them(
    brokers: RunningCluster, client: GroupClient, topic: str
) -> None:
    client.commit(topic, {0: 5})
    let_pass(brokers, RETENTION_MINUTES - 1)
    client.commit(topic, {1: 6})
    let_pass(brokers, 2)
    assert client.committed() == {(topic, 1): 6}
    let_pass(brokers, RETENTION_MINUTES)
    assert client.committed() == {}

    assert not is_known(brokers, client.group_id)
    events = brokers.run(lambda cluster: status_events(cluster, client.group_id))
    assert [one for one in events if one == "offsets expired"] == ["offsets expired"] * 2


def test_many_offsets_of_a_group_expire_a_part_at_a_time_and_the_group_in_the_next_round(
    brokers: RunningCluster, client: GroupClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry_module, "LOOKED_STEP", 2)
    client.commit(topic, {0: 5, 1: 6, 2: 7, 3: 8})
    let_pass(brokers, RETENTION_MINUTES - 1)
    client.commit(topic, {1: 7, 3: 9})
    let_pass(brokers, 2)
    assert client.committed() == {(topic, 1): 7, (topic, 3): 9}
    client.commit(topic, {2: 1})
    let_pass(brokers, RETENTION_MINUTES)
    assert client.committed() == {}

    assert is_known(brokers, client.group_id)
    let_pass(brokers, 0)
    assert not is_known(brokers, client.group_id)


async def status_events(cluster: Cluster, group_id: str) -> list[str]:
    return [
        str(event["kind"])
        for coordinator in coordinators(cluster)
        for event in coordinator.group_events.to_list()
        if event["group"] == f"group {group_id}"
    ]


def test_what_members_read_does_not_expire_and_what_they_left_does(
    brokers: RunningCluster, client: GroupClient, topic: str, name: str
) -> None:
    client.find().create(f"{name}-left", 1, 1)
    rebalance(client)
    client.commit(topic, {0: 5})
    client.commit(f"{name}-left", {0: 6})
    let_pass(brokers, 10_081)
    assert client.committed() == {(topic, 0): 5}
    client.leave()
    let_pass(brokers, 10_079)
    assert client.committed() == {(topic, 0): 5}, "its time begins when the last member leaves"
    let_pass(brokers, 2)
    assert client.committed() == {}


def test_a_time_that_the_client_set_counts(brokers: RunningCluster, client: GroupClient, topic: str) -> None:
    partition = OffsetCommitRequestPartition(committed_offset=5)
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    request = OffsetCommitRequest(group_id=client.group_id, retention_time_ms=3 * MINUTE_MS, topics=topics)
    assert client.ask(request, 4).topics[0].partitions[0].error_code == NONE
    let_pass(brokers, 2)
    assert client.committed() == {(topic, 0): 5}
    let_pass(brokers, 2)
    assert client.committed() == {}


def test_a_deleted_topic_takes_its_offsets_with_it(
    brokers: RunningCluster, client: GroupClient, topic: str, name: str
) -> None:
    client.find().create(f"{name}-kept", 1, 1)
    client.commit(topic, {0: 5, 1: 6})
    client.commit(f"{name}-kept", {0: 7})
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000)
    assert client.find().ask(request, 5).responses[0].error_code == NONE

    async def settle(cluster: Cluster) -> None:
        shard = shard_with(cluster, client.group_id)
        while set(shard.offsets.of_group(client.group_id)) != {(f"{name}-kept", 0)}:
            await asyncio.sleep(0)  # The task that writes the tombstones has its turn.
            assert await shard.runtime.wait_committed()

    brokers.run(settle)
    client.find().create(topic, 1, 1)
    assert client.committed(topic, [0]) == {(topic, 0): -1}, "the new topic has nothing to do with the old one"


def test_offsets_of_a_topic_that_was_missed_go_in_the_second_round(
    brokers: RunningCluster, client: GroupClient, topic: str
) -> None:
    client.commit(topic, {0: 5})

    async def forget_nothing(cluster: Cluster) -> None:
        for coordinator in coordinators(cluster):
            coordinator.expiry.forget_topics = lambda topics: None  # type: ignore[method-assign]

    async def remember(cluster: Cluster) -> None:
        for coordinator in coordinators(cluster):
            del coordinator.expiry.forget_topics

    brokers.run(forget_nothing)
    client.find().ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
    brokers.run(remember)
    let_pass(brokers, 0)
    assert client.committed() == {(topic, 0): 5}, "the image of this broker might be old"
    let_pass(brokers, 0)
    assert client.committed() == {}


def test_a_long_log_is_cut_and_says_the_same_to_the_next_coordinator(
    brokers: RunningCluster, client: GroupClient, topic: str, name: str
) -> None:
    rebalance(client)
    client.commit(topic, {0: 5})
    wide = f"{name}-wide"
    client.find().create(wide, 50, 1)
    simple = GroupClient(brokers.bootstrap, client.group_id)
    rounds = 6 * REWRITE_BYTES // (50 * 4_096) // 4
    for offset in range(rounds):
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="x" * 4_096)
            for index in range(50)
        ]
        request = OffsetCommitRequest(
            group_id=client.group_id,
            generation_id_or_member_epoch=client.generation_id,
            member_id=client.member_id,
            topics=[OffsetCommitRequestTopic(name=wide, partitions=partitions)],
        )
        answer = client.ask(request, 9)
        assert {one.error_code for one in answer.topics[0].partitions} == {NONE}

    async def log_of(cluster: Cluster) -> tuple[int, int]:
        shard = shard_with(cluster, client.group_id)
        while shard.runtime.is_rewriting:
            await asyncio.sleep(0)
            assert await shard.runtime.wait_committed()
        assert await shard.runtime.wait_committed()
        return shard.runtime.partition.log.log_start_offset, shard.runtime.partition.log.size_bytes

    start_offset, size_bytes = brokers.run(log_of)
    assert start_offset > 0
    assert size_bytes < 2 * REWRITE_BYTES
    expected = {(wide, index): rounds - 1 for index in range(50)} | {(topic, 0): 5}
    assert client.committed() == expected
    old = client.coordinator_id
    brokers.run(lambda cluster: cluster.stop(old))
    client.lose()
    assert client.until_known(client.heartbeat, int) == NONE
    assert client.committed() == expected
    brokers.run(lambda cluster: cluster.start(old))
    brokers.run(lambda cluster: cluster.wait_ready())
    simple.lose()
