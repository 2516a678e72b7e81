"""Members of a group of KIP-848 come, go, share partitions, and hear of their mistakes."""

from typing import Any

import pytest

from barnabas_broker.coordinators.groups.consumer import group as module
from barnabas_broker.coordinators.groups.consumer.assignors.built_in import assign_in_steps
from barnabas_broker.coordinators.groups.consumer.group import (
    HURRY_MS,
    NAMES_STEP,
    SAVED_BYTES,
    SHARE_MAX,
    SHARE_TOPICS_MAX,
    ConsumerProtocolGroup,
)
from barnabas_broker.coordinators.groups.consumer.messages import (
    Beat,
    ConsumerAnswer,
    ConsumerConfig,
    Heard,
    Plan,
    Refusal,
)
from barnabas_broker.coordinators.groups.consumer.subscribed import TOPICS_MAX
from barnabas_broker.coordinators.groups.consumer.values import Kind, MemberState, Target, partition_count
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.steps import at_once

from .consumer_desk import AT_ONCE, REBALANCE_MS, Client, Desk, SomeTopics, settle, topic_id

T = topic_id("t")


@pytest.fixture
def desk() -> Desk:
    return Desk(SomeTopics(t=4, u=2))


def error_of(answer: Any) -> ErrorCode:
    assert isinstance(answer, Refusal), answer
    return answer.error


def state_of(desk: Desk, member_id: str) -> MemberState:
    return desk.group.assignments[member_id].state


