"""Time, leaving, committing, and a new coordinator."""

from itertools import count

from barnabas_broker.coordinators.groups.state_machine.messages import GroupConfig
from barnabas_broker.coordinators.groups.state_machine.phases import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    PENDING_IDS_MAX,
    PENDING_WAIT_MS,
    SESSION_GRAIN_MS,
)
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_clients.protocol.error_codes import ErrorCode

from .desk import REBALANCE_MS, SESSION_MS, Desk


def test_a_member_that_is_not_heard_of_is_out_after_its_session() -> None:
    desk = Desk()
    desk.stable(2)
    desk.advance(SESSION_MS - 1)
    assert desk.heartbeat("m1") == ErrorCode.NONE
    desk.advance(1)
    assert set(desk.group.members) == {"m1"}
    assert desk.heartbeat("m1") == ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.heartbeat("m2") == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.facts[-2].cause == "m2 was not heard of for 10000 ms"


def test_heartbeats_syncs_and_commits_keep_a_session_alive() -> None:
    desk = Desk()
    desk.stable(3)
    for _ in range(5):
        desk.advance(SESSION_MS - 1)
        assert desk.heartbeat("m1") == desk.commit("m2") == desk.error(desk.sync("m3")) == ErrorCode.NONE


def test_a_member_that_waits_for_an_answer_needs_no_heartbeats() -> None:
    desk = Desk()
    desk.stable(2)
    ticket = desk.join("m1")
    for _ in range(5):
        desk.advance(SESSION_MS - 1)
        assert desk.heartbeat("m2") == ErrorCode.REBALANCE_IN_PROGRESS
    desk.join("m2")
    assert desk.error(ticket) == ErrorCode.NONE
    desk.sync("m2")
    desk.advance(SESSION_MS - 1)
    assert desk.heartbeat("m1") == ErrorCode.NONE
    desk.advance(1)
    assert set(desk.group.members) == {"m1", "m2"}


def test_sessions_start_anew_when_the_assignment_is_given_out() -> None:
    desk = Desk()
    desk.join()
    desk.join()
    desk.advance(1_000)
    desk.sync("m2")
    desk.advance(SESSION_MS - 1)
    desk.sync("m1", {})
    desk.saved()
    desk.advance(SESSION_MS - 1)
    assert set(desk.group.members) == {"m1", "m2"}


def test_a_newcomer_whose_connection_ended_is_out_at_its_deadline() -> None:
    desk = Desk()
    desk.stable(1)
    desk.group.members["m1"].rebalance_timeout_ms = 1 << 30
    desk.forget(desk.join())
    assert desk.state() is GroupState.PREPARING_REBALANCE
    while desk.now_ms < NEW_MEMBER_JOIN_TIMEOUT_MS:
        desk.advance(1_000)
        desk.heartbeat("m1")
    assert set(desk.group.members) == {"m1", "m2"}
    desk.advance(1_000)
    assert set(desk.group.members) == {"m1"}


