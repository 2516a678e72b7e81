"""Groups of KIP-848 over the wire: what members say and hear, and what tools see of them."""

from collections.abc import Iterator
from typing import Any

import pytest
from broker.coordinators.groups.group_client import GroupClient, rebalance

from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_clients.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from barnabas_clients.protocol.delete_groups import DeleteGroupsRequest
from barnabas_clients.protocol.describe_groups import DescribeGroupsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.list_groups import ListGroupsRequest
from barnabas_clients.protocol.offset_commit import OffsetCommitRequest
from barnabas_clients.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas_clients.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

from .consumer_client import ConsumerClient, settle

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


class Members:
    """Makes members of one group, and closes their connections."""

    def __init__(self, brokers: RunningCluster, topic: str) -> None:
        self.brokers = brokers
        self.topic = topic
        self.made: list[GroupClient] = []

    def __call__(self, member_id: str, *topics: str, **more: Any) -> ConsumerClient:
        names = topics or (self.topic,)
        member = ConsumerClient(self.brokers.bootstrap, self.topic, *names, member_id=member_id, **more)
        self.made.append(member)
        return member


@pytest.fixture
def members(brokers: RunningCluster, topic: str) -> Iterator[Members]:
    members = Members(brokers, topic)
    yield members
    for member in members.made:
        member.lose()


class TestMembers:
    @pytest.mark.parametrize("version", [0, 1])
    def test_the_first_member_gets_all_partitions_with_its_first_answer(self, members: Members, version: int) -> None:
        one = members("a" if version else "")
        answer = one.beat(version)
        assert (answer.error_code, answer.member_epoch, one.numbers) == (NONE, 1, [0, 1, 2, 3])
        assert answer.member_id == "a" or (not version and len(answer.member_id) == 36)
        assert answer.heartbeat_interval_ms == 200
        assert one.beat(version).assignment is None

    def test_four_members_share_and_one_that_leaves_leaves_its_part_to_the_others(self, members: Members) -> None:
        four = [members(name) for name in "abcd"]
        for one in four:
            one.beat_surely()
        rounds = settle(*four, partitions=4)
        assert [len(one.numbers) for one in four] == [1, 1, 1, 1]
        assert rounds <= 6
        answer = four.pop().leave_group()
        assert (answer.error_code, answer.member_epoch) == (NONE, -1)
        settle(*four, partitions=4)

    def test_a_static_member_comes_back_to_its_partitions(self, members: Members) -> None:
        one, two = members("a", instance_id="i"), members("b")
        one.beat_surely()
        settle(one, two, partitions=4)
        had = one.numbers
        assert one.leave_group(-2).member_epoch == -2
        again = members("a2", instance_id="i")
        again.beat_surely()
        assert again.numbers == had
        assert members("a3", instance_id="i").beat().error_code == ErrorCode.UNRELEASED_INSTANCE_ID

    def test_a_pattern_finds_topics_and_more_when_they_come(self, members: Members) -> None:
        one = members("a")
        answer = one.beat(subscribed_topic_names=None, subscribed_topic_regex=f"{members.topic}.*")
        assert (answer.error_code, one.numbers) == (NONE, [0, 1, 2, 3])
        bad = members("b").beat(subscribed_topic_names=None, subscribed_topic_regex="(")
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert bad.error_message.startswith("SubscribedTopicRegex `(` is not a valid regular expression")

    def test_a_topic_that_is_made_later_is_given(self, members: Members) -> None:
        name = f"{members.topic}-later"
        one = members("a", name)
        one.beat_surely()
        assert one.numbers == []
        one.find().create(name, 3, 1)
        settle(one, partitions=3)


class TestMistakes:
    @pytest.mark.parametrize("version", [0, 1])
    def test_g1_whoever_joins_says_everything_and_has_nothing(self, members: Members, version: int) -> None:
        owned = [ConsumerGroupHeartbeatTopicPartitions(topic_id=bytes(16), partitions=[0])]
        for wrong, text in (
            ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
            ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
            ({"topic_partitions": owned}, "TopicPartitions must be empty when (re-)joining."),
            (
                {"subscribed_topic_names": None},
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
            ),
            ({"group_id": ""}, "GroupId can't be empty."),
            ({"instance_id": ""}, "InstanceId can't be empty."),
            ({"rack_id": " "}, "RackId can't be empty."),
            ({"member_epoch": -3}, "MemberEpoch is invalid."),
            ({"member_epoch": -2}, "InstanceId can't be null."),
        ):
            answer = members("a").beat(version, **wrong)
            assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, text)
        assert members("a", *[]).beat(version, subscribed_topic_names=[]).error_code == NONE

    def test_g2_clients_make_their_ids_from_version_1_on_and_before_it_the_server_does(self, members: Members) -> None:
        answer = members("").beat(1)
        assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
        assert members("").beat(0, member_epoch=3, topic_partitions=None).error_code == ErrorCode.INVALID_REQUEST
        assert members("").beat(0, member_epoch=-1, topic_partitions=None).error_code == ErrorCode.INVALID_REQUEST
        one = members("")
        assert one.beat(0).error_code == NONE
        assert one.member_id

    def test_others_are_unknown_and_other_epochs_fenced(self, members: Members) -> None:
        answer = members("a").beat(member_epoch=1)
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Consumer group {members.topic} not found.",
        )
        assert members("a").leave_group().error_code == ErrorCode.GROUP_ID_NOT_FOUND
        one = members("a")
        one.beat_surely()
        answer = members("b").beat(member_epoch=1)
        assert (answer.error_code, answer.error_message) == (
            UNKNOWN,
            f"Member b is not a member of group {members.topic}.",
        )
        one.epoch = 7
        assert one.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert one.beat(server_assignor="mine").error_code == ErrorCode.UNSUPPORTED_ASSIGNOR


