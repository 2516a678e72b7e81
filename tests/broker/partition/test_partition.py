"""A partition between a Raft group and its waiters, with both played by the test."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.wire_client import batch
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.partition import partition as partition_module
from barnabas_broker.partition.contracts import PartitionLog, PendingAppend
from barnabas_broker.partition.partition import (
    GAP_MS,
    SWEPT_MIN,
    NotEnoughReplicasError,
    Partition,
    high_watermark_at,
)
from barnabas_broker.partition.producer_state import FORGOTTEN_AT_ONCE, OutOfOrderSequenceError, ProducerTable
from barnabas_broker.partition.record_rules import RecordRules
from barnabas_broker.partition.replica_state import SAVE_ENTRIES, ReplicaState
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.image.image import PartitionPlacement, Topic
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.errors import NotLeaderError, StorageFailedError
from barnabas_raftlog.raft.log_ends import LogEnds
from barnabas_raftlog.raft.membership import configuration_of
from barnabas_raftlog.raft.messages import Buffer, Entry, InstallSnapshot
from barnabas_raftlog.raft.progress import Progress
from barnabas_raftlog.records.header import ControlKind, control_frame, parse_header, stamp


class FakeLog:
    """Entries in a list. `counts` is records per entry; 0 stands for a control frame."""

    def __init__(self, counts: Sequence[int] = ()) -> None:
        self.entries: list[Entry] = []
        self.log_start_offset = 0
        for count in counts:
            self.add(1, bytearray(batch(count)) if count else None)

    @property
    def log_end_offset(self) -> int:
        return self.offset_after(len(self.entries))

    last_index = property(lambda self: len(self.entries))
    durable_index = last_index
    size_bytes = 0
    first_index = 1

    def offset_after(self, index: int) -> int:
        return parse_header(self.entries[index - 1].frame).end_offset if index else 0

    def has_segments_before(self, _offset: int) -> bool:
        return False

    def drop_before(self, offset: int, _committed_index: int) -> None:
        self.log_start_offset = offset

    def read(self, start_offset: int, end_offset: int, _bytes_max: int) -> list[Buffer] | None:
        headers = [(parse_header(entry.frame), entry.frame) for entry in self.entries]
        return [frame for one, frame in headers if one.end_offset > start_offset and one.base_offset < end_offset]

    def add(self, term: int, frame: bytearray | None) -> Entry:
        if frame is None:
            stored: bytes | bytearray = control_frame(self.log_end_offset, term, ControlKind.NO_OP)
        else:
            stamp(frame, self.log_end_offset, term)
            stored = frame
        entry = Entry(len(self.entries) + 1, term, stored)
        self.entries.append(entry)
        return entry


class Host:
    """Notes what the partition says."""

    node_id = 1

    def __init__(self) -> None:
        self.said: list[object] = []
        self.decided: list[tuple[int, int]] = []
        self.reviewing: list[Partition] = []
        self.now = 0
        self.wall = 10_000
        self.live = {2, 3}

    def now_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.wall

    def is_live(self, node_id: int) -> bool:
        return node_id in self.live

    def wake(self, partition: Partition) -> None:
        self.said.append("wake")

    def gained(self, partition: Partition, start_offset: int, decided_offset: int) -> None:
        self.said.append(("gained", start_offset, partition.high_watermark))
        self.decided.append((decided_offset, partition.last_stable_offset))

    def finish(self, waiters: Sequence[PendingAppend]) -> None:
        call_each(waiters, lambda waiter: waiter.on_committed())

    def fail(self, waiters: Sequence[PendingAppend], code: ErrorCode) -> None:
        call_each(waiters, lambda waiter: waiter.on_failed(code))

    def on_failed(self, partition: Partition, error: StorageFailedError) -> None:
        self.said.append(str(error))

    def review_soon(self, partition: Partition) -> None:
        self.reviewing.append(partition)

    def on_doubts(self, partition: Partition) -> None:
        self.said.append(("doubts", list(partition.doubts)))

    def announce(self, partition: Partition, term: int, leader_id: int, isr: tuple[int, ...]) -> None:
        self.said.append((term, leader_id, isr))

    def learn(self, partition: Partition, term: int, leader_id: int) -> None:
        self.said.append(("heard", term, leader_id))


class Waiter:
    """Notes how its waiting ended, and how often it was asked whether it has given up."""

    outcome: object = None
    has_given_up = False
    asked = 0

    @property
    def is_closed(self) -> bool:
        self.asked += 1
        return self.has_given_up

    def on_committed(self) -> None:
        assert self.outcome is None
        self.outcome = "committed"

    def on_failed(self, code: ErrorCode) -> None:
        assert self.outcome is None
        self.outcome = code


def follower(match_index: int, *, live: bool = True, in_sync: bool = True) -> Any:
    return SimpleNamespace(match_index=match_index, live=live, is_in_sync=lambda *_: in_sync, lacks_something=False)


def make(log: FakeLog, *, min_insync: int = 1) -> tuple[Partition, Host]:
    host = Host()
    topic = Topic(bytes(16), "t", (PartitionPlacement((1, 2, 3)),), {})
    partition = Partition(
        host,
        topic,
        0,
        cast("PartitionLog", log),
        ReplicaState(),
        min_insync=min_insync,
        rules=RecordRules(1_000),
        lag_ms_max=1_000,
        expiration_ms=1_000,
    )
    core = SimpleNamespace(progress={2: follower(0), 3: follower(0)})
    partition.group = cast(
        "Any",
        SimpleNamespace(
            core=core,
            configuration=configuration_of(frozenset({1, 2, 3})),
            confirmed=True,
            failed=None,
            is_witness=False,
            check_may_propose=lambda: None,
            propose=lambda frame: log.add(partition.term, frame),
        ),
    )
    return partition, host


def snapshot_of(index: int, data: Buffer) -> InstallSnapshot:
    """Return what a leader sends where the log of a replica is to begin behind entry `index`."""
    return InstallSnapshot(term=1, source=1, target=2, snapshot_index=index, snapshot_term=min(index, 1), data=data)


def lead(partition: Partition, term: int = 1) -> None:
    partition.on_leadership(term, 1, is_leader=True, confirmed=False)
    partition.on_leadership(term, 1, is_leader=True, confirmed=True)


def append(partition: Partition, *, needs_replicas: bool = False, **fields: int) -> tuple[int, int]:
    frame = bytearray(batch(**fields))
    return partition.append(parse_header(frame), frame, needs_replicas=needs_replicas)


@given(st.lists(st.integers(0, 4), max_size=12), st.data())
@settings(max_examples=60, deadline=None)
def test_the_high_watermark_counts_the_records_of_the_committed_prefix(counts: list[int], data: st.DataObject) -> None:
    log = FakeLog(counts)
    partition, _ = make(log)
    partition.on_appended(log.entries)
    commit_index = 0
    for _ in range(3):
        commit_index = data.draw(st.integers(commit_index, len(counts)))
        partition.on_committed(commit_index)
        expected = sum(counts[:commit_index])
        assert partition.high_watermark == high_watermark_at(cast("PartitionLog", log), commit_index) == expected


def test_readers_hear_of_what_there_is_to_read_and_of_other_changes_apart() -> None:
    log = FakeLog([2, 3, 1])
    partition, host = make(log)
    lead(partition)
    told = [host.said.pop()]
    partition.on_committed(1)
    told.append(host.said.pop())
    partition.state.starts = cast("Any", SimpleNamespace(commit=lambda _: True, offset=1, known_index=0))
    partition.on_committed(2)
    told.append(host.said.pop())
    assert log.log_start_offset == 1
    partition.on_committed(3)
    told.append(host.said.pop())
    assert told == ["wake", ("gained", 0, 2), "wake", ("gained", 5, 6)]
    host.said.clear()
    partition.install(snapshot_of(0, b""))
    partition.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert host.said == ["wake", "wake"]
    assert partition.changes == 2 + 1 + 2


def test_what_there_is_to_read_is_counted_from_the_start_of_the_log_and_if_it_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = FakeLog([2, 3, 1])
    partition, _ = make(log)
    lead(partition)
    partition.on_committed(2)
    sizes = [len(entry.frame) for entry in log.entries]
    assert partition.bytes_between(0, partition.high_watermark) == sizes[0] + sizes[1]
    log.log_start_offset = 2
    assert partition.bytes_between(0, partition.high_watermark) == sizes[1]
    monkeypatch.setattr(log, "read", lambda *_: None)
    assert partition.bytes_between(0, partition.high_watermark) is None

    def fail(*_: int) -> None:
        raise StorageFailedError("damaged")

    monkeypatch.setattr(log, "read", fail)
    assert partition.bytes_between(0, partition.high_watermark) is None


def test_a_waiter_hears_of_its_commit_once() -> None:
    partition, _ = make(FakeLog())
    lead(partition)
    waiters = [Waiter(), Waiter()]
    for waiter in waiters:
        assert partition.wait_for(append(partition)[1], waiter)
    partition.on_committed(1)
    assert [waiter.outcome for waiter in waiters] == ["committed", None]
    partition.on_committed(2)
    partition.on_committed(2)
    assert waiters[1].outcome == "committed"
    assert not partition.wait_for(1, Waiter())


def test_batch_behind_one_that_a_moving_leadership_refused_is_refused_for_that_too() -> None:
    """Called out of order, librdkafka begins a new epoch, and sends again under it what another partition has kept."""
    partition, _ = make(FakeLog())
    lead(partition)
    append(partition, producer_id=5, epoch=0, sequence=0)

    def hand_on() -> None:
        raise NotLeaderError(2)

    cast("Any", partition.group).check_may_propose = hand_on
    for sequence in (1, 2, 1):
        with pytest.raises(NotLeaderError):
            append(partition, producer_id=5, epoch=0, sequence=sequence)
    assert len(partition.producers.batches(5)) == 1
    # The leadership stays after all. A refused batch may come behind the next one.
    cast("Any", partition.group).check_may_propose = lambda: None
    for sequence in (2, 3):
        with pytest.raises(NotLeaderError):
            append(partition, producer_id=5, epoch=0, sequence=sequence)
    append(partition, producer_id=5, epoch=0, sequence=1)
    with pytest.raises(OutOfOrderSequenceError):
        append(partition, producer_id=5, epoch=0, sequence=3)
    append(partition, producer_id=5, epoch=0, sequence=2)


def test_a_gap_after_a_change_of_leaders_is_a_batch_on_its_way_for_a_while() -> None:
    """Librdkafka may bring what it sent later first, when it was turned away by the replica that it asked before."""
    partition, host = make(FakeLog())
    lead(partition)
    append(partition, producer_id=5, epoch=0, sequence=0)
    with pytest.raises(OutOfOrderSequenceError):
        append(partition, producer_id=5, epoch=0, sequence=2)  # Nobody led before, and turned anybody away.
    partition.on_leadership(2, 3, is_leader=False, confirmed=False)
    lead(partition, term=3)
    with pytest.raises(NotLeaderError):
        append(partition, producer_id=5, epoch=0, sequence=2)
    append(partition, producer_id=5, epoch=0, sequence=1)
    host.now += GAP_MS
    with pytest.raises(OutOfOrderSequenceError):
        append(partition, producer_id=5, epoch=0, sequence=3)


def test_a_repetition_waits_for_its_original() -> None:
    partition, _ = make(FakeLog())
    lead(partition)
    original = append(partition, producer_id=5, epoch=0, sequence=0)
    assert append(partition, producer_id=5, epoch=0, sequence=0) == original == (0, 1)
    waiter = Waiter()
    assert partition.wait_for(original[1], waiter)
    partition.on_committed(1)
    assert waiter.outcome == "committed"
    assert append(partition, producer_id=5, epoch=0, sequence=0) == original
    assert not partition.wait_for(original[1], Waiter())


def test_stepping_down_answers_whoever_waits_and_says_so() -> None:
    partition, host = make(FakeLog())
    lead(partition)
    waiter = Waiter()
    partition.wait_for(append(partition)[1], waiter)
    host.said.clear()
    partition.on_leadership(2, 3, is_leader=False, confirmed=False)
    assert waiter.outcome == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert host.said == [(1, -1, ()), ("heard", 2, 3), "wake"]
    with pytest.raises(NotLeaderError):
        append(partition)


def test_a_later_term_of_the_same_leader_ends_the_earlier_one() -> None:
    partition, _ = make(FakeLog())
    lead(partition)
    waiter = Waiter()
    partition.wait_for(append(partition)[1], waiter)
    partition.on_leadership(3, 1, is_leader=True, confirmed=False)
    assert waiter.outcome == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not partition.can_serve


def test_truncation_takes_the_producers_back() -> None:
    log = FakeLog()
    partition, _ = make(log)
    lead(partition)
    append(partition, producer_id=5, epoch=0, sequence=0)
    partition.on_committed(1)
    append(partition, producer_id=5, epoch=0, sequence=1)
    partition.on_leadership(2, 3, is_leader=False, confirmed=False)
    del log.entries[1:]
    partition.on_truncated(2)
    # The driver tells late of what the leader had appended itself: it is known, or gone.
    lead(partition, 4)
    assert append(partition, producer_id=5, epoch=0, sequence=1) == (1, 2)


def test_entries_that_append_has_noted_are_skipped_when_the_driver_tells() -> None:
    log = FakeLog()
    partition, _ = make(log)
    lead(partition)
    log.add(1, None)
    append(partition, producer_id=5, epoch=0, sequence=0)
    partition.on_appended(log.entries)
    assert partition.producers.applied_index == 2
    assert len(partition.producers.batches(5)) == 1


def test_in_sync_replicas_are_live_and_caught_up_and_announced_when_they_change() -> None:
    partition, host = make(FakeLog())
    lead(partition)
    assert list(partition.isr) == [1, 2, 3]
    assert (1, 1, (1, 2, 3)) in host.said
    partition.group.core.progress[3] = follower(0, in_sync=False)
    assert partition.review(0), "it should come back"
    assert list(partition.isr) == [1, 2]
    partition.group.core.progress[2] = follower(0, live=False)
    host.live.clear()
    assert not partition.review(0), "what is dead costs nothing"
    assert host.said[-1] == (1, 1, (1,))
    assert partition.has_enough_replicas


def test_who_stalls_leaves_the_in_sync_replicas_though_nothing_more_is_appended_or_committed() -> None:
    log = FakeLog()
    partition, host = make(log)
    ends = LogEnds(0, 100)
    followers = {peer: Progress(peer, bytes(16), ends, 1, 0, is_voter=True, live=True) for peer in (2, 3)}
    partition.group.core.progress = followers
    lead(partition)
    host.reviewing.clear()
    append(partition)
    partition.on_appended(log.entries)
    assert host.reviewing == [partition]
    ends.note(1, 500)
    followers[2].acknowledge(1)
    assert partition.review(1_500), "it may leave without a further word"
    assert list(partition.isr) == [1, 2, 3]
    partition.review(1_501)
    assert list(partition.isr) == [1, 2]
    followers[3].acknowledge(1)
    assert not partition.review(1_502), "all have everything"
    assert list(partition.isr) == [1, 2, 3]


def test_min_insync_above_a_majority_holds_the_answer_back() -> None:
    partition, _ = make(FakeLog(), min_insync=3)
    lead(partition)
    waiter = Waiter()
    partition.wait_for(append(partition)[1], waiter)
    partition.group.core.progress[2] = follower(1)
    partition.on_committed(1)
    assert waiter.outcome is None
    assert partition.review(0), "look again"
    partition.group.core.progress[3] = follower(1)
    partition.review(0)
    assert waiter.outcome == "committed"


class SlowDisk(FakeLog):
    """An entry is durable here when the test says so."""

    durable_index = 0


def test_a_commit_that_only_this_replica_has_not_synced_is_answered_when_it_has() -> None:
    """A majority has it without this node, whose disk is slow; no follower's word is going to come any more."""
    log = SlowDisk()
    partition, host = make(log, min_insync=3)
    lead(partition)
    partition.group.core.progress.update({2: follower(1), 3: follower(1)})
    waiter = Waiter()
    partition.wait_for(append(partition)[1], waiter)
    assert not partition.review(0), "no follower lacks anything"
    host.reviewing.clear()
    partition.on_committed(1)
    assert (waiter.outcome, host.reviewing) == (None, [partition])
    assert partition.review(0), "look again"
    log.durable_index = 1
    assert not partition.review(0)
    assert waiter.outcome == "committed"


