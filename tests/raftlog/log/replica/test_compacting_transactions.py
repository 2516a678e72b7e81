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

from barnabas_raftlog.log.replica.compacting import Compacted, CompactionLimits
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.records.header import parse_header, stamp
from barnabas_raftlog.records.markers import is_marker, is_spent
from barnabas_raftlog.records.reader import Record

pytestmark = pytest.mark.slow
CONFIG = msgspec.structs.replace(SMALL, segment_bytes=1 << 10, tail_cache_bytes=1 << 10)
RETENTION_MS = 1_000
FOR_EVER_MS = 1 << 60
TRANSACTIONAL = (1, 2, 3)
PLAIN = 9
KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])


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

    def compact(self, now_ms: int, keys_max: int, retention_ms: int, uncommitted: int) -> Compacted | None:
        limits = CompactionLimits(keys_max, 0.0, 0, FOR_EVER_MS, retention_ms)
        committed_index = max(0, self.log.last_index - uncommitted)
        known = Transactions(self.frames()[:committed_index])
        return asyncio.run(self.log.compact(limits, committed_index, now_ms, pause, known))

    def rows(self, bytes_max: int) -> list[Record]:
        """Return what a consumer with read_committed reads from the beginning, for all answers of about this size."""
        return asyncio.run(read_committed(self.log, Transactions(self.frames()), bytes_max))


class CompactedTransactions(RuleBasedStateMachine):
    """`written`: the frames as the leader has stamped them."""

    @initialize(may_lag=st.booleans())
    def begin(self, may_lag: bool) -> None:
        """Who lags may get a spent marker, or lack a tombstone that went meanwhile: either, or tombstones."""
        self.may_lag = may_lag
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

    @rule(
        producer_id=st.sampled_from((*TRANSACTIONAL, PLAIN)),
        keys=st.lists(KEYS, min_size=1, max_size=3),
        data=st.data(),
    )
    def write(self, producer_id: int, keys: list[bytes], data: st.DataObject) -> None:
        offset = self.leader.log.log_end_offset
        is_tombstone = not self.may_lag and data.draw(st.integers(0, 5)) == 0
        pairs = [
            (key, None if is_tombstone else f"{offset + place} ".encode().ljust(150, b"."))
            for place, key in enumerate(keys)
        ]
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(keys)
        self._append(batch(producer_id, sequence, pairs, self.now_ms, is_transactional=producer_id != PLAIN))

    @rule(producer_id=st.sampled_from(TRANSACTIONAL), is_commit=st.booleans())
    def end(self, producer_id: int, is_commit: bool) -> None:
        self._append(marker(producer_id, is_commit=is_commit, at_ms=self.now_ms))

    @rule()
    def catch_up(self) -> None:
        follower = self.follower
        follower.log.append(asyncio.run(entries_of(self.leader.log, follower.log.last_index + 1)))
        follower.node.work()

    @rule(passed_ms=st.integers(0, RETENTION_MS))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule(which=st.integers(0, 1), keys_max=st.sampled_from([1, 3, 100]), uncommitted=st.integers(0, 2))
    def compact(self, which: int, keys_max: int, uncommitted: int) -> None:
        self.replicas[which].log.roll()
        self.replicas[which].compact(self.now_ms, keys_max, RETENTION_MS, uncommitted)

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
            rows = replica.rows(1 << 20)
            assert rows == replica.rows(400), "whatever the size of an answer"
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
        for producer_id in TRANSACTIONAL:
            self.end(producer_id, is_commit=producer_id != TRANSACTIONAL[0])
        self.catch_up()
        wanted = {row.key: row for row in committed_rows(self.written)}
        for replica in self.replicas:
            replica.log.roll()
            replica.compact(self.now_ms, 100, FOR_EVER_MS, 0)
            left = replica.rows(1 << 20)
            assert [row for row in left if row.value is not None] == sorted(
                (row for row in wanted.values() if row.value is not None), key=lambda row: row.offset
            )


CompactedTransactions.TestCase.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
TestCompactedTransactions = CompactedTransactions.TestCase
