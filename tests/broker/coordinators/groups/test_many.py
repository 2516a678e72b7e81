"""A shard with thousands of members, groups or offsets works in pieces.

Others go on in between. A loop turn takes one piece here, because the slices of time are made empty, and each `breathe`
is `TURNS_MAX` turns at most; the tests count how much is done in one.
"""

from collections.abc import Iterator
from functools import partial

import pytest
from steps import outcome as outcome_of

from barnabas_broker.coordinators.groups.hosted_group import HostedGroup
from barnabas_broker.coordinators.groups.shard import ANSWERS_STEP, DELETED_STEP, GROUPS_STEP, GroupShard
from barnabas_broker.coordinators.groups.state_machine.messages import Answer, JoinAnswer, JoinRequest, SyncRequest
from barnabas_broker.coordinators.groups.state_machine.records import MEMBERS_STEP, CommittedOffset, GroupKey, OffsetKey
from barnabas_broker.coordinators.groups.state_machine.room import GROUP_BYTES, OFFSET_BYTES
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_broker.coordinators.runtime.shard import APPLIED_STEP
from barnabas_broker.timing.timers import DUE_MAX
from barnabas_clients.protocol.error_codes import ErrorCode

from .shard_world import Outcome, World

NONE = ErrorCode.NONE
MIB = 1 << 20
TURNS_MAX = 3


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr("barnabas_broker.timing.slices.SLICE_S", 0)
    with World({"group.initial.rebalance.delay.ms": 500}) as world:
        yield world


class Parked:
    """A member's request, and what it was told."""

    def __init__(self, told: list["Parked"]) -> None:
        self.told = told
        self.answer = None

    answer: Answer | None

    def on_answer(self, answer: Answer) -> None:
        assert self.answer is None, "told twice"
        self.answer = answer
        self.told.append(self)


def join_request(told: list[Parked], metadata: bytes) -> JoinRequest:
    """Return a newcomer's request that is answered into `told`."""
    return JoinRequest(
        ticket=Parked(told),
        member_id="",
        group_instance_id=None,
        client_id="c",
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", metadata),),
        requires_known_member_id=False,
        skips_assignment=False,
        reason="",
    )


class Crowd:
    """Many members of one group that say the same at the same time. `told`: requests that were answered, in order."""

    def __init__(self, world: World, shard: GroupShard, count: int) -> None:
        self.world = world
        self.shard = shard
        self.told = list[Parked]()
        hosted = shard.make_group("g")
        assert hosted is not None
        self.hosted: HostedGroup = hosted
        self.member_ids = [f"m{number}" for number in range(count)]
        with world.step():
            for member_id in self.member_ids:
                shard.join(hosted, join_request(self.told, b"said"), partial(str, member_id))

    def form(self) -> None:
        self.world.advance(1_000)
        assert self.hosted.group.state is GroupState.COMPLETING_REBALANCE

    def sync(self, *member_ids: str) -> None:
        shares = {member_id: b"share of " + member_id.encode() for member_id in self.member_ids}
        with self.world.step():
            for member_id in member_ids or self.member_ids:
                asked = SyncRequest(
                    ticket=Parked(self.told),
                    member_id=member_id,
                    group_instance_id=None,
                    generation_id=1,
                    protocol_type=None,
                    protocol_name=None,
                    assignments=shares,
                )
                self.shard.sync(self.hosted, asked)

    def turns(self) -> list[int]:
        """Let the loop turn until nothing more is told; return how many were told in each turn, first those before."""
        counts = [len(self.told)]
        while len(counts) < 10 or counts[-1]:
            before = len(self.told)
            self.world.breathe()
            counts.append(len(self.told) - before)
        return counts


