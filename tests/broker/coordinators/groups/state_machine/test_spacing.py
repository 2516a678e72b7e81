"""Rebalances are spaced: the rule alone, then what members of a group notice of it."""

from barnabas_broker.coordinators.groups.state_machine.messages import GroupConfig
from barnabas_broker.coordinators.groups.state_machine.spacing import BURST_COUNT, BURST_WINDOW_MS, Spacing
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_clients.protocol.error_codes import ErrorCode

from .desk import Desk

INTERVAL_MS = GroupConfig().rebalance_interval_ms


def test_the_first_three_begin_at_once_the_fourth_waits_for_the_interval() -> None:
    spacing = Spacing(2_000)
    spacing.settled(0)
    for at_ms in (10, 20, 30):
        assert spacing.may_begin_at(at_ms) == at_ms
        spacing.begun(at_ms, spaced=True)
        spacing.settled(at_ms + 5)
    assert spacing.may_begin_at(40) == 2_035


def test_a_slow_rebalance_is_followed_by_as_much_work() -> None:
    spacing = Spacing(2_000)
    for at_ms in (0, 7_000, 14_000):
        spacing.begun(at_ms, spaced=True)
        spacing.settled(at_ms + 7_000)
    assert spacing.may_begin_at(21_001) == 28_000
    spacing.begun(28_000, spaced=True)
    assert spacing.may_begin_at(28_001) is None, "not before the group is stable"
    spacing.settled(28_010)
    assert spacing.may_begin_at(28_011) == 30_010


def test_what_follows_a_rebalance_at_once_counts_as_part_of_it() -> None:
    spacing = Spacing(0)
    for _ in range(BURST_COUNT):
        spacing.begun(0, spaced=True)
    spacing.settled(3_000)
    spacing.begun(4_000, spaced=False)
    spacing.settled(5_000)
    assert spacing.may_begin_at(5_000) == 5_000 + 3_000 - 1_000 + 1_000


def test_quiet_restores_the_burst_but_not_sooner_than_the_last_one_deserves() -> None:
    spacing = Spacing(2_000)
    for _ in range(BURST_COUNT):
        spacing.begun(0, spaced=True)
    spacing.settled(100)
    assert spacing.may_begin_at(100) == 2_100
    spacing.begun(100 + BURST_WINDOW_MS, spaced=True)
    spacing.settled(100 + BURST_WINDOW_MS + 20_000)
    assert spacing.may_begin_at(50_100) == 50_100, "two are left of a new burst"
    spacing.begun(50_100, spaced=True)
    spacing.begun(50_100, spaced=True)
    spacing.settled(70_100)
    assert spacing.may_begin_at(70_100 + BURST_WINDOW_MS) == 70_100 + BURST_WINDOW_MS
    spacing.begun(70_100 + BURST_WINDOW_MS, spaced=True)
    spacing.settled(70_100 + BURST_WINDOW_MS + 1)
    assert spacing.may_begin_at(70_100 + BURST_WINDOW_MS + 1) == 70_100 + BURST_WINDOW_MS + 2_001


def exhausted(size: int) -> Desk:
    """A stable group of `size` members whose next rebalance must wait, at the moment at which it became stable."""
    desk = Desk()
    desk.stable(size)
    for _ in range(BURST_COUNT):
        desk.join()
        desk.leave(f"m{next(desk.ids) - 1}")
        desk.rejoin()
        desk.complete()
    return desk


def test_members_work_on_while_a_newcomer_waits() -> None:
    desk = exhausted(2)
    generation = desk.group.generation_id
    rebalances = desk.kinds().count("rebalance")
    ticket = desk.join()
    assert desk.state() is GroupState.STABLE
    assert desk.facts[-1].kind == "rebalance delayed"
    desk.advance(INTERVAL_MS - 1)
    assert desk.heartbeat("m1") == desk.commit("m2") == ErrorCode.NONE
    assert desk.error(desk.sync("m2")) == ErrorCode.NONE
    desk.advance(1)
    assert desk.kinds().count("rebalance") == rebalances + 1
    assert desk.heartbeat("m1") == ErrorCode.REBALANCE_IN_PROGRESS
    desk.rejoin()
    assert desk.joined(ticket).generation_id == generation + 1


def test_a_newcomer_that_leaves_again_never_disturbs() -> None:
    desk = exhausted(2)
    rebalances = desk.kinds().count("rebalance")
    ticket = desk.join()
    newcomer = list(desk.group.members)[-1]
    assert desk.leave(newcomer) == (ErrorCode.NONE,)
    assert desk.error(ticket) == ErrorCode.UNKNOWN_MEMBER_ID
    desk.advance(INTERVAL_MS)
    assert desk.state() is GroupState.STABLE
    assert desk.kinds().count("rebalance") == rebalances


def test_that_a_rebalance_waits_is_told_once_however_many_come() -> None:
    desk = exhausted(2)
    for _ in range(5):
        desk.join()
        desk.leave(list(desk.group.members)[-1])
    assert desk.kinds().count("rebalance delayed") == 1


def test_who_has_left_is_made_up_for_by_one_rebalance() -> None:
    desk = exhausted(3)
    desk.leave("m2")
    desk.advance(INTERVAL_MS)
    desk.rejoin()
    desk.complete()
    rebalances = desk.kinds().count("rebalance")
    desk.join()
    desk.leave(list(desk.group.members)[-1])
    desk.advance(INTERVAL_MS)
    assert desk.kinds().count("rebalance") == rebalances


