"""Groups against the dumbest model, whatever clients, logs, coordinators and connections do, in whatever order."""

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_broker.coordinators.groups.state_machine.group import ConsumerGroup
from barnabas_broker.coordinators.groups.state_machine.messages import (
    Effects,
    GroupConfig,
    JoinAnswer,
    JoinRequest,
    SavedGroup,
    SyncAnswer,
    SyncRequest,
)
from barnabas_broker.coordinators.groups.state_machine.phases import SESSION_GRAIN_MS
from barnabas_broker.coordinators.groups.state_machine.records import encode_group, encode_group_key
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_clients.protocol.error_codes import ErrorCode

from .desk import Desk
from .model import REBALANCE_MS, SESSION_MS, Known, Model
from .recount import recount

CONFIG = GroupConfig(size_max=4)
INSTANCES = ("a", "b")
WORKING = (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)


class Recorded(ConsumerGroup):
    """Remembers each call with what it returned, so that all of it can be played to another group."""

    def __init__(self, group_id: str, config: GroupConfig) -> None:
        super().__init__(group_id, config)
        self.calls: list[tuple[str, tuple[Any, ...], object]] = []

    def join(self, request: JoinRequest, now_ms: int, new_member_id: Callable[[], str]) -> Effects:
        member_id = new_member_id()
        effects = super().join(request, now_ms, lambda: member_id)
        self.calls.append(("join", (request, now_ms, lambda: member_id), effects))
        return effects

    def sync(self, request: SyncRequest, now_ms: int) -> Effects:
        effects = super().sync(request, now_ms)
        self.calls.append(("sync", (request, now_ms), effects))
        return effects

    def heartbeat(self, member_id: str, group_instance_id: str | None, generation_id: int, now_ms: int) -> ErrorCode:
        error = super().heartbeat(member_id, group_instance_id, generation_id, now_ms)
        self.calls.append(("heartbeat", (member_id, group_instance_id, generation_id, now_ms), error))
        return error

    def leave(
        self, leaving: Sequence[tuple[str, str | None, str]], now_ms: int
    ) -> tuple[tuple[ErrorCode, ...], Effects]:
        answer = super().leave(leaving, now_ms)
        self.calls.append(("leave", (leaving, now_ms), answer))
        return answer

    def forget(self, ticket: object) -> None:
        super().forget(ticket)
        self.calls.append(("forget", (ticket,), None))

    def tick(self, now_ms: int) -> Effects:
        effects = super().tick(now_ms)
        self.calls.append(("tick", (now_ms,), effects))
        return effects

    def on_saved(self, generation_id: int, error: ErrorCode, now_ms: int) -> Effects:
        effects = super().on_saved(generation_id, error, now_ms)
        self.calls.append(("on_saved", (generation_id, error, now_ms), effects))
        return effects