def test_g9_epochs_say_who_may_commit(members: Members) -> None:
    one = members("a")
    nobody: dict[str, Any] = {"member_id": "", "generation_id_or_member_epoch": -1}
    assert one.until_known(lambda: one.commit(members.topic, {0: 1}, **nobody), lambda codes: int(codes[0])) == [NONE]
    settle(one, partitions=4)  # Kafka's first answer may be without partitions, which it has at a later epoch then.
    first = one.epoch
    assert one.commit(members.topic, {0: 2}) == [NONE]
    assert one.commit(members.topic, {0: 3}, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert one.commit(members.topic, {0: 3}, generation_id_or_member_epoch=first + 1) == [stale]
    assert one.commit(members.topic, {0: 3}, member_id="x") == [UNKNOWN]
    assert one.commit(members.topic, {0: 3}, **nobody) == [UNKNOWN]
    two = members("b")
    settle(one, two, partitions=4, least=2)
    kept, given = one.numbers[0], two.numbers[0]
    # Of its old epoch it may commit what it has kept, and nothing at all with what another one has now.
    old = {"generation_id_or_member_epoch": first}
    before = one.committed(members.topic, [kept, given])
    assert before == {(members.topic, number): -1 if number else 2 for number in (kept, given)}
    assert one.commit(members.topic, {kept: 4, given: 5}, **old) == [stale, stale]
    assert one.committed(members.topic, [kept, given]) == before
    assert one.commit(members.topic, {kept: 4}, **old) == [NONE]
    assert two.commit(members.topic, {given: 6}, **old) == [stale]
    assert one.committed(members.topic, [kept, given]) == before | {(members.topic, kept): 4}


class TestOffsets:
    def test_g10_a_member_of_another_epoch_is_told_so_for_the_whole_group(self, members: Members) -> None:
        one = members("a")
        one.beat_surely()
        assert one.commit(members.topic, {0: 2}) == [NONE]
        for member_id, epoch, code in (
            (None, -1, NONE),
            ("a", 1, NONE),
            ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
            ("a", 0, ErrorCode.STALE_MEMBER_EPOCH),
            ("x", 1, UNKNOWN),
        ):
            topics = [OffsetFetchRequestTopics(name=members.topic, partition_indexes=[0])]
            for asked in (topics, None):
                group = OffsetFetchRequestGroup(
                    group_id=one.group_id, member_id=member_id, member_epoch=epoch, topics=asked
                )
                (found,) = one.ask(OffsetFetchRequest(groups=[group]), 9).groups
                assert found.error_code == code
                assert bool(found.topics) == (code == NONE)

    def test_what_members_subscribe_to_is_not_deleted(self, members: Members) -> None:
        one = members("a")
        one.beat_surely()
        one.find().create(f"{members.topic}-2", 1, 1)
        assert one.commit(members.topic, {0: 2}) == [NONE]
        names = (members.topic, f"{members.topic}-2")
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [OffsetDeleteRequestTopic(name=name, partitions=partitions) for name in names]
        answer = one.ask(OffsetDeleteRequest(group_id=one.group_id, topics=topics), 0)
        assert [topic.partitions[0].error_code for topic in answer.topics] == [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            NONE,
        ]

    def test_a_group_that_is_deleted_has_no_offsets(self, members: Members) -> None:
        one = members("a")
        one.beat_surely()
        assert one.commit(members.topic, {0: 2}) == [NONE]
        request = DeleteGroupsRequest(groups_names=[one.group_id])
        assert one.ask(request, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        one.leave_group()
        assert one.described().group_state == "Empty"
        assert one.ask(request, 2).results[0].error_code == NONE
        assert one.committed() == {}
        assert one.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND
        one.beat_surely()
        assert (one.epoch, one.numbers) == (1, [0, 1, 2, 3])


class TestTools:
    @pytest.mark.parametrize("version", [0, 1])
    def test_a_group_is_described(self, members: Members, version: int) -> None:
        one = members("a", instance_id="i")
        one.beat_surely()
        group = one.described(version)
        assert (group.error_code, group.error_message) == (NONE, None)
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
        assert (group.assignor_name, group.authorized_operations) == ("uniform", 3400)
        (member,) = group.members
        assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("a", "i", None, 1)
        assert (member.client_id, member.client_host[:4]) == ("test", "/127")
        assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ((members.topic,), "")
        (assigned,) = member.assignment.topic_partitions
        assert (assigned.topic_name, assigned.partitions) == (members.topic, (0, 1, 2, 3))
        assert member.target_assignment == member.assignment
        assert member.member_type == (1 if version else -1)

    @pytest.mark.parametrize("version", [0, 1])
    def test_others_are_not_found(self, members: Members, version: int) -> None:
        classic = GroupClient(members.brokers.bootstrap, members.topic, members.topic)
        members.made.append(classic)
        one = members("a")
        group = one.described(version)
        text = f"Group {members.topic} not found."
        assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, text)
        rebalance(classic)
        group = one.described(version)
        text = f"Group {members.topic} is not a consumer group."
        assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, text)
        nameless = one.ask(ConsumerGroupDescribeRequest(group_ids=[""]), version).groups[0]
        assert nameless.error_code == ErrorCode.INVALID_GROUP_ID

    def test_it_is_listed_with_its_type_and_state(self, members: Members) -> None:
        one = members("a")
        one.beat_surely()

        def listed(**filters: Any) -> list[tuple[str, str, str]]:
            answer = one.ask(ListGroupsRequest(**filters), 5)
            assert answer.error_code == NONE
            return [
                (row.protocol_type, row.group_state, row.group_type)
                for row in answer.groups
                if row.group_id == one.group_id
            ]

        here = [("consumer", "Stable", "consumer")]
        assert listed() == listed(types_filter=["Consumer"]) == listed(states_filter=["stable"]) == here
        assert listed(types_filter=["classic"]) == listed(states_filter=["Empty", "Assigning", "Reconciling"]) == []

    @pytest.mark.parametrize("version", range(7))
    def test_to_the_classic_description_it_is_dead(self, members: Members, version: int) -> None:
        one = members("a")
        one.beat_surely()
        (group,) = one.ask(DescribeGroupsRequest(groups=[one.group_id]), version).groups
        assert (group.group_state, group.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE)
        assert group.error_message == (f"Group {one.group_id} is not a classic group." if version >= 6 else None)


