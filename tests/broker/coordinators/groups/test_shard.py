"""A shard of groups between its log and its clients: step by step, and with all that can happen, against a model."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.state_machine.group import ConsumerGroup
from barnabas_broker.coordinators.groups.state_machine.location import OFFSETS_TOPIC
from barnabas_broker.coordinators.groups.state_machine.messages import Effects
from barnabas_broker.coordinators.groups.state_machine.offsets import record_of
from barnabas_broker.coordinators.groups.state_machine.records import (
    NO_TIMESTAMP,
    NO_TOPIC_ID,
    CommittedOffset,
    GroupKey,
    OffsetKey,
)
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_broker.coordinators.groups.table import GroupTable
from barnabas_broker.coordinators.runtime.shard import BATCH_OVERHEAD_BYTES, REWRITE_BYTES, ShardRuntime
from barnabas_broker.partition.contracts import PendingAppend
from barnabas_broker.partition.partition import SWEPT_MIN
from barnabas_broker.partition.record_rules import RecordRules
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.steps import at_once

from .shard_machine import ShardMachine, make_small
from .shard_world import IMAGE_VERSION, Member, Outcome, World
from .staging.transaction_machine import TransactionMachine

KEY = OffsetKey("g", "t", 0)
NONE = ErrorCode.NONE
MINUTE_MS = 60_000  # the retention of offsets in the world's settings
LATE_MS = 2_000  # the longest stay of a member after the end of its session
INTERVAL_MS = 600_000  # between two rounds of upkeep


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def commit_offset(
    world: World,
    shard: GroupShard,
    offset: int,
    key: OffsetKey = KEY,
    *,
    time_ms: int = NO_TIMESTAMP,
    topic_id: bytes = NO_TOPIC_ID,
) -> Outcome:
    """Append what a simple consumer commits."""
    outcome = Outcome()
    value = CommittedOffset(offset, commit_timestamp_ms=time_ms, topic_id=topic_id)
    with world.step():
        assert shard.make_group(key.group_id) is not None
        assert shard.write_offsets([(key, value)], outcome)
    return outcome


def look_round(world: World) -> None:
    """Have one round of upkeep."""
    with world.step():
        world.coordinator.host.spawn(world.coordinator.expiry.round())
    world.breathe(5)


def delete_group(world: World, shard: GroupShard, group_id: str = "g") -> Outcome:
    """Do what DeleteGroups does."""
    outcome = Outcome()
    hosted = shard.group(group_id)
    assert hosted is not None
    assert hosted.group.state is GroupState.EMPTY
    with world.step():
        shard.remove_group(hosted, outcome)
    return outcome


def offset_at(shard: GroupShard, key: OffsetKey = KEY) -> int | None:
    value = shard.offsets.get(key)
    return None if value is None else value.offset


class TestAnswersThatAreHeldBack:
    """`min.insync.replicas` of the offsets topic may ask for more copies than a commit has."""

    def test_offset_that_is_committed_never_goes_back(self, world: World) -> None:
        world.partition.min_insync = 3
        shard = world.lead()
        first = commit_offset(world, shard, 10)
        world.commit()
        second = commit_offset(world, shard, 20)
        world.commit(copies=2)
        assert (first.code, second.code) == (NONE, None), "too few have it"
        assert offset_at(shard) == 20, "it cannot be lost any more"
        world.check()
        world.lose()
        assert second.code is ErrorCode.NOT_COORDINATOR, "another one will say"
        assert offset_at(world.lead()) == 20

    def test_offset_is_acknowledged_when_enough_replicas_have_it(self, world: World) -> None:
        world.partition.min_insync = 3
        outcome = commit_offset(world, world.lead(), 10)
        world.commit(copies=2)
        assert outcome.code is None
        world.copy()
        assert outcome.code is NONE

    def test_deleted_offset_does_not_come_back(self, world: World) -> None:
        world.partition.min_insync = 3
        shard = world.lead()
        commit_offset(world, shard, 10)
        world.commit()
        with world.step():
            shard.write_offsets([(KEY, None)], None)
        world.commit(copies=2)
        world.lose()
        assert offset_at(world.lead()) is None

    def test_deleted_group_does_not_come_back(self, world: World) -> None:
        member = Member(world, "g", "m")
        shard = world.lead()
        member.enter()
        world.commit()
        commit_offset(world, shard, 10)
        assert member.leave() is NONE
        world.commit()
        world.partition.min_insync = 3
        deleted = delete_group(world, shard)
        world.commit(copies=2)
        assert deleted.code is None
        world.lose()
        shard = world.lead()
        assert shard.group("g") is None
        assert offset_at(shard) is None

    def test_generation_that_is_committed_is_known_to_the_next_coordinator(self, world: World) -> None:
        world.partition.min_insync = 3
        member = Member(world, "g", "m")
        shard = world.lead()
        member.enter()
        world.commit(copies=2)
        assert member.share is None, "too few have it"
        saved = shard.saved("g")
        assert saved is not None
        assert saved.generation_id == member.generation_id
        world.lose()
        assert member.errors == [ErrorCode.NOT_COORDINATOR]
        world.lead()
        member.sync()
        assert member.share, "the members go on where they were"


class TestTheEndOfALeadership:
    def test_what_a_later_leader_has_committed_is_not_skipped_when_the_change_is_told_late(self, world: World) -> None:
        """One message of the new leader brings its entries, committed; the change of leaders is told last."""
        shard = world.lead()
        commit_offset(world, shard, 10)
        world.commit()
        world.lose(said=[{KEY: CommittedOffset(20)}], is_told_late=True)
        world.check()
        assert offset_at(world.lead()) == 20

    def test_what_was_cut_is_not_taken_for_what_stands_in_its_place(self, world: World) -> None:
        shard = world.lead()
        commit_offset(world, shard, 10)
        commit_offset(world, shard, 11, KEY._replace(partition=1))
        lost = commit_offset(world, shard, 12, KEY._replace(partition=2))
        world.lose(kept=1, said=[{KEY: CommittedOffset(20)}], is_told_late=True)
        assert lost.code is ErrorCode.NOT_COORDINATOR
        world.check()
        shard = world.lead()
        assert [offset_at(shard, KEY._replace(partition=index)) for index in range(3)] == [20, None, None]

    def test_group_whose_deletion_is_under_way_is_known_still(self, world: World) -> None:
        """Its tombstones may be cut: then it never was deleted."""
        member = Member(world, "g", "m")
        shard = world.lead()
        member.enter()
        commit_offset(world, shard, 10)
        assert member.leave() is NONE
        world.commit()
        deleted = delete_group(world, shard)
        assert shard.group("g") is None
        world.lose()
        assert deleted.code is ErrorCode.NOT_COORDINATOR
        world.check()
        shard = world.lead()
        hosted = shard.group("g")
        assert hosted is not None
        assert hosted.group.generation_id == 2
        assert offset_at(shard) == 10

    def test_nothing_is_read_again_that_was_known(self, world: World) -> None:
        shard = world.lead()
        commit_offset(world, shard, 10)
        world.commit()
        commit_offset(world, shard, 11)
        world.lose(kept=1)
        shard = world.lead()
        assert shard.runtime.standby.record_count == 1, "only what was under way"
        assert offset_at(shard) == 11


class TestDeletionWhileSomethingIsUnderWay:
    """A group is always one of three: in the list, on its way out behind everything of it, or gone without a trace."""

    def test_deleted_group_takes_along_what_was_under_way(self, world: World) -> None:
        shard = world.lead()
        commit_offset(world, shard, 10)
        world.commit()
        second = KEY._replace(partition=1)
        commit_offset(world, shard, 11, second)
        deleted = delete_group(world, shard)
        world.check()
        world.commit()
        assert deleted.code is NONE
        assert [offset_at(shard, key) for key in (KEY, second)] == [None, None]
        assert shard.group("g") is None
        world.lose()
        assert world.lead().group("g") is None

    def test_deleted_group_takes_along_a_generation_that_was_under_way(self, world: World) -> None:
        """The only member leaves at once; nobody waits until anything of that is saved."""
        member = Member(world, "g", "m")
        shard = world.lead()
        member.enter()
        member.leave()
        deleted = delete_group(world, shard)
        world.commit()
        assert deleted.code is NONE
        assert shard.saved("g") is None

    def test_what_is_committed_behind_a_deletion_stays(self, world: World) -> None:
        shard = world.lead()
        commit_offset(world, shard, 10)
        world.commit()
        delete_group(world, shard)
        commit_offset(world, shard, 11)
        world.check()
        world.commit()
        assert offset_at(shard) == 11
        assert shard.group("g") is not None

    def test_offset_without_a_group_in_the_log_is_listed_and_expires(self, world: World) -> None:
        """A simple consumer's, found by a new coordinator."""
        world.lose(said=[{KEY: CommittedOffset(10, commit_timestamp_ms=world.wall_ms())}])
        shard = world.lead()
        assert shard.group("g") is not None
        world.advance(MINUTE_MS + INTERVAL_MS)
        world.breathe(5)
        world.commit()
        assert shard.group("g") is None
        assert offset_at(shard) is None

    def test_group_of_which_nothing_is_left_is_forgotten(self, world: World) -> None:
        shard = world.lead()
        commit_offset(world, shard, 10)
        world.commit()
        with world.step():
            shard.write_offsets([(KEY, None)], None)
        world.commit()
        world.advance(INTERVAL_MS)
        world.breathe(5)
        assert shard.group("g") is None

    def test_offset_that_is_committed_anew_in_this_moment_does_not_expire(self, world: World) -> None:
        shard = world.lead()
        commit_offset(world, shard, 10, time_ms=world.wall_ms())
        other = KEY._replace(partition=1)
        commit_offset(world, shard, 11, other, time_ms=world.wall_ms())
        world.commit()
        world.advance(MINUTE_MS)
        outcome = commit_offset(world, shard, 12, time_ms=world.wall_ms())
        look_round(world)
        world.commit()
        assert outcome.code is NONE
        assert (offset_at(shard), offset_at(shard, other)) == (12, None)

    def test_offset_of_a_new_topic_is_not_taken_for_one_of_the_deleted_topic_of_that_name(self, world: World) -> None:
        old_id, new_id = bytes([1] * 16), bytes([2] * 16)
        shard = world.lead()
        commit_offset(world, shard, 10, topic_id=old_id)
        other = KEY._replace(partition=1)
        commit_offset(world, shard, 11, other, topic_id=old_id)
        world.commit()
        world.topic_ids[new_id] = None
        outcome = commit_offset(world, shard, 12, topic_id=new_id)
        with world.step():
            world.coordinator.expiry.forget_topics([("t", old_id)])
        world.breathe(5)
        world.commit()
        assert outcome.code is NONE
        assert (offset_at(shard), offset_at(shard, other)) == (12, None)

    def test_offset_of_a_deleted_topic_is_left_alone_by_upkeep_while_a_new_one_is_under_way(self, world: World) -> None:
        old_id, new_id = bytes([1] * 16), bytes([2] * 16)
        shard = world.lead()
        commit_offset(world, shard, 10, topic_id=old_id)
        world.commit()
        look_round(world)
        world.topic_ids[new_id] = None
        commit_offset(world, shard, 12, topic_id=new_id)
        look_round(world)
        world.commit()
        assert offset_at(shard) == 12

    def test_offset_of_a_topic_stays_of_which_a_broker_that_is_cut_off_has_not_heard(self, world: World) -> None:
        topic_id = bytes([1] * 16)
        shard = world.lead()
        commit_offset(world, shard, 10, time_ms=world.wall_ms(), topic_id=topic_id)
        world.commit()
        world.controller_version = None
        for _ in range(3):
            look_round(world)
            world.commit()
        assert offset_at(shard) == 10
        # It hears how far the controller is, but not all of it.
        world.controller_version = IMAGE_VERSION + 1
        for _ in range(3):
            look_round(world)
            world.commit()
        assert offset_at(shard) == 10
        world.controller_version = 0
        for _ in range(2):
            assert offset_at(shard) == 10
            look_round(world)
            world.commit()
        assert offset_at(shard) is None