def test_a_newcomer_that_hung_up_is_not_in_the_generation_that_forms() -> None:
    desk = Desk()
    desk.forget(desk.join())
    ticket = desk.join()
    desk.advance(1_000)
    assert [member.member_id for member in desk.joined(ticket).members] == ["m2"]
    assert desk.error(desk.join("m1")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_newcomer_that_was_cut_off_and_asks_again_in_time_is_in() -> None:
    desk = Desk()
    desk.forget(desk.join())
    ticket = desk.join("m1")
    desk.advance(500)
    assert desk.joined(ticket).generation_id == 1


def test_nobody_is_answered_who_does_not_wait_any_more() -> None:
    desk = Desk()
    desk.stable(2)
    desk.forget(desk.join("m1"))
    ticket = desk.join("m2")
    assert desk.joined(ticket).leader == "m1", "it has joined, and a lost answer is not a lost member"
    again = desk.joined(desk.join("m1"))
    assert again.generation_id == 2
    desk.forget(desk.sync("m1", {}))
    desk.saved()


def test_members_that_do_not_join_in_time_are_out() -> None:
    desk = Desk()
    desk.stable(3)
    ticket = desk.join("m1")
    for _ in range(REBALANCE_MS // 5_000):
        assert desk.heartbeat("m2") == desk.heartbeat("m3") == ErrorCode.REBALANCE_IN_PROGRESS
        desk.advance(5_000)
    assert [member.member_id for member in desk.joined(ticket).members] == ["m1"]
    assert desk.error(desk.join("m2")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_ask_for_their_assignment_in_time_are_out() -> None:
    desk = Desk()
    desk.join()
    desk.join()
    desk.advance(1_000)
    desk.sync("m1", {})
    desk.saved()
    for _ in range(REBALANCE_MS // 5_000):
        assert desk.heartbeat("m1") == desk.heartbeat("m2") == ErrorCode.NONE
        desk.advance(5_000)
    assert set(desk.group.members) == {"m1"}
    assert desk.state() is GroupState.PREPARING_REBALANCE


def test_a_leader_that_does_not_assign_in_time_is_out() -> None:
    desk = Desk()
    desk.join()
    desk.join()
    desk.advance(1_000)
    waiting = desk.sync("m2")
    for _ in range(REBALANCE_MS // 5_000):
        desk.heartbeat("m1")
        desk.advance(5_000)
    assert desk.error(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.group.leader_id == "m2"


def test_the_join_phase_waits_for_ids_on_their_way_back_but_not_long() -> None:
    desk = Desk()
    desk.stable(1)
    desk.join(id_first=True)
    ticket = desk.join("m1")
    assert desk.error(ticket) is None
    newcomer = desk.join("m2")
    assert desk.joined(ticket).generation_id == desk.joined(newcomer).generation_id == 2
    desk.complete()

    desk.join(id_first=True)
    tickets = desk.join("m1"), desk.join("m2")
    desk.advance(PENDING_WAIT_MS - 1)
    assert desk.error(tickets[1]) is None
    desk.advance(1)
    assert {desk.joined(ticket).generation_id for ticket in tickets} == {3}
    assert desk.error(desk.join("m3")) is None, "the id is still good"


def test_an_id_that_is_forgotten_is_not_waited_for() -> None:
    desk = Desk()
    desk.stable(1)
    desk.join(id_first=True)
    desk.advance(SESSION_MS - 1)
    ticket = desk.join("m1")
    assert desk.error(ticket) is None
    desk.advance(SESSION_GRAIN_MS)
    assert desk.error(ticket) == ErrorCode.NONE


def test_who_gives_an_id_back_is_not_waited_for() -> None:
    desk = Desk()
    desk.stable(1)
    desk.join(id_first=True)
    ticket = desk.join("m1")
    assert desk.leave("m2") == (ErrorCode.NONE,)
    assert desk.error(ticket) == ErrorCode.NONE


def test_who_gives_an_id_back_disturbs_nobody() -> None:
    desk = Desk()
    desk.stable(1)
    desk.join(id_first=True)
    assert desk.leave("m2") == (ErrorCode.NONE,)
    assert desk.heartbeat("m1") == ErrorCode.NONE


def test_ids_given_out_are_bounded_and_the_oldest_is_forgotten() -> None:
    desk = Desk()
    for _ in range(PENDING_IDS_MAX + 1):
        desk.join(id_first=True)
    assert desk.error(desk.join("m1", id_first=True)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.error(desk.join("m2", id_first=True)) is None


def test_who_leaves_is_answered_and_the_last_one_leaves_an_empty_group() -> None:
    desk = Desk()
    desk.stable(3)
    parked = desk.join("m1")
    assert desk.leave("m1", "nobody", "m3") == (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE)
    assert desk.error(parked) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.group.leader_id == "m2"
    desk.leave("m2")
    assert desk.state() is GroupState.EMPTY
    save = desk.saved()
    assert (save.generation_id, save.protocol_name, save.leader, save.members) == (2, None, None, ())


def test_who_waits_for_an_assignment_and_leaves_is_answered() -> None:
    desk = Desk()
    desk.join()
    desk.join()
    desk.advance(1_000)
    parked = desk.sync("m2")
    desk.leave("m2")
    assert desk.error(parked) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_empty_group_that_could_not_be_saved_is_empty_nevertheless() -> None:
    desk = Desk()
    desk.leave(*desk.stable(1))
    desk.saved(ErrorCode.REQUEST_TIMED_OUT)
    assert desk.state() is GroupState.EMPTY
    assert desk.facts[-1].kind == "save failed"
    assert desk.group.to_saved(7).generation_id == 1, "what the log has is what was committed"


def test_who_may_commit() -> None:
    desk = Desk()
    assert desk.commit("", -1) == ErrorCode.NONE
    assert desk.commit("m1", 0) == ErrorCode.UNKNOWN_MEMBER_ID
    desk.stable(2)
    assert desk.commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.commit("m1", -1) == ErrorCode.ILLEGAL_GENERATION
    assert desk.commit("m1", 0) == ErrorCode.ILLEGAL_GENERATION
    assert desk.commit("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.commit("m1", 1) == ErrorCode.NONE
    desk.join("m1")
    assert desk.commit("m2", 1) == ErrorCode.NONE, "what was read may be committed until one joins again"
    desk.join("m2")
    assert desk.commit("m2", 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.commit("m2", 1) == ErrorCode.ILLEGAL_GENERATION
    desk.complete()
    desk.leave("m1", "m2")
    assert desk.commit("", -1) == ErrorCode.NONE


def test_a_new_coordinator_carries_on_with_the_saved_generation() -> None:
    desk = Desk()
    desk.stable(2, ("a", None))
    saved = desk.group.to_saved(1_234)
    assert saved.current_state_timestamp_ms == 1_234
    after = Desk(group=desk.group.from_saved("g", saved, GroupConfig(), 50_000), now_ms=50_000)
    after.ids = count(3)
    assert after.state() is GroupState.STABLE
    assert (after.group.leader_id, after.group.protocol_name, after.group.protocol_type) == ("m1", "range", "consumer")
    assert after.group.to_saved(1_234) == saved
    after.advance(SESSION_MS - 1)
    assert after.heartbeat("m2") == ErrorCode.NONE
    assert after.synced(after.sync("m2")).assignment == b"m2"
    after.join(instance="a")
    after.saved()
    after.advance(1)
    assert set(after.group.members) == {"m2", "m3"}


def test_a_generation_that_was_not_saved_is_lost_with_its_coordinator() -> None:
    desk = Desk()
    desk.stable(2)
    desk.join("m1")
    desk.join("m2")
    desk.sync("m1", {"m1": b"never saved"})
    after = Desk(group=desk.group.from_saved("g", desk.group.to_saved(0), GroupConfig(), 0))
    assert after.heartbeat("m1", 2) == ErrorCode.ILLEGAL_GENERATION
    assert after.synced(after.sync("m1", generation=1)).assignment == b"m1"
    after.join("m1")
    after.join("m2")
    assert after.group.generation_id == 2


def test_an_empty_group_is_loaded_empty() -> None:
    desk = Desk()
    desk.leave(*desk.stable(1))
    desk.saved()
    group = desk.group.from_saved("g", desk.group.to_saved(0), GroupConfig(), 0)
    assert (group.state, group.generation_id, group.protocol_type) == (GroupState.EMPTY, 2, "consumer")
    assert group.deadline_ms is None


def test_a_group_without_history_is_saved_as_empty() -> None:
    assert Desk().group.to_saved(3) == ("", 0, None, None, 3, ())


def test_a_coordinator_that_stood_still_holds_it_against_nobody() -> None:
    desk = Desk()
    desk.stable(2)
    desk.now_ms += 10 * SESSION_MS
    desk.group.restart_sessions(desk.now_ms)
    desk.advance(SESSION_MS - 1)
    assert desk.heartbeat("m1") == desk.heartbeat("m2") == ErrorCode.NONE
