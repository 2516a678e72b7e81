"""A replica with transactions through everything that happens to its log, against a model that reads all of that.

The model keeps every entry that is in the log, also those that retention has taken, and goes through them from the
beginning after every step.
"""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from broker.wire_client import batch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_broker.partition import aborted_index, replica_state
from barnabas_broker.partition.aborted_index import AbortedTransaction
from barnabas_broker.partition.contracts import PartitionLog
from barnabas_broker.partition.partition import Partition
from barnabas_broker.partition.producer_state import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
)
from barnabas_broker.partition.record_rules import RecordRules
from barnabas_broker.partition.replica_state import ReplicaState, load_replica_state
from barnabas_metadata_quorum.image.image import PartitionPlacement, Topic
from barnabas_raftlog.log.state_file import StateOrMaker, made
from barnabas_raftlog.raft.membership import configuration_of
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.header import TRANSACTIONAL, ControlKind, control_frame, parse_header, stamp
from barnabas_raftlog.records.markers import EndMarker, marker_batch

from .test_partition import Host, follower

PRODUCERS = st.integers(1, 3)
EVERYWHERE = 1 << 60


class Written(NamedTuple):
    """An entry as the model knows it: data of a producer, or its marker, or neither (`producer_id` -1)."""

    base_offset: int
    record_count: int
    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    is_transactional: bool = False
    outcome: bool | None = None
    coordinator_epoch: int = -1

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.record_count


class Known(NamedTuple):
    """What the log up to an entry says: (producer, first offset) of what is open, what was aborted, who wrote last."""

    undecided: list[tuple[int, int]]
    aborted: list[AbortedTransaction]
    producers: dict[int, tuple[int, int, bool, int]]  # epoch, next sequence, is open, the coordinator's epoch
    hidden: set[int]  # base offsets of aborted data


def replayed(log: list[Written]) -> Known:
    known = Known([], [], {}, set())
    parts: dict[int, list[int]] = {}
    for entry in log:
        pid = entry.producer_id
        if pid < 0:
            continue
        epoch, following, is_open, coordinator_epoch = known.producers.get(pid, (entry.epoch, 0, False, -1))
        if entry.outcome is None:
            if entry.is_transactional and not is_open:
                known.undecided.append((pid, entry.base_offset))
                parts[pid] = []
            is_open = is_open or entry.is_transactional
            if is_open:
                parts[pid].append(entry.base_offset)
            following = entry.base_sequence + entry.record_count
        else:
            if is_open:
                begun = next(one for one in known.undecided if one[0] == pid)
                known.undecided.remove(begun)
                if not entry.outcome:
                    known.aborted.append(AbortedTransaction(pid, begun[1], entry.base_offset))
                    known.hidden.update(parts[pid])
            is_open = False
            following = following if entry.epoch == epoch else 0
            coordinator_epoch = entry.coordinator_epoch
        known.producers[pid] = (entry.epoch, following, is_open, coordinator_epoch)
    return known


class Log:
    """A log that forgets its beginning, and whose end may not be durable."""

    def __init__(self, base_index: int = 0, base_offset: int = 0) -> None:
        self.entries: list[Entry] = []
        self.base_index = base_index
        self.base_offset = self.log_start_offset = base_offset
        self.durable_index = base_index
        self.saved: tuple[int, StateOrMaker] | None = None
        self.size_bytes = 0

    @property
    def first_index(self) -> int:
        return self.base_index + 1

    @property
    def last_index(self) -> int:
        return self.base_index + len(self.entries)

    @property
    def log_end_offset(self) -> int:
        return self.offset_after(self.last_index)

    def term_at(self, _index: int) -> int:
        return 1

    def offset_after(self, index: int) -> int:
        assert self.base_index <= index <= self.last_index
        count = index - self.base_index
        return parse_header(self.entries[count - 1].frame).end_offset if count else self.base_offset

    def add(self, frame: bytearray | bytes) -> Entry:
        if isinstance(frame, bytearray):
            stamp(frame, self.log_end_offset, 1)
        entry = Entry(self.last_index + 1, 1, frame)
        self.entries.append(entry)
        return entry

    def cut(self, index: int) -> list[Entry]:
        """Remove the entries from `index` on, and return them."""
        lost = self.entries[index - self.first_index :]
        del self.entries[index - self.first_index :]
        self.durable_index = min(self.durable_index, self.last_index)
        return lost

    async def replay(self, from_index: int) -> AsyncIterator[Entry]:
        for entry in self.entries[max(0, from_index - self.first_index) :]:
            yield entry

    def load_state(self) -> tuple[int, bytes] | None:
        if self.saved is None or not self.base_index <= self.saved[0] <= self.last_index:
            return None
        return self.saved[0], made(self.saved[1])

    def save_state(self, index: int, state: StateOrMaker) -> None:
        assert self.base_index <= index <= self.last_index
        self.saved = (index, state)

    def has_segments_before(self, offset: int) -> bool:
        return bool(self.entries) and parse_header(self.entries[0].frame).end_offset <= offset

    def drop_before(self, offset: int, _committed_index: int) -> None:
        self.log_start_offset = max(self.log_start_offset, offset)
        covered = 0 if self.saved is None else self.saved[0]
        while self.has_segments_before(offset) and self.first_index <= covered:
            self.base_offset = self.offset_after(self.first_index)
            self.base_index += 1
            del self.entries[0]


