"""A request that would make a group too large is refused before anything has changed.

That the account always equals a recount is an invariant of `test_group_machine`.
"""

import pytest

from barnabas_broker.coordinators.groups.state_machine.group import ConsumerGroup
from barnabas_broker.coordinators.groups.state_machine.members import sizes_of
from barnabas_broker.coordinators.groups.state_machine.messages import GroupConfig, JoinedMember
from barnabas_broker.coordinators.groups.state_machine.records import encode_group, encode_group_key
from barnabas_broker.coordinators.groups.state_machine.room import MEMBER_BYTES, PENDING_ID_BYTES
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_broker.coordinators.room import Room
from barnabas_clients.protocol.error_codes import ErrorCode

from .desk import RANGE, REBALANCE_MS, Desk
from .recount import recount

NONE = ErrorCode.NONE
NO_ROOM = ErrorCode.COORDINATOR_NOT_AVAILABLE
TOO_LARGE = ErrorCode.GROUP_MAX_SIZE_REACHED
LARGE = (("range", bytes(10_000)),)


def state_of(group: ConsumerGroup) -> tuple[object, ...]:
    members = [
        (one.member_id, one.group_instance_id, one.protocols, one.joining, one.expires_at_ms)
        for one in group.members.values()
    ]
    return group.state, group.generation_id, group.leader_id, members, group.held_bytes, group.deadline_ms


class TestTheRecord:
    def test_a_newcomer_that_makes_it_too_large_is_refused_and_nothing_has_changed(self) -> None:
        desk = Desk()
        desk.stable(3)
        before = state_of(desk.group)
        now = desk.group.record_bytes_with(0, "consumer")
        for protocols in (LARGE, (*RANGE, ("other", bytes(10_000)))):
            ticket = desk.join(protocols=protocols, record_bytes_max=now + 10_000)
            assert (desk.joined(ticket).error, desk.joined(ticket).member_id) == (TOO_LARGE, "")
            assert state_of(desk.group) == before
        assert desk.error(desk.join(protocols=LARGE, record_bytes_max=now + 10_200)) is None

    def test_a_member_that_says_more_than_before_is_refused_and_stays(self) -> None:
        desk = Desk()
        first, second = desk.stable(2)
        now = desk.group.record_bytes_with(0, "consumer")
        before = state_of(desk.group)
        assert desk.error(desk.join(second, protocols=LARGE, record_bytes_max=now)) == TOO_LARGE
        assert state_of(desk.group) == before
        assert desk.heartbeat(second) == desk.heartbeat(first) == NONE

    def test_whoever_says_no_more_than_before_is_let_in_however_full_it_is(self) -> None:
        desk = Desk()
        leader, second = desk.stable(2)
        desk.join(leader, record_bytes_max=0, room_bytes=-1)
        desk.join(second, record_bytes_max=0, room_bytes=-1)
        assert desk.group.generation_id == 2

    @pytest.mark.parametrize("protocol", ["range", "a" * 3_000])
    def test_it_is_never_longer_than_what_was_foreseen(self, protocol: str) -> None:
        desk = Desk()
        for number, name in enumerate(("a", "ä" * 50, "€" * 99)):
            desk.join(instance=name, protocols=((protocol, bytes(number * 7)), ("other", b"")), client_id=name)
        desk.advance(2_000)
        shares = dict.fromkeys(desk.group.members, b"share")
        foreseen = desk.group.record_bytes_with(5 * len(shares), "consumer")
        for member_id, member in list(desk.group.members.items()):
            desk.sync(member_id, shares, instance=member.group_instance_id)
        (saved,) = desk.unsaved
        assert len(encode_group_key("g")) + len(encode_group(saved)) <= foreseen

    def test_an_assignment_that_makes_it_too_large_is_refused_as_if_the_log_had_refused_it(self) -> None:
        desk = Desk()
        for _ in range(2):
            desk.join()
        desk.advance(2_000)
        fits = desk.group.record_bytes_with(1_000, "consumer")
        held_bytes = desk.group.held_bytes
        follower = desk.sync("m2")
        leader = desk.sync("m1", {"m1": bytes(500), "m2": bytes(501), "nobody": bytes(9_999)}, record_bytes_max=fits)
        assert desk.error(leader) == desk.error(follower) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert (desk.unsaved, desk.group.held_bytes) == ([], held_bytes)
        assert desk.state() is GroupState.PREPARING_REBALANCE
        assert desk.kinds()[-2:] == ["group not saved", "rebalance"]
        desk.rejoin()
        desk.sync("m1", {"m1": bytes(500), "m2": bytes(500), "nobody": bytes(9_999)}, record_bytes_max=fits)
        desk.saved()
        assert desk.state() is GroupState.STABLE


