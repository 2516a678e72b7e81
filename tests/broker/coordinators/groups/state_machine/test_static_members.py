"""Members with an instance id: quiet restarts, and two processes with the same one."""

import pytest

from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_clients.protocol.error_codes import ErrorCode

from .desk import SESSION_MS, Desk


def pair() -> Desk:
    """A stable group of the static members a (m1, leads) and b (m2)."""
    desk = Desk()
    assert desk.stable(2, ("a", "b")) == ["m1", "m2"]
    return desk


def test_a_restarted_member_gets_its_place_and_assignment_without_a_rebalance() -> None:
    desk = pair()
    ticket = desk.join(instance="b")
    assert desk.error(ticket) is None, "not before it is saved"
    save = desk.saved()
    assert [(member.member_id, member.assignment) for member in save.members] == [("m1", b"m1"), ("m3", b"m2")]
    answer = desk.joined(ticket)
    assert (answer.error, answer.member_id, answer.generation_id, answer.leader) == (ErrorCode.NONE, "m3", 1, "m1")
    assert not answer.skip_assignment
    assert desk.state() is GroupState.STABLE
    assert desk.synced(desk.sync("m3", instance="b")).assignment == b"m2"


def test_a_restarted_member_is_described_as_it_is_now() -> None:
    desk = pair()
    desk.join(instance="b", client_id="upgraded")
    assert [one.client_id for one in desk.saved().members][1] == "upgraded"


def test_the_process_that_was_replaced_is_fenced() -> None:
    desk = pair()
    desk.join(instance="b")
    desk.saved()
    assert desk.heartbeat("m2", instance="b") == ErrorCode.FENCED_INSTANCE_ID
    assert desk.commit("m2", instance="b") == ErrorCode.FENCED_INSTANCE_ID
    assert desk.error(desk.sync("m2", instance="b")) == ErrorCode.FENCED_INSTANCE_ID
    assert desk.error(desk.join("m2", "b")) == ErrorCode.FENCED_INSTANCE_ID
    assert desk.leave("m2", instance="b") == (ErrorCode.FENCED_INSTANCE_ID,)
    assert desk.heartbeat("m2") == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.heartbeat("m3", instance="b") == ErrorCode.NONE


def test_a_restarted_leader_leads_on_but_assigns_nothing() -> None:
    desk = pair()
    ticket = desk.join(instance="a")
    desk.saved()
    answer = desk.joined(ticket)
    assert answer.skip_assignment
    assert answer.leader == answer.member_id == "m3"
    assert [member.member_id for member in answer.members] == ["m2", "m3"]
    assert desk.group.leader_id == "m3"


def test_a_restarted_leader_that_cannot_skip_the_assignment_is_shown_the_old_leader() -> None:
    desk = pair()
    ticket = desk.join(instance="a", skips=False)
    desk.saved()
    answer = desk.joined(ticket)
    assert (answer.leader, answer.member_id, answer.members, answer.skip_assignment) == ("m1", "m3", (), False)


def test_a_restart_that_changes_the_protocol_is_a_rebalance() -> None:
    desk = Desk()
    both = (("range", b""), ("sticky", b""))
    desk.join(instance="a", protocols=both)
    desk.join(instance="b", protocols=both)
    desk.advance(1_000)
    desk.complete()
    assert desk.error(desk.join(instance="b", protocols=(("sticky", b""),))) is None
    assert desk.state() is GroupState.PREPARING_REBALANCE
    desk.join("m1", "a", both)
    assert desk.group.protocol_name == "sticky"


def test_a_restart_while_the_assignment_is_awaited_is_a_rebalance() -> None:
    desk = Desk()
    desk.join(instance="a")
    desk.join(instance="b")
    desk.advance(1_000)
    parked = desk.sync("m2", instance="b")
    ticket = desk.join(instance="b")
    assert desk.error(parked) == ErrorCode.FENCED_INSTANCE_ID
    assert desk.state() is GroupState.PREPARING_REBALANCE
    desk.join("m1", "a")
    assert desk.joined(ticket).generation_id == 2