class TestManyMembers:
    COUNT = 20 * ANSWERS_STEP + 1

    def test_a_generation_is_told_to_some_of_them_in_each_turn(self, world: World) -> None:
        crowd = Crowd(world, world.lead(), self.COUNT)
        crowd.form()
        counts = crowd.turns()
        assert (counts[0], sum(counts)) == (ANSWERS_STEP, self.COUNT)
        assert max(counts) <= TURNS_MAX * ANSWERS_STEP
        answers = [one.answer for one in crowd.told]
        assert all(isinstance(one, JoinAnswer) and one.error is NONE for one in answers)
        assert [len(one.members) for one in answers if isinstance(one, JoinAnswer)] == [self.COUNT] + [0] * (
            self.COUNT - 1
        )

    def test_so_are_their_assignments(self, world: World) -> None:
        crowd = Crowd(world, world.lead(), self.COUNT)
        crowd.form()
        crowd.turns()
        crowd.told.clear()
        crowd.sync()
        assert crowd.turns()[0] == 0
        world.commit()
        counts = crowd.turns()
        assert (counts[0], sum(counts)) == (ANSWERS_STEP, self.COUNT)
        assert max(counts) <= TURNS_MAX * ANSWERS_STEP

    def test_a_leadership_that_ends_is_told_to_some_of_them_in_each_turn(self, world: World) -> None:
        crowd = Crowd(world, world.lead(), self.COUNT)
        world.lose()
        counts = crowd.turns()
        assert (counts[0], sum(counts)) == (ANSWERS_STEP, self.COUNT)
        assert max(counts) <= TURNS_MAX * ANSWERS_STEP
        assert {one.answer.error for one in crowd.told if one.answer} == {ErrorCode.NOT_COORDINATOR}


class TestLongRecords:
    COUNT = 2 * MEMBERS_STEP + 1

    def test_a_long_record_is_made_beside_other_work_and_is_what_was_to_be_saved(self, world: World) -> None:
        shard = world.lead()
        crowd = Crowd(world, shard, self.COUNT)
        crowd.form()
        crowd.turns()
        end = world.log.last_index
        crowd.sync()
        assert world.log.last_index == end, "not in one go"
        crowd.turns()
        assert world.log.last_index == end + 1
        world.commit()
        crowd.turns()
        saved = shard.saved("g")
        assert saved is not None
        assert [one.assignment for one in saved.members] == [b"share of " + one.encode() for one in crowd.member_ids]

    def test_what_is_saved_later_is_appended_later(self, world: World) -> None:
        shard = world.lead()
        crowd = Crowd(world, shard, self.COUNT)
        crowd.form()
        crowd.turns()
        crowd.sync("m0")
        with world.step():
            leaving = [(member_id, None, "") for member_id in crowd.member_ids]
            _, effects = crowd.hosted.group.leave(leaving, world.now_ms)
            shard.carry_out(crowd.hosted, effects)
        assert len(crowd.hosted.saves) == 2
        crowd.turns()
        world.commit()
        saved = shard.saved("g")
        assert saved is not None
        assert (saved.generation_id, saved.members) == (2, ())
        assert not crowd.hosted.saves

    def test_compaction_writes_it_as_it_is(self, world: World) -> None:
        shard = world.lead()
        commit(world, shard, APPLIED_STEP + 1)
        world.commit()
        world.breathe(15)
        crowd = Crowd(world, shard, self.COUNT)
        crowd.form()
        crowd.turns()
        crowd.sync()
        crowd.turns()
        world.commit()
        crowd.turns()
        names, yields = outcome_of(shard.runtime.standby.table.names_in_steps())
        assert (len(names), yields) == (APPLIED_STEP + 2, 1)
        saved = shard.saved("g")
        end = world.log.last_index
        with world.step():
            world.coordinator.runtime.rewrite(shard.runtime)
        for _ in range(200):
            world.breathe()
            world.commit()
        assert world.log.first_index > end
        assert shard.saved("g") is saved

    def test_a_deletion_meanwhile_leaves_nothing_behind(self, world: World) -> None:
        shard = world.lead()
        outcome = Outcome()
        commit(world, shard, 2 * DELETED_STEP)
        world.commit()
        world.breathe(15)
        crowd = Crowd(world, shard, self.COUNT)
        crowd.form()
        crowd.turns()
        crowd.sync("m0")
        with world.step():
            leaving = [(member_id, None, "") for member_id in crowd.member_ids]
            shard.carry_out(crowd.hosted, crowd.hosted.group.leave(leaving, world.now_ms)[1])
            shard.remove_group(crowd.hosted, outcome)
        assert "g" in shard.groups
        crowd.turns()
        world.commit()
        crowd.turns()
        assert outcome.code is NONE
        assert outcome_of(shard.runtime.standby.table.names_in_steps())[0] == []

    def test_a_shard_that_ends_meanwhile_appends_nothing_more(self, world: World) -> None:
        crowd = Crowd(world, world.lead(), self.COUNT)
        crowd.form()
        crowd.turns()
        crowd.sync()
        world.lose()
        end = world.log.last_index
        crowd.turns()
        assert world.log.last_index == end


