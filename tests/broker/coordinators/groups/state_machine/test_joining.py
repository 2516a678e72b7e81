"""JoinGroup, SyncGroup and heartbeats of dynamic members: the flow, and every error."""

import pytest

from barnabas_broker.coordinators.groups.state_machine.messages import GroupConfig, JoinedMember
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_clients.protocol.error_codes import ErrorCode

from .desk import RANGE, REBALANCE_MS, SESSION_MS, Desk


def test_a_group_forms_assigns_and_works() -> None:
    desk = Desk()
    first, second = desk.join(), desk.join()
    assert desk.state() is GroupState.PREPARING_REBALANCE
    desk.advance(1_000)
    answer = desk.joined(first)
    assert (answer.error, answer.generation_id, answer.leader) == (ErrorCode.NONE, 1, "m1")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert answer.members == (JoinedMember("m1", None, b"r"), JoinedMember("m2", None, b"r"))
    assert desk.joined(second).members == ()
    assert desk.joined(second).leader == "m1"

    follower = desk.sync("m2")
    leader = desk.sync("m1", {"m1": b"one", "m2": b"two"})
    assert desk.error(follower) is desk.error(leader) is None, "nothing is given out before it is saved"
    save = desk.saved()
    assert desk.synced(leader).assignment == b"one"
    assert desk.synced(follower)[1:] == (ErrorCode.NONE, "consumer", "range", b"two")
    assert [(member.member_id, member.assignment) for member in save.members] == [("m1", b"one"), ("m2", b"two")]
    assert (save.generation_id, save.protocol_name, save.leader) == (1, "range", "m1")
    assert desk.state() is GroupState.STABLE
    assert desk.heartbeat("m2") == ErrorCode.NONE


def test_a_new_member_must_first_take_an_id() -> None:
    desk = Desk()
    ticket = desk.join(id_first=True)
    assert desk.joined(ticket).error == ErrorCode.MEMBER_ID_REQUIRED
    assert desk.joined(ticket).member_id == "m1"
    assert desk.state() is GroupState.EMPTY
    assert not desk.group.members
    again = desk.join("m1", id_first=True)
    desk.advance(500)
    assert desk.joined(again).member_id == "m1"


def test_a_member_id_that_was_given_out_is_forgotten_after_a_session() -> None:
    desk = Desk()
    desk.join(id_first=True)
    desk.advance(SESSION_MS)
    assert desk.error(desk.join("m1", id_first=True)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.group.deadline_ms is None


def test_a_member_id_that_was_given_out_belongs_to_a_dynamic_member() -> None:
    desk = Desk()
    desk.join(id_first=True)
    assert desk.error(desk.join("m1", "instance")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_first_generation_waits_for_more_members_after_each_that_came() -> None:
    desk = Desk()
    desk.join()
    desk.advance(400)
    late = desk.join()
    desk.advance(100)
    assert desk.error(late) is None, "somebody came within the delay"
    desk.advance(400)
    later = desk.join()
    desk.advance(100)
    assert desk.error(later) is None
    desk.advance(500)
    assert desk.joined(later).generation_id == 1
    assert desk.joined(later).leader == "m1"
    assert len(desk.group.members) == 3


def test_the_first_generation_does_not_wait_for_who_has_left_again() -> None:
    desk = Desk()
    first = desk.join()
    desk.advance(200)
    desk.join()
    desk.leave("m2")
    desk.advance(300)
    assert desk.error(first) == ErrorCode.NONE


def test_newcomers_put_the_first_generation_off_only_so_long() -> None:
    desk = Desk()
    first = desk.join()
    for _ in range(49):
        desk.advance(100)
        desk.join()
    assert desk.error(first) is None
    desk.advance(100)
    assert desk.error(first) == ErrorCode.NONE


def test_no_delay_means_that_the_first_member_works_at_once() -> None:
    desk = Desk(GroupConfig(initial_rebalance_delay_ms=0))
    assert desk.joined(desk.join()).generation_id == 1


def test_a_group_whose_members_left_while_it_waited_becomes_empty() -> None:
    desk = Desk()
    ticket = desk.join()
    desk.leave("m1")
    assert desk.error(ticket) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.state() is GroupState.PREPARING_REBALANCE
    desk.advance(500)
    assert desk.state() is GroupState.EMPTY
    assert desk.saved().members == ()


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, -1])
def test_a_session_timeout_must_be_within_the_operators_range(session_ms: int) -> None:
    desk = Desk()
    assert desk.joined(desk.join("who", session_ms=session_ms)).error == ErrorCode.INVALID_SESSION_TIMEOUT
    assert desk.error(desk.join(session_ms=6_000)) is None


