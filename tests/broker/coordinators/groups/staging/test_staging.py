"""Offsets of transactions: staged, pending, committed or aborted, whoever leads meanwhile."""

from collections.abc import Iterator
from typing import Any

import pytest
from broker.coordinators.groups.shard_world import Outcome, World
from broker.coordinators.runtime.replica_world import writer_for

from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.staging import WRITERS_MAX, StagedName
from barnabas_broker.coordinators.groups.state_machine.offsets import size_of
from barnabas_broker.coordinators.groups.state_machine.records import CommittedOffset, OffsetKey
from barnabas_broker.coordinators.groups.state_machine.room import STAGED_BYTES
from barnabas_broker.coordinators.groups.table import ENDED_STEP
from barnabas_broker.coordinators.runtime.contracts import Writer
from barnabas_broker.coordinators.runtime.shard import APPLIED_STEP, REWRITE_BYTES
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.records.header import TRANSACTIONAL, BatchHeader, parse_header
from barnabas_raftlog.records.markers import EndMarker, read_marker
from barnabas_raftlog.steps import at_once

KEY = OffsetKey("g", "t", 0)
OTHER = KEY._replace(partition=1)
NONE = ErrorCode.NONE
MINUTE_MS = 60_000  # the retention of offsets in the world's settings


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr("barnabas_broker.timing.slices.SLICE_S", 0)
    with World() as world:
        yield world


def commit_offset(world: World, offset: int, key: OffsetKey = KEY) -> None:
    """Store what a simple consumer commits, or with -1 delete it."""
    shard = world.shard or world.lead()
    value = CommittedOffset(offset, commit_timestamp_ms=world.wall_ms())
    with world.step():
        assert shard.make_group(key.group_id) is not None
        assert shard.write_offsets([(key, None if offset < 0 else value)], None)
    world.commit()


def stage(
    world: World,
    offset: int,
    key: OffsetKey = KEY,
    *,
    producer_id: int = 7,
    epoch: int = 0,
    topic_id: bytes = bytes(16),
) -> Outcome:
    """Append what a transaction commits for a group; it is under way."""
    shard = world.shard or world.lead()
    outcome = Outcome()
    value = CommittedOffset(offset, commit_timestamp_ms=world.wall_ms(), topic_id=topic_id)
    with world.step():
        assert shard.make_group(key.group_id) is not None
        shard.staging.write(writer_for(world.partition, producer_id, epoch), [(key, value)], outcome)
    return outcome


def end(world: World, *, is_commit: bool, producer_id: int = 7, epoch: int = 0) -> Outcome:
    """Append the marker that ends a transaction; it is under way."""
    shard = world.shard or world.lead()
    outcome = Outcome()
    with world.step():
        shard.staging.end(EndMarker(producer_id, epoch, is_commit, 1), outcome, bumps_epoch=False)
    return outcome


def marker(producer_id: int, *, is_commit: bool) -> dict[Any, None]:
    """Return a marker that another leader writes."""
    return {EndMarker(producer_id, 0, is_commit, 1): None}


def offset_at(world: World, key: OffsetKey = KEY) -> int | None:
    value = (world.shard or world.lead()).offsets.get(key)
    return None if value is None else value.offset


def is_pending(world: World, key: OffsetKey = KEY) -> bool:
    return (world.shard or world.lead()).staging.is_pending(key)


def look_round(world: World) -> None:
    """Have one round of upkeep."""
    with world.step():
        world.coordinator.host.spawn(world.coordinator.expiry.round())
    world.breathe(5)
    world.commit()


def last_header(world: World) -> BatchHeader:
    return parse_header(world.log.entries[-1].frame)


