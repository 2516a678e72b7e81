"""Thousands of members in one group: each event is one pass over them.

Members that go together go some at a time.
"""

import gc
import struct
from collections.abc import Iterator
from typing import Self

import pytest
from steps import outcome

from barnabas_broker.coordinators.groups.state_machine.group import MEMBERS_STEP, ConsumerGroup
from barnabas_broker.coordinators.groups.state_machine.members import Member, Members
from barnabas_broker.coordinators.groups.state_machine.messages import (
    Effects,
    GroupConfig,
    JoinAnswer,
    SavedGroup,
    SavedMember,
    SyncRequest,
)
from barnabas_broker.coordinators.groups.state_machine.phases import GONE_MAX, NAMED_MAX
from barnabas_broker.coordinators.groups.state_machine.records import MEMBERS_STEP as RECORD_STEP
from barnabas_broker.coordinators.groups.state_machine.records import (
    decode_group_in_steps,
    encode_group,
    encode_group_in_steps,
)
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_clients.protocol.error_codes import ErrorCode

from .desk import REBALANCE_MS, SESSION_MS, Desk

CONFIG = GroupConfig(size_max=10_000)
MANY = 2 * GONE_MAX + 300


class CountingDesk(Desk):
    """Remembers how many members went in each step, and the most that a step has told of."""

    def __init__(self) -> None:
        super().__init__(CONFIG)
        self.gone: list[int] = []
        self.facts_max = 0
        self._size = 0

    def take(self, effects: Effects) -> None:
        super().take(effects)
        if len(self.group.members) < self._size:
            self.gone.append(self._size - len(self.group.members))
        self._size = len(self.group.members)
        self.facts_max = max(self.facts_max, len(effects.facts))


@pytest.fixture
def desk() -> CountingDesk:
    desk = CountingDesk()
    for _ in range(MANY):
        desk.join()
    return desk


def form(desk: Desk) -> None:
    desk.advance(2_000)
    assert desk.state() is GroupState.COMPLETING_REBALANCE


