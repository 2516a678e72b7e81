"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup over a socket, with all of their waits."""

import time
from typing import Any

import pytest

from barnabas_broker.server.handlers.join_group import PROTOCOLS_MAX
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_clients.protocol.join_group import JoinGroupRequestProtocol
from barnabas_clients.protocol.leave_group import LeaveGroupRequest
from barnabas_clients.protocol.sync_group import SyncGroupRequest
from barnabas_raftlog.wire.primitives import BLOB_BYTES_MAX

from .group_client import GroupClient, rebalance, subscription

NONE = ErrorCode.NONE


@pytest.mark.parametrize("version", range(10))
def test_every_version_joins(client: GroupClient, version: int) -> None:
    answer = client.receive_join(client.send_join(version=version), version)
    if version >= 4:
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert answer.member_id.startswith("test-")
        answer = client.receive_join(client.send_join(version=version), version)
    assert (answer.error_code, answer.generation_id, answer.leader) == (NONE, 1, answer.member_id)
    assert (answer.protocol_name, answer.protocol_type) == ("range", "consumer" if version >= 7 else None)
    assert [(one.member_id, bytes(one.metadata)) for one in answer.members] == [
        (answer.member_id, subscription(*client.topics))
    ]


def test_a_client_id_that_leaves_no_room_for_a_member_id_is_refused(client: GroupClient) -> None:
    for length, code in ((32_731, ErrorCode.INVALID_REQUEST), (32_730, ErrorCode.MEMBER_ID_REQUIRED)):
        assert client.receive_join(client.send_join(client_id="c" * length)).error_code == code


def test_the_history_has_the_reason_for_which_a_member_joins(client: GroupClient, brokers: RunningCluster) -> None:
    rebalance(client)
    client.receive_join(client.send_join(reason="a test wants it"))
    coordinator = brokers.cluster.nodes[client.coordinator_id].broker.coordinator
    events = coordinator.group_events.to_list()
    said = [event["cause"] for event in events if event["group"] == f"group {client.group_id}"]
    assert any("joined again: a test wants it" in cause for cause in said), said


@pytest.mark.parametrize("version", range(6))
def test_every_version_syncs(client: GroupClient, version: int) -> None:
    client.enter()
    client.entered()
    answer = client.sync({client.member_id: b"mine"}, version)
    assert (answer.error_code, bytes(answer.assignment)) == (NONE, b"mine")
    assert (answer.protocol_type, answer.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))


@pytest.mark.parametrize("version", range(5))
def test_every_version_beats(client: GroupClient, version: int) -> None:
    rebalance(client)
    beat = HeartbeatRequest(group_id=client.group_id, generation_id=1, member_id=client.member_id)
    assert client.ask(beat, version).error_code == NONE
    beat.generation_id = 0
    assert client.ask(beat, version).error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", range(6))