def test_who_keeps_state_hears_of_a_commit_before_its_answers_and_though_they_are_held_back() -> None:
    partition, _ = make(FakeLog(), min_insync=3)
    told: list[object] = []
    waiter = Waiter()

    def on_committed(index: int) -> None:
        told.append((index, waiter.outcome))

    observer = SimpleNamespace(on_leadership=lambda *_, **__: None, on_committed=on_committed)
    partition.observer = cast("Any", observer)
    lead(partition)
    partition.wait_for(append(partition)[1], waiter)
    partition.on_committed(1)
    assert told == [(1, None)]
    for follows in partition.group.core.progress.values():
        follows.match_index = 2
    waiter = Waiter()
    partition.wait_for(append(partition)[1], waiter)
    partition.on_committed(2)
    assert (told, waiter.outcome) == ([(1, None), (2, None)], "committed")


def test_where_producers_are_left_to_be_forgotten_it_is_looked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    partition, _ = make(FakeLog())
    lead(partition)
    forgotten = iter((FORGOTTEN_AT_ONCE, 5))
    monkeypatch.setattr(ProducerTable, "forget_before", lambda *_: next(forgotten))
    assert [partition.review(0) for _ in range(2)] == [True, False]


def test_a_producer_that_wrote_long_ago_is_forgotten_whatever_its_timestamps() -> None:
    partition, host = make(FakeLog())
    lead(partition)
    append(partition, producer_id=5, epoch=0, sequence=0, timestamp=1)
    partition.on_committed(1)
    partition.review(0)
    assert partition.producers.batches(5)
    host.wall += 1_001
    partition.review(0)
    assert not partition.producers.batches(5)