def test_a_restart_while_the_others_join_fences_the_one_that_is_parked() -> None:
    desk = Desk()
    desk.stable(3, ("a", "b", "c"))
    desk.join("m1", "a")
    old = desk.join(instance="b")
    new = desk.join(instance="b")
    assert desk.error(old) == ErrorCode.FENCED_INSTANCE_ID
    desk.join("m3", "c")
    assert (desk.joined(new).member_id, desk.joined(new).generation_id) == ("m5", 2)


def test_two_processes_that_join_as_one_leave_the_later() -> None:
    desk = Desk()
    first, second = desk.join(instance="a"), desk.join(instance="a")
    answer = desk.joined(first)
    assert (answer.error, answer.member_id) == (ErrorCode.FENCED_INSTANCE_ID, "m1")
    desk.advance(500)
    assert desk.joined(second).leader == "m2"
    assert list(desk.group.members) == ["m2"]


def test_a_replacement_that_cannot_be_saved_is_told_so_and_may_come_again() -> None:
    desk = pair()
    ticket = desk.join(instance="b")
    desk.saved(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (desk.joined(ticket).error, desk.joined(ticket).member_id) == (ErrorCode.NOT_COORDINATOR, "")
    again = desk.join(instance="b")
    desk.saved()
    assert desk.joined(again).member_id == "m4"


def test_a_rebalance_takes_along_a_replacement_that_is_being_saved() -> None:
    desk = pair()
    ticket = desk.join(instance="b")
    desk.join("m1", "a")
    assert desk.joined(ticket).generation_id == 2, "both have joined, so nothing is waited for"
    desk.saved()
    desk.complete()


def test_a_static_member_that_does_not_join_in_time_stays_until_its_session_ends() -> None:
    desk = pair()
    ticket = desk.join("m1", "a", rebalance_ms=5_000)
    desk.group.members["m2"].rebalance_timeout_ms = 5_000
    desk.join("m1", "a", rebalance_ms=5_000)
    assert desk.error(ticket) == ErrorCode.REBALANCE_IN_PROGRESS
    desk.advance(SESSION_MS - 1)
    assert set(desk.group.members) == {"m1", "m2"}
    desk.advance(1)
    assert set(desk.group.members) == {"m1"}


def test_when_no_static_member_joins_in_time_the_group_waits_for_one() -> None:
    desk = pair()
    desk.join("m1", "a", rebalance_ms=1_000)
    desk.leave("m1", instance="a")
    assert desk.state() is GroupState.PREPARING_REBALANCE
    while desk.now_ms < 200_000:
        desk.advance(1_000)
        assert desk.heartbeat("m2", instance="b") == ErrorCode.REBALANCE_IN_PROGRESS
    ticket = desk.join("m2", "b")
    assert desk.joined(ticket).leader == "m2"


def test_a_leader_that_misses_the_join_phase_is_succeeded_by_one_that_joined() -> None:
    desk = pair()
    ticket = desk.join("m2", "b", (("range", b"new"),), rebalance_ms=5_000)
    desk.group.members["m1"].rebalance_timeout_ms = 5_000
    while desk.error(ticket) is None:
        desk.advance(1_000)
        desk.heartbeat("m1", instance="a")
    assert desk.joined(ticket).leader == "m2"
    assert set(desk.group.members) == {"m1", "m2"}


@pytest.mark.parametrize("member_id", ["", "m2"])
def test_a_static_member_is_removed_by_its_instance_id(member_id: str) -> None:
    desk = pair()
    assert desk.leave(member_id, instance="b") == (ErrorCode.NONE,)
    assert set(desk.group.members) == {"m1"}
    assert desk.leave(member_id, instance="b") == (ErrorCode.UNKNOWN_MEMBER_ID,)


def test_an_instance_id_that_nobody_has_is_unknown() -> None:
    desk = pair()
    assert desk.heartbeat("m1", instance="c") == ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.heartbeat("m1", instance="b") == ErrorCode.FENCED_INSTANCE_ID
    assert desk.heartbeat("m1") == ErrorCode.NONE, "as in Kafka, the member id alone will do"
