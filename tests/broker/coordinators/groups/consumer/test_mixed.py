"""Members of both protocols in one group, in virtual time."""

from typing import Any

import pytest

from barnabas_broker.coordinators.groups.consumer.messages import Beat, Heard, Refusal
from barnabas_broker.coordinators.groups.consumer.values import MemberState
from barnabas_clients.protocol.error_codes import ErrorCode

from .consumer_desk import AT_ONCE, REBALANCE_MS, Classic, Client, Desk, SomeTopics, mingle, topic_id

NONE = ErrorCode.NONE
REJOIN = ErrorCode.REBALANCE_IN_PROGRESS
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID


@pytest.fixture
def desk() -> Desk:
    return Desk(SomeTopics(t=4))


def numbers(*members: Classic | Client) -> list[int]:
    """Return the partitions of `t` that they use, together."""
    found: list[int] = []
    for one in members:
        found += one.has.get("t", ()) if isinstance(one, Classic) else one.numbers("t")
    return sorted(found)


def may_go_back(desk: Desk) -> bool:
    return desk.group.becomes_classic


class TestSharing:
    @pytest.mark.parametrize("eager", [True, False])
    def test_they_share_and_hear_of_it_each_in_its_way(self, desk: Desk, eager: bool) -> None:
        one, two = Client(desk, "a", "t"), Classic(desk, "b", "t", eager=eager)
        one.beat()
        assert one.numbers("t") == [0, 1, 2, 3]
        mingle(one, two)
        assert (len(one.numbers("t")), len(two.has["t"]), numbers(one, two)) == (2, 2, [0, 1, 2, 3])
        assert two.generation == one.epoch == 2
        three = Classic(desk, "c", "t", eager=eager)
        mingle(three, one, two)
        assert numbers(one, two, three) == [0, 1, 2, 3]
        assert all(numbers(member) for member in (one, two, three))

    def test_a_member_that_is_to_give_something_up_says_so_when_it_joins_again(self, desk: Desk) -> None:
        one, two = Classic(desk, "a", "t", eager=False), Client(desk, "b", "t")
        two.beat()
        mingle(one, two)
        had = one.has
        three = Client(desk, "c", "t")
        three.beat()
        two.beat()
        assert one.heartbeat() is REJOIN
        one.join()
        # Of what it says it has it is to give something up; it stays in its generation, and asks for the rest.
        state = desk.group.assignments["a"].state
        if state is MemberState.UNREVOKED:
            assert one.sync() is NONE
            assert set(one.has.get("t", ())) < set(had["t"])
            assert one.heartbeat() is REJOIN
        mingle(one, two, three)
        assert numbers(one, two, three) == [0, 1, 2, 3]

    def test_who_waits_for_others_is_not_called_before_they_have_given_up(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Classic(desk, "b", "t")
        one.beat()
        one.gives_up = False
        assert two.join() is NONE
        assert two.sync() is NONE
        assert two.has == {}
        one.beat()
        assert desk.group.assignments["b"].state is MemberState.UNRELEASED
        assert two.heartbeat() is NONE
        one.gives_up = True
        one.has = {(topic_id("t"), number) for number in (0, 2)}
        mingle(one, two)
        assert numbers(one, two) == [0, 1, 2, 3]

    def test_a_subscription_that_changes_begins_an_epoch_and_one_that_does_not_begins_none(self, desk: Desk) -> None:
        desk.topics.put("u", 2)
        one, two = Client(desk, "a", "t"), Classic(desk, "b", "t")
        mingle(one, two)
        epoch = desk.group.epoch_number
        two.join()
        assert desk.group.epoch_number == epoch
        two.names = ("t", "u")
        two.join()
        assert desk.group.epoch_number == epoch + 1
        mingle(one, two)
        assert two.has["u"] == (0, 1)

    def test_a_topic_that_is_deleted_is_not_told_of(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Classic(desk, "b", "t")
        mingle(one, two)
        desk.topics.put("t", None)
        assert two.sync() is NONE
        assert two.has == {}


class TestRefusals:
    def test_g14_who_is_no_classic_member_is_unknown(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Classic(desk, "nobody", "t")
        one.beat()
        two.generation = 1
        assert two.heartbeat() is two.sync() is two.leave() is UNKNOWN
        two.member_id = "a"
        assert two.heartbeat() is two.sync() is UNKNOWN
        two.instance = "i"
        assert two.heartbeat() is UNKNOWN

    def test_another_generation_is_illegal(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Classic(desk, "b", "t")
        mingle(one, two)
        for generation in (two.generation - 1, two.generation + 1, -1):
            two.generation, known = generation, two.generation
            assert two.heartbeat() is two.sync() is ErrorCode.ILLEGAL_GENERATION
            two.generation = known

    def test_an_assignment_is_not_given_when_there_is_a_newer_one(self, desk: Desk) -> None:
        one, two, three = Client(desk, "a", "t"), Classic(desk, "b", "t"), Client(desk, "c", "t")
        mingle(one, two)
        three.beat()
        assert two.sync() is REJOIN

    def test_all_offer_one_protocol_at_least(self, desk: Desk) -> None:
        one, two, three = Client(desk, "a", "t"), Classic(desk, "b", "t"), Classic(desk, "c", "t")
        one.beat()
        assert two.join() is NONE
        three.protocols = ("other",)
        assert three.join() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        three.protocols = ("other", "sticky")
        assert three.join() is NONE
        two.protocols = ("range",)
        assert two.join() is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert desk.group.classic.common == {"sticky"}

    @pytest.mark.parametrize("change", [{"protocol_type": "connect"}, {"protocols": (("range", b"\0"),)}])
    def test_what_is_no_subscription_is_inconsistent(self, desk: Desk, change: dict[str, Any]) -> None:
        Client(desk, "a", "t").beat()
        join = Classic(desk, "b", "t").request()._replace(**change)
        found = desk.group.beat_of(join, desk.topics)
        assert isinstance(found, Refusal)
        assert found.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    def test_a_sync_names_the_protocol_that_it_was_told(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Classic(desk, "b", "t")
        mingle(one, two)
        group, wrong = desk.group, ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        for protocol in (("connect", "range"), ("consumer", "sticky")):
            assert group.sync("b", None, two.generation, protocol, desk.topics, desk.now_ms) is wrong
        assert isinstance(group.sync("b", None, two.generation, (None, None), desk.topics, desk.now_ms), bytes)


class TestTime:
    def test_each_has_a_session_of_its_own(self, desk: Desk) -> None:
        one, two, three = Client(desk, "a", "t"), Classic(desk, "b", "t"), Classic(desk, "c", "t")
        three.session_ms = 30_000
        mingle(one, two, three)
        desk.advance(9_000)
        assert two.heartbeat() is NONE
        desk.advance(9_999)
        assert not desk.gone
        desk.advance(2)
        assert desk.gone == ["b"]
        desk.advance(11_000)
        assert desk.gone == ["b", "c"]
        assert desk.group.members.keys() == {"a"}

    def test_who_does_not_join_again_in_time_is_gone(self, desk: Desk) -> None:
        one, two, three = Client(desk, "a", "t"), Classic(desk, "b", "t"), Client(desk, "c", "t")
        two.session_ms = 2 * REBALANCE_MS
        mingle(one, two)
        three.beat()
        assert two.heartbeat() is REJOIN
        desk.advance(REBALANCE_MS // 2)
        assert two.heartbeat() is REJOIN, "which gives it no more time"
        for _ in range(12):
            desk.advance(REBALANCE_MS // 24)
            one.beat()
            three.beat()
        assert desk.gone == ["b"]

    def test_who_does_not_ask_for_its_assignment_in_time_is_gone(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Classic(desk, "b", "t")
        two.session_ms = 2 * REBALANCE_MS
        one.beat()
        two.join()
        for _ in range(21):
            desk.advance(REBALANCE_MS // 20)
            one.beat()
        assert desk.gone == ["b"]

    def test_sessions_begin_anew_with_a_new_coordinator(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Classic(desk, "b", "t")
        mingle(one, two)
        desk.advance(9_000)
        desk.take_over()
        desk.advance(9_000)
        assert two.heartbeat() is NONE
        assert not desk.gone


class TestStaticMembers:
    def test_whoever_changes_its_protocol_in_a_restart_has_what_it_had(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Classic(desk, "b", "t", instance="i")
        mingle(one, two)
        had = two.has["t"]
        again = Client(desk, "b2", "t", instance="i")
        again.beat()
        assert (tuple(again.numbers("t")), set(desk.group.members)) == (had, {"a", "b2"})
        assert two.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
        back = Classic(desk, "b3", "t", instance="i")
        assert back.join() is NONE
        assert back.sync() is NONE
        assert back.has["t"] == had
        answer = again.beat()
        assert isinstance(answer, Refusal)
        assert answer.error is UNKNOWN

    def test_a_place_is_taken_over_from_one_that_has_not_been_answered_yet(self, desk: Desk) -> None:
        one, two, other = (
            Client(desk, "a", "t"),
            Classic(desk, "b", "t", instance="i"),
            Classic(desk, "c", "t", instance="i"),
        )
        one.beat()
        beat = desk.group.beat_of(two.request(), desk.topics)
        assert isinstance(beat, Beat)
        assert isinstance(desk.hear(beat), Heard)
        desk.flush()
        mingle(one, other)
        assert (numbers(one, other), set(desk.group.members)) == ([0, 1, 2, 3], {"a", "c"})

    def test_one_that_is_known_is_who_it_says_or_nobody(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Classic(desk, "b", "t", instance="i")
        mingle(one, two)
        other = Classic(desk, "c", "t", instance="i")
        other.is_known = True
        assert other.join() is ErrorCode.FENCED_INSTANCE_ID
        other.instance = "j"
        assert other.join() is UNKNOWN
        assert two.join() is NONE

    def test_g4_of_the_same_protocol_it_has_to_go_first(self, desk: Desk) -> None:
        Client(desk, "a", "t", instance="i").beat()
        answer = Client(desk, "b", "t", instance="i").beat()
        assert isinstance(answer, Refusal)
        assert answer.error is ErrorCode.UNRELEASED_INSTANCE_ID

    def test_a_tool_takes_one_out_by_its_instance(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Classic(desk, "b", "t", instance="i")
        mingle(one, two)
        leaving = [("", "i"), ("", "j"), ("x", "i"), ("nobody", None), ("a", None)]
        errors = desk.group.leave_classic(leaving, desk.topics, desk.now_ms)
        desk.flush()
        assert errors == [NONE, UNKNOWN, ErrorCode.FENCED_INSTANCE_ID, UNKNOWN, NONE]
        assert not desk.group.members


class TestOffsets:
    def test_g9_to_a_classic_member_another_epoch_is_another_generation(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Classic(desk, "b", "t")
        mingle(one, two)
        group = desk.group
        assert group.commit_refusal("b", None, two.generation, version=2) is NONE
        assert group.commit_refusal("b", None, two.generation + 1, version=9) is ErrorCode.ILLEGAL_GENERATION
        assert group.commit_refusal("a", None, one.epoch + 1, version=9) is ErrorCode.STALE_MEMBER_EPOCH
        assert group.stale("b") is ErrorCode.ILLEGAL_GENERATION
        assert group.fetch_refusal("b", two.generation) is NONE
        assert group.fetch_refusal("b", two.generation - 1) is ErrorCode.ILLEGAL_GENERATION
        since = group.commit_refusal("b", None, two.generation - 1, version=2)
        assert not isinstance(since, ErrorCode)
        assert since == {topic_id("t"): dict.fromkeys(two.has["t"], 2)}


class TestGoingBack:
    def test_those_who_are_left_may_be_a_classic_group_in_the_epoch_that_they_know(self, desk: Desk) -> None:
        one, two, three = Client(desk, "a", "t"), Classic(desk, "b", "t"), Classic(desk, "c", "t")
        mingle(one, two, three)
        epoch = desk.group.epoch_number
        assert not may_go_back(desk)
        one.leave()
        assert may_go_back(desk)
        assert desk.group.epoch_number == epoch == two.generation == three.generation
        assert desk.group.chosen_protocol() == "range"

    @pytest.mark.parametrize("change", [{"downgrades": False}, {"classic_size_max": 1}])
    def test_if_they_may_not_they_go_on_as_they_are(self, change: dict[str, Any]) -> None:
        desk = Desk(SomeTopics(t=4), AT_ONCE._replace(**change))
        one, two, three = Client(desk, "a", "t"), Classic(desk, "b", "t"), Classic(desk, "c", "t")
        mingle(one, two, three)
        one.leave()
        assert not desk.group.becomes_classic
        desk.plan()
        desk.flush()
        mingle(two, three)
        assert numbers(two, three) == [0, 1, 2, 3]

    def test_if_nothing_comes_of_it_they_get_what_the_others_had(self, desk: Desk) -> None:
        one, two = Client(desk, "a", "t"), Classic(desk, "b", "t")
        mingle(one, two)
        one.leave()
        desk.group.stay(desk.now_ms)
        desk.plan()
        desk.flush()
        mingle(two)
        assert two.has["t"] == (0, 1, 2, 3)

    def test_the_protocol_is_what_most_like_of_those_that_all_offer(self, desk: Desk) -> None:
        members = [Classic(desk, name, "t") for name in "bcd"]
        Client(desk, "a", "t").beat()
        offered: list[tuple[str, ...]] = [("x", "range", "sticky"), ("sticky", "range"), ("sticky", "range")]
        for member, offers in zip(members, offered, strict=True):
            member.protocols = offers
            assert member.join() is NONE
        assert desk.group.chosen_protocol() == "sticky"


def test_a_group_of_both_is_what_its_records_say(desk: Desk) -> None:
    one, two = Client(desk, "a", "t"), Classic(desk, "b", "t", instance="i")
    mingle(one, two)
    known = desk.group.members["b"].classic
    assert known is not None
    assert (known.session_timeout_ms, [name for name, _ in known.protocols]) == (10_000, ["range", "sticky"])
    desk.take_over()
    assert desk.group.members["b"].classic == known
    mingle(one, two)


def test_a_member_may_change_its_protocol_under_its_own_id(desk: Desk) -> None:
    one, two = Client(desk, "a", "t"), Classic(desk, "b", "t")
    mingle(one, two)
    again = Client(desk, "b", "t")
    mingle(one, again)
    assert numbers(one, again) == [0, 1, 2, 3]
    assert desk.group.classic.count == 0
    assert not desk.group.classic.sessions
