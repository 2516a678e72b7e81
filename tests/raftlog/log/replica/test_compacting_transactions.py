"""Two replicas of a log with transactions, each compacted when it likes, against the log as it was written.

Committed records that are the newest of their keys are on both, in order, and nothing is that was aborted or replaced
on one and could not have been read before. What a replica knows of transactions from its own log stays what it was.
"""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from raftlog.log.node import SMALL, Node
from raftlog.log.replica.transactional_logs import (
    Transactions,
    batch,
    committed_rows,
    entries_of,
    marker,
    read_committed,
)

from barnabas_raftlog.log.replica import compaction
from barnabas_raftlog.log.replica.compacting import Compacted, CompactionLimits
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.records.header import parse_header, stamp
from barnabas_raftlog.records.markers import is_marker, is_spent
from barnabas_raftlog.records.reader import Record
from barnabas_raftlog.records.walker import twins
from barnabas_raftlog.records.walker.pure import keys as pure

CONFIG = msgspec.structs.replace(SMALL, segment_bytes=1 << 10, tail_cache_bytes=1 << 10)
RETENTION_MS = 1_000
FOR_EVER_MS = 1 << 60
TRANSACTIONAL = (1, 2, 3)
PLAIN = 9
BATCHES = st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=1, max_size=3)


async def pause(_: int) -> None: ...


class Replica:
    """A log on a node of its own, and when it was seen that a transaction there has no records any more."""

    def __init__(self) -> None:
        self.node = Node(config=CONFIG)
        self.log: ReplicaLog = self.node.log()
        self.gone_ms: dict[int, int] = {}

    def restart(self) -> None:
        self.node.work()
        self.node.files.kill()
        self.node = Node(self.node.files, CONFIG)
        self.log = self.node.log()

    def frames(self) -> list[Buffer]:
        return [entry.frame for entry in asyncio.run(entries_of(self.log))]

    def compact(
        self, now_ms: int, keys_max: int, retention_ms: int, uncommitted: int, *, need_records: bool = False
    ) -> Compacted | None:
        limits = CompactionLimits(keys_max, 0.0, 0, FOR_EVER_MS, retention_ms)
        committed_index = max(0, self.log.last_index - uncommitted)
        known = Transactions(self.frames()[:committed_index], need_records=need_records)
        return asyncio.run(self.log.compact(limits, committed_index, now_ms, pause, known))

    def rows(self, bytes_max: int = 1 << 20, *, need_records: bool = False) -> list[Record]:
        """Return what a consumer with read_committed reads from the beginning, in answers of about this size."""
        known = Transactions(self.frames(), need_records=need_records)
        return asyncio.run(read_committed(self.log, known, bytes_max))


