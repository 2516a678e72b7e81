"""Replicas of a log with transactions, with the tables that brokers have beside it, each compacted when it likes.

What a reader of committed records gets from a replica rests on three things: its log, which compaction writes again;
its table of transactions, which says how far to read and what was aborted; and what compaction was told by that very
table. Here all three are the real ones, through everything that may happen to a replica: it lags, leads, is truncated,
loses what was not on its disk, starts again from its saved state or from a compacted log, or gets another one's
segments. The model has every entry as it was written, and reads them from the beginning.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from raftlog.log.node import SMALL, Node
from raftlog.log.replica.transactional_logs import Transactions, committed_rows, entries_of, read_committed
from raftlog.log.transfer.test_segment_transfer import content, manifest_of, receive

from barnabas_broker.partition import aborted_index, replica_state
from barnabas_broker.partition.replica_state import ReplicaState, load_replica_state
from barnabas_raftlog.log.replica.compacting import CompactionLimits
from barnabas_raftlog.log.state_file import made
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.records.builder import NewRecord, build_batch
from barnabas_raftlog.records.header import CONTROL, ControlKind, parse_header
from barnabas_raftlog.records.markers import EndMarker
from barnabas_raftlog.records.reader import Record

from .test_partition import Host
from .test_transactional_replica import partition_over

CONFIG = msgspec.structs.replace(SMALL, segment_bytes=1 << 10, tail_cache_bytes=1 << 10)
RETENTION_MS = 1_000
FOR_EVER_MS = 1 << 60
TRANSACTIONAL = (1, 2, 3)
PLAIN = 9
COUNT = 3
KEYS = st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=1, max_size=3)
WHICH = st.integers(0, COUNT - 1)


async def pause(_: int) -> None: ...


class Replica:
    """A log on a node of its own, and the real partition over it. `terms` gives each leadership its number."""

    def __init__(self, terms: list[int]) -> None:
        self.host = Host()
        self.terms = terms
        self.node = Node(config=CONFIG)
        self.log = self.node.log()
        self.begin(ReplicaState(), 0)

    def begin(self, state: ReplicaState, commit_index: int) -> None:
        """Have a partition of that state, which follows."""

        def propose(frame: bytearray) -> Entry:
            return self.log.append_batch(self.terms[-1], frame)

        self.partition = partition = partition_over(self.log, state, self.host, self.terms[-1], propose)
        group: Any = partition.group
        group.propose_control = lambda kind, body=b"": self.log.append_control(self.terms[-1], kind, body)
        partition.on_leadership(self.terms[-1], 99, is_leader=False, confirmed=False)
        self.commit(commit_index)

    def lead(self) -> None:
        self.partition.on_leadership(self.terms[-1], 1, is_leader=True, confirmed=True)
        entry = self.log.append_control(self.terms[-1], ControlKind.NO_OP)
        self.partition.on_appended([entry])
        self.node.work()

    def take(self, entries: Sequence[Entry]) -> None:
        if entries:
            self.log.append(entries)
            self.partition.on_appended(entries)
            self.node.work()

    def cut(self, index: int) -> None:
        """Lose the entries from `index` on, as a leader wants it."""
        if index <= self.log.last_index:
            self.log.truncate_from(index)
            self.partition.on_truncated(index)
            self.node.work()

    def commit(self, index: int) -> None:
        index = min(index, self.log.last_index)
        if index >= max(1, self.partition.producers.commit_index):
            self.partition.on_committed(index)
            self.node.work()

    def restart(self, commit_index: int) -> None:
        self.node.files.kill()
        self.node = Node(self.node.files, CONFIG)
        self.log = self.node.log()
        state = asyncio.run(load_replica_state(self.log, 1_000))
        assert state.producers.forgotten_id_max == -1
        self.begin(state, commit_index)

    def compact(self, now_ms: int, keys_max: int, retention_ms: int) -> None:
        """As `replicas.compaction` does it."""
        limits = CompactionLimits(keys_max, 0.0, 0, FOR_EVER_MS, retention_ms)
        partition = self.partition
        asyncio.run(partition.log.compact(limits, partition.producers.commit_index, now_ms, pause, partition))

    def become(self, other: "Replica", commit_index: int, *, with_files: bool) -> None:
        """Forget everything, and get what the other has at the beginning of its log, or all that is sealed there."""
        snapshot = other.partition.snapshot()
        assert snapshot is not None
        index, term, state_or_maker = snapshot
        data = made(state_or_maker)
        sealed = other.log.sealed_segments(other.partition.producers.commit_index)
        if with_files and sealed and self.log.last_index:  # Of a log that never had anything there is no directory.
            manifest = manifest_of(other.node, other.log, bytes(data), other.partition.producers.commit_index)
            incoming = self.log.incoming()
            incoming.begin(manifest)
            for file in manifest.files:
                receive(incoming, file, content(other.node, other.log, file))
            index = manifest.snapshot_index
            self.log.adopt(incoming.prepare())
        else:
            self.log.install_snapshot(index, term, other.log.offset_after(index), data)
        self.node.work()
        state = ReplicaState()
        if index:
            state.install(index, bytes(data), self.log.size_bytes)
        self.begin(state, commit_index)

    def rows(self, bytes_max: int) -> list[Record]:
        """Return what a consumer with read_committed reads from the beginning, in answers of about this size."""
        partition = cast("Any", self.partition)
        return asyncio.run(read_committed(self.log, partition, bytes_max, self.log.log_start_offset))


class CompactedReplicas(RuleBasedStateMachine):
    """`written`: the entries as their leaders have made them; each replica has a part of them, from the first on."""

    @initialize(keeps_markers=st.booleans())
    def begin(self, keeps_markers: bool) -> None:
        """A follower that lags may never hear of a tombstone that went meanwhile: only those are, that stay."""
        self.retention_ms = FOR_EVER_MS if keeps_markers else RETENTION_MS
        self.terms = [1]
        self.replicas = [Replica(self.terms) for _ in range(COUNT)]
        self.written: list[Entry] = []
        self.commit_index = 0
        self.now_ms = 1_000_000
        self.lead(0)

    @property
    def leader(self) -> Replica:
        return self.replicas[self.leader_number]

    @property
    def followers(self) -> list[Replica]:
        return [one for one in self.replicas if one is not self.leader]

    def _note(self) -> None:
        """Take what the leader has appended into the model, as it is now: later it may be compacted."""
        log = self.leader.log
        for entry in asyncio.run(entries_of(log, len(self.written) + 1)):
            self.written.append(Entry(entry.index, entry.term, bytes(entry.frame)))
        self.leader.node.work()

    # The leader appends.

    def _write(self, producer_id: int, keys: list[bytes], *, are_tombstones: bool = False) -> None:
        partition = self.leader.partition
        offset = self.leader.log.log_end_offset
        is_empty = are_tombstones and self.retention_ms == FOR_EVER_MS
        epoch, following, is_open = producers_of(self.written).get(producer_id, (0, 0, False))
        frame = build_batch(
            [
                NewRecord(key, None if is_empty else f"{offset + place} ".encode().ljust(150, b"."), self.now_ms)
                for place, key in enumerate(keys)
            ],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=following,
            is_transactional=producer_id != PLAIN,
        )
        guard = None
        if producer_id != PLAIN:
            guard = partition.verification(producer_id, epoch, following, bumps_epoch=False)
            assert (guard is None) == is_open
        partition.append(parse_header(frame), frame, guard=guard)
        self._note()

    @rule(producer_id=st.sampled_from((*TRANSACTIONAL, PLAIN)), keys=KEYS, are_tombstones=st.booleans())
    def write(self, producer_id: int, keys: list[bytes], are_tombstones: bool) -> None:
        self._write(producer_id, keys, are_tombstones=are_tombstones)

    @rule(
        batches=st.lists(
            st.tuples(st.sampled_from((*TRANSACTIONAL, PLAIN)), KEYS, st.booleans()), min_size=1, max_size=4
        ),
        is_v2=st.booleans(),
    )
    def write_transactions(self, batches: list[tuple[int, list[bytes], bool]], is_v2: bool) -> None:
        for producer_id, keys, is_commit in batches:
            self._write(producer_id, keys)
            if producer_id != PLAIN:
                self.end(producer_id, is_commit=is_commit, is_v2=is_v2)
        self.commit_and_tell(len(self.written), [0, 1, 2])

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), is_commit=st.booleans(), is_v2=st.booleans())
    def end(self, producer_id: int, is_commit: bool, is_v2: bool) -> None:
        epoch = producers_of(self.written).get(producer_id, (0, 0, False))[0]
        marker = EndMarker(producer_id, epoch + is_v2, is_commit, 5)
        self.leader.partition.append_marker(marker, bumps_epoch=is_v2)
        self._note()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        """Also into a transaction that is open."""
        end = self.leader.partition.high_watermark
        back = st.integers(0, min(end, 6)) if data.draw(st.booleans()) else st.integers(0, end)
        self.leader.partition.drop_before(end - data.draw(back))
        self._note()

    # Replicas go on.

    def _catch_up(self, replica: Replica) -> None:
        if replica.log.last_index + 1 < self.leader.log.first_index:
            replica.become(self.leader, self.commit_index, with_files=False)
        replica.take(asyncio.run(entries_of(self.leader.log, replica.log.last_index + 1)))

    @rule(number=WHICH)
    def catch_up(self, number: int) -> None:
        if self.replicas[number] is not self.leader:
            self._catch_up(self.replicas[number])

    @rule(data=st.data(), told=st.lists(WHICH, unique=True))
    def commit(self, data: st.DataObject, told: list[int]) -> None:
        self.commit_and_tell(data.draw(st.integers(self.commit_index, len(self.written))), told)

    def commit_and_tell(self, index: int, told: list[int]) -> None:
        self.commit_index = index
        self.leader.commit(index)
        for number in told:
            self.replicas[number].commit(index)

    @rule(number=WHICH)
    def lead(self, number: int) -> None:
        """Another one leads, if it has what was committed; what it lacks is cut where it is."""
        if self.replicas[number].log.last_index < self.commit_index:
            return
        self.leader_number = number
        self.terms.append(self.terms[-1] + 1)
        end = self.leader.log.last_index + 1
        del self.written[end - 1 :]
        for replica in self.followers:
            replica.cut(end)
            replica.partition.on_leadership(self.terms[-1], 99, is_leader=False, confirmed=False)
        self.leader.lead()
        self._note()

    @rule(
        which=st.lists(WHICH, min_size=1, unique=True),
        passed_ms=st.sampled_from([0, RETENTION_MS // 2, RETENTION_MS]),
        keys_max=st.sampled_from([3, 100]),  # a batch has at most three
    )
    def compact(self, which: list[int], passed_ms: int, keys_max: int) -> None:
        self.now_ms += passed_ms
        for replica in self.replicas:
            replica.host.wall = self.now_ms
        for number in which:
            self.replicas[number].log.roll()
            self.replicas[number].compact(self.now_ms, keys_max, self.retention_ms)

    @rule(keys=KEYS, which=st.lists(WHICH, min_size=1, unique=True), is_commit=st.booleans())
    def compact_while_a_transaction_is_open(self, keys: list[bytes], which: list[int], is_commit: bool) -> None:
        self._write(PLAIN, keys)
        self._write(TRANSACTIONAL[0], keys)
        for replica in self.followers:
            self._catch_up(replica)
        self.commit_and_tell(len(self.written), [0, 1, 2])
        self.compact(which, 0, 100)
        self.end(TRANSACTIONAL[0], is_commit=is_commit, is_v2=False)
        self.commit_and_tell(len(self.written), [0, 1, 2])

    @rule(number=WHICH, transactions=st.lists(st.tuples(st.sampled_from(TRANSACTIONAL), st.booleans()), min_size=1))
    def lead_without_what_came_last(self, number: int, transactions: list[tuple[int, bool]]) -> None:
        for producer_id, is_ended in transactions:
            self._write(producer_id, [b"a"])
            self.catch_up(number)
            if is_ended:
                self.end(producer_id, is_commit=False, is_v2=False)
            else:
                self._write(producer_id, [b"b"])
        for replica in self.followers:
            if replica is not self.replicas[number]:
                self._catch_up(replica)
        self.lead(number)

    @rule(number=WHICH, with_checkpoint=st.booleans(), saves=st.booleans())
    def restart(self, number: int, with_checkpoint: bool, saves: bool) -> None:
        replica = self.replicas[number]
        if saves:
            replica.partition.state.save(cast("Any", replica.log))
        replica.node.work()
        if with_checkpoint:
            replica.node.storage.checkpoint()
            replica.node.work()
        replica.restart(self.commit_index)
        if replica is self.leader:
            self.lead(number)

    @precondition(lambda self: self.written)
    @rule(number=WHICH, data=st.data())
    def a_follower_loses_its_end(self, number: int, data: st.DataObject) -> None:
        """What was not on its disk when it was killed; it may know more than its log has then."""
        replica = self.replicas[number]
        if replica is self.leader or replica.log.last_index + 1 < self.leader.log.first_index:
            return
        entries = asyncio.run(entries_of(self.leader.log, replica.log.last_index + 1))
        count = data.draw(st.integers(0, len(entries)))
        if entries[:count]:
            replica.log.append(entries[:count])
            replica.partition.on_appended(entries[:count])
            replica.partition.on_committed(min(self.commit_index, replica.log.last_index))
            replica.partition.state.save(cast("Any", replica.log))
        replica.restart(self.commit_index)

    @rule(number=WHICH, with_files=st.booleans())
    def a_replica_is_filled_anew(self, number: int, with_files: bool) -> None:
        replica = self.replicas[number]
        if replica is not self.leader and not self.leader.partition.state.is_ahead:
            replica.become(self.leader, self.commit_index, with_files=with_files)

    # What must hold.

    @invariant()
    def what_is_known_of_transactions_is_what_the_log_said(self) -> None:
        for replica in self.replicas:
            partition = replica.partition
            committed = Transactions(one.frame for one in self.written[: partition.producers.commit_index])
            decided_until = max(committed.last_stable_offset, replica.log.log_start_offset)
            expected = min(decided_until, committed.end_offset)
            assert partition.last_stable_offset <= expected
            if partition.state.is_ahead:
                continue
            assert partition.last_stable_offset == expected
            all_of_it = Transactions(one.frame for one in self.written[: replica.log.last_index])
            found = partition.state.transactions.open_transactions()
            assert {one.producer_id: one.first_offset for one in found} == all_of_it.open

    @invariant()
    def what_is_known_of_producers_is_what_the_log_said(self) -> None:
        for replica in self.replicas:
            if replica.partition.state.is_ahead:
                continue
            producers = replica.partition.producers
            for producer_id, (epoch, following, is_open) in producers_of(
                self.written[: replica.log.last_index]
            ).items():
                last = producers.batches(producer_id)[-1]
                assert (last.epoch, last.is_open) == (epoch, is_open)
                is_transactional = producer_id != PLAIN
                assert producers.check(producer_id, epoch, following, 0, is_transactional=is_transactional) is None

    @invariant()
    def readers_find_the_newest_of_each_key_and_nothing_that_was_not_committed(self) -> None:
        for replica in self.replicas:
            frames = [one.frame for one in self.written[: replica.partition.producers.commit_index]]
            until = replica.partition.last_stable_offset
            start = replica.log.log_start_offset
            committed = [row for row in committed_rows(frames) if row.offset < until]
            newest = {row.key: row for row in committed}
            rows = replica.rows(1 << 20)
            assert rows == replica.rows(400), "however it is asked for"
            assert [row.offset for row in rows] == sorted({row.offset for row in rows})
            assert set(rows) <= {row for row in committed if row.offset >= start}
            if not replica.partition.state.is_ahead:
                assert {row for row in newest.values() if row.value is not None and row.offset >= start} <= set(rows)
                for row in {row.key: row for row in rows}.values():
                    assert row == newest[row.key], "a value outlives what replaced it"

    def teardown(self) -> None:
        """When all have everything, and all is decided and compacted, they have the same rows."""
        if not hasattr(self, "leader_number"):
            return
        for producer_id in TRANSACTIONAL:
            self.end(producer_id, is_commit=producer_id != TRANSACTIONAL[0], is_v2=False)
        for replica in self.followers:
            self._catch_up(replica)
        self.commit_and_tell(len(self.written), list(range(COUNT)))
        self.what_is_known_of_transactions_is_what_the_log_said()
        newest = {row.key: row for row in committed_rows([one.frame for one in self.written])}
        for replica in self.replicas:
            replica.log.roll()
            replica.compact(self.now_ms, 100, FOR_EVER_MS)
            start = replica.log.log_start_offset
            left = [row for row in replica.rows(400) if row.value is not None]
            wanted = [row for row in newest.values() if row.value is not None and row.offset >= start]
            assert left == sorted(wanted, key=lambda row: row.offset)


def producers_of(written: Sequence[Entry]) -> dict[int, tuple[int, int, bool]]:
    """Return each producer's epoch, next sequence, and whether it has a transaction open."""
    found: dict[int, tuple[int, int, bool]] = {}
    for entry in written:
        header = parse_header(entry.frame)
        producer_id, epoch = header.producer_id, header.producer_epoch
        if producer_id < 0:
            continue
        if header.attributes & CONTROL:
            last_epoch, following, _ = found.get(producer_id, (epoch, 0, False))
            found[producer_id] = (epoch, following if epoch == last_epoch else 0, False)
        else:
            found[producer_id] = (epoch, header.base_sequence + header.record_count, producer_id != PLAIN)
    return found


CompactedReplicas.TestCase.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
TestCompactedReplicas = pytest.mark.slow(CompactedReplicas.TestCase)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aborted_index, "BLOCK", 2)
    monkeypatch.setattr(replica_state, "SAVE_ENTRIES", 6)