class TestBothProtocols:
    def test_g14_classic_members_are_unknown_to_a_group_of_the_other_kind(self, members: Members) -> None:
        one = members("a")
        one.beat_surely()
        classic = GroupClient(members.brokers.bootstrap, members.topic, members.topic)
        members.made.append(classic)
        classic.member_id = "x"
        classic.generation_id = 1
        assert classic.heartbeat() == UNKNOWN
        assert classic.leave() == [UNKNOWN]
        assert classic.sync().error_code == UNKNOWN

    def test_a_group_whose_members_say_what_nobody_can_read_is_not_found_by_the_others(self, members: Members) -> None:
        classic = GroupClient(members.brokers.bootstrap, members.topic, members.topic)
        members.made.append(classic)
        rebalance(classic)
        answer = members("a").beat()
        assert (answer.error_code, "is malformed" in answer.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, True)
        assert classic.heartbeat() == NONE

    def test_an_empty_group_becomes_the_other_kind_and_keeps_its_offsets(self, members: Members) -> None:
        classic = GroupClient(members.brokers.bootstrap, members.topic, members.topic)
        members.made.append(classic)
        rebalance(classic)
        assert classic.commit(members.topic, {1: 5}) == [NONE]
        classic.leave()
        one = members("a")
        one.beat_surely()
        assert one.commit(members.topic, {2: 6}) == [NONE]
        assert one.leave_group().error_code == NONE
        classic.member_id, classic.generation_id = "", -1
        rebalance(classic)
        assert classic.committed() == {(members.topic, 1): 5, (members.topic, 2): 6}
        assert one.described().error_code == ErrorCode.GROUP_ID_NOT_FOUND
        classic.leave()


def test_an_answer_waits_for_nobody_on_another_connection(members: Members) -> None:
    """What a member says is committed before it is answered, and a commit behind it on its connection is stored."""
    one = members("a")
    wire = one.find()
    join = one.request()
    commit = OffsetCommitRequest(group_id=one.group_id, member_id="a", generation_id_or_member_epoch=1, topics=[])
    wire.send(join, 1, "test")
    wire.send(commit, 9, "test")
    assert wire.receive(join, 1).member_epoch == 1
    assert wire.receive(commit, 9).topics == []
    assert isinstance(join, ConsumerGroupHeartbeatRequest)