class TestMembersThatDie:
    """A member that is not heard of is out two seconds after its session at the latest, with anything else going on."""

    def group_of_two(self, world: World) -> tuple[Member, Member]:
        """Have a stable group of two."""
        one, other = Member(world, "g", "one"), Member(world, "g", "other")
        one.enter()
        world.commit()
        other.join()
        other.join()
        one.join()
        for member in (one, other):
            member.sync()
        world.commit()
        assert one.share
        assert other.share
        return one, other

    @pytest.mark.parametrize(
        "what", ["nothing else", "others come and go", "commits", "no commit gets through", "stalls"]
    )
    def test_who_dies_is_gone_in_time(self, world: World, what: str) -> None:
        shard = world.lead()
        lives, dies = self.group_of_two(world)
        visitor = Member(world, "g", "visitor")
        known_as = dies.member_id
        died_at_ms = world.now_ms
        hosted = dies.hosted
        assert hosted is not None
        listens_since_ms = died_at_ms
        while known_as in hosted.group.members:
            assert world.now_ms - listens_since_ms <= dies.session_ms + LATE_MS
            assert lives.heartbeat() is NONE
            if what == "others come and go":
                visitor.join()
                assert visitor.leave() is NONE
            if what == "commits":
                commit_offset(world, shard, world.now_ms)
                world.commit()
            if what == "no commit gets through":
                commit_offset(world, shard, world.now_ms)
            if what == "stalls" and world.now_ms == died_at_ms + 9_000:
                world.stall(9_000)  # Beyond its session. Nobody could be heard of meanwhile.
                world.breathe()
                assert known_as in hosted.group.members
                world.recover()
                world.breathe(2)
                listens_since_ms = world.now_ms
            world.advance(500)
        assert world.now_ms - died_at_ms >= dies.session_ms

    def test_who_died_while_the_coordinator_stood_still_is_gone_though_nobody_else_asks(self, world: World) -> None:
        world.lead()
        dies = Member(world, "g", "one")
        dies.enter()
        world.commit()
        world.stall(60_000)
        world.breathe()
        world.recover()
        world.breathe(2)
        assert dies.hosted is not None
        assert dies.hosted.group.members, "nobody could be heard of"
        world.advance(dies.session_ms + LATE_MS)
        assert not dies.hosted.group.members

    def test_who_died_with_the_old_coordinator_is_gone_in_time(self, world: World) -> None:
        world.lead()
        lives, dies = self.group_of_two(world)
        world.lose()
        world.advance(8_000)
        world.lead()
        begin_ms = world.now_ms
        while lives.heartbeat() is NONE:
            world.advance(500)
            assert world.now_ms - begin_ms <= dies.session_ms + LATE_MS
        assert dies.hosted is not None
        assert dies.member_id not in dies.hosted.group.members

    @pytest.mark.parametrize("error", [AssertionError("bug"), KeyError("bug")], ids=["assertion", "other error"])
    def test_a_group_that_fails_keeps_nobody_else_from_being_looked_at(self, world: World, error: Exception) -> None:
        """The process ends then, and yet not before everything else that was due."""
        shard = world.lead()
        fails, dies = Member(world, "g", "one"), Member(world, "h", "other")
        for member in (fails, dies):
            member.enter()
        world.commit()
        assert fails.hosted is not None
        world.advance(dies.session_ms - 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fails.hosted.group, "__class__", raising(error))
            with pytest.raises(type(error)):
                world.advance(1)
        world.failures.clear()
        shard.settle(fails.hosted)
        world.advance(LATE_MS)
        assert dies.hosted is not None
        assert not dies.hosted.group.members