class TestTheNode:
    def test_a_newcomer_for_which_there_is_no_room_may_try_elsewhere_or_later(self) -> None:
        desk = Desk()
        desk.stable(1)
        before = state_of(desk.group)
        # The client names of the desk's members, and one of their ids.
        size_bytes = sizes_of(("client-" + 36 * "0", None, "client", "/127.0.0.1"), LARGE).held_bytes
        assert desk.error(desk.join(protocols=LARGE, room_bytes=size_bytes - 1)) == NO_ROOM
        assert desk.error(desk.join(protocols=LARGE, room_bytes=-5)) == NO_ROOM
        assert state_of(desk.group) == before
        assert desk.error(desk.join(protocols=LARGE, room_bytes=size_bytes)) is None
        assert desk.group.held_bytes <= before[-2] + size_bytes  # type: ignore[operator]

    def test_ids_that_are_given_out_take_room_until_they_are_used_given_back_or_forgotten(self) -> None:
        desk = Desk()
        empty = desk.group.held_bytes
        refused = desk.join(id_first=True, room_bytes=PENDING_ID_BYTES)
        assert desk.error(refused) == NO_ROOM
        for _ in range(3):
            desk.join(id_first=True, room_bytes=PENDING_ID_BYTES + 50)
        assert desk.group.held_bytes == empty + 3 * (PENDING_ID_BYTES + 2)
        desk.leave("m1")
        assert desk.group.held_bytes == empty + 2 * (PENDING_ID_BYTES + 2)
        desk.join("m2")
        assert desk.group.held_bytes == recount(desk.group) > empty + MEMBER_BYTES
        desk.advance(REBALANCE_MS * 10)
        assert desk.group.held_bytes == recount(desk.group)
        assert not desk.group.members

    def test_an_assignment_for_which_there_is_no_room_makes_the_members_look_for_their_coordinator(self) -> None:
        desk = Desk()
        desk.join()
        desk.advance(2_000)
        held_bytes = desk.group.held_bytes
        shares = {"m1": bytes(1_000)}
        room_bytes = 1_000 + desk.group.saving_bytes(shares)
        assert desk.error(desk.sync("m1", shares, room_bytes=room_bytes - 1)) == NO_ROOM
        assert desk.group.held_bytes == held_bytes
        desk.join("m1")
        desk.sync("m1", shares, room_bytes=room_bytes)
        assert desk.group.held_bytes == held_bytes + room_bytes - 1_000, "while it is being saved"
        desk.saved()
        assert desk.group.held_bytes == held_bytes + 1_000

    def test_static_members_that_come_back_again_and_again_hold_a_record_each_until_it_is_saved(self) -> None:
        desk = Desk()
        desk.stable(2, ("a", "b"))
        desk.join(instance="a")
        before = desk.group.held_bytes
        assert desk.error(desk.join(instance="a", room_bytes=desk.group.saving_bytes(None) - 1)) == NO_ROOM
        desk.join(instance="a", room_bytes=desk.group.saving_bytes(None) + 36)  # Its id might be that much longer.
        assert desk.group.held_bytes == before + desk.group.saving_bytes(None)
        desk.saved()
        desk.saved()
        assert desk.group.held_bytes == recount(desk.group) < before

    def test_newcomers_leave_room_for_assignments_and_offsets_some(self) -> None:
        room = Room(1_600)
        assert (room.for_newcomers_bytes, room.for_additions_bytes, room.left_bytes) == (1_400, 1_500, 1_600)
        room.held_bytes = 1_450
        assert (room.for_newcomers_bytes, room.for_additions_bytes, room.left_bytes) == (-50, 50, 150)


def test_protocols_that_nobody_offers_any_more_are_forgotten() -> None:
    desk = Desk(GroupConfig(initial_rebalance_delay_ms=0))
    desk.join()
    for number in range(20):
        desk.join(protocols=(*RANGE, (f"only once {number}", b"")))
        desk.leave(f"m{number + 2}")
    assert desk.group._members._supporters == {"range": 1}


def test_what_the_leader_is_told_is_not_copied() -> None:
    desk = Desk()
    metadata = bytes(1_000)
    tickets = [desk.join(protocols=(("other", b"o"), ("range", metadata))) for _ in range(3)]
    tickets.append(desk.join(protocols=(("range", metadata),)))
    desk.advance(2_000)
    members = desk.joined(tickets[0]).members
    assert tuple(members) == tuple(JoinedMember(f"m{number}", None, metadata) for number in (1, 2, 3, 4))
    assert all(one.metadata is metadata for one in members)
    assert len(members) == 4
    assert not any(len(desk.joined(ticket).members) for ticket in tickets[1:])