class TestWhatCounts:
    def test_a_commit_makes_them_the_groups_offsets(self, world: World) -> None:
        commit_offset(world, 10)
        staged = stage(world, 20)
        assert is_pending(world), "it may be in force before anybody is told"
        world.commit()
        assert staged.code is NONE
        assert (offset_at(world), is_pending(world)) == (10, True)
        ended = end(world, is_commit=True)
        assert (offset_at(world), is_pending(world)) == (10, True)
        world.commit()
        assert ended.code is NONE
        assert (offset_at(world), is_pending(world)) == (20, False)

    def test_an_abort_leaves_what_was_there(self, world: World) -> None:
        commit_offset(world, 10)
        stage(world, 20)
        stage(world, 21, OTHER)
        end(world, is_commit=False)
        world.commit()
        assert (offset_at(world), is_pending(world)) == (10, False)
        assert (offset_at(world, OTHER), is_pending(world, OTHER)) == (None, False)

    def test_the_last_record_of_a_transaction_counts(self, world: World) -> None:
        stage(world, 20)
        stage(world, 21)
        end(world, is_commit=True)
        world.commit()
        assert offset_at(world) == 21

    @pytest.mark.parametrize("order", [(7, 8), (8, 7)])
    def test_of_two_transactions_the_record_that_was_written_last_counts(
        self, world: World, order: tuple[int, int]
    ) -> None:
        stage(world, 20, producer_id=7)
        stage(world, 30, producer_id=8)
        first, last = order
        end(world, is_commit=True, producer_id=first)
        world.commit()
        assert (offset_at(world), is_pending(world)) == (20 if first == 7 else 30, True)
        end(world, is_commit=True, producer_id=last)
        world.commit()
        assert (offset_at(world), is_pending(world)) == (30, False)

    def test_a_record_that_comes_once_more_stands_where_it_came_last(self, world: World) -> None:
        stage(world, 20, producer_id=7)
        stage(world, 30, producer_id=8)
        stage(world, 21, producer_id=7)
        end(world, is_commit=True, producer_id=7)
        end(world, is_commit=True, producer_id=8)
        world.commit()
        assert offset_at(world) == 21

    def test_what_is_aborted_makes_nothing_older(self, world: World) -> None:
        stage(world, 20, producer_id=7)
        stage(world, 30, producer_id=8)
        end(world, is_commit=False, producer_id=8)
        end(world, is_commit=True, producer_id=7)
        world.commit()
        assert offset_at(world) == 20

    def test_what_did_not_count_makes_nothing_older(self, world: World) -> None:
        stage(world, 20, producer_id=7)
        commit_offset(world, 15)
        stage(world, 30, producer_id=8)
        end(world, is_commit=True, producer_id=7)
        end(world, is_commit=True, producer_id=8)
        world.commit()
        assert offset_at(world) == 30

    def test_an_ordinary_commit_behind_what_was_staged_is_newer_and_the_place_stays_pending(self, world: World) -> None:
        stage(world, 20)
        commit_offset(world, 15)
        assert (offset_at(world), is_pending(world)) == (15, True)
        end(world, is_commit=True)
        world.commit()
        assert (offset_at(world), is_pending(world)) == (15, False)

    def test_what_is_staged_behind_an_ordinary_commit_is_newer(self, world: World) -> None:
        stage(world, 20)
        commit_offset(world, 15)
        stage(world, 21)
        end(world, is_commit=True)
        world.commit()
        assert offset_at(world) == 21

    def test_a_deletion_takes_along_what_was_staged_before_it(self, world: World) -> None:
        stage(world, 20)
        stage(world, 21, OTHER)
        commit_offset(world, -1)
        end(world, is_commit=True)
        world.commit()
        assert (offset_at(world), offset_at(world, OTHER)) == (None, 21)

    def test_a_marker_of_somebody_who_has_nothing_here_ends_nothing(self, world: World) -> None:
        commit_offset(world, 10)
        stage(world, 20)
        ended = end(world, is_commit=True, producer_id=99)
        world.commit()
        assert ended.code is NONE
        assert (offset_at(world), is_pending(world)) == (10, True)

    def test_the_next_transaction_of_a_producer_begins_with_nothing(self, world: World) -> None:
        stage(world, 20)
        end(world, is_commit=False)
        stage(world, 21, OTHER)
        end(world, is_commit=True)
        world.commit()
        assert (offset_at(world), offset_at(world, OTHER)) == (None, 21)