class ModelDesk(Desk):
    """A desk that compares with the model after each call."""

    def __init__(self, group: ConsumerGroup, model: Model, now_ms: int) -> None:
        super().__init__(group=group, now_ms=now_ms)
        self.model = model
        self.asked: dict[object, str] = {}  # The member that was parked with each ticket.

    def take(self, effects: Effects) -> None:
        super().take(effects)
        if self.group.state is GroupState.DEAD:
            return
        self.model.follow(self.group, self.now_ms)
        for answer in effects.answers:
            if isinstance(answer, SyncAnswer) and answer.error == ErrorCode.NONE and answer.ticket in self.asked:
                assert answer.assignment == self.model.assignments.get(self.asked[answer.ticket], b"")
            elif isinstance(answer, JoinAnswer) and answer.error == ErrorCode.NONE:
                assert answer.generation_id == self.model.generation
                if answer.members:
                    assert {member.member_id for member in answer.members} <= self.model.members.keys()
                    assert answer.leader == answer.member_id


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.next_id = 0
        self.committed: SavedGroup | None = None
        self.started_with: tuple[SavedGroup | None, int] = (None, 0)
        self.replacing: list[str | None] = []  # For each unfinished save: the static member that waits for it.
        self.model = Model(CONFIG.size_max)
        self.desk = ModelDesk(Recorded("g", CONFIG), self.model, 0)

    @property
    def group(self) -> ConsumerGroup:
        return self.desk.group

    def someone(self, number: int) -> str:
        """Any member that ever was, mostly one that is."""
        present = sorted(self.group.members)
        if present and number >= 4:
            return present[number % len(present)]
        return f"m{number % (self.next_id + 1)}"

    def instance_of(self, member_id: str) -> str | None:
        return self.model.members[member_id].instance if member_id in self.model.members else None

    # JoinGroup.

    def _join(self, member_id: str, instance: str | None, *, changed: bool = False, id_first: bool = False) -> None:
        model = self.model
        state = self.desk.state()
        now_ms = self.desk.now_ms
        new_id = f"m{self.next_id}"
        self.next_id += 1
        self.desk.ids = iter((self.next_id - 1,))  # type: ignore[assignment]
        known = model.members.get(member_id)
        expected: ErrorCode | None = None
        who = member_id
        if not model.has_room(state, member_id):
            model.members.pop(member_id, None)
            expected = ErrorCode.GROUP_MAX_SIZE_REACHED
        elif member_id == "" and instance is None and id_first:
            expected = ErrorCode.MEMBER_ID_REQUIRED
            model.given_out[new_id] = now_ms
        elif member_id == "":
            who = new_id
            old_id = model.holder(instance)
            if old_id is None:
                model.members[new_id] = Known(instance, now_ms)
            else:
                model.replace(old_id, new_id, now_ms)
        elif member_id in model.given_out and instance is None:
            del model.given_out[member_id]
            model.members[member_id] = Known(None, now_ms)
        elif (error := model.refusal(member_id, instance)) != ErrorCode.NONE:
            expected = error
        elif known is not None:
            leads = state is GroupState.STABLE and self.group.leader_id == member_id
            if state in WORKING and not (known.new or changed or leads):
                expected = ErrorCode.NONE
                known.heard_ms = now_ms
            else:
                known.joined = True
                known.hung_up = False
                known.heard_ms = now_ms
        if who in model.members:
            model.members[who].metadata += b"!" * changed
            metadata = model.members[who].metadata
        else:
            metadata = b""
        unsaved = len(self.desk.unsaved)
        ticket = self.desk.join(
            member_id,
            instance,
            (("range", metadata),),
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            id_first=id_first,
        )
        self.desk.asked[ticket] = who
        self.replacing += [who] * (len(self.desk.unsaved) - unsaved)
        if expected is not None:
            assert self.desk.error(ticket) == expected
        else:
            assert self.desk.error(ticket) in {None, ErrorCode.NONE}

    @rule(id_first=st.booleans())
    def a_dynamic_member_comes(self, id_first: bool) -> None:
        self._join("", None, id_first=id_first)

    @rule(instance=st.sampled_from(INSTANCES))
    def a_static_member_comes(self, instance: str) -> None:
        self._join("", instance)

    @precondition(lambda self: self.model.given_out)
    @rule(number=st.integers(0, 5))
    def someone_comes_back_with_its_id(self, number: int) -> None:
        ids = sorted(self.model.given_out)
        self._join(ids[number % len(ids)], None, id_first=True)

    @rule(number=st.integers(0, 11), changed=st.booleans())
    def someone_joins_again(self, number: int, changed: bool) -> None:
        who = self.someone(number)
        self._join(who, self.instance_of(who), changed=changed)

    @rule(number=st.integers(0, 11), instance=st.sampled_from(INSTANCES))
    def someone_joins_under_a_name(self, number: int, instance: str) -> None:
        who = self.someone(number)
        if who not in self.model.given_out:
            self._join(who, instance)

    @rule()
    def everyone_joins(self) -> None:
        if self.desk.state() is GroupState.PREPARING_REBALANCE:
            for who in sorted(self.group.members):
                if who in self.group.members and not self.group.members[who].joining:
                    self._join(who, self.instance_of(who))

    @rule(number=st.integers(0, 11), instance=st.sampled_from([None, *INSTANCES]), is_record=st.booleans())
    def someone_who_brings_too_much_is_refused(self, number: int, instance: str | None, is_record: bool) -> None:
        who = self.someone(number) if instance is None and number % 2 else ""
        refusals = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
        if is_record:
            refusals = refusals - {ErrorCode.COORDINATOR_NOT_AVAILABLE} | {ErrorCode.GROUP_MAX_SIZE_REACHED}
        if not self.model.has_room(self.desk.state(), who):
            return
        before = sorted(self.group.members.items()), self.group.held_bytes, self.group.deadline_ms
        self.desk.ids = iter((self.next_id,))  # type: ignore[assignment]
        self.next_id += 1
        record_bytes_max, room_bytes = (5_000, 1 << 30) if is_record else (1 << 30, 5_000)
        ticket = self.desk.join(
            who,
            instance,
            (("range", bytes(20_000)),),
            session_ms=SESSION_MS,
            record_bytes_max=record_bytes_max,
            room_bytes=room_bytes,
        )
        assert self.desk.error(ticket) in refusals
        assert before == (sorted(self.group.members.items()), self.group.held_bytes, self.group.deadline_ms)

    # SyncGroup, Heartbeat, LeaveGroup, OffsetCommit.

    def _sync(self, who: str, behind: int) -> None:
        model = self.model
        state = self.desk.state()
        group = self.group
        expected: ErrorCode | None = model.refusal(who, self.instance_of(who), model.generation - behind)
        assignments: dict[str, bytes] = {}
        if expected == ErrorCode.NONE:
            expected = ErrorCode.REBALANCE_IN_PROGRESS
            if state is not GroupState.PREPARING_REBALANCE:
                known = model.members[who]
                expected = ErrorCode.NONE
                known.synced = True
                known.heard_ms = self.desk.now_ms
                if state is GroupState.COMPLETING_REBALANCE:
                    known.syncing = True
                    expected = None
                    in_it = [member_id for member_id, member in model.members.items() if not member.new]
                    assignments = {member_id: f"{model.generation}/{member_id}".encode() for member_id in in_it}
                    if who == group.leader_id and model.assigning is None:
                        model.assigning = assignments
        unsaved = len(self.desk.unsaved)
        ticket = self.desk.sync(who, assignments, generation=model.generation - behind, instance=self.instance_of(who))
        self.desk.asked[ticket] = who
        self.replacing += [None] * (len(self.desk.unsaved) - unsaved)
        assert self.desk.error(ticket) == expected
        if expected == ErrorCode.NONE:
            assert self.desk.synced(ticket).assignment == model.assignments.get(who, b"")

    @rule(number=st.integers(0, 11), behind=st.sampled_from([0, 0, 0, 1]))
    def someone_syncs(self, number: int, behind: int) -> None:
        self._sync(self.someone(number), behind)

    @rule()
    def everyone_syncs(self) -> None:
        if self.desk.state() is GroupState.COMPLETING_REBALANCE:
            for who in sorted(self.group.members):
                self._sync(who, 0)

    @rule(number=st.integers(0, 11), behind=st.sampled_from([0, 0, 1]), named=st.booleans())
    def someone_sends_a_heartbeat(self, number: int, behind: int, named: bool) -> None:
        who = self.someone(number)
        at = self.model.generation - behind
        instance = INSTANCES[number % 2] if named else self.instance_of(who)
        expected = self.model.refusal(who, instance, at)
        if expected == ErrorCode.NONE:
            self.model.members[who].heard_ms = self.desk.now_ms
            if self.desk.state() is GroupState.PREPARING_REBALANCE:
                expected = ErrorCode.REBALANCE_IN_PROGRESS
        assert self.desk.heartbeat(who, at, instance) == expected

    @rule(number=st.integers(0, 11), behind=st.sampled_from([0, 0, 1]))
    def someone_may_commit(self, number: int, behind: int) -> None:
        who = self.someone(number)
        at = max(0, self.model.generation - behind)
        expected = self.model.refusal(who, None, at)
        if expected == ErrorCode.NONE and self.desk.state() is GroupState.COMPLETING_REBALANCE:
            expected = ErrorCode.REBALANCE_IN_PROGRESS
        if expected == ErrorCode.NONE and not self.model.members[who].syncing:
            # Not through the desk: a commit is no recorded call, so it must not change what is replayed.
            self.someone_sends_a_heartbeat(number, behind, False)
        else:
            assert self.desk.commit(who, at) == expected

    @rule()
    def a_simple_consumer_may_commit_only_while_nobody_is_in(self) -> None:
        empty = self.desk.state() is GroupState.EMPTY
        assert self.desk.commit("", -1) == (ErrorCode.NONE if empty else ErrorCode.UNKNOWN_MEMBER_ID)

    @rule(number=st.integers(0, 11))
    def someone_leaves(self, number: int) -> None:
        who = self.someone(number)
        expected = self.model.refusal(who, None)
        if self.model.given_out.pop(who, None) is not None:
            expected = ErrorCode.NONE
        self.model.members.pop(who, None)
        unsaved = len(self.desk.unsaved)
        assert self.desk.leave(who) == (expected,)
        self.replacing += [None] * (len(self.desk.unsaved) - unsaved)

    @rule(instance=st.sampled_from(INSTANCES))
    def an_operator_removes_a_static_member(self, instance: str) -> None:
        holder = self.model.holder(instance)
        self.model.members.pop(holder or "", None)
        unsaved = len(self.desk.unsaved)
        assert self.desk.leave("", instance=instance) == (ErrorCode.NONE if holder else ErrorCode.UNKNOWN_MEMBER_ID,)
        self.replacing += [None] * (len(self.desk.unsaved) - unsaved)

    # Connections, the log, coordinators, time.

    @precondition(lambda self: self.desk.parked)
    @rule(number=st.integers(0, 11))
    def a_connection_ends(self, number: int) -> None:
        tickets = sorted(self.desk.parked, key=str)
        ticket = tickets[number % len(tickets)]
        for member_id, member in self.group.members.items():
            if member.join_ticket == ticket:
                self.model.members[member_id].hung_up = True
        self.desk.forget(ticket)

    @precondition(lambda self: self.desk.unsaved)
    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]))
    def a_save_ends(self, error: ErrorCode) -> None:
        model = self.model
        replaced = self.replacing.pop(0)
        save = self.desk.unsaved[0]
        current = save.generation_id == model.generation
        if error == ErrorCode.NONE:
            self.committed = save
        if current and replaced in model.members and self.desk.state() is GroupState.STABLE:
            model.members[replaced].joined = False
            model.members[replaced].heard_ms = self.desk.now_ms
        if current and model.assigning is not None and self.desk.state() is GroupState.COMPLETING_REBALANCE:
            if error == ErrorCode.NONE:
                model.assignments = model.assigning
            model.assigning = None
        self.desk.saved(error)

    @rule(length_ms=st.sampled_from([1, 100, 500, 2_000, 6_000, REBALANCE_MS]))
    def time_passes(self, length_ms: int) -> None:
        unsaved = len(self.desk.unsaved)
        self.desk.advance(length_ms)
        self.replacing += [None] * (len(self.desk.unsaved) - unsaved)
        now_ms = self.desk.now_ms
        ids = set(self.group._pending_ids)
        for who, at_ms in list(self.model.given_out.items()):
            assert who in ids or at_ms + SESSION_MS <= now_ms
            assert who not in ids or at_ms + SESSION_MS + SESSION_GRAIN_MS > now_ms
            if who not in ids:
                del self.model.given_out[who]
        assert ids == self.model.given_out.keys()
        silent = [known for known in self.model.members.values() if known.silent_too_long(now_ms, SESSION_GRAIN_MS)]
        assert not silent

    @rule()
    def the_coordinator_moves(self) -> None:
        self._replay()
        self.desk.end()
        assert not self.desk.parked
        self.model = Model(CONFIG.size_max)
        self.replacing = []
        now_ms = self.desk.now_ms
        if self.committed is None:
            group: ConsumerGroup = Recorded("g", CONFIG)
        else:
            group = Recorded.from_saved("g", self.committed, CONFIG, now_ms)
            self.model.load(self.committed, now_ms)
        self.started_with = (self.committed, now_ms)
        self.desk = ModelDesk(group, self.model, now_ms)

    # Invariants.

    @invariant()
    def one_of_the_members_leads(self) -> None:
        assert (self.group.leader_id in self.group.members) if self.group.members else (self.group.leader_id is None)
        assert (self.group.state is GroupState.EMPTY) <= (not self.group.members)

    @invariant()
    def what_is_held_is_what_counting_anew_finds(self) -> None:
        assert self.group.held_bytes == recount(self.group)

    @invariant()
    def a_record_is_never_longer_than_what_was_foreseen(self) -> None:
        group = self.group
        saved = group._members.to_saved(group.protocol_name, None)
        record = SavedGroup(
            protocol_type=group.protocol_type or "",
            generation_id=1,
            protocol_name=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp_ms=1,
            members=saved,
        )
        size_bytes = len(encode_group_key("g")) + len(encode_group(record))
        assert size_bytes <= group.record_bytes_with(sum(len(one.assignment) for one in saved), group.protocol_type)

    @invariant()
    def nobody_shares_an_instance_id_or_an_assignment(self) -> None:
        members = self.group.members.values()
        instances = [member.group_instance_id for member in members if member.group_instance_id is not None]
        assignments = [member.assignment for member in members if member.assignment]
        assert len(instances) == len(set(instances))
        assert len(assignments) == len(set(assignments))

    @invariant()
    def every_parked_ticket_is_in_exactly_one_hand(self) -> None:
        tickets = [
            ticket for member in self.group.members.values() for ticket in (member.join_ticket, member.sync_ticket)
        ]
        held = [ticket for ticket in tickets if ticket is not None]
        assert len(held) == len(set(held))
        assert set(held) == self.desk.parked

    @invariant()
    def nobody_is_kept_waiting_without_a_reason(self) -> None:
        for member in self.group.members.values():
            assert not member.syncing or self.desk.state() is GroupState.COMPLETING_REBALANCE
            assert not member.joining or self.desk.state() not in WORKING or member.is_new or member.group_instance_id

    @invariant()
    def what_is_saved_is_what_was_committed_last(self) -> None:
        if self.committed is not None:
            assert self.group.to_saved(-1) == self.committed

    def _replay(self) -> None:
        """The same calls to another group return the same."""
        group = self.desk.group
        assert isinstance(group, Recorded)
        saved, now_ms = self.started_with
        twin = ConsumerGroup("g", CONFIG) if saved is None else ConsumerGroup.from_saved("g", saved, CONFIG, now_ms)
        for name, arguments, result in group.calls:
            assert getattr(twin, name)(*arguments) == result
        assert twin.deadline_ms == group.deadline_ms

    def teardown(self) -> None:
        self._replay()
        self._everyone_behaves()
        self.desk.end()
        assert not self.desk.parked

    def _everyone_behaves(self) -> None:
        """If clients and the log do what they should, the group works again, and soon, after anything."""
        desk = self.desk
        group = self.group
        for _ in range(60):
            while desk.unsaved:
                self.a_save_ends(ErrorCode.NONE)
            self.everyone_joins()
            self.everyone_syncs()
            while desk.unsaved:
                self.a_save_ends(ErrorCode.NONE)
            self.time_passes(1_000 if desk.state() is GroupState.PREPARING_REBALANCE else 500)
            for who, known in sorted(self.model.members.items()):
                if not known.new:
                    desk.heartbeat(who)
                    known.heard_ms = desk.now_ms
            settled = not any(member.is_new for member in group.members.values())
            if settled and desk.state() in {GroupState.STABLE, GroupState.EMPTY}:
                return
        raise AssertionError(f"still {group.state} after a minute")


GroupMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=50, deadline=None)
test_groups_do_what_the_model_says = GroupMachine.TestCase
