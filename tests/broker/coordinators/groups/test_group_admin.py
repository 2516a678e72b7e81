"""FindCoordinator, ListGroups, DescribeGroups, DeleteGroups, and the offsets topic as clients see it."""

from itertools import count

import pytest
from broker.wire_client import Wire, batch, fetch_request

from barnabas_broker.coordinators.groups.state_machine.location import OFFSETS_TOPIC, partition_for
from barnabas_broker.coordinators.groups.state_machine.records import OffsetKey, decode_key, decode_offset
from barnabas_broker.coordinators.runtime.shard import ShardState
from barnabas_broker.server.handlers.find_coordinator import KEYS_MAX
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.delete_groups import DeleteGroupsRequest
from barnabas_clients.protocol.delete_topics import DeleteTopicsRequest
from barnabas_clients.protocol.describe_groups import DescribeGroupsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.list_groups import ListGroupsRequest
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_raftlog.records.reader import read_records

from .group_client import CoordinatorError, GroupClient, rebalance, subscription, topic_metadata

NONE = ErrorCode.NONE


@pytest.mark.parametrize("version", range(7))
def test_every_version_finds_the_coordinator(brokers: RunningCluster, client: GroupClient, version: int) -> None:
    wire = client.find()
    answer = wire.ask(FindCoordinatorRequest(key=client.group_id, coordinator_keys=[client.group_id]), version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (NONE, client.coordinator_id)
    assert found.port == brokers.cluster.nodes[found.node_id].port


@pytest.mark.parametrize("version", [1, 4])
def test_share_groups_have_no_coordinators(client: GroupClient, version: int) -> None:
    answer = client.find().ask(FindCoordinatorRequest(key="x", coordinator_keys=["x"], key_type=2), version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_the_coordinators_of_ten_thousand_groups_are_told_at_once_and_of_more_none(client: GroupClient) -> None:
    wire = client.find()
    answer = wire.ask(FindCoordinatorRequest(coordinator_keys=["x"] * KEYS_MAX), 4)
    assert [found.error_code for found in answer.coordinators] == [NONE] * KEYS_MAX
    answer = wire.ask(FindCoordinatorRequest(coordinator_keys=["x"] * (KEYS_MAX + 1)), 4)
    assert {(found.error_code, found.node_id) for found in answer.coordinators} == {(ErrorCode.INVALID_REQUEST, -1)}
    assert {found.error_message for found in answer.coordinators} == {f"more than {KEYS_MAX} keys in one request"}


def test_who_is_not_the_coordinator_says_so(brokers: RunningCluster, client: GroupClient, topic: str) -> None:
    client.find()
    other = next(node for number, node in brokers.cluster.nodes.items() if number != client.coordinator_id)
    stranger = GroupClient(brokers.bootstrap, client.group_id, topic)
    stranger._wire = Wire("127.0.0.1", other.port)
    stranger.member_id = "x"
    wrong = ErrorCode.NOT_COORDINATOR
    assert stranger.receive_join(stranger.send_join()).error_code == wrong
    assert stranger.sync().error_code == stranger.heartbeat() == wrong
    assert stranger.leave() == stranger.commit(topic, {0: 1}) == [wrong]
    with pytest.raises(CoordinatorError, match="NOT_COORDINATOR"):
        stranger.committed()
    stranger.lose()


def test_a_coordinator_that_is_loading_says_so_and_keeps_members_calm(
    brokers: RunningCluster, client: GroupClient, topic: str
) -> None:
    rebalance(client)
    client.commit(topic, {0: 7})

    async def enter(cluster: Cluster, state: ShardState) -> None:
        coordinator = cluster.nodes[client.coordinator_id].broker.coordinator
        coordinator.runtime.load_s = 0.0 if state is ShardState.LOADING else 0.5
        for runtime in coordinator.runtime.shards.values():
            if client.group_id in runtime.shard.groups:
                runtime.state = state

    brokers.run(lambda cluster: enter(cluster, ShardState.LOADING))
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert client.heartbeat() == NONE, "as Kafka: it will be known again in a moment"
    assert client.commit(topic, {0: 8}) == [loading]
    assert client.sync().error_code == client.receive_join(client.send_join()).error_code == loading
    assert client.ask(ListGroupsRequest(), 5).error_code == loading
    with pytest.raises(CoordinatorError, match="LOAD_IN_PROGRESS"):
        client.committed()
    brokers.run(lambda cluster: enter(cluster, ShardState.ACTIVE))
    assert client.committed() == {(topic, 0): 7}


@pytest.mark.parametrize("version", range(6))
def test_every_version_lists(client: GroupClient, topic: str, version: int) -> None:
    rebalance(client)
    (found,) = (one for one in client.ask(ListGroupsRequest(), version).groups if one.group_id == client.group_id)
    expected = ("consumer", "Stable" if version >= 4 else "", "classic" if version >= 5 else "")
    assert (found.protocol_type, found.group_state, found.group_type) == expected


@pytest.mark.parametrize(
    ("states", "types", "is_listed"),
    [
        (["stable"], [], True),
        (["Empty", "Stable"], ["Classic"], True),
        (["Empty"], [], False),
        ([], ["consumer"], False),
        (["nonsense"], [], False),
    ],
)
def test_a_list_is_filtered(client: GroupClient, states: list[str], types: list[str], is_listed: bool) -> None:
    rebalance(client)
    answer = client.ask(ListGroupsRequest(states_filter=states, types_filter=types), 5)
    assert (client.group_id in {one.group_id for one in answer.groups}) == is_listed


@pytest.mark.parametrize("version", range(7))
def test_every_version_describes(client: GroupClient, topic: str, version: int) -> None:
    rebalance(client)
    here = partition_for(client.group_id, 4)
    neighbour = next(name for name in (f"no-group-{i}" for i in count()) if partition_for(name, 4) == here)
    asked = DescribeGroupsRequest(groups=[client.group_id, neighbour], include_authorized_operations=True)
    found, missing = client.ask(asked, version).groups
    assert (found.error_code, found.group_state, found.protocol_type) == (NONE, "Stable", "consumer")
    assert (found.protocol_data, found.authorized_operations) == ("range", 3400 if version >= 3 else -(2**31))
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == (client.member_id, "test", "/127.0.0.1")
    assert bytes(member.member_metadata) == subscription(topic)
    assert bytes(member.member_assignment) == f"share of {client.member_id}".encode()
    assert missing.group_state == "Dead"
    assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE)


@pytest.mark.parametrize("version", range(4))
def test_every_version_deletes(client: GroupClient, topic: str, version: int) -> None:
    def delete() -> list[int]:
        request = DeleteGroupsRequest(groups_names=[client.group_id, client.group_id])
        return [one.error_code for one in client.ask(request, version).results]

    rebalance(client)
    client.commit(topic, {0: 5})
    assert delete() == [ErrorCode.NON_EMPTY_GROUP]
    client.leave()
    assert delete() == [NONE]
    assert delete() == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert client.committed() == {}
    client.member_id = ""
    client.generation_id = -1
    rebalance(client)
    assert client.generation_id == 1, "the next group of that name is a new one"


def test_deletion_takes_along_the_commit_that_was_asked_for_just_before(client: GroupClient, topic: str) -> None:
    """Both requests are on their way before either is answered."""
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[OffsetCommitRequestPartition(committed_offset=42)])]
    commit = OffsetCommitRequest(group_id=client.group_id, topics=topics)
    deletion = DeleteGroupsRequest(groups_names=[client.group_id])
    wire = client.find()
    wire.send(commit, 8)
    wire.send(deletion, 2)
    assert wire.receive(commit, 8).topics[0].partitions[0].error_code == NONE
    assert wire.receive(deletion, 2).results[0].error_code == NONE
    assert client.committed() == {}
    assert client.group_id not in {one.group_id for one in client.ask(ListGroupsRequest(), 4).groups}