def test_a_follower_saves_its_producers_every_so_many_entries() -> None:
    """A start after a crash has little to replay, however small the batches are."""
    log = FakeLog([1] * (SAVE_ENTRIES + 10))
    saved: list[int] = []
    log.save_state = lambda index, _: saved.append(index)  # type: ignore[attr-defined]
    partition, _ = make(log)
    partition.on_appended(log.entries)
    partition.on_committed(SAVE_ENTRIES - 1)
    assert saved == []
    partition.on_committed(SAVE_ENTRIES)
    partition.on_committed(SAVE_ENTRIES + 10)
    assert saved == [SAVE_ENTRIES]


class Observer:
    """Counts what it is told."""

    commits = 0

    def on_leadership(self, term: int, *, is_leader: bool, confirmed: bool) -> None:
        pass

    def on_committed(self, commit_index: int) -> None:
        self.commits += 1

    def on_ended(self) -> None:
        pass


def test_state_that_rests_on_the_partition_is_not_built_from_the_log_of_a_witness() -> None:
    partition, _ = make(FakeLog([1, 1]))
    partition.observer = observer = Observer()
    cast("Any", partition.group).is_witness = True
    partition.on_committed(1)
    assert (partition.high_watermark, observer.commits) == (1, 0)
    cast("Any", partition.group).is_witness = False
    partition.on_committed(2)
    assert observer.commits == 1