def test_a_newcomer_that_hung_up_does_not_begin_a_rebalance() -> None:
    desk = exhausted(1)
    ticket = desk.join()
    desk.forget(ticket)
    desk.advance(INTERVAL_MS)
    assert desk.state() is GroupState.STABLE
    assert list(desk.group.members) == ["m1"]


def test_a_newcomer_that_asks_again_is_still_waiting() -> None:
    desk = exhausted(1)
    first = desk.join()
    newcomer = list(desk.group.members)[-1]
    second = desk.join(newcomer)
    assert desk.error(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.error(second) is None
    assert desk.state() is GroupState.STABLE
    assert desk.heartbeat(newcomer) == desk.commit(newcomer) == ErrorCode.ILLEGAL_GENERATION
    assert desk.error(desk.sync(newcomer)) == ErrorCode.ILLEGAL_GENERATION
    desk.advance(INTERVAL_MS)
    desk.rejoin()
    assert desk.error(second) == ErrorCode.NONE


def test_a_static_newcomer_that_is_replaced_while_it_waits_is_fenced() -> None:
    desk = exhausted(1)
    first, second = desk.join(instance="a"), desk.join(instance="a")
    assert desk.error(first) == ErrorCode.FENCED_INSTANCE_ID
    assert desk.error(second) is None
    assert desk.state() is GroupState.STABLE
    assert not desk.unsaved


def test_newcomers_are_not_saved_before_they_are_in_a_generation() -> None:
    desk = Desk()
    desk.stable(1, ("a",))
    for _ in range(BURST_COUNT):
        desk.join()
        desk.leave(f"m{next(desk.ids) - 1}")
        desk.rejoin()
        desk.complete()
    desk.join()
    desk.join(instance="a")
    assert [member.group_instance_id for member in desk.saved().members] == ["a"]


def test_who_leaves_while_a_rebalance_must_wait_leaves_the_others_working() -> None:
    desk = exhausted(3)
    desk.leave("m2")
    assert desk.state() is GroupState.STABLE
    desk.advance(INTERVAL_MS - 1)
    assert desk.heartbeat("m1") == ErrorCode.NONE
    desk.advance(1)
    assert desk.heartbeat("m1") == ErrorCode.REBALANCE_IN_PROGRESS


def test_the_last_one_of_a_generation_leaves_nobody_to_be_disturbed() -> None:
    desk = exhausted(1)
    ticket = desk.join()
    desk.leave("m1")
    assert desk.error(ticket) == ErrorCode.NONE


def test_a_member_that_joins_again_is_not_kept_waiting_and_takes_newcomers_along() -> None:
    desk = exhausted(2)
    newcomer = desk.join()
    again = desk.join("m2", protocols=(("range", b"cooperative members revoke, then join again"),))
    assert desk.state() is GroupState.PREPARING_REBALANCE
    desk.join("m1")
    assert desk.joined(newcomer).generation_id == desk.joined(again).generation_id


def test_a_newcomer_does_not_break_the_sync_phase_when_it_must_wait() -> None:
    desk = exhausted(2)
    desk.join("m1")
    desk.join("m2")
    assert desk.state() is GroupState.COMPLETING_REBALANCE
    parked = desk.sync("m2")
    newcomer = desk.join()
    assert desk.error(parked) is None
    seen = desk.joined(desk.join("m1")).members
    assert [member.member_id for member in seen] == ["m1", "m2"], "newcomers are not the leader's to assign to"
    desk.sync("m1", {})
    desk.saved()
    assert desk.error(parked) == ErrorCode.NONE
    desk.advance(INTERVAL_MS)
    desk.rejoin()
    assert desk.error(newcomer) == ErrorCode.NONE


def test_a_leader_that_goes_before_it_has_assigned_is_not_waited_for() -> None:
    desk = exhausted(2)
    desk.join("m1")
    desk.join("m2")
    parked = desk.sync("m2")
    desk.leave("m1")
    assert desk.error(parked) == ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.group.leader_id == "m2"
    desk.join("m2")
    desk.complete()
    desk.join()
    assert desk.state() is GroupState.STABLE, "that was once"


def test_a_leader_that_goes_after_it_has_assigned_is_not_missed_before_the_interval() -> None:
    desk = exhausted(2)
    desk.join("m1")
    desk.join("m2")
    parked = desk.sync("m2")
    desk.sync("m1", {"m2": b"half"})
    desk.leave("m1")
    desk.saved()
    assert desk.synced(parked).assignment == b"half"
    assert desk.state() is GroupState.STABLE
    desk.advance(INTERVAL_MS)
    assert desk.state() is GroupState.PREPARING_REBALANCE


def test_an_emptied_group_begins_afresh() -> None:
    desk = exhausted(1)
    desk.leave("m1")
    desk.saved()
    desk.join()
    desk.advance(500)
    desk.complete()
    desk.join()
    assert desk.state() is GroupState.PREPARING_REBALANCE


def test_no_interval_means_as_in_kafka_but_for_the_time_that_rebalances_take() -> None:
    desk = Desk(GroupConfig(rebalance_interval_ms=0))
    desk.stable(1)
    for _ in range(3 * BURST_COUNT):
        desk.join()
        assert desk.state() is GroupState.PREPARING_REBALANCE
        desk.leave(list(desk.group.members)[-1])
        desk.rejoin()
        desk.complete()