def raising(error: Exception) -> type[ConsumerGroup]:
    """Return a kind of group that fails at its deadline."""

    class Failing(ConsumerGroup):
        __slots__ = ()

        def tick(self, now_ms: int) -> Effects:
            raise error

    return Failing


def test_waiting_for_what_is_committed_does_not_wait_for_more_copies(world: World) -> None:
    """Compaction goes on while a replica is away."""
    world.partition.min_insync = 3
    shard = world.lead()
    commit_offset(world, shard, 10)
    waiting = [world.loop.create_task(shard.runtime.wait_committed())]
    world.breathe()
    world.commit(copies=2)
    world.breathe()
    assert waiting[0].done()
    assert waiting[0].result()
    commit_offset(world, shard, 11)
    waiting.append(world.loop.create_task(shard.runtime.wait_committed()))
    world.breathe()
    world.lose()
    world.breathe()
    assert not waiting[1].result()


def test_saved_group_is_a_record_that_counts(world: World) -> None:
    shard = world.lead()
    Member(world, "g", "m").enter()
    table = shard.runtime.standby.table
    assert table.live_bytes == 0
    world.commit()
    assert at_once(table.names_in_steps()) == [GroupKey("g")]
    assert table.live_bytes == table.size_of(GroupKey("g")) > 0