def test_a_witness_that_is_to_be_a_replica_begins_with_nothing() -> None:
    log = FakeLog([1, 1, 1])
    partition, _ = make(log)
    partition.on_committed(3)
    log.entries.clear()
    partition.install(snapshot_of(0, b""))
    assert (partition.high_watermark, partition.producers.applied_index, partition.producers.commit_index) == (0, 0, 0)
    assert partition.producers.forgotten_id_max == -1
    log.add(2, bytearray(batch(5)))
    partition.on_appended(log.entries)
    partition.on_committed(1)
    assert partition.high_watermark == 5


def test_a_gap_of_a_producer_that_was_perhaps_forgotten_is_sent_back_only_while_a_leadership_is_new() -> None:
    """Later batch 0 has surely come, or the producer is an old one: Kafka, too, takes it at its word then (KIP-360)."""
    log = FakeLog([1])
    partition, host = make(log)
    partition.on_appended(log.entries)
    partition.producers.forgotten_id_max = 9
    lead(partition)
    for sequence in (1, 2):
        with pytest.raises(NotLeaderError):
            append(partition, producer_id=5, epoch=0, sequence=sequence)
    for sequence in (0, 1):
        append(partition, producer_id=5, epoch=0, sequence=sequence)
    host.now += GAP_MS
    append(partition, producer_id=6, epoch=0, sequence=3)
    with pytest.raises(OutOfOrderSequenceError):
        append(partition, producer_id=10, epoch=0, sequence=3)  # newer than all that were forgotten