class TestWhoGoes:
    def test_those_whose_sessions_end_together_go_some_at_a_time(self, desk: CountingDesk) -> None:
        form(desk)
        desk.complete()
        desk.advance(SESSION_MS + 1_000)
        assert desk.gone == [GONE_MAX, GONE_MAX, MANY - 2 * GONE_MAX]
        assert desk.state() is GroupState.EMPTY
        assert desk.facts_max <= NAMED_MAX + 3

    def test_those_who_do_not_ask_for_their_assignments_too(self, desk: CountingDesk) -> None:
        form(desk)
        for member_id in list(desk.group.members):
            desk.heartbeat(member_id)
        desk.advance(SESSION_MS - 1)
        for member_id in list(desk.group.members):
            desk.heartbeat(member_id)
        desk.group._phase_at_ms = desk.now_ms + 1  # Sessions of most clients outlast it.
        desk.advance(1)
        assert desk.gone == [GONE_MAX]
        desk.advance(REBALANCE_MS + 1_000)
        assert max(desk.gone) == GONE_MAX
        assert not desk.group.members

    def test_those_who_do_not_join_do_not_hold_up_those_who_do_for_longer(self, desk: CountingDesk) -> None:
        form(desk)
        members = desk.complete()
        ticket = desk.join(members[0])
        for _ in range(8):
            desk.advance(REBALANCE_MS // 8)
            for member_id in members[1:]:
                desk.heartbeat(member_id)
        desk.advance(3)
        assert desk.gone == [GONE_MAX, GONE_MAX, MANY - 2 * GONE_MAX - 1]
        assert desk.error(ticket) == ErrorCode.NONE
        assert list(desk.group.members) == [members[0]]

    def test_newcomers_that_hung_up_together_are_left_out_of_the_generation(self, desk: CountingDesk) -> None:
        last = desk.join()
        for ticket in list(desk.parked):
            if ticket != last:
                desk.forget(ticket)
        desk.advance(2_000)
        assert desk.gone == [GONE_MAX, GONE_MAX, MANY - 2 * GONE_MAX]
        assert desk.joined(last).leader == desk.joined(last).member_id
        assert len(desk.group.members) == 1

    def test_of_many_who_leave_a_few_are_named(self, desk: CountingDesk) -> None:
        form(desk)
        members = desk.complete()
        assert set(desk.leave(*members)) == {ErrorCode.NONE}
        gone = [fact.cause for fact in desk.facts if fact.kind == "member gone"]
        assert len(gone) == NAMED_MAX + 1
        assert gone[-1] == f"{MANY - NAMED_MAX} more at once"
        assert max(len(fact.cause) for fact in desk.facts) < 100
        assert desk.state() is GroupState.EMPTY


class Counted(Members):
    """Counts how many members were looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at = 0

    def __iter__(self) -> Iterator[Member]:
        for member in super().__iter__():
            self.looked_at += 1
            yield member


def test_of_many_who_leave_one_after_the_other_each_leads_once_and_nobody_is_searched_for() -> None:
    members = Counted()
    for number in range(1_000):
        members.add(Member(f"m{number}", None, ("c", "h"), (1, 1), (("range", b""),)))
    for number in range(1_000):
        members.remove(f"m{number}")
    assert members.looked_at <= 1_000
    assert members.leader_id is None


class Ticket:
    """Counts with how many others it is compared."""

    compared = 0

    def __hash__(self) -> int:
        return id(self) >> 4

    def __eq__(self, other: object) -> bool:
        Ticket.compared += 1
        return self is other


def test_connections_that_end_together_look_for_nobody() -> None:
    members = Members()
    tickets = [Ticket() for _ in range(1_000)]
    for number, ticket in enumerate(tickets):
        member = Member(f"m{number}", None, ("c", "h"), (1, 1), (("range", b""),))
        members.add(member)
        members.start_joining(member, ticket)
        if number % 2:
            members.stop_joining(member)
            members.start_syncing(member, ticket)
    Ticket.compared = 0
    for ticket in tickets:
        members.forget(ticket)
        members.forget(ticket)
    assert Ticket.compared <= 3 * len(tickets)
    assert not any(member.join_ticket or member.sync_ticket for member in members)
    assert sum(member.joining for member in members) == members.joining_count == 500


SAVED = SavedGroup(
    protocol_type="consumer",
    generation_id=3,
    protocol_name="range",
    leader="m0",
    current_state_timestamp_ms=5,
    members=tuple(
        SavedMember(
            member_id=f"m{number}",
            group_instance_id=None,
            client_id="c",
            client_host="/h",
            rebalance_timeout_ms=1_000,
            session_timeout_ms=1_000,
            subscription=b"said",
            assignment=b"given",
        )
        for number in range(2_000)
    ),
)


def test_a_record_of_thousands_is_made_and_read_in_pieces() -> None:
    value, yields = outcome(encode_group_in_steps(SAVED))
    assert (value, yields) == (encode_group(SAVED), 2_000 // RECORD_STEP)
    assert outcome(decode_group_in_steps(value)) == (SAVED, 2_000 // RECORD_STEP)


def test_a_group_of_thousands_is_loaded_in_pieces() -> None:
    group, yields = outcome(ConsumerGroup.from_saved_in_steps("g", SAVED, CONFIG, 0))
    assert (len(group.members), group.leader_id, yields) == (2_000, "m0", 2_000 // MEMBERS_STEP)


def test_the_topics_of_a_group_are_read_once_for_all_who_say_the_same_and_in_pieces() -> None:
    desk = Desk()
    same = struct.pack(">hih1s", 0, 1, 1, b"a")
    for number in range(100):
        desk.join(protocols=(("range", same),))
        topic = b"t" * 1_000 + bytes([48 + number % 50])
        desk.join(protocols=(("range", struct.pack(">hih", 0, 1, len(topic)) + topic),))
    topics, yields = outcome(desk.group.topics_in_steps())
    assert topics is not None
    assert len(topics) == 51
    assert yields == 50 * 1_000 // (32 << 10)
    assert topics == desk.group.topics()


class Collected:
    """Counts the objects for the collector that a step leaves alive: those of each member take as long as the rest."""

    def __enter__(self) -> Self:
        gc.collect()
        gc.disable()
        self._before = len(gc.get_objects(generation=0))
        return self

    def __exit__(self, *_: object) -> None:
        gc.enable()

    @property
    def made(self) -> int:
        return len(gc.get_objects(generation=0)) - self._before


def test_a_generation_is_formed_assigned_and_shared_out_without_an_object_for_each_member(desk: CountingDesk) -> None:
    effects = Effects()
    group = desk.group
    forms_at_ms = desk.group.deadline_ms or 0
    while group.state is GroupState.PREPARING_REBALANCE:
        forms_at_ms = group.deadline_ms or 0
        with Collected() as formed:
            effects = group.tick(forms_at_ms)
            assert formed.made < MANY // 10
    assert len(effects.answers) == MANY
    leader_id = group.leader_id or ""
    answers = {answer.member_id: answer for answer in effects.answers if isinstance(answer, JoinAnswer)}
    assert [one.member_id for one in answers[leader_id].members] == list(group.members)
    shares = {member_id: member_id.encode() for member_id in group.members}

    def sync(member_id: str) -> Effects:
        request = SyncRequest(
            ticket=f"ticket of {member_id}",
            member_id=member_id,
            group_instance_id=None,
            generation_id=group.generation_id,
            protocol_type=None,
            protocol_name=None,
            assignments=shares,
        )
        return group.sync(request, forms_at_ms)

    for member_id in group.members:
        assert member_id == leader_id or not sync(member_id).answers
    with Collected() as assigned:
        effects = sync(leader_id)
        assert assigned.made < MANY // 10
    assert effects.save is not None
    assert {one.member_id: one.assignment for one in effects.save.members} == shares
    with Collected() as shared:
        effects = group.on_saved(group.generation_id, ErrorCode.NONE, forms_at_ms)
        assert shared.made < MANY // 10
    assert [answer.ticket for answer in effects.answers] == [f"ticket of {member_id}" for member_id in group.members]