class TestBatchesOfTheProducer:
    def test_they_are_transactional_and_numbered_one_after_the_other(self, world: World) -> None:
        headers = []
        for offset in range(3):
            stage(world, offset)
            headers.append(last_header(world))
        stage(world, 3, epoch=1)
        headers.append(last_header(world))
        assert [(one.producer_id, one.producer_epoch, one.base_sequence) for one in headers] == [
            (7, 0, 0),
            (7, 0, 1),
            (7, 0, 2),
            (7, 1, 0),
        ]
        assert all(one.attributes & TRANSACTIONAL for one in headers)

    def test_they_go_on_where_another_leader_stopped(self, world: World) -> None:
        stage(world, 20)
        world.lose(kept=1)
        stage(world, 21)
        assert last_header(world).base_sequence == 1
        world.commit()
        assert is_pending(world)

    def test_a_producer_whose_epoch_is_over_is_told_so(self, world: World) -> None:
        """T11: on this way it is INVALID_PRODUCER_EPOCH in every version."""
        stage(world, 20, epoch=1)
        late = stage(world, 21, OTHER, epoch=0)
        assert late.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert not is_pending(world, OTHER)

    def test_a_marker_says_what_it_was_given(self, world: World) -> None:
        end(world, is_commit=True, producer_id=9, epoch=4)
        frame = memoryview(world.log.entries[-1].frame)
        assert read_marker(parse_header(frame), frame) == EndMarker(9, 4, True, 1)

    def test_a_marker_that_is_in_the_log_is_waited_for_and_not_written_again(self, world: World) -> None:
        stage(world, 20)
        first = end(world, is_commit=True)
        last_index = world.log.last_index
        again = end(world, is_commit=True)
        assert world.log.last_index == last_index
        world.commit()
        late = end(world, is_commit=True)
        assert [one.code for one in (first, again, late)] == [NONE] * 3
        assert offset_at(world) == 20
        stage(world, 21)
        assert world.shard is not None
        assert not world.shard.staging.is_ending(KEY)

    def test_t6_a_marker_of_an_older_coordinator_is_refused(self, world: World) -> None:
        stage(world, 20)
        end(world, is_commit=True)
        shard = world.shard
        assert shard is not None
        outcome = Outcome()
        with world.step():
            shard.staging.end(EndMarker(7, 0, False, 0), outcome, bumps_epoch=False)
        assert outcome.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    def test_whoever_was_not_verified_begins_no_transaction(self, world: World) -> None:
        shard = world.lead()
        outcome = Outcome()
        with world.step():
            assert shard.make_group("g") is not None
            assert not shard.staging.write(Writer(7, 0), [(KEY, CommittedOffset(1))], outcome)
        assert outcome.code is ErrorCode.INVALID_TXN_STATE
        assert not is_pending(world)

    def test_many_offsets_are_as_few_batches_as_their_size_allows_and_answered_once(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("barnabas_broker.coordinators.groups.staging.BATCH_BYTES_MAX", 1_000)
        shard = world.lead()
        begin = world.log.last_index
        outcome = Outcome()
        offsets = [(KEY._replace(partition=index), CommittedOffset(index, metadata="x" * 150)) for index in range(20)]
        with world.step():
            assert shard.make_group("g") is not None
            assert shard.staging.write(writer_for(world.partition, 7, 0), offsets, outcome)
        count = world.log.last_index - begin
        assert 4 <= count <= 7
        world.commit(count - 1)
        told_early = outcome.code
        world.commit()
        assert (told_early, outcome.code) == (None, NONE)
        assert len(shard.staging.staged.of_group("g")) == 20


class TestTheEndOfALeadership:
    """T17: what was staged survives, or the end of the transaction would succeed with nothing applied."""

    def test_t17_what_is_staged_is_known_to_the_next_coordinator(self, world: World) -> None:
        commit_offset(world, 10)
        stage(world, 20)
        world.commit()
        world.lose()
        assert (offset_at(world), is_pending(world)) == (10, True)
        end(world, is_commit=True)
        world.commit()
        assert offset_at(world) == 20

    def test_t17_what_another_leader_took_and_ended_counts(self, world: World) -> None:
        world.lose(said=[{StagedName(*KEY, 7): CommittedOffset(20)}, {StagedName(*OTHER, 8): CommittedOffset(21)}])
        assert (is_pending(world), is_pending(world, OTHER)) == (True, True)
        world.lose(said=[marker(7, is_commit=True), marker(8, is_commit=False)])
        assert (offset_at(world), offset_at(world, OTHER)) == (20, None)

    def test_t17_a_replica_that_reads_ahead_knows_it(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("barnabas_broker.coordinators.runtime.coordinator.STANDBY_ENTRIES", 1)
        world.lose(said=[{StagedName(*KEY, 7): CommittedOffset(20)}])
        world.follow([{StagedName(*OTHER, 8): CommittedOffset(21)}])
        world.breathe(10)
        assert world.observer._standby.table.staged.count == 2
        world.follow([marker(7, is_commit=True), marker(8, is_commit=False)])
        world.breathe(10)
        assert world.observer._standby.table.staged.count == 0
        assert world.observer._standby.table.offsets.get(KEY).offset == 20

    def test_what_was_cut_is_not_pending(self, world: World) -> None:
        cut = stage(world, 20)
        world.lose(kept=0)
        assert cut.code is ErrorCode.NOT_COORDINATOR
        assert not is_pending(world)

    def test_a_marker_that_was_cut_has_ended_nothing(self, world: World) -> None:
        stage(world, 20)
        world.commit()
        cut = end(world, is_commit=True)
        world.lose(kept=0)
        assert cut.code is ErrorCode.NOT_COORDINATOR
        assert (offset_at(world), is_pending(world)) == (None, True)

    def test_a_shard_that_has_ended_takes_neither(self, world: World) -> None:
        shard = world.lead()
        world.lose()
        outcomes = [Outcome(), Outcome()]
        with world.step():
            assert not shard.staging.write(writer_for(world.partition, 7, 0), [(KEY, CommittedOffset(1))], outcomes[0])
            shard.staging.end(EndMarker(7, 0, True, 1), outcomes[1], bumps_epoch=False)
        assert [one.code for one in outcomes] == [ErrorCode.NOT_COORDINATOR] * 2


class TestManyOffsets:
    COUNT = 3 * ENDED_STEP

    def staged(self, world: World) -> GroupShard:
        shard = world.lead()
        with world.step():
            assert shard.make_group("g") is not None
            offsets = [(KEY._replace(partition=index), CommittedOffset(index)) for index in range(self.COUNT)]
            assert shard.staging.write(writer_for(world.partition, 7, 0), offsets, None)
        world.commit()
        world.breathe(5)
        assert len(shard.staging.staged.of_group("g")) == self.COUNT
        return shard

    def test_a_transaction_is_taken_in_in_pieces_and_known_to_whoever_confirms(self, world: World) -> None:
        shard = self.staged(world)
        end(world, is_commit=True)
        world.commit()
        assert len(shard.offsets) == ENDED_STEP
        assert len(shard.staging.staged.of_group("g")) == self.COUNT - ENDED_STEP
        confirmed = world.loop.create_task(shard.runtime.confirm(1))
        world.breathe()
        assert not confirmed.done()
        world.breathe(15)
        assert confirmed.result() is NONE
        assert len(shard.offsets) == self.COUNT

    def test_what_is_not_taken_in_when_leadership_ends_is_by_the_next_one(self, world: World) -> None:
        self.staged(world)
        end(world, is_commit=True)
        world.commit()
        world.lose()
        world.breathe(15)
        assert len(world.lead().offsets) == self.COUNT

    def test_of_many_transactions_that_end_at_once_some_are_taken_in_in_each_turn(self, world: World) -> None:
        shard = self.staged(world)
        count = 2 * APPLIED_STEP // 100
        for producer_id in range(100, 100 + count):
            keys = [KEY._replace(group_id="h", partition=number) for number in range(100)]
            with world.step():
                assert shard.make_group("h") is not None
                shard.staging.write(
                    writer_for(world.partition, producer_id, 0), [(key, CommittedOffset(1)) for key in keys], None
                )
        world.commit()
        world.breathe(10)
        for producer_id in range(100, 100 + count):
            end(world, is_commit=False, producer_id=producer_id)
        world.commit()
        left = shard.staging.staged.count - self.COUNT
        assert 0 < left < 100 * count
        world.breathe(10)
        assert shard.staging.staged.count == self.COUNT


class TestGroups:
    def test_a_group_with_nothing_but_pending_offsets_is_known_and_stays(self, world: World) -> None:
        stage(world, 20)
        world.commit()
        world.advance(10 * MINUTE_MS)
        look_round(world)
        shard = world.shard
        assert shard is not None
        hosted = shard.group("g")
        assert hosted is not None
        shard.settle(hosted)
        assert shard.group("g") is hosted
        world.lose()
        shard = world.lead()
        assert shard.group("g") is not None
        end(world, is_commit=False)
        world.commit()
        look_round(world)
        assert shard.group("g") is None, "nothing is left of it"

    def test_an_offset_does_not_expire_while_another_is_pending_in_its_place(self, world: World) -> None:
        commit_offset(world, 10)
        commit_offset(world, 11, OTHER)
        stage(world, 20)
        world.commit()
        world.advance(2 * MINUTE_MS)
        look_round(world)
        assert (offset_at(world), offset_at(world, OTHER)) == (10, None)
        end(world, is_commit=False)
        world.commit()
        look_round(world)
        assert offset_at(world) is None

    def test_an_offset_of_a_deleted_topic_goes_when_nothing_is_pending_in_its_place(self, world: World) -> None:
        old_id, new_id = bytes([1] * 16), bytes([2] * 16)
        stage(world, 10, topic_id=old_id)
        end(world, is_commit=True)
        world.commit()
        world.topic_ids[new_id] = None
        stage(world, 20, topic_id=new_id)
        world.commit()
        with world.step():
            world.coordinator.expiry.forget_topics([("t", old_id)])
        world.breathe(5)
        world.commit()
        look_round(world)
        look_round(world)
        assert (offset_at(world), is_pending(world)) == (10, True)
        end(world, is_commit=True)
        world.commit()
        assert offset_at(world) == 20

    @pytest.mark.parametrize("is_committed", [True, False])
    def test_a_deleted_group_takes_along_what_is_pending(self, world: World, is_committed: bool) -> None:
        stage(world, 20)
        if is_committed:
            world.commit()
        shard = world.shard
        assert shard is not None
        hosted = shard.group("g")
        assert hosted is not None
        outcome = Outcome()
        with world.step():
            shard.remove_group(hosted, outcome)
        end(world, is_commit=True)
        world.commit()
        assert outcome.code is NONE
        assert offset_at(world) is None
        assert shard.group("g") is None

    def test_pending_offsets_count_and_further_ones_find_no_room(self, world: World) -> None:
        shard = world.lead()
        room = world.coordinator.room
        stage(world, 20)
        world.commit()
        held_bytes = room.held_bytes
        stage(world, 21, OTHER)
        world.commit()
        value = CommittedOffset(22)
        assert room.held_bytes - held_bytes == STAGED_BYTES + size_of(OTHER, value)
        third = KEY._replace(partition=2)
        assert shard.staging.has_room_for(7, third, value)
        room.limit_bytes = room.held_bytes
        assert not shard.staging.has_room_for(7, third, value)
        assert shard.staging.has_room_for(7, OTHER, value), "it takes the place of the other"
        assert not shard.staging.has_room_for(8, OTHER, value)
        end(world, is_commit=False)
        world.commit()
        assert room.held_bytes < held_bytes

    @pytest.mark.parametrize("is_committed", [True, False])
    def test_few_transactions_have_a_name_pending_at_once(self, world: World, is_committed: bool) -> None:
        for producer_id in range(WRITERS_MAX - 1):
            stage(world, 20, producer_id=producer_id)
        if is_committed:
            world.commit()
        shard = world.shard
        assert shard is not None
        value = CommittedOffset(22)
        assert shard.staging.has_room_for(99, KEY, value)
        stage(world, 20, producer_id=WRITERS_MAX)
        assert not shard.staging.has_room_for(99, KEY, value)
        assert shard.staging.has_room_for(99, OTHER, value)
        world.commit()
        assert shard.staging.has_room_for(WRITERS_MAX, KEY, value), "it has it pending already"
        end(world, is_commit=False, producer_id=0)
        world.commit()
        assert shard.staging.has_room_for(99, KEY, value)


class TestRewriting:
    """The log is written again while transactions are open."""

    def rewrite(self, world: World) -> None:
        shard = world.shard
        assert shard is not None
        shard.runtime.is_rewriting = True
        with world.step():
            world.coordinator.runtime.rewrite(shard.runtime)
        for _ in range(20):
            world.breathe()
            world.commit()
        assert not shard.runtime.is_rewriting

    def test_what_is_staged_stays_in_the_log(self, world: World) -> None:
        for offset in range(10):
            commit_offset(world, offset)
        stage(world, 20)
        world.commit()
        begin = world.log.last_index
        commit_offset(world, 11, OTHER)
        self.rewrite(world)
        assert world.log.first_index == begin
        world.check()
        end(world, is_commit=True)
        world.commit()
        world.lose()
        assert (offset_at(world), offset_at(world, OTHER)) == (20, 11)

    def test_what_was_staged_is_newer_than_what_is_only_written_again(self, world: World) -> None:
        commit_offset(world, 10)
        stage(world, 20)
        world.commit()
        self.rewrite(world)
        world.lose()
        assert offset_at(world) == 10
        end(world, is_commit=True)
        world.commit()
        assert offset_at(world) == 20

    @pytest.mark.parametrize("is_committed", [True, False])
    def test_what_a_commit_under_way_replaces_is_not_written_again(self, world: World, is_committed: bool) -> None:
        commit_offset(world, 10)
        commit_offset(world, 11, OTHER)
        stage(world, 20)
        if is_committed:
            world.commit()
        end(world, is_commit=False, producer_id=8)
        end(world, is_commit=True)
        assert self.written_again(world) == [OTHER]
        world.commit()
        assert offset_at(world) == 20

    def test_what_a_commit_under_way_does_not_touch_is_written_again(self, world: World) -> None:
        """The next transaction of the same producer has something there, or the one before had, which is aborted."""
        commit_offset(world, 10)
        commit_offset(world, 11, OTHER)
        stage(world, 20, OTHER)
        end(world, is_commit=True)
        stage(world, 21)
        assert self.written_again(world) == [KEY]
        world.commit()
        end(world, is_commit=False)
        stage(world, 22, OTHER)
        end(world, is_commit=True)
        assert self.written_again(world) == [KEY]
        end(world, is_commit=False)
        assert self.written_again(world) == [KEY]
        world.commit()
        assert self.written_again(world) == [KEY, OTHER]
        world.commit()
        assert (offset_at(world), offset_at(world, OTHER)) == (10, 22)

    def written_again(self, world: World) -> list[Any]:
        """Write both names again, as far as it may be, and return which."""
        shard = world.shard
        assert shard is not None
        with world.step():
            record_of = at_once(shard.runtime.standby.table.prepare_in_steps([KEY, OTHER]))
            assert shard.runtime.append_again([KEY, OTHER], record_of) is NONE
        return list(world.said_in(world.log.entries[-1]))

    def test_a_log_without_open_transactions_is_cut_behind_those_that_have_ended(self, world: World) -> None:
        stage(world, 20)
        end(world, is_commit=True)
        stage(world, 21, OTHER)
        end(world, is_commit=False)
        world.commit()
        end_index = world.log.last_index
        self.rewrite(world)
        assert world.log.first_index > end_index
        world.check()
        world.lose()
        assert (offset_at(world), offset_at(world, OTHER)) == (20, None)

    def test_it_does_not_begin_while_most_of_the_log_would_stay(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun = list[object]()
        monkeypatch.setattr(world.coordinator.runtime, "rewrite", begun.append)
        shard = world.lead()
        commit_offset(world, 10)
        stage(world, 20)
        world.commit()
        world.log.size_bytes = REWRITE_BYTES + 1
        shard.runtime._appended_bytes = REWRITE_BYTES
        commit_offset(world, 11, OTHER)
        assert begun == [], "a third of the records would go"
        end(world, is_commit=True)
        world.commit()
        commit_offset(world, 12, OTHER)
        assert begun == [shard.runtime]


def test_a_marker_finds_the_shard_that_it_must_come_through(world: World) -> None:
    """The way of `replicas.transaction_markers`: past the shard it would end nothing in the table."""

    def ended(epoch: int) -> Outcome:
        outcome = Outcome()
        with world.step():
            world.coordinator.end_transaction(0, EndMarker(7, epoch, True, 1), True, outcome)
        return outcome

    stage(world, 1)
    world.commit()
    outcome = ended(1)
    seen = [outcome.code]
    world.commit()
    assert [*seen, outcome.code] == [None, NONE]
    assert offset_at(world) == 1
    world.lose()
    assert ended(2).code is ErrorCode.NOT_COORDINATOR
    world.win()
    assert ended(2).code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