def test_a_gap_behind_a_refusal_is_put_down_to_it_for_a_while_only() -> None:
    """Its producer may have given it up; the answers to those behind it must not go on for ever."""
    partition, host = make(FakeLog(), min_insync=3)
    lead(partition)
    append(partition, producer_id=5, epoch=0, sequence=0)
    partition.isr = (1,)
    for _ in range(2):
        with pytest.raises(NotEnoughReplicasError):
            append(partition, needs_replicas=True, producer_id=5, epoch=0, sequence=1)
        host.now += GAP_MS - 1
    partition.isr = (1, 2, 3)
    for _ in range(2):
        with pytest.raises(NotEnoughReplicasError):
            append(partition, needs_replicas=True, producer_id=5, epoch=0, sequence=2)
    host.now += 1
    with pytest.raises(OutOfOrderSequenceError):
        append(partition, needs_replicas=True, producer_id=5, epoch=0, sequence=2)
    append(partition, needs_replicas=True, producer_id=5, epoch=0, sequence=1)


def test_only_so_many_producers_are_remembered_as_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_module, "TURNED_AWAY_MAX", 2)
    partition, _ = make(FakeLog(), min_insync=3)
    lead(partition)
    partition.isr = (1,)
    for producer_id in (5, 6, 5, 7):
        with pytest.raises(NotEnoughReplicasError):
            append(partition, needs_replicas=True, producer_id=producer_id, epoch=0, sequence=0)
    partition.isr = (1, 2, 3)
    for producer_id, expected in ((5, OutOfOrderSequenceError), (6, NotEnoughReplicasError)):
        with pytest.raises(expected):
            append(partition, producer_id=producer_id, epoch=0, sequence=1)