def test_every_version_leaves(client: GroupClient, version: int) -> None:
    rebalance(client)
    if version < 3:
        leave = LeaveGroupRequest(group_id=client.group_id, member_id=client.member_id)
        assert [client.ask(leave, version).error_code for _ in range(2)] == [NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    else:
        assert client.leave(client.member_id, "nobody") == [NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert client.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_two_members_share_and_one_that_leaves_hands_its_share_over(
    brokers: RunningCluster, client: GroupClient, topic: str
) -> None:
    other = GroupClient(brokers.bootstrap, client.group_id, topic)
    assert rebalance(client, other) == [f"share of {one.member_id}".encode() for one in (client, other)]
    assert client.heartbeat() == other.heartbeat() == NONE
    assert other.leave() == [NONE]
    assert client.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert rebalance(client) == [f"share of {client.member_id}".encode()]
    other.lose()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"session_timeout_ms": 99}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": "x" * (32_767 - 36)}, ErrorCode.INVALID_REQUEST),
        ({"protocols": [JoinGroupRequestProtocol(name="x", metadata=bytes((1 << 20) + 1))]}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_join_that_cannot_be_is_refused_and_leaves_nothing(
    brokers: RunningCluster, client: GroupClient, fields: dict[str, Any], code: ErrorCode
) -> None:
    assert client.receive_join(client.send_join(**fields)).error_code == code
    assert client.group_id not in groups_of(brokers)


def test_a_group_without_an_id_has_no_members(client: GroupClient) -> None:
    for request, version in ((SyncGroupRequest(), 4), (HeartbeatRequest(), 4), (LeaveGroupRequest(), 5)):
        assert client.ask(request, version).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_group_that_does_not_exist_knows_nobody(client: GroupClient) -> None:
    client.member_id = "nobody"
    assert client.sync().error_code == client.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.leave() == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert client.sync(protocol_type=None).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_connection_that_ends_while_it_waits_harms_nobody(
    brokers: RunningCluster, client: GroupClient, topic: str
) -> None:
    rebalance(client)
    visitor = GroupClient(brokers.bootstrap, client.group_id, topic)
    visitor.enter()
    client.hear_of_a_rebalance()
    visitor.lose()
    client.enter()
    assert client.member_id in {one.member_id for one in client.entered().members}
    assert client.sync({client.member_id: b"all"}).error_code == NONE


def test_a_group_too_large_for_the_log_is_not_saved_and_says_so(
    brokers: RunningCluster, client: GroupClient, topic: str
) -> None:
    others = [GroupClient(brokers.bootstrap, client.group_id, topic) for _ in range(2)]
    members = (client, *others)
    rebalance(client, *others)
    for member in members:
        member.enter()
    for member in members:
        member.entered()
    leader = next(member for member in members if member.leads)
    # Each is as large as a value of bytes may be; together they are more than the log takes.
    answer = leader.sync({member.member_id: bytes(BLOB_BYTES_MAX) for member in members})
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "group not saved" in {event["kind"] for event in events_of(brokers, client.group_id)}
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "the next attempt is a new one"
    for other in others:
        other.lose()


def test_a_static_member_is_known_again_and_its_predecessor_is_fenced(
    brokers: RunningCluster, topic: str, name: str
) -> None:
    first, second = (GroupClient(brokers.bootstrap, name, topic, instance_id="i-1") for _ in range(2))
    share = rebalance(first)
    assert first.member_id.startswith("i-1-")
    second.enter()
    answer = second.entered()
    assert answer.generation_id == first.generation_id
    assert answer.skip_assignment, "it leads, and its predecessor's assignment stands"
    assert [bytes(second.sync().assignment)] == share
    assert first.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert first.commit(topic, {0: 1}) == [ErrorCode.FENCED_INSTANCE_ID]
    assert second.heartbeat() == NONE
    first.lose()
    second.lose()


def test_a_silent_member_is_let_go_and_the_history_says_so(
    brokers: RunningCluster, client: GroupClient, topic: str
) -> None:
    for _ in range(2):
        client.receive_join(client.send_join(session_timeout_ms=100))
    assert client.sync({client.member_id: b""}).error_code == NONE
    heir = GroupClient(brokers.bootstrap, client.group_id, topic)
    heir.enter()
    assert [one.member_id for one in heir.entered().members] == [heir.member_id]
    assert client.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    gone = [event["cause"] for event in events_of(brokers, client.group_id) if event["kind"] == "member gone"]
    assert client.member_id in str(gone)
    heir.lose()


def test_a_coordinator_that_stood_still_throws_nobody_out(brokers: RunningCluster, client: GroupClient) -> None:
    for _ in range(2):
        client.receive_join(client.send_join(session_timeout_ms=300))
    assert client.sync({client.member_id: b""}).error_code == NONE

    async def stand_still(_: Cluster) -> None:
        time.sleep(0.8)  # noqa: ASYNC251 - as a suspended process does, for longer than the session

    brokers.run(stand_still)
    assert client.heartbeat() == NONE


def groups_of(brokers: RunningCluster) -> set[str]:
    """Return every group that any broker coordinates."""

    async def look(cluster: Cluster) -> set[str]:
        nodes = cluster.nodes.values()
        return {
            group_id for node in nodes for shard in node.broker.coordinator.active_shards() for group_id in shard.groups
        }

    return brokers.run(look)


def events_of(brokers: RunningCluster, group_id: str) -> list[dict[str, object]]:
    async def look(cluster: Cluster) -> list[dict[str, object]]:
        return [
            event
            for node in cluster.nodes.values()
            for event in node.status()["events"]
            if event["group"] == f"group {group_id}"
        ]

    return brokers.run(look)


def test_an_assignment_for_strangers_is_left_out(client: GroupClient) -> None:
    client.enter()
    client.entered()
    assert bytes(client.sync({client.member_id: b"mine", "nobody": b"theirs"}).assignment) == b"mine"


def test_of_thousands_who_leave_each_is_answered_and_the_member_among_them_is_gone(client: GroupClient) -> None:
    rebalance(client)
    others = [f"nobody-{number}" for number in range(5_000)]
    codes = client.leave(*others, client.member_id)
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID] * len(others) + [NONE]
    assert client.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_of_thousands_of_assignments_those_of_members_count(client: GroupClient) -> None:
    client.enter()
    client.entered()
    others = {f"nobody-{number}": b"nothing" for number in range(5_000)}
    answer = client.sync({**others, client.member_id: b"mine"})
    assert (answer.error_code, bytes(answer.assignment)) == (NONE, b"mine")


def test_more_protocols_than_anybody_needs_are_refused(client: GroupClient) -> None:
    protocols = [JoinGroupRequestProtocol(name=f"p{number}", metadata=b"") for number in range(PROTOCOLS_MAX + 1)]
    assert client.receive_join(client.send_join(protocols=protocols)).error_code == ErrorCode.INVALID_REQUEST
    assert client.receive_join(client.send_join(protocols=protocols[1:])).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_of_a_long_reason_the_history_has_the_beginning(client: GroupClient, brokers: RunningCluster) -> None:
    rebalance(client)
    client.receive_join(client.send_join(reason="because " + "x" * 32_000))
    coordinator = brokers.cluster.nodes[client.coordinator_id].broker.coordinator
    said = [event for event in coordinator.group_events.to_list() if event["group"] == f"group {client.group_id}"]
    assert any("because xxx" in event["cause"] for event in said)
    assert max(len(event["cause"]) for event in said) < 500