def partition_over(log: Any, state: ReplicaState, host: Host, term: int, propose: Any = None) -> Partition:
    """Return a partition that leads in `term`; `propose` appends a batch, `log.add` if it is not given."""
    topic = Topic(bytes(16), "t", (PartitionPlacement((1, 2, 3)),), {})
    partition = Partition(
        host,
        topic,
        0,
        log,
        state,
        min_insync=1,
        rules=RecordRules(1_000),
        lag_ms_max=1_000,
        expiration_ms=1 << 40,
    )
    group = SimpleNamespace(
        core=SimpleNamespace(progress={2: follower(0), 3: follower(0)}),
        configuration=configuration_of(frozenset({1, 2, 3})),
        confirmed=True,
        failed=None,
        is_witness=False,
        check_may_propose=lambda: None,
        propose=propose or log.add,
        propose_control=lambda kind, body: log.add(control_frame(log.log_end_offset, 1, kind, body)),
    )
    partition.group = cast("Any", group)
    partition.on_leadership(term, 1, is_leader=True, confirmed=True)
    return partition


def data_frame(entry: Written) -> bytearray:
    frame = batch(
        entry.record_count,
        producer_id=entry.producer_id,
        epoch=entry.epoch,
        sequence=entry.base_sequence,
        attributes=TRANSACTIONAL if entry.is_transactional else 0,
    )
    return bytearray(frame)