class TestTheOffsetsTopic:
    def test_it_is_internal_and_replicated(self, client: GroupClient) -> None:
        found = topic_metadata(client.find(), OFFSETS_TOPIC)
        assert found.is_internal
        assert {len(one.replica_nodes) for one in found.partitions} == {3}
        assert not topic_metadata(client.find(), client.group_id).is_internal

    def test_clients_neither_write_to_it_nor_delete_it(self, client: GroupClient) -> None:
        wire = client.find()
        assert wire.produce(OFFSETS_TOPIC, batch()).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        (answer,) = wire.ask(DeleteTopicsRequest(topic_names=[OFFSETS_TOPIC]), 5).responses
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_what_it_holds_is_read_as_kafkas(self, client: GroupClient, topic: str) -> None:
        client.commit(topic, {0: 1, 1: 2})
        wire = client.find()
        found = {}
        for index, partition in enumerate(topic_metadata(wire, OFFSETS_TOPIC).partitions):
            if partition.leader_id != client.coordinator_id:
                continue
            request = fetch_request(OFFSETS_TOPIC, 0, partition_max_bytes=1 << 24)
            request.topics[0].partitions[0].partition = index
            data = wire.ask(request, 12).responses[0].partitions[0].records
            for record in read_records(data):
                assert record.key is not None
                key = decode_key(record.key)
                if isinstance(key, OffsetKey) and key.group_id == client.group_id and record.value is not None:
                    found[key] = decode_offset(record.value).offset
        assert found == {OffsetKey(client.group_id, topic, 0): 1, OffsetKey(client.group_id, topic, 1): 2}


def test_status_counts_groups(brokers: RunningCluster, client: GroupClient, topic: str) -> None:
    rebalance(client)
    client.commit(topic, {0: 1})

    async def look(cluster: Cluster) -> dict[str, object]:
        groups: dict[str, object] = cluster.nodes[client.coordinator_id].status()["groups"]
        return groups

    groups = brokers.run(look)
    assert int(str(groups["groups"])) >= 1
    assert int(str(groups["members"])) >= 1
    assert int(str(groups["offsets"])) >= 1