class CompactedTransactions(RuleBasedStateMachine):
    """`written`: the frames as the leader has stamped them."""

    @initialize(may_lag=st.booleans(), is_compiled=st.booleans())
    def begin(self, may_lag: bool, is_compiled: bool) -> None:
        """A follower that lags may never hear of a tombstone that went meanwhile, so then there are none."""
        self.may_lag = may_lag
        self.patch = pytest.MonkeyPatch()
        for name in ("KeyTable", "squeeze"):
            self.patch.setattr(compaction, name, getattr(twins if is_compiled else pure, name))
        self.leader = Replica()
        self.follower = Replica()
        self.written: list[Buffer] = []
        self.sequences: dict[int, int] = {}
        self.now_ms = 1_000_000

    @property
    def replicas(self) -> Sequence[Replica]:
        return self.leader, self.follower

    def _append(self, frame: bytearray) -> None:
        log = self.leader.log
        stamp(frame, log.log_end_offset, 1)
        self.written.append(bytes(frame))
        log.append_batch(1, frame)
        self.leader.node.work()
        if not self.may_lag:
            self.catch_up()

    def _write(self, producer_id: int, keys: list[bytes], *, are_tombstones: bool = False) -> None:
        offset = self.leader.log.log_end_offset
        values = (f"{offset + place} ".encode().ljust(150, b".") for place in range(len(keys)))
        pairs = [
            (key, None if are_tombstones and not self.may_lag else value)
            for key, value in zip(keys, values, strict=True)
        ]
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(keys)
        self._append(batch(producer_id, sequence, pairs, self.now_ms, is_transactional=producer_id != PLAIN))

    @rule(producer_id=st.sampled_from((*TRANSACTIONAL, PLAIN)), keys=BATCHES, are_tombstones=st.booleans())
    def write(self, producer_id: int, keys: list[bytes], are_tombstones: bool) -> None:
        self._write(producer_id, keys, are_tombstones=are_tombstones)

    @rule(
        batches=st.lists(
            st.tuples(st.sampled_from((*TRANSACTIONAL, PLAIN)), BATCHES, st.booleans()), min_size=1, max_size=4
        )
    )
    def write_transactions(self, batches: list[tuple[int, list[bytes], bool]]) -> None:
        for producer_id, keys, is_commit in batches:
            self._write(producer_id, keys)
            if producer_id != PLAIN:
                self.end(producer_id, is_commit=is_commit)

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), is_commit=st.booleans())
    def end(self, producer_id: int, is_commit: bool) -> None:
        self._append(marker(producer_id, is_commit=is_commit, at_ms=self.now_ms))

    @rule()
    def catch_up(self) -> None:
        follower = self.follower
        follower.log.append(asyncio.run(entries_of(self.leader.log, follower.log.last_index + 1)))
        follower.node.work()

    @rule(
        which=st.sampled_from([(0,), (1,), (0, 1)]),
        passed_ms=st.sampled_from([0, 1, RETENTION_MS // 2, RETENTION_MS]),
        keys_max=st.sampled_from([3, 4, 100]),  # a batch has at most three
        uncommitted=st.integers(0, 2),
        need_records=st.booleans(),
    )
    def compact(
        self, which: tuple[int, ...], passed_ms: int, keys_max: int, uncommitted: int, need_records: bool
    ) -> None:
        self.now_ms += passed_ms
        for number in which:
            self.replicas[number].log.roll()
            self.replicas[number].compact(self.now_ms, keys_max, RETENTION_MS, uncommitted, need_records=need_records)

    @rule(which=st.integers(0, 1), with_checkpoint=st.booleans())
    def restart(self, which: int, with_checkpoint: bool) -> None:
        replica = self.replicas[which]
        if with_checkpoint:
            replica.node.storage.checkpoint()
            replica.node.work()
        replica.restart()

    # What holds at any time.

    @invariant()
    def a_log_says_of_transactions_what_it_has_said(self) -> None:
        for replica in self.replicas:
            frames = replica.frames()
            said = Transactions(self.written[: len(frames)])
            says = Transactions(frames)
            assert (says.open, says.aborted, says.ends) == (said.open, said.aborted, said.ends)
            assert says.last_stable_offset == said.last_stable_offset

    @invariant()
    def readers_find_the_newest_of_each_key_and_nothing_that_was_not_committed(self) -> None:
        for replica in self.replicas:
            committed = committed_rows(self.written[: replica.log.last_index])
            newest = {row.key: row for row in committed}
            rows = replica.rows()
            assert rows == replica.rows(400, need_records=True), "however it is asked for"
            assert [row.offset for row in rows] == sorted({row.offset for row in rows})
            assert set(rows) <= set(committed)
            assert {row for row in newest.values() if row.value is not None} <= set(rows)
            for row in {row.key: row for row in rows}.values():
                assert row == newest[row.key], "a value outlives its tombstone"

    @invariant()
    def a_marker_stays_until_its_data_has_been_gone_for_long_enough(self) -> None:
        for replica in self.replicas[: 1 if self.may_lag else 2]:
            with_data: set[int] = set()
            for frame in replica.frames():
                header = parse_header(frame)
                if is_marker(header):
                    if header.producer_id not in with_data:
                        replica.gone_ms.setdefault(header.base_offset, self.now_ms)
                    gone_ms = replica.gone_ms.get(header.base_offset, FOR_EVER_MS)
                    assert not is_spent(header) or self.now_ms - gone_ms >= RETENTION_MS
                    with_data.discard(header.producer_id)
                elif header.record_count:
                    with_data.add(header.producer_id)

    def teardown(self) -> None:
        if not hasattr(self, "leader"):
            return
        try:
            self._compare_at_the_end()
        finally:
            self.patch.undo()

    def _compare_at_the_end(self) -> None:
        """When both have everything, and all is decided and compacted, they have the same rows."""
        for producer_id in TRANSACTIONAL:
            self.end(producer_id, is_commit=producer_id != TRANSACTIONAL[0])
        self.catch_up()
        wanted = {row.key: row for row in committed_rows(self.written)}
        for replica in self.replicas:
            replica.log.roll()
            replica.compact(self.now_ms, 100, FOR_EVER_MS, 0)
            left = replica.rows()
            assert [row for row in left if row.value is not None] == sorted(
                (row for row in wanted.values() if row.value is not None), key=lambda row: row.offset
            )


CompactedTransactions.TestCase.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
TestCompactedTransactions = pytest.mark.slow(CompactedTransactions.TestCase)


def filled(replica: Replica, *batches: bytearray) -> None:
    """Append batches, the last one in a segment of its own."""
    for frame in batches[:-1]:
        replica.log.append_batch(1, frame)
    replica.log.roll()
    replica.log.append_batch(1, batches[-1])
    replica.node.work()


def plain(key: bytes, value: bytes, sequence: int) -> bytearray:
    return batch(PLAIN, sequence, [(key, value)], is_transactional=False)


def followed(leader: Replica, follower: Replica) -> None:
    follower.log.append(asyncio.run(entries_of(leader.log, follower.log.last_index + 1)))
    follower.node.work()


def values(rows: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(row.key, row.value) for row in rows]


def test_a_replica_that_was_away_hears_how_transactions_ended_of_which_it_has_the_records() -> None:
    leader = Replica()
    follower = Replica()
    filled(leader, batch(1, 0, [(b"a", b"1")]), batch(2, 0, [(b"b", b"1")]))
    followed(leader, follower)
    filled(leader, marker(1, is_commit=True), marker(2, is_commit=False), plain(b"a", b"2", 0))
    for number in range(3):
        # What came last is a part of its own each time, and there is always something new.
        filled(leader, batch(2, 1 + number, [(b"c", b"%d" % number)]), marker(2, is_commit=True))
        leader.log.roll()
        leader.compact(1_000_000 + number * RETENTION_MS, 100, RETENTION_MS, 0)
    spent = [is_spent(parse_header(frame)) for frame in leader.frames() if is_marker(parse_header(frame))]
    assert spent == [True, False, True, False, False]

    followed(leader, follower)
    says, said = Transactions(follower.frames()), Transactions(leader.frames())
    assert (says.open, says.aborted, says.ends) == (said.open, said.aborted, said.ends) == ({}, [(2, 1, 3)], said.ends)
    latest = [(b"a", b"2"), (b"c", b"2")]
    assert values(leader.rows()) == latest
    assert values(follower.rows()) == [(b"a", b"1"), *latest]
    follower.log.roll()
    follower.compact(2_000_000, 100, RETENTION_MS, 0)
    assert values(follower.rows()) == latest


def test_compaction_does_not_pass_a_transaction_that_is_not_decided() -> None:
    replica = Replica()
    filled(replica, plain(b"a", b"1", 0), plain(b"a", b"2", 1))
    replica.log.roll()
    filled(replica, batch(1, 0, [(b"a", b"3")]), plain(b"a", b"4", 2))
    replica.log.roll()
    before = replica.rows()
    assert values(before) == [(b"a", b"1"), (b"a", b"2")]
    done = replica.compact(1_000_000, 100, RETENTION_MS, 0)
    assert done is not None
    assert (done.records_before, done.records_after) == (1, 0)
    assert [parse_header(frame).record_count for frame in replica.frames()] == [0, 1, 1, 1]
    filled(replica, marker(1, is_commit=False), plain(b"b", b"1", 3))
    assert replica.compact(1_000_000, 100, RETENTION_MS, 2) is None, "the marker has not committed"
    replica.compact(1_000_000, 100, RETENTION_MS, 0)
    assert [parse_header(frame).record_count for frame in replica.frames()] == [0, 0, 0, 1, 1, 1]
