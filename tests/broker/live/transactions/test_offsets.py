"""Positions of a group that are stored as part of a transaction, with the real coordinators of both."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.admin.client import Admin
from barnabas_clients.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas_clients.topic_partition import TopicPartition
from broker.coordinators.groups.group_client import GroupClient
from broker.live.test_three_brokers import Wires, all_in_sync, leader_of

from .consuming import stable_position, stage, stage_surely
from .producing import Transactional, read, until_decided

NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def group(brokers: RunningCluster, request: pytest.FixtureRequest) -> Any:
    client = GroupClient(brokers.bootstrap, request.node.name)
    yield client
    client.lose()


def test_positions_and_records_of_version_2_count_together(wires: Wires, group: GroupClient) -> None:
    wires[1].create("together", 2)
    one = Transactional(wires, "together")
    for is_commit, expected in ((False, -1), (True, 7)):
        assert one.send("together", 2).error_code == 0
        assert stage_surely(group, one, "together", {0: 7}) == [NONE]
        assert one.end(is_commit=is_commit) == 0
        assert stable_position(group, "together", 0) == expected
    leader = leader_of(wires[1], "together")
    assert read(wires[leader], "together", 6, is_committed=True) == [3, 4]


@pytest.mark.parametrize(("version", "absent"), [(2, "INVALID_TXN_STATE"), (4, "TRANSACTION_ABORTABLE")])
def test_t10_before_version_5_the_group_is_added_first(
    wires: Wires, group: GroupClient, version: int, absent: str
) -> None:
    topic = f"added-{version}"
    wires[1].create(topic)
    one = Transactional(wires, topic, version=11)
    request = AddOffsetsToTxnRequest(
        transactional_id=topic, producer_id=one.producer_id, producer_epoch=one.epoch, group_id=group.group_id
    )
    group.commit_surely(topic, {0: 1})
    assert stage(group, one, topic, {0: 5}, version=version) == [ErrorCode[absent]]
    for offset in (5, 6):
        assert until_decided(lambda: one.ask_coordinator(request, 3)).error_code == NONE
        assert stage_surely(group, one, topic, {0: offset}, version=version) == [NONE]
        assert one.end(is_commit=True) == 0
        assert stable_position(group, topic, 0) == offset


def test_t13_a_newer_instance_ends_what_the_older_one_has_staged(wires: Wires, group: GroupClient) -> None:
    wires[1].create("replaced")
    group.commit_surely("replaced", {0: 1})
    old = Transactional(wires, "replaced")
    assert stage_surely(group, old, "replaced", {0: 5}) == [NONE]
    new = Transactional(wires, "replaced")
    assert stable_position(group, "replaced", 0) == 1
    assert stage(group, old, "replaced", {0: 6}) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert stage_surely(group, new, "replaced", {0: 7}) == [NONE]
    assert new.end(is_commit=True) == 0
    assert stable_position(group, "replaced", 0) == 7


def test_who_only_looks_at_a_group_does_not_wait_for_its_transactions(
    brokers: RunningCluster, wires: Wires, group: GroupClient
) -> None:
    """A busy group always has one open: those who ask for positions that no transaction may change never got any."""
    wires[1].create("looked-at")
    group.commit_surely("looked-at", {0: 1})
    one = Transactional(wires, "looked-at")
    assert stage_surely(group, one, "looked-at", {0: 7}) == [NONE]

    async def look() -> tuple[int, int]:
        async with Admin(brokers.bootstrap) as admin:
            stored = await admin.group_offsets(group.group_id, stable=False)
            ((_, lag),) = (await admin.group_lag(group.group_id)).items()
            assert lag.committed is not None
            return stored[TopicPartition("looked-at", 0)].offset, lag.committed.offset

    assert asyncio.run(look()) == (1, 1)
    assert one.end(is_commit=True) == 0
    assert stable_position(group, "looked-at", 0) == 7
    assert asyncio.run(look()) == (7, 7)


def test_of_two_transactions_the_record_that_was_written_last_counts(wires: Wires, group: GroupClient) -> None:
    wires[1].create("two")
    first, second = Transactional(wires, "two-1"), Transactional(wires, "two-2")
    assert stage_surely(group, first, "two", {0: 5}) == [NONE]
    assert stage_surely(group, second, "two", {0: 6}) == [NONE]
    assert second.end(is_commit=True) == 0
    assert first.end(is_commit=True) == 0
    assert stable_position(group, "two", 0) == 6


def fetched_codes(group: GroupClient, topic: str) -> Mapping[int, int]:
    asked = OffsetFetchRequestGroup(
        group_id=group.group_id, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    )
    answer = group.ask(OffsetFetchRequest(groups=[asked], require_stable=True), 9).groups[0]
    return {one.partition_index: one.error_code for found in answer.topics for one in found.partitions}


@pytest.mark.slow
@pytest.mark.parametrize("stopped", ["group", "transaction"])
def test_t17_what_is_staged_counts_though_a_coordinator_goes(
    brokers: RunningCluster, wires: Wires, group: GroupClient, stopped: str
) -> None:
    """Positions that are not kept through a failover are lost though EndTxn succeeds."""
    name = f"failover-{stopped}"
    wires[1].create(name, factor=3)
    brokers.run(lambda cluster: all_in_sync(cluster, name))
    one = Transactional(wires, name)
    assert stage_surely(group, one, name, {0: 9}) == [NONE]
    assert fetched_codes(group, name) == {0: UNSTABLE}
    group.find()
    node_id = group.coordinator_id if stopped == "group" else one.coordinator_id
    brokers.run(lambda cluster: cluster.stop(node_id))
    group.lose()
    until_decided(one._find)
    assert one.coordinator_id != node_id
    assert stage_surely(group, one, name, {0: 10}) == [NONE]
    assert one.end(is_commit=True) == 0
    assert stable_position(group, name, 0) == 10

    async def restart(cluster: Cluster) -> None:
        await cluster.start(node_id)
        await cluster.wait_ready()

    brokers.run(restart)