def test_an_unknown_member_id_is_not_let_in() -> None:
    desk = Desk()
    answer = desk.joined(desk.join("stranger"))
    assert (answer.error, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "stranger")
    desk.stable(1)
    assert desk.error(desk.join("stranger")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.error(desk.sync("stranger")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.heartbeat("stranger") == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_a_group_needs_a_protocol(protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> None:
    desk = Desk()
    ticket = desk.join(protocol_type=protocol_type, protocols=protocols)
    assert desk.error(ticket) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_members_must_share_type_and_a_protocol() -> None:
    desk = Desk()
    desk.stable(2)
    assert desk.error(desk.join(protocol_type="connect")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.error(desk.join(protocols=(("sticky", b""),))) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.error(desk.join(protocols=(("sticky", b""), *RANGE))) is None


def test_an_emptied_group_may_change_its_protocol_type() -> None:
    desk = Desk()
    desk.leave(*desk.stable(1))
    assert desk.group.protocol_type == "consumer"
    desk.join(protocol_type="connect")
    desk.advance(500)
    assert desk.group.protocol_type == "connect"


def test_the_most_wanted_common_protocol_wins_and_ties_go_to_the_oldest() -> None:
    desk = Desk()
    tickets = [
        desk.join(protocols=(("a", b"1"), ("b", b"2"), ("c", b""))),
        desk.join(protocols=(("b", b"3"), ("a", b"4"))),
    ]
    desk.advance(1_000)
    assert desk.joined(tickets[0]).protocol_name == "a"
    desk.join(protocols=(("b", b""), ("a", b"")))
    desk.rejoin()
    assert desk.group.protocol_name == "b"


def test_the_group_has_a_greatest_size() -> None:
    desk = Desk(GroupConfig(size_max=2))
    tickets = [desk.join() for _ in range(3)]
    assert desk.joined(tickets[2]) == desk.joined(tickets[2])._replace(
        error=ErrorCode.GROUP_MAX_SIZE_REACHED, member_id=""
    )
    desk.advance(1_000)
    desk.complete()
    assert desk.error(desk.join()) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.error(desk.join("m2")) == ErrorCode.NONE, "who is in may join again"


def test_of_too_many_loaded_members_the_last_to_join_find_no_place() -> None:
    desk = Desk()
    desk.stable(3)
    loaded = Desk(
        GroupConfig(size_max=2), desk.group.from_saved("g", desk.group.to_saved(5), GroupConfig(size_max=2), 0)
    )
    assert loaded.state() is GroupState.PREPARING_REBALANCE
    tickets = [loaded.join(member_id) for member_id in ("m3", "m1", "m2")]
    errors = [loaded.error(ticket) for ticket in tickets]
    assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert set(loaded.group.members) == {"m1", "m3"}


def test_a_leader_that_joins_again_forces_a_rebalance() -> None:
    desk = Desk()
    desk.stable(2)
    ticket = desk.join("m1")
    assert desk.error(ticket) is None
    assert desk.state() is GroupState.PREPARING_REBALANCE
    assert desk.heartbeat("m2") == ErrorCode.REBALANCE_IN_PROGRESS
    desk.join("m2")
    assert desk.joined(ticket).generation_id == 2


def test_a_follower_that_says_nothing_new_gets_the_generation_again() -> None:
    desk = Desk()
    desk.stable(2)
    answer = desk.joined(desk.join("m2"))
    assert (answer.error, answer.generation_id, answer.members) == (ErrorCode.NONE, 1, ())
    assert desk.state() is GroupState.STABLE
    assert desk.synced(desk.sync("m2")).assignment == b"m2"


def test_a_follower_with_another_subscription_starts_a_rebalance() -> None:
    desk = Desk()
    desk.stable(2)
    assert desk.error(desk.join("m2", protocols=(("range", b"other"),))) is None
    assert desk.state() is GroupState.PREPARING_REBALANCE
    assert desk.join("m1")
    assert desk.group.members["m2"].metadata("range") == b"other"


def test_a_lost_join_answer_is_given_again_while_the_assignment_is_awaited() -> None:
    desk = Desk()
    desk.join()
    desk.join()
    desk.advance(1_000)
    assert desk.joined(desk.join("m2")).members == ()
    assert len(desk.joined(desk.join("m1")).members) == 2
    assert desk.state() is GroupState.COMPLETING_REBALANCE


def test_a_join_that_is_repeated_answers_the_first_one_too() -> None:
    desk = Desk()
    desk.stable(2)
    first = desk.join("m1")
    second = desk.join("m1")
    assert desk.error(first) == ErrorCode.REBALANCE_IN_PROGRESS
    desk.join("m2")
    assert desk.error(second) == ErrorCode.NONE


def test_a_sync_that_is_repeated_answers_the_first_one_too_and_saves_once() -> None:
    desk = Desk()
    desk.join()
    desk.advance(500)
    first, second = desk.sync("m1", {"m1": b"x"}), desk.sync("m1", {"m1": b"y"})
    assert desk.error(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert len(desk.unsaved) == 1
    desk.saved()
    assert desk.synced(second).assignment == b"x"


def test_a_newcomer_during_the_sync_phase_makes_the_others_join_again() -> None:
    desk = Desk()
    desk.join()
    desk.join()
    desk.advance(1_000)
    waiting = desk.sync("m2")
    newcomer = desk.join()
    assert desk.error(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.error(desk.sync("m1", {})) == ErrorCode.REBALANCE_IN_PROGRESS
    desk.rejoin()
    assert desk.joined(newcomer).generation_id == 2


def test_an_assignment_saved_too_late_is_not_given_out() -> None:
    desk = Desk()
    desk.stable(1)
    desk.join("m1")
    desk.sync("m1", {"m1": b"old"})
    desk.join(instance=None)
    desk.rejoin()
    assert desk.group.generation_id == 3
    desk.saved()
    assert desk.state() is GroupState.COMPLETING_REBALANCE
    desk.complete()
    assert desk.group.members["m1"].assignment == b"m1"


def test_a_sync_must_name_the_generation_and_its_protocol() -> None:
    desk = Desk()
    desk.stable(1)
    assert desk.error(desk.sync("m1", generation=0)) == ErrorCode.ILLEGAL_GENERATION
    assert desk.error(desk.sync("m1", protocol_type="connect")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.error(desk.sync("m1", protocol_name="sticky")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.error(desk.sync("m1", protocol_type=None, protocol_name="range")) == ErrorCode.NONE
    assert desk.heartbeat("m1", generation=2) == ErrorCode.ILLEGAL_GENERATION


def test_members_that_the_leader_forgot_get_an_empty_assignment() -> None:
    desk = Desk()
    desk.join()
    desk.join()
    desk.advance(1_000)
    ticket = desk.sync("m2")
    desk.sync("m1", {"m1": b"all", "nobody": b"?"})
    assert [member.assignment for member in desk.saved().members] == [b"all", b""]
    assert desk.synced(ticket).error == ErrorCode.NONE


def test_an_assignment_that_cannot_be_saved_is_followed_by_a_rebalance() -> None:
    desk = Desk()
    desk.join()
    desk.join()
    desk.advance(1_000)
    tickets = desk.sync("m2"), desk.sync("m1", {})
    desk.saved(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert {desk.error(ticket) for ticket in tickets} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert desk.state() is GroupState.PREPARING_REBALANCE
    desk.rejoin()
    assert desk.complete() == ["m1", "m2"]


def test_a_coordinator_that_ends_tells_everyone_and_stays_silent() -> None:
    desk = Desk()
    desk.stable(2)
    joining = desk.join("m1")
    desk.end()
    assert desk.error(joining) == ErrorCode.NOT_COORDINATOR
    assert desk.group.deadline_ms is None
    assert desk.error(desk.join()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.error(desk.sync("m2")) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.heartbeat("m2") == desk.commit("m2") == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.leave("m2") == (ErrorCode.COORDINATOR_NOT_AVAILABLE,)
    desk.end()
    assert not desk.parked


def test_what_the_log_says_after_the_end_is_not_heard() -> None:
    desk = Desk()
    desk.join()
    desk.advance(500)
    ticket = desk.sync("m1", {})
    desk.end()
    assert desk.error(ticket) == ErrorCode.NOT_COORDINATOR
    desk.saved()
    assert desk.state() is GroupState.DEAD


def test_the_rebalance_timeout_is_the_longest_that_a_member_asks_for() -> None:
    desk = Desk()
    desk.join(rebalance_ms=1)
    desk.join(rebalance_ms=REBALANCE_MS)
    desk.advance(1_000)
    desk.complete()
    ticket = desk.join("m1")
    for _ in range(59):
        desk.advance(1_000)
        assert desk.heartbeat("m2") == ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.error(ticket) is None
    desk.advance(1_000)
    assert desk.joined(ticket).generation_id == 2
    assert set(desk.group.members) == {"m1"}