class TestJoining:
    def test_the_first_member_gets_everything_in_its_first_answer(self, desk: Desk) -> None:
        one = Client(desk, "a", "t")
        answer = one.beat()
        assert isinstance(answer, ConsumerAnswer)
        assert (answer.epoch, answer.assigned) == (1, {T: {0: 1, 1: 1, 2: 1, 3: 1}})
        assert desk.group.state == "Stable"

    def test_a_second_one_waits_for_what_the_first_gives_up(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        one.beat()
        two.beat()
        assert (two.epoch, two.has) == (2, set())
        assert (desk.group.state, state_of(desk, "b")) == ("Reconciling", MemberState.UNRELEASED)
        one.beat()
        assert (one.epoch, one.numbers("t")) == (1, [0, 2])  # It is told to give up, and stays in its epoch.
        assert state_of(desk, "a") is MemberState.UNREVOKED
        two.beat()
        assert two.numbers("t") == []
        one.beat()
        assert one.epoch == 2
        two.beat()
        assert two.numbers("t") == [1, 3]
        assert desk.group.state == "Stable"

    def test_whoever_subscribes_to_nothing_is_a_member_too(self, desk: Desk) -> None:
        one = Client(desk, "a")
        answer = one.beat()
        assert isinstance(answer, ConsumerAnswer)
        assert (answer.epoch, answer.assigned, desk.group.state) == (1, {}, "Stable")

    def test_a_topic_that_does_not_exist_yet_is_given_when_it_does(self, desk: Desk) -> None:
        one = Client(desk, "a", "new")
        one.beat()
        assert one.has == set()
        desk.topics.put("new", 2)
        settle(one)
        assert (one.epoch, one.numbers("new")) == (2, [0, 1])

    def test_more_partitions_are_given_and_a_topic_made_anew_replaces_the_old_one(self, desk: Desk) -> None:
        one = Client(desk, "a", "t", "u")
        settle(one)
        desk.topics.put("t", 6)
        settle(one)
        assert one.numbers("t") == [0, 1, 2, 3, 4, 5]
        desk.topics.put("u", None)
        settle(one)
        assert one.numbers("u") == []
        desk.topics.put("u", 1, incarnation=1)
        settle(one)
        assert one.owned[topic_id("u", 1)] == [0]

    def test_other_topics_begin_no_epoch(self, desk: Desk) -> None:
        one = Client(desk, "a", "t")
        settle(one)
        desk.topics.put("other", 3)
        desk.topics.put("u", 9)
        changes = len(desk.changes)
        settle(one)
        assert one.epoch == 1
        assert len(desk.changes) == changes

    def test_one_more_than_may_be_is_refused_and_those_who_are_there_are_not(self) -> None:
        desk = Desk(SomeTopics(t=4), ConsumerConfig(size_max=2, assignment_interval_ms=0))
        one, two, three = (Client(desk, name, "t") for name in "abc")
        settle(one, two)
        assert error_of(three.beat()) is ErrorCode.GROUP_MAX_SIZE_REACHED
        settle(one, two)
        one.epoch = 0
        assert isinstance(one.beat(), ConsumerAnswer)
        three.epoch = 5  # Kafka says that the group is full; then its client gives up.
        assert error_of(three.beat()) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_no_member_has_more_than_it_can_say_at_once_and_the_rest_waits_for_more_members(self) -> None:
        desk = Desk(SomeTopics(t=SHARE_MAX + 4))
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        settle(one)
        assert (len(one.has), desk.group.left_out) == (SHARE_MAX, 4)
        settle(one, two)
        assert (len(one.has) + len(two.has), desk.group.left_out) == (SHARE_MAX + 4, 0)

    def test_too_many_topics_are_refused(self, desk: Desk) -> None:
        settle(Client(desk, "a", "t"))
        many = Client(desk, "b", *(f"x{number}" for number in range(TOPICS_MAX)))
        assert error_of(many.beat()) is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert list(desk.group.members) == ["a"]

    def test_targets_are_so_far_apart_and_members_wait_for_the_next_one(self) -> None:
        desk = Desk(SomeTopics(t=4), ConsumerConfig(assignment_interval_ms=100))
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        one.beat()
        heard = desk.hear(two.next_beat())
        assert not isinstance(heard, Refusal)
        assert desk.group.plan_due_ms(desk.topics, desk.now_ms) == desk.now_ms + 100
        assert heard.epoch == 2 > desk.group.target_number
        assert desk.group.state == "Assigning"

    def test_the_first_waits_for_others_and_nobody_has_to_give_anything_up(self) -> None:
        desk = Desk(SomeTopics(t=4), ConsumerConfig(assignment_interval_ms=0, initial_delay_ms=200))
        beats = [Client(desk, name, "t").next_beat() for name in "abcd"]
        heard = [desk.hear(beat) for beat in beats]
        assert desk.group.plan_due_ms(desk.topics, desk.now_ms) == desk.now_ms + 200
        desk.now_ms += 200
        desk.plan()
        for one in heard:
            assert isinstance(one, Heard)
            answer = desk.group.answer(one, desk.topics, desk.now_ms)
            assert isinstance(answer, ConsumerAnswer)
            assert partition_count(answer.assigned or {}) == 1
        desk.flush()
        assert desk.group.state == "Stable"
        assert not isinstance(desk.hear(Client(desk, "e", "t").next_beat()), Refusal)
        assert desk.group.plan_due_ms(desk.topics, desk.now_ms) == desk.now_ms

    def test_the_assignor_is_the_one_that_most_ask_for(self, desk: Desk) -> None:
        clients = [Client(desk, name, "t") for name in "abc"]
        settle(*clients)
        assert set(desk.assigning.asked) == {"uniform"}
        clients[1].beat(server_assignor="range")
        assert desk.group.assignor == "range"
        assert desk.assigning.asked[-1] == "range"
        assert error_of(clients[0].beat(server_assignor="mine")) is ErrorCode.UNSUPPORTED_ASSIGNOR


class TestEpochs:
    def test_g3_the_epoch_before_is_accepted_if_an_answer_was_lost(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        settle(one, two)
        assert desk.leave(Beat("b", -1)) is None
        one.beat(is_lost=True)  # It is in epoch 3 now, and does not know.
        assert (one.epoch, desk.group.assignments["a"].epoch) == (2, 3)
        answer = one.beat()
        assert isinstance(answer, ConsumerAnswer)
        assert (one.epoch, one.numbers("t")) == (3, [0, 1, 2, 3])

    def test_g3_the_epoch_before_is_fenced_if_it_says_that_it_has_something_else_or_nothing_at_all(
        self, desk: Desk
    ) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        settle(one, two)
        desk.leave(Beat("b", -1))
        one.beat(is_lost=True)
        for owned in ({T: [9]}, {topic_id("u"): [0]}, None):
            assert error_of(desk.beat(Beat("a", 2, owned=owned))) is ErrorCode.FENCED_MEMBER_EPOCH

    @pytest.mark.parametrize("epoch", [1, 3, 99])
    def test_g3_any_other_epoch_is_fenced(self, desk: Desk, epoch: int) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        settle(one, two)
        settle(one, two)
        desk.leave(Beat("b", -1))
        settle(one)  # in epoch 3, coming from 2
        third = Client(desk, "c", "t")
        settle(one, third)  # in epoch 4, coming from 3
        one.epoch = epoch if epoch != 3 else 2
        assert error_of(one.beat()) is ErrorCode.FENCED_MEMBER_EPOCH
        assert (one.epoch, one.has) == (0, set())
        settle(one, third)
        assert len(one.has) == 2

    def test_a_member_that_is_fenced_joins_again_and_finds_what_it_had(self, desk: Desk) -> None:
        one = Client(desk, "a", "t")
        settle(one)
        one.epoch, one.has = 0, set()
        answer = one.beat()
        assert isinstance(answer, ConsumerAnswer)
        assert (answer.epoch, one.numbers("t")) == (1, [0, 1, 2, 3])

    def test_nobody_is_known_by_another_name(self, desk: Desk) -> None:
        assert error_of(desk.beat(Beat("a", 1))) is ErrorCode.UNKNOWN_MEMBER_ID
        assert error_of(desk.leave(Beat("a", -1))) is ErrorCode.UNKNOWN_MEMBER_ID
        assert error_of(desk.beat(Beat("a", 1, instance_id="i"))) is ErrorCode.UNKNOWN_MEMBER_ID
        assert error_of(desk.leave(Beat("a", -2, instance_id="i"))) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_g8_names_in_another_order_begin_no_epoch(self, desk: Desk) -> None:
        one = Client(desk, "a", "t", "u")
        settle(one)
        changes = len(desk.changes)
        for names in (["u", "t"], ["t", "u"], ["u", "t", "u"]):
            answer = one.beat(topic_names=names)
            assert isinstance(answer, ConsumerAnswer)
            assert answer.epoch == 1
        assert len(desk.changes) == changes


class TestReconciling:
    def test_g5_a_member_that_is_to_give_something_up_is_asked_for_nothing_else(self, desk: Desk) -> None:
        clients = [Client(desk, name, "t") for name in "abcd"]
        one = clients[0]
        settle(one)
        one.gives_up = False
        clients[1].beat()
        one.beat()
        asked = desk.group.assignments["a"]
        assert asked.assigned == {T: {0: 1, 2: 1}}
        for other in clients[2:]:
            other.beat()
            one.beat()
            assert desk.group.assignments["a"] == asked
        one.gives_up = True
        one.has = {(T, 0), (T, 2)}
        settle(*clients)
        assert [one.numbers("t") for one in clients] == [[0], [1], [2], [3]]

    def test_g6_who_has_given_up_its_own_goes_on_though_others_have_not(self, desk: Desk) -> None:
        clients = [Client(desk, name, "t", "u") for name in "ab"]
        settle(*clients)
        clients[1].gives_up = False
        third = Client(desk, "c", "t", "u")
        third.beat()
        for _ in range(3):
            clients[1].beat()
            clients[0].beat()
        assert (clients[0].epoch, clients[1].epoch) == (3, 2)
        third.beat()
        assert (third.epoch, third.numbers("t")) == (3, [2])
        assert state_of(desk, "a") is MemberState.UNRELEASED  # It waits for what the second one is to give up.

    def test_g7_an_assignment_is_told_when_all_is_said_or_it_has_changed(self, desk: Desk) -> None:
        one = Client(desk, "a", "t")
        one.beat()
        answer = one.beat()
        assert isinstance(answer, ConsumerAnswer)
        assert answer.assigned is None
        everything = one.next_beat(rebalance_timeout_ms=REBALANCE_MS, topic_names=["t"])
        answer = desk.beat(everything)
        assert isinstance(answer, ConsumerAnswer)
        assert answer.assigned is not None
        two = Client(desk, "b", "t")
        two.beat()
        answer = one.beat()
        assert isinstance(answer, ConsumerAnswer)
        assert answer.assigned == {T: {0: 1, 2: 1}}

    def test_g7_a_heartbeat_that_says_nothing_of_partitions_gives_none_up(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        settle(one)
        two.beat()
        one.beat()
        assert state_of(desk, "a") is MemberState.UNREVOKED
        desk.beat(Beat("a", 1))
        assert state_of(desk, "a") is MemberState.UNREVOKED
        assert desk.group.owners[T][1] == "a"

    def test_what_is_given_up_may_come_back_to_who_gives_it_up(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        settle(one)
        one.gives_up = False
        two.beat()
        one.beat()
        two.leave()
        one.gives_up = True
        one.has = {(T, 0), (T, 2)}
        settle(one)
        assert one.numbers("t") == [0, 1, 2, 3]

    def test_a_member_that_unsubscribes_loses_its_partitions_at_once(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t", "u"), Client(desk, "b", "u")
        settle(one, two)
        answer = one.beat(topic_names=["t"])
        assert isinstance(answer, ConsumerAnswer)
        assert answer.assigned is not None
        assert topic_id("u") not in answer.assigned
        settle(one, two)
        assert two.numbers("u") == [0, 1]

    def test_the_time_to_give_up_ends(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        settle(one)
        one.gives_up = False
        two.beat()
        for _ in range(REBALANCE_MS // 1_000 + 1):
            two.beat()
            if "a" in desk.group.members:
                one.beat()
            desk.advance(1_000)
        assert desk.gone == ["a"]
        settle(two)
        assert two.numbers("t") == [0, 1, 2, 3]


class TestStaticMembers:
    def test_g4_who_comes_back_finds_its_partitions_and_nobody_has_them_meanwhile(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t", instance="i"), Client(desk, "b", "t")
        settle(one, two)
        had = one.numbers("t")
        epoch = one.epoch
        assert one.leave(-2) is None
        settle(two)
        assert len(two.numbers("t")) == 2
        again = Client(desk, "a2", "t", instance="i")
        answer = again.beat()
        assert isinstance(answer, ConsumerAnswer)
        assert (again.numbers("t"), again.epoch) == (had, epoch)
        assert list(desk.group.members) == ["b", "a2"]
        assert error_of(desk.beat(Beat("a", epoch, instance_id="i"))) is ErrorCode.FENCED_INSTANCE_ID
        assert error_of(desk.leave(Beat("a", -1, instance_id="i"))) is ErrorCode.FENCED_INSTANCE_ID
        assert error_of(desk.beat(Beat("a", epoch))) is ErrorCode.UNKNOWN_MEMBER_ID

    def test_g4_an_instance_that_is_there_is_not_given_to_another(self, desk: Desk) -> None:
        one, other = Client(desk, "a", "t", instance="i"), Client(desk, "b", "t", instance="i")
        settle(one)
        assert error_of(other.beat()) is ErrorCode.UNRELEASED_INSTANCE_ID
        one.leave(-1)
        assert isinstance(other.beat(), ConsumerAnswer)

    def test_g4_who_does_not_come_back_in_time_is_gone(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t", instance="i"), Client(desk, "b", "t")
        settle(one, two)
        one.leave(-2)
        for _ in range(10):
            desk.advance(5_000)
            two.beat()
        settle(two)
        assert (desk.gone, len(two.numbers("t"))) == (["a"], 4)

    def test_g4_with_another_subscription_it_is_given_others(self, desk: Desk) -> None:
        one = Client(desk, "a", "t", instance="i")
        settle(one)
        one.leave(-2)
        again = Client(desk, "a2", "u", instance="i")
        settle(again)
        assert (again.numbers("t"), again.numbers("u")) == ([], [0, 1])

    def test_g4_who_is_away_is_not_asked_to_give_anything_up_by_the_next_coordinator_either(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t", instance="i"), Client(desk, "b", "t")
        settle(one)
        one.gives_up = False
        two.beat()
        one.beat()
        one.leave(-2)
        desk.take_over()
        assert not desk.group._revoking

    def test_g4_a_join_whose_answer_was_lost_is_repeated(self, desk: Desk) -> None:
        """Kafka says UNRELEASED_INSTANCE_ID, and librdkafka gives up at that."""
        one = Client(desk, "a", "t", instance="i")
        one.beat(is_lost=True)
        answer = one.beat()
        assert isinstance(answer, ConsumerAnswer)
        assert one.numbers("t") == [0, 1, 2, 3]

    def test_g4_the_same_member_may_come_back_itself(self, desk: Desk) -> None:
        one = Client(desk, "a", "t", instance="i")
        settle(one)
        one.leave(-2)
        assert error_of(desk.beat(Beat("a", 1, instance_id="i"))) is ErrorCode.FENCED_MEMBER_EPOCH
        settle(one)
        assert (one.epoch, one.numbers("t")) == (1, [0, 1, 2, 3])


class TestLeaving:
    def test_what_was_had_is_given_to_the_others(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        settle(one, two)
        one.leave()
        assert desk.group.epoch_number == 3
        settle(two)
        assert two.numbers("t") == [0, 1, 2, 3]

    def test_the_last_one_leaves_an_empty_group_which_can_be_deleted(self, desk: Desk) -> None:
        one = Client(desk, "a", "t")
        settle(one)
        one.leave()
        assert (desk.group.state, desk.group.epoch_number, desk.group.target_number) == ("Empty", 2, 2)
        assert {key.kind for key in desk.table.keys()} == {Kind.GROUP_EPOCH, Kind.TARGET_EPOCH}  # noqa: SIM118
        settle(one)
        assert (one.epoch, len(one.has)) == (3, 4)
        one.leave()
        desk.group.remove()
        desk.flush()
        assert desk.table.is_empty

    def test_who_is_silent_is_thrown_out(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        settle(one, two)
        for _ in range(12):
            desk.advance(4_000)
            two.beat()
        assert desk.gone == ["a"]
        assert error_of(one.beat()) is ErrorCode.UNKNOWN_MEMBER_ID
        settle(one, two)
        assert len(one.has) == len(two.has) == 2

    def test_thousands_go_some_at_a_time(self) -> None:
        desk = Desk(SomeTopics(t=2))
        for number in range(250):
            assert not isinstance(desk.hear(Client(desk, f"m{number}", "t").next_beat()), Refusal)
        desk.plan()
        desk.flush()
        desk.now_ms += 45_000
        assert [len(desk.group.tick(desk.topics, desk.now_ms)) for _ in range(4)] == [100, 100, 50, 0]
        desk.flush()
        assert desk.group.state == "Empty"


class TestPatterns:
    def test_g13_a_pattern_gets_the_topics_that_it_matches_as_a_whole(self, desk: Desk) -> None:
        desk.topics.put("tt", 1)
        one = Client(desk, "a", topic_pattern="t+", topic_names=None)
        one.beat()
        assert (one.epoch, one.numbers("t"), one.numbers("tt")) == (1, [0, 1, 2, 3], [0])
        assert desk.table.patterns["t+"].topics == ("t", "tt")

    def test_g13_new_topics_are_found_after_a_while(self, desk: Desk) -> None:
        one = Client(desk, "a", topic_pattern="t+", topic_names=None)
        settle(one)
        desk.topics.put("ttt", 2)
        one.beat()
        assert one.numbers("ttt") == []
        desk.advance(10_000)
        settle(one)
        assert (one.epoch, one.numbers("ttt")) == (2, [0, 1])

    def test_a_target_is_made_when_it_is_known_what_patterns_match(self, desk: Desk) -> None:
        desk.topics.unresolved.add("t+")
        one = Client(desk, "a", topic_pattern="t+", topic_names=None)
        heard = desk.hear(one.next_beat())
        assert not isinstance(heard, Refusal)
        desk.plan()
        due_ms = desk.group.plan_due_ms(desk.topics, desk.now_ms)
        assert due_ms is not None
        assert due_ms > desk.now_ms
        desk.topics.unresolved.clear()
        desk.plan()
        desk.flush()
        settle(one)
        assert one.numbers("t") == [0, 1, 2, 3]

    def test_g13_one_that_is_none_is_refused(self, desk: Desk) -> None:
        one = Client(desk, "a", topic_pattern="t(", topic_names=None)
        assert error_of(one.beat()) is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert desk.group.is_empty

    def test_names_and_patterns_count_together_and_the_last_to_go_takes_its_pattern_along(self, desk: Desk) -> None:
        one = Client(desk, "a", "u", topic_pattern="t")
        two = Client(desk, "b", topic_pattern="t", topic_names=None)
        settle(one, two)
        assert len(one.has | two.has) == 6
        one.beat(topic_pattern="")
        settle(one, two)
        assert (one.numbers("u"), two.numbers("t")) == ([0, 1], [0, 1, 2, 3])
        assert list(desk.table.patterns) == ["t"]
        two.leave()
        assert not desk.table.patterns


class TestTakingOver:
    def test_a_new_coordinator_goes_on_in_every_state(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t", instance="i"), Client(desk, "b", topic_pattern="t", topic_names=None)
        for step in (one.beat, two.beat, one.beat, two.beat, one.beat, two.beat):
            step()
            desk.take_over()
        settle(one, two)
        assert len(one.has) == len(two.has) == 2
        epoch = one.epoch
        assert (desk.group.epoch_number, desk.group.state) == (epoch, "Stable")

    def test_while_it_does_not_know_the_topics_nobody_loses_anything(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", topic_pattern="t", topic_names=None)
        settle(one, two)
        desk.topics.is_known = False
        desk.topics.version += 1
        desk.take_over()
        for member in (one, two):
            member.beat()
            assert (member.epoch, len(member.has)) == (2, 2)
        third = Client(desk, "c", "t")
        assert not isinstance(desk.hear(third.next_beat()), Refusal)
        desk.plan()
        assert (desk.group.epoch_number, desk.group.target_number) == (3, 2)
        due_ms = desk.group.plan_due_ms(desk.topics, desk.now_ms)
        assert due_ms is not None
        assert due_ms > desk.now_ms

        desk.topics.is_known = True
        settle(one, two, third)
        assert sorted(len(member.has) for member in (one, two, third)) == [1, 1, 2]
        assert one.epoch == 3

    def test_what_is_given_up_meanwhile_is_heard(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        settle(one)
        two.beat()
        one.beat()
        assert state_of(desk, "a") is MemberState.UNREVOKED
        desk.topics.is_known = False
        desk.take_over()
        one.beat()
        assert (state_of(desk, "a"), len(one.has)) == (MemberState.STABLE, 2)
        two.beat()
        assert len(two.has) == 2

    def test_topics_that_are_the_same_begin_no_epoch(self, desk: Desk) -> None:
        one = Client(desk, "a", "t", topic_pattern="u")
        settle(one)
        epoch = one.epoch
        desk.take_over()
        settle(one)
        assert one.epoch == epoch

    def test_sessions_begin_anew(self, desk: Desk) -> None:
        settle(Client(desk, "a", "t"))
        desk.advance(44_000)
        desk.take_over()
        desk.advance(44_000)
        assert desk.gone == []
        desk.advance(1_000)
        assert desk.gone == ["a"]


class TestIntervals:
    def test_they_are_short_while_the_group_changes_and_long_when_it_has_settled(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        settle(one, two)
        answer = one.beat()
        assert isinstance(answer, ConsumerAnswer)
        assert answer.interval_ms == HURRY_MS
        desk.advance(5_000)
        answer = one.beat()
        assert isinstance(answer, ConsumerAnswer)
        assert answer.interval_ms == 5_000

    def test_who_waits_long_asks_less_often(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        settle(one)
        two.beat()
        intervals = []
        for _ in range(4):
            desk.advance(10_000)
            answer = two.beat()
            assert isinstance(answer, ConsumerAnswer)
            intervals.append(answer.interval_ms)
        assert intervals == [1_000, 2_000, 3_000, 4_000]


class TestOffsets:
    def test_g9_the_epoch_of_a_partition_decides_for_older_ones(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        settle(one)
        two.beat()
        one.beat()
        assert desk.group.commit_refusal("a", None, 1, version=9) is ErrorCode.NONE
        settle(one, two)
        assert desk.group.commit_refusal("a", None, 2, version=9) is ErrorCode.NONE
        assert desk.group.commit_refusal("a", None, 3, version=9) is ErrorCode.STALE_MEMBER_EPOCH
        assert desk.group.commit_refusal("a", None, 1, version=9) == {T: {0: 1, 2: 1}}
        assert desk.group.commit_refusal("b", None, 1, version=9) == {T: {1: 2, 3: 2}}

    def test_g9_others_are_refused(self, desk: Desk) -> None:
        assert desk.group.commit_refusal("", None, -1, version=2) is ErrorCode.NONE
        settle(Client(desk, "a", "t"))
        refusal = desk.group.commit_refusal
        assert refusal("", None, -1, version=9) is ErrorCode.UNKNOWN_MEMBER_ID
        assert refusal("", None, -1, version=None) is ErrorCode.NONE
        assert refusal("x", None, 1, version=9) is ErrorCode.UNKNOWN_MEMBER_ID
        assert refusal("a", None, 1, version=8) is ErrorCode.UNSUPPORTED_VERSION
        assert refusal("a", None, 1, version=None) is ErrorCode.NONE


class TestPlans:
    def test_who_comes_back_under_another_id_while_a_plan_is_made_has_one_made_for_it(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t", instance="i"), Client(desk, "b", "t")
        settle(one, two)
        one.leave(-2)
        assert not isinstance(desk.hear(Client(desk, "c", "t").next_beat()), Refusal)
        plan = at_once(desk.group.plan_in_steps(desk.topics, desk.now_ms, 7))
        again, third = Client(desk, "a2", "t", instance="i"), Client(desk, "c", "t")
        assert not isinstance(desk.hear(again.next_beat()), Refusal)
        at_once(desk.group.take_plan_in_steps(plan, desk.now_ms, 7))
        assert desk.group.epoch_number > desk.group.target_number
        settle(again, two, third)
        assert len(again.has | two.has | third.has) == 4

    def test_who_leaves_while_a_plan_is_made_is_not_remembered(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Client(desk, "b", "t")
        settle(one)
        assert not isinstance(desk.hear(two.next_beat()), Refusal)
        plan = at_once(desk.group.plan_in_steps(desk.topics, desk.now_ms, 7))
        desk.leave(Beat("b", -1))
        at_once(desk.group.take_plan_in_steps(plan, desk.now_ms, 7))
        desk.flush()
        settle(one)
        assert one.numbers("t") == [0, 1, 2, 3]


class TestTopics:
    """Topics change; a heartbeat looks at none of them itself."""

    def test_a_change_that_could_not_be_written_is_seen_again(self, desk: Desk) -> None:
        one = Client(desk, "a", "t")
        settle(one)
        desk.topics.put("t", 6)
        assert not isinstance(desk.hear(one.next_beat()), Refusal)
        desk.plan()
        desk.group.undo()
        assert desk.group.epoch_number == 1
        settle(one)
        assert (one.epoch, len(one.has)) == (2, 6)

    def test_others_that_change_cost_one_look_each(self, desk: Desk) -> None:
        one = Client(desk, "a", *(f"t{number}" for number in range(1_000)))
        settle(one)
        looks: list[str] = []
        find = desk.topics.find

        def noted(name: str) -> tuple[bytes, int] | None:
            looks.append(name)
            return find(name)

        desk.topics.find = noted  # type: ignore[method-assign]
        desk.topics.version = 4  # From which on changes are remembered.
        desk.plan()
        looks.clear()
        desk.topics.put("other", 3)
        settle(one)
        assert looks == []
        desk.topics.put("t7", 3)
        desk.plan()
        assert len(looks) >= 1_000

    def test_what_is_subscribed_to_is_looked_at_in_pieces(self) -> None:
        names = [f"t{number:05}" for number in range(20_000)]
        desk = Desk(SomeTopics(**dict.fromkeys(names, 1)))
        group = ConsumerProtocolGroup("g", AT_ONCE, assign_in_steps)
        one = Client(desk, "a", topic_pattern="t.*", topic_names=None)
        looks = [0]
        find = desk.topics.find

        def counted(name: str) -> tuple[bytes, int] | None:
            looks[0] += 1
            return find(name)

        desk.topics.find = counted  # type: ignore[method-assign]
        heard = group.hear(one.next_beat(), desk.topics, 1)
        assert isinstance(heard, Heard)
        assert looks == [0]
        steps = group.plan_in_steps(desk.topics, 1, 7)
        most = 0
        plan: Plan | None = None
        while plan is None:
            before = looks[0]
            try:
                next(steps)
            except StopIteration as end:
                plan = end.value
            most = max(most, looks[0] - before)
        assert (looks[0], most) == (2 * len(names), NAMES_STEP)
        at_once(group.take_plan_in_steps(plan, 1, 7))
        assert looks[0] == 2 * len(names)
        answer = group.answer(heard, desk.topics, 1)
        assert isinstance(answer, ConsumerAnswer)
        assert looks[0] == 2 * len(names)
        assert partition_count(answer.assigned or {}) == SHARE_TOPICS_MAX

    def test_targets_are_taken_in_and_groups_loaded_in_pieces(self) -> None:
        names = [f"t{number:03}" for number in range(300)]
        desk = Desk(SomeTopics(**dict.fromkeys(names, 1)))
        for number in range(60):
            one = Client(desk, f"m{number}", *names)
            assert not isinstance(desk.hear(one.next_beat()), Refusal)
        everything: Target = {topic_id(name): tuple(range(20)) for name in names[:100]}
        plan = at_once(desk.group.plan_in_steps(desk.topics, desk.now_ms, 7))
        plan = plan._replace(targets=dict.fromkeys(plan.targets or (), everything))
        desk.flush()
        most = pieces = 0
        steps = desk.group.take_plan_in_steps(plan, desk.now_ms, 7)
        for _ in steps:
            pieces += 1
            most = max(most, sum(one.key.kind is Kind.TARGET for one in desk.group.take_changes()))
        assert (most, pieces) == (4, 15)

        before = desk.group.size_bytes
        loading = ConsumerProtocolGroup.from_saved_in_steps(desk.group, AT_ONCE, assign_in_steps, 1)
        assert sum(1 for _ in loading) >= before // (SAVED_BYTES + 10_000)

    def test_patterns_match_so_many_topics_together(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "TOPICS_MAX", 2)
        desk.topics.put("tt", 1)
        one, two = (Client(desk, name, topic_pattern=f"{name}+", topic_names=None) for name in "tu")
        settle(one, two)
        assert [desk.table.patterns[name].topics for name in ("t+", "u+")] == [("t", "tt"), ()]
        one.leave()
        desk.advance(10_000)
        settle(two)
        assert desk.table.patterns["u+"].topics == ("u",)


class TestUndoing:
    def test_what_could_not_be_written_is_taken_back(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t", instance="i"), Client(desk, "b", "t")
        settle(one)
        before = {key: desk.group.get(key) for key in desk.group.keys()}  # noqa: SIM118
        desk.hear(two.next_beat())
        desk.plan()
        desk.group.undo()
        desk.check()
        desk.group.leave(Beat("a", -1), desk.topics, desk.now_ms)
        desk.group.undo(desk.group.take_changes())
        desk.check()
        assert {key: desk.group.get(key) for key in desk.group.keys()} == before  # noqa: SIM118
        settle(one, two)