class TestLimits:
    def test_generation_that_does_not_fit_into_the_log_is_refused_and_the_group_begins_again(
        self, world: World
    ) -> None:
        shard = world.lead()
        member = Member(world, "g", "one")
        world.partition.rules = RecordRules(BATCH_OVERHEAD_BYTES)
        member.enter()
        assert member.errors == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert shard.saved("g") is None
        assert not shard.under_way.of_owner("g")
        world.partition.rules = RecordRules(1 << 20)
        member.join()
        member.sync()
        world.commit()
        assert member.share

    def test_tombstone_fits_always(self, world: World) -> None:
        member = Member(world, "g", "m")
        shard = world.lead()
        member.enter()
        world.commit()
        member.leave()
        world.commit()
        world.partition.rules = RecordRules(1)
        deleted = delete_group(world, shard)
        world.commit()
        assert deleted.code is NONE

    def test_large_commit_is_as_few_batches_as_its_size_allows_and_answered_once(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("barnabas_broker.coordinators.groups.shard.BATCH_BYTES_MAX", 1_000)
        shard = world.lead()
        outcome = Outcome()
        begin = world.log.last_index
        changes = [(KEY._replace(partition=index), CommittedOffset(index, metadata="x" * 150)) for index in range(20)]
        size_bytes = sum(len(key) + len(value or b"") for key, value in (record_of(*one) for one in changes))
        assert shard.make_group("g") is not None
        with world.step():
            assert shard.write_offsets(changes, outcome)
        count = world.log.last_index - begin
        assert size_bytes / 1_000 <= count <= size_bytes / 1_000 * 1.3 + 1
        world.commit(count - 1)
        told_early = outcome.code
        world.commit()
        assert (told_early, outcome.code) == (None, NONE)
        assert len(shard.offsets) == 20

    def test_further_group_is_not_made_and_a_known_one_is_found(self, world: World) -> None:
        shard = world.lead()
        commit_offset(world, shard, 10)
        world.coordinator.room.limit_bytes = world.coordinator.room.held_bytes
        assert shard.make_group("h") is None
        assert shard.make_group("g") is shard.group("g") is not None

    def test_log_that_stays_long_is_not_compacted_at_every_commit(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun = list[ShardRuntime[GroupTable, GroupShard]]()
        monkeypatch.setattr(world.coordinator.runtime, "rewrite", begun.append)
        shard = world.lead()
        world.log.size_bytes = REWRITE_BYTES + 1
        for offset in range(5):
            commit_offset(world, shard, offset)
            shard.runtime.is_rewriting = False  # It has ended, and something else keeps the log long.
        assert begun == [shard.runtime]
        monkeypatch.setattr("barnabas_broker.coordinators.runtime.shard.REWRITE_BYTES", 400)
        for offset in range(5):
            commit_offset(world, shard, offset)
            shard.runtime.is_rewriting = False
        assert len(begun) > 2, "a quarter of the limit was appended since"


def test_a_shard_whose_partition_is_to_end_here_serves_nobody_any_more(world: World) -> None:
    """It is moved elsewhere, or the topic is gone and another of its name is there; this replica ends in its turn."""
    shard = world.lead()
    coordinator = world.coordinator
    assert coordinator.shard_of("g") is shard
    hosted = coordinator._partitions.topics[OFFSETS_TOPIC]
    partition = hosted.partitions.pop(0)
    assert coordinator.shard_of("g") is ErrorCode.NOT_COORDINATOR
    hosted.partitions[0] = partition


def test_what_waits_to_be_saved_is_none_of_those_that_have_given_up(world: World) -> None:
    shard = world.lead()
    partition = world.partition
    outcome = commit_offset(world, shard, 5)
    gone = SimpleNamespace(is_closed=True)
    for _ in range(SWEPT_MIN):
        partition.wait_for(world.log.last_index, cast("PendingAppend", gone))
        partition.forget(cast("PendingAppend", gone))
    world.commit()
    assert outcome.code is NONE


@pytest.mark.slow
@pytest.mark.parametrize("machine", [ShardMachine, TransactionMachine])
def test_a_coordinator_knows_what_the_log_says_whatever_happens(
    machine: type[ShardMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch)
    run_state_machine_as_test(machine, settings=settings(max_examples=100, stateful_step_count=50, deadline=None))