def test_a_repetition_of_what_is_committed_on_too_few_replicas_is_answered_when_another_one_has_it() -> None:
    """Nothing else may ever be appended there, so no commit will tell of it."""
    partition, host = make(FakeLog(), min_insync=3)
    lead(partition)
    progress = partition.group.core.progress
    progress.update({2: follower(1), 3: follower(0)})
    append(partition)
    partition.on_committed(1)
    host.reviewing.clear()
    waiter = Waiter()
    assert partition.wait_for(1, waiter)
    assert host.reviewing == [partition]
    assert partition.review(host.now)
    assert waiter.outcome is None
    progress[3] = follower(1)
    partition.review(host.now)
    assert waiter.outcome == "committed"


class BrokenWaiter(Waiter):
    def on_committed(self) -> None:
        raise ValueError("committed")

    def on_failed(self, code: ErrorCode) -> None:
        raise ValueError("failed")


@pytest.mark.parametrize("min_insync", [1, 3])
def test_a_waiter_that_fails_keeps_no_other_from_hearing_of_its_commit(min_insync: int) -> None:
    partition, _ = make(FakeLog(), min_insync=min_insync)
    lead(partition)
    partition.group.core.progress.update({2: follower(2), 3: follower(2)})
    waiters = [Waiter(), BrokenWaiter(), Waiter()]
    for index, waiter in zip((1, 1, 2), waiters, strict=True):
        append(partition)
        partition.wait_for(index, waiter)
    with pytest.raises(ValueError, match="committed"):
        partition.on_committed(2)
    assert [waiter.outcome for waiter in waiters] == ["committed", None, "committed"]
    assert (partition.high_watermark, partition._short) == (2, [])


@pytest.mark.parametrize(
    "how", [lambda one: one.on_truncated(1), lambda one: one.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
)
def test_a_waiter_that_fails_keeps_no_other_from_hearing_of_the_end(how: Callable[[Partition], None]) -> None:
    partition, _ = make(FakeLog())
    lead(partition)
    waiters = [Waiter(), BrokenWaiter(), Waiter()]
    for waiter in waiters:
        partition.wait_for(append(partition)[1], waiter)
    with pytest.raises(ValueError, match="failed"):
        how(partition)
    outcomes = [waiter.outcome for waiter in waiters]
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, None, ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize("count", [10, 2_000])
def test_who_gives_up_is_not_told_and_many_at_once_cost_no_more_than_each_for_itself(count: int) -> None:
    log = FakeLog([1])
    partition, _ = make(log)
    waiters = [Waiter() for _ in range(count)]
    for waiter in waiters:
        assert partition.wait_for(1, waiter)
    for waiter in waiters[1:]:
        waiter.has_given_up = True
        partition.forget(waiter)
    assert sum(waiter.asked for waiter in waiters) <= 4 * count
    assert len(partition._waiters) <= max(SWEPT_MIN, 1) + 1 or count < SWEPT_MIN
    partition.on_committed(1)
    assert waiters[0].outcome == "committed"