class ReplicaFollowsItsLog(RuleBasedStateMachine):
    """`written` is the truth: at index position + 1, from the first entry there ever was."""

    def __init__(self) -> None:
        super().__init__()
        self.host = Host()
        self.log = Log()
        self.written: list[Written] = []
        self.term = 1
        self.commit_index = 0
        self.last_stable_offset = 0
        self.partition = partition_over(self.log, ReplicaState(), self.host, self.term)

    @property
    def end_offset(self) -> int:
        return self.written[-1].end_offset if self.written else 0

    def known(self) -> Known:
        return replayed(self.written)

    def committed(self) -> Known:
        return replayed(self.written[: self.commit_index])

    # What a leader appends.

    @rule(pid=PRODUCERS, is_transactional=st.booleans(), new_epoch=st.booleans(), count=st.integers(1, 2))
    def produce(self, pid: int, is_transactional: bool, new_epoch: bool, count: int) -> None:
        epoch, following, is_open, _ = self.known().producers.get(pid, (0, 0, False, -1))
        if new_epoch and not is_open:
            epoch, following = epoch + 1, 0
        entry = Written(self.end_offset, count, pid, epoch, following, is_transactional)
        frame = data_frame(entry)
        header = parse_header(frame)
        if is_open and not is_transactional:
            with pytest.raises(InvalidTransactionStateError):
                self.partition.append(header, frame)
            return
        if is_transactional and not is_open:
            with pytest.raises(InvalidTransactionStateError):
                self.partition.append(header, frame)
        guard = self.partition.verification(pid, epoch, following, bumps_epoch=True) if is_transactional else None
        assert (guard is None) == (is_open or not is_transactional)
        self.written.append(entry)
        assert self.partition.append(header, frame, guard=guard) == (entry.base_offset, len(self.written))
        assert self.partition.append(header, frame, guard=guard) == (entry.base_offset, len(self.written)), "again"

    @rule(pid=PRODUCERS, bumps_epoch=st.booleans(), is_commit=st.booleans(), coordinator_epoch=st.integers(1, 3))
    def end(self, pid: int, bumps_epoch: bool, is_commit: bool, coordinator_epoch: int) -> None:
        epoch, _, _, newest = self.known().producers.get(pid, (0, 0, False, -1))
        marker = EndMarker(pid, epoch + bumps_epoch, is_commit, coordinator_epoch)
        if coordinator_epoch < newest:
            with pytest.raises(CoordinatorFencedError):
                self.partition.append_marker(marker, bumps_epoch=bumps_epoch)
            return
        mine = [(at, one) for at, one in enumerate(self.written, 1) if one.producer_id == pid]
        same = (marker.producer_epoch, is_commit, coordinator_epoch)
        index = self.partition.append_marker(marker, bumps_epoch=bumps_epoch)
        if mine and (mine[-1][1].epoch, mine[-1][1].outcome, mine[-1][1].coordinator_epoch) == same:
            assert index == mine[-1][0], "it is there already"
        else:
            self.written.append(
                Written(self.end_offset, 1, pid, marker.producer_epoch, -1, True, is_commit, coordinator_epoch)
            )
            assert index == len(self.written)
        assert self.partition.append_marker(marker, bumps_epoch=bumps_epoch) == index, "sent once more"
        if bumps_epoch and is_commit:
            with pytest.raises(InvalidProducerEpochError):
                self.partition.append_marker(marker._replace(is_commit=False), bumps_epoch=True)

    @rule(data=st.data())
    def drop_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.partition.high_watermark))
        self.partition.drop_before(offset)
        while len(self.written) < self.log.last_index:
            self.written.append(Written(self.end_offset, 0))

    # What a follower gets.

    @rule(pid=PRODUCERS, is_transactional=st.booleans(), is_empty=st.booleans())
    def follow(self, pid: int, is_transactional: bool, is_empty: bool) -> None:
        """Somebody else has led meanwhile."""
        epoch, following, is_open, _ = self.known().producers.get(pid, (0, 0, False, -1))
        control = control_frame(self.end_offset, 1, ControlKind.NO_OP)
        entries = [self.log.add(control)]
        self.written.append(Written(self.end_offset, 0))
        if is_transactional:
            data = Written(self.end_offset, 2, pid, epoch, following, True)
            self.written.append(data)
            entries.append(self.log.add(data_frame(data)))
            marker = EndMarker(pid, epoch + 1, not is_empty, 3)
            entries.append(self.log.add(marker_batch(marker, 5)))
            self.written.append(Written(self.end_offset, 1, pid, epoch + 1, -1, True, not is_empty, 3))
        elif not is_open:
            plain = Written(self.end_offset, 1, pid, epoch, following)
            self.written.append(plain)
            entries.append(self.log.add(data_frame(plain)))
        self.partition.on_appended(entries)

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.commit_index = data.draw(st.integers(self.commit_index, len(self.written)))
        self.log.durable_index = data.draw(st.integers(self.log.durable_index, len(self.written)))
        self.partition.on_committed(self.commit_index)

    @precondition(lambda self: self.commit_index < len(self.written))
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(self.commit_index + 1, len(self.written)))
        self.term += 2
        self.partition.on_leadership(self.term - 1, 2, is_leader=False, confirmed=False)
        self.log.cut(index)
        del self.written[index - 1 :]
        self.partition.on_truncated(index)
        self.partition.on_leadership(self.term, 1, is_leader=True, confirmed=True)

    # Restarts and moves.

    @rule()
    def save(self) -> None:
        self.partition.state.save(cast("PartitionLog", self.log))

    @rule(loses_the_rest=st.booleans())
    def crash(self, loses_the_rest: bool) -> None:
        """What is not durable is lost here, and comes again if it is committed, as nothing else can."""
        lost = self.log.cut(self.log.durable_index + 1)
        self.log.log_start_offset = self.log.base_offset  # until the entry that moved it is known to be committed
        if loses_the_rest:
            lost = lost[: max(0, self.commit_index - self.log.last_index)]
            del self.written[max(self.commit_index, self.log.last_index) :]
        state = asyncio.run(load_replica_state(self.log, 1_000))
        assert state.producers.forgotten_id_max == -1
        self.begin_anew(state, lost)

    @rule()
    def move(self) -> None:
        """Another replica gets the state and what is left of the log, as far as the leader has it now."""
        snapshot = self.partition.snapshot()
        assert snapshot is not None
        index, _, data = snapshot
        lost = self.log.entries
        self.log = Log(index, self.log.base_offset)
        state = ReplicaState()
        state.install(index, made(data), 0)
        self.begin_anew(state, lost)

    def begin_anew(self, state: ReplicaState, missing: list[Entry]) -> None:
        """Let a replica with `state` get the missing entries one by one, each committed if it was before."""
        self.term += 1
        self.partition = partition_over(self.log, state, self.host, self.term)
        for commit_index in range(self.log.base_index, min(self.commit_index, self.log.last_index) + 1):
            self.partition.on_committed(commit_index)
        for entry in missing:
            self.log.entries.append(entry)
            self.partition.on_appended([entry])
            if entry.index <= self.commit_index:
                self.partition.on_committed(entry.index)
                self.what_can_be_read_is_what_was_committed()
        self.partition.on_leadership(self.term + 1, 1, is_leader=True, confirmed=True)
        self.term += 1
        self.log.durable_index = self.log.last_index

    # What must hold.

    @invariant()
    def transactions_are_those_of_the_log(self) -> None:
        transactions = self.partition.state.transactions
        found = sorted((one.producer_id, one.first_offset) for one in transactions.open_transactions())
        assert found == sorted(self.known().undecided)
        for one in transactions.open_transactions():
            assert self.written[one.first_index - 1].base_offset == one.first_offset
        undecided = [(one.producer_id, one.first_offset) for one in transactions.undecided()]
        assert undecided == self.committed().undecided
        start = self.log.log_start_offset
        aborted = [one for one in self.committed().aborted if one.last_offset >= start]
        assert self.partition.aborted_between(start, EVERYWHERE) == sorted(aborted, key=lambda one: one.first_offset)

    @invariant()
    def producers_are_those_of_the_log(self) -> None:
        producers = self.partition.producers
        known = self.known().producers
        assert set(producers.producer_ids()) == known.keys()
        for pid, (epoch, following, is_open, coordinator_epoch) in known.items():
            last = producers.batches(pid)[-1]
            assert (last.epoch, last.is_open, last.coordinator_epoch) == (epoch, is_open, coordinator_epoch)
            assert producers.check(pid, epoch, following, 0, is_transactional=True) is None, "T20: it is in order"

    @invariant()
    def last_stable_offset_is_that_of_the_committed_log_and_never_goes_back(self) -> None:
        undecided = self.committed().undecided
        high_watermark = self.written[self.commit_index - 1].end_offset if self.commit_index else 0
        first = undecided[0][1] if undecided else high_watermark
        expected = min(high_watermark, max(first, self.log.log_start_offset))
        found = self.partition.last_stable_offset
        assert (self.partition.high_watermark, found) == (high_watermark, expected)
        assert found >= self.last_stable_offset
        self.last_stable_offset = found

    @invariant()
    def what_can_be_read_is_what_was_committed(self) -> None:
        """A reader goes by markers and the list of what was aborted, as Kafka's clients do."""
        start, end = self.log.log_start_offset, self.partition.last_stable_offset
        waiting = self.partition.aborted_between(start, end)
        aborted = set[int]()
        read: list[int] = []
        for entry in self.written:
            if entry.end_offset <= start or entry.base_offset >= end or not entry.record_count:
                continue
            while waiting and waiting[0].first_offset < entry.end_offset:
                aborted.add(waiting.pop(0).producer_id)
            if entry.outcome is not None:
                aborted.discard(entry.producer_id)
            elif not (entry.is_transactional and entry.producer_id in aborted):
                read.append(entry.base_offset)
        hidden = self.committed().hidden
        expected = [
            entry.base_offset
            for entry in self.written
            if entry.end_offset > start and entry.base_offset < end and entry.record_count and entry.outcome is None
        ]
        assert read == [offset for offset in expected if offset not in hidden]


TestReplicaFollowsItsLog = ReplicaFollowsItsLog.TestCase
TestReplicaFollowsItsLog.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted_index, "BLOCK", 2)
    monkeypatch.setattr(replica_state, "SAVE_ENTRIES", 6)