def offsets(count: int, group_id: str = "g") -> list[tuple[OffsetKey, CommittedOffset | None]]:
    return [(OffsetKey(group_id, "t", index), CommittedOffset(index)) for index in range(count)]


def commit(world: World, shard: GroupShard, count: int) -> Outcome:
    outcome = Outcome()
    with world.step():
        assert shard.make_group("g") is not None
        shard.write_offsets(offsets(count), outcome)
    return outcome


class TestManyOffsets:
    COUNT = 10 * APPLIED_STEP

    def test_what_commits_at_once_is_taken_in_in_pieces_and_known_to_whoever_confirms(self, world: World) -> None:
        shard = world.lead()
        outcome = commit(world, shard, self.COUNT)
        world.commit()
        assert outcome.code is NONE
        assert APPLIED_STEP <= len(shard.offsets) < self.COUNT
        confirmed = world.loop.create_task(shard.runtime.confirm(1))
        world.breathe()
        assert not confirmed.done()
        world.breathe(15)
        assert confirmed.result() is NONE
        assert len(shard.offsets) == self.COUNT

    def test_what_is_not_taken_in_when_leadership_ends_is_read_by_the_next_one(self, world: World) -> None:
        commit(world, world.lead(), self.COUNT)
        world.commit()
        world.lose()
        world.breathe(15)
        assert len(world.lead().offsets) == self.COUNT

    def deletion_begun(self, world: World) -> tuple[GroupShard, Outcome]:
        shard = world.lead()
        outcome = Outcome()
        commit(world, shard, self.COUNT)
        world.commit()
        world.breathe(15)
        hosted = shard.group("g")
        assert hosted is not None
        with world.step():
            shard.remove_group(hosted, outcome)
        return shard, outcome

    def test_a_group_with_many_is_deleted_in_pieces_and_cannot_be_used_meanwhile(self, world: World) -> None:
        shard, outcome = self.deletion_begun(world)
        assert shard.under_way.count == DELETED_STEP
        assert shard.group("g") is shard.make_group("g") is None
        assert "g" in shard.groups
        world.breathe(self.COUNT // DELETED_STEP + 1)
        assert "g" not in shard.groups
        told = [outcome.code]
        world.commit()
        world.breathe(15)
        told.append(outcome.code)
        assert told == [None, NONE]
        assert not len(shard.offsets)
        assert shard.make_group("g") is not None

    def test_a_deletion_that_ends_half_way_says_so(self, world: World) -> None:
        _shard, outcome = self.deletion_begun(world)
        world.lose()
        world.breathe(3)
        assert outcome.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(world.lead().offsets) == self.COUNT


def test_a_shard_with_many_groups_begins_and_ends_with_some_of_them_at_a_time(world: World) -> None:
    count = 3 * GROUPS_STEP
    shard = world.lead()
    for number in range(count):
        with world.step():
            assert shard.make_group(f"g{number}") is not None
            shard.write_offsets(offsets(1, f"g{number}"), None)
    world.commit()
    world.breathe(15)
    assert world.coordinator.room.held_bytes >= count * (GROUP_BYTES + OFFSET_BYTES)
    world.lose()
    assert world.coordinator.room.held_bytes == 0
    ended = [hosted.is_removed for hosted in shard.groups.values()]
    assert sum(ended) == GROUPS_STEP
    world.breathe(5)
    assert all(hosted.is_removed for hosted in shard.groups.values())
    world.win()
    while world.shard is None:
        world.breathe()
    again = world.shard
    assert again._groups_bytes < count * GROUP_BYTES
    world.breathe(5)
    assert again._groups_bytes >= count * GROUP_BYTES


class TestTheNodesLimit:
    @pytest.fixture
    def world(self) -> Iterator[World]:
        with World({"group.state.max.bytes": MIB}) as world:
            yield world

    def test_groups_that_only_commit_are_as_many_as_there_is_room_for(self, world: World) -> None:
        shard = world.lead()
        count = 0
        while shard.make_group(f"g{count}") is not None:
            with world.step():
                shard.write_offsets(offsets(1, f"g{count}"), None)
            count += 1
        assert 0.9 * MIB * 7 / 8 < count * (GROUP_BYTES + OFFSET_BYTES) < MIB * 7 / 8
        room = world.coordinator.room
        assert room.held_bytes <= room.limit_bytes
        # A client that has a group may still use it.
        assert shard.has_room_for(OffsetKey("g0", "t", 0), CommittedOffset(5))
        assert shard.has_room_for(OffsetKey("g0", "t", 1), CommittedOffset(5))
        world.commit()
        for hosted in list(shard.groups.values()):
            with world.step():
                shard.remove_group(hosted)
        world.commit()
        assert room.held_bytes == 0

    def test_offsets_are_as_many_as_there_is_room_for_and_go_on_in_their_places(self, world: World) -> None:
        shard = world.lead()
        count = 0
        assert shard.make_group("g") is not None
        while shard.has_room_for(key := OffsetKey("g", "t", count), CommittedOffset(0)):
            with world.step():
                shard.write_offsets([(key, CommittedOffset(0))], None)
            count += 1
            if not count % 100:
                world.commit()
        world.commit()
        room = world.coordinator.room
        assert room.limit_bytes * 0.9 < room.held_bytes <= room.limit_bytes
        assert shard.has_room_for(OffsetKey("g", "t", 0), CommittedOffset(1))
        assert not shard.has_room_for(OffsetKey("g", "t", 0), CommittedOffset(1, metadata="x" * 4_000))

    def test_members_are_refused_before_the_assignments_of_others_are(self, world: World) -> None:
        shard = world.lead()
        told = list[Parked]()
        for number in range(500):
            hosted = shard.make_group(f"g{number}")
            if hosted is None:
                break
            with world.step():
                shard.join(hosted, join_request(told, bytes(20_000)), lambda: "m")
        first = shard.group("g0")
        assert first is not None
        with world.step():
            shard.join(first, join_request(told, bytes(20_000)), lambda: "n")
        assert told[-1].answer is not None
        assert told[-1].answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        with world.step():
            shard.sync(
                first,
                SyncRequest(
                    ticket=Parked(told),
                    member_id="m",
                    group_instance_id=None,
                    generation_id=1,
                    protocol_type=None,
                    protocol_name=None,
                    assignments={"m": b"share"},
                ),
            )
        assert GroupKey("g0") in shard.under_way


def test_of_many_deadlines_that_are_due_together_some_are_called_in_each_turn(world: World) -> None:
    called = list[int]()
    for number in range(2 * DUE_MAX + 1):
        world.timers.add(10, partial(called.append, number))
    world.now_ms = 10
    counts = []
    while world.timers._deadlines.next_at_ms is not None:
        before = len(called)
        with world.step():
            world.timers._fire()
        counts.append(len(called) - before)
    assert counts == [DUE_MAX, DUE_MAX, 1]
    assert DUE_MAX <= 20, "each may complete the joins of a group"
    assert called == list(range(2 * DUE_MAX + 1))
