"""Members of both protocols in one group, over the wire: what each request of the classic one is answered."""

from collections.abc import Iterator

import pytest
from broker.coordinators.groups.group_client import GroupClient

from barnabas_broker.coordinators.groups.consumer.embedded import read_assignment, write_assignment
from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.describe_groups import DescribeGroupsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_clients.protocol.leave_group import LeaveGroupRequest, MemberIdentity

from .consumer_client import ConsumerClient

NONE = ErrorCode.NONE


@pytest.fixture
def one(brokers: RunningCluster, topic: str) -> Iterator[ConsumerClient]:
    """A member of KIP-848, which has all partitions."""
    one = ConsumerClient(brokers.bootstrap, topic, topic, member_id="a")
    one.beat_surely()
    yield one
    one.lose()


@pytest.fixture
def old(brokers: RunningCluster, topic: str) -> Iterator[GroupClient]:
    old = GroupClient(brokers.bootstrap, topic, topic)
    yield old
    old.lose()


def share(one: ConsumerClient, old: GroupClient) -> list[int]:
    """Let both have their part; return the classic member's."""
    while True:
        one.beat_surely()
        answer = old.sync()
        numbers = sorted(read_assignment(bytes(answer.assignment))[0].get(one.topics[0], ()))
        if answer.error_code == NONE and len(numbers) == 2 and old.heartbeat() == NONE:
            return numbers
        old.enter()
        old.entered()


def test_a_classic_member_is_let_in_hears_its_part_and_commits(one: ConsumerClient, old: GroupClient) -> None:
    old.enter()
    joined = old.entered()
    assert (joined.protocol_type, joined.protocol_name, joined.leader, joined.members) == ("consumer", "range", "", [])
    assert joined.generation_id == 2
    numbers = share(one, old)
    one.beat_surely()
    assert sorted([*one.numbers, *numbers]) == [0, 1, 2, 3]
    topic = one.topics[0]
    assert old.commit(topic, {numbers[0]: 5}, version=8) == [NONE]
    assert old.commit(topic, {numbers[0]: 5}, generation_id_or_member_epoch=9) == [ErrorCode.ILLEGAL_GENERATION]
    assert one.commit(topic, {one.numbers[0]: 5}, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    assert one.committed(topic, [numbers[0]]) == {(topic, numbers[0]): 5}
    described = one.described()
    assert {(member.member_id, member.member_type) for member in described.members} == {("a", 1), (old.member_id, 0)}
    assert old.leave() == [NONE]
    one.beat_surely()
    assert {member.member_id for member in one.described().members} == {"a"}


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_joining(one: ConsumerClient, old: GroupClient, version: int) -> None:
    first = old.receive_join(old.send_join(version=version), version)
    if version >= 4:
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        first = old.receive_join(old.send_join(version=version), version)
    assert (first.error_code, first.generation_id, first.protocol_name) == (NONE, 2, "range")
    assert first.member_id == old.member_id
    for sync_version in range(6):
        assert old.sync(version=sync_version).error_code == NONE
    for beat_version in range(5):
        beat = HeartbeatRequest(group_id=old.group_id, generation_id=2, member_id=old.member_id)
        assert old.ask(beat, beat_version).error_code in {NONE, ErrorCode.REBALANCE_IN_PROGRESS}


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_leaving(one: ConsumerClient, old: GroupClient, version: int) -> None:
    old.enter()
    old.entered()
    request = LeaveGroupRequest(group_id=old.group_id, member_id=old.member_id)
    if version >= 3:
        request = LeaveGroupRequest(group_id=old.group_id, members=[MemberIdentity(member_id=old.member_id)])
    answers = [old.ask(request, version) for _ in range(2)]
    codes = [answer.members[0].error_code if version >= 3 else answer.error_code for answer in answers]
    assert codes == [NONE, ErrorCode.UNKNOWN_MEMBER_ID]


def test_g14_who_is_no_classic_member_is_unknown_and_the_group_is_there(one: ConsumerClient, old: GroupClient) -> None:
    old.member_id, old.generation_id = "nobody", 1
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert (old.heartbeat(), old.sync().error_code, old.leave()) == (unknown, unknown, [unknown])
    old.member_id = "a"
    assert (old.heartbeat(), old.sync().error_code) == (unknown, unknown)


def test_what_a_join_may_not_be(one: ConsumerClient, old: GroupClient) -> None:
    for change, code in (
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "m", "group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert old.receive_join(old.send_join(**change)).error_code == code, change


def test_a_classic_group_becomes_one_of_the_others_and_a_classic_one_again(
    brokers: RunningCluster, old: GroupClient, topic: str
) -> None:
    old.enter()
    old.entered()
    assert old.sync({old.member_id: write_assignment(0, {topic: range(4)})}).error_code == NONE
    generation = old.generation_id
    old.commit_surely(topic, {0: 3})
    one = ConsumerClient(brokers.bootstrap, topic, topic, member_id="n")
    assert one.beat_surely().member_epoch == generation + 1
    old.hear_of_a_rebalance()
    old.enter()
    assert old.entered().generation_id == generation + 1
    share(one, old)
    assert one.committed(topic, [0]) == {(topic, 0): 3}
    (shown,) = old.ask(DescribeGroupsRequest(groups=[topic]), 6).groups
    assert shown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert one.leave_group().error_code == NONE
    (shown,) = old.ask(DescribeGroupsRequest(groups=[topic]), 6).groups
    assert (shown.error_code, shown.group_state, len(shown.members)) == (NONE, "PreparingRebalance", 1)
    old.hear_of_a_rebalance()
    old.enter()
    joined = old.entered()
    assert (joined.generation_id, joined.leader) == (generation + 2, old.member_id)
    assert old.sync({old.member_id: b"x"}).assignment == b"x"
    assert old.committed(topic, [0]) == {(topic, 0): 3}
    one.lose()
