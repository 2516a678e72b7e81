"""Lets anything happen to a partition of numbers, in any order.

`ReplicaWorld.check` says what must hold after each step. Beside that: a number that was acknowledged is committed, and
deadlines come in time while this broker is sure to lead.
"""

from collections.abc import Iterable
from typing import Any

from broker.coordinators.runtime.numbers import TICK_MS, Name, NumberShard, NumberWorld
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.raft.messages import Entry
from barnabas_raftlog.steps import at_once

NAMES = [Name(owner, name) for owner in "ab" for name in ("", "x")]
names = st.lists(st.sampled_from(NAMES), max_size=3, unique=True)


class NumberMachine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.world = NumberWorld()
        self.number = 0

    def teardown(self) -> None:
        self.world.close()

    @property
    def shard(self) -> NumberShard:
        assert self.world.shard is not None
        return self.world.shard

    def serves(self) -> bool:
        return self.world.shard is not None

    def _said(self, some: Iterable[Name], is_deletion: bool) -> dict[Name, int | None]:
        self.number += 1
        return dict.fromkeys(some, None if is_deletion else self.number)

    @initialize(min_insync=st.sampled_from([1, 3]))
    def begin(self, min_insync: int) -> None:
        self.world.partition.min_insync = min_insync
        self.world.lead()

    # The log.

    @precondition(serves)
    @rule(some=names.filter(bool), is_deletion=st.booleans())
    def numbers_are_set(self, some: list[Name], is_deletion: bool) -> None:
        entries = list[Entry]()

        def done(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                assert self.world.history[entries[0].index - 1] is entries[0], "acknowledged, and may be lost"

        with self.world.step():
            if self.shard.set(self._said(some, is_deletion), done) is ErrorCode.NONE:
                entries.append(self.world.log.entries[-1])

    @rule(count=st.integers(1, 4), copies=st.sampled_from([2, 3]))
    def entries_commit(self, count: int, copies: int) -> None:
        if self.world.raft.leads:
            self.world.commit(count, copies=copies)

    @rule()
    def every_replica_has_what_is_committed(self) -> None:
        self.world.copy()

    @rule(turns=st.integers(1, 3))
    def tasks_go_on(self, turns: int) -> None:
        self.world.breathe(turns)

    @precondition(serves)
    @rule(some=names)
    def some_of_it_is_written_again(self, some: list[Name]) -> None:
        with self.world.step():
            self.shard.runtime.append_again(some, at_once(self.shard.table.prepare_in_steps(some)))

    @precondition(serves)
    @rule()
    def the_log_is_rewritten(self) -> None:
        runtime = self.shard.runtime
        if not runtime.is_rewriting:
            runtime.is_rewriting = True
            with self.world.step():
                self.world.runtime.rewrite(runtime)

    # Leaders.

    @precondition(lambda self: self.world.raft.leads)
    @rule(kept=st.integers(0, 2), some=names, is_deletion=st.booleans(), is_told_late=st.booleans())
    def another_one_leads(self, kept: int, some: list[Name], is_deletion: bool, is_told_late: bool) -> None:
        uncommitted = self.world.log.last_index - self.world.partition.producers.commit_index
        said = [self._said([name], is_deletion) for name in some]
        self.world.lose(kept=min(kept, uncommitted), said=said, is_told_late=is_told_late)

    @precondition(lambda self: not self.world.raft.leads)
    @rule(some=names.filter(bool), is_deletion=st.booleans())
    def another_one_writes(self, some: list[Name], is_deletion: bool) -> None:
        self.world.follow([self._said([name], is_deletion) for name in some])

    @precondition(lambda self: not self.world.raft.leads)
    @rule(turns=st.sampled_from([0, 10]))
    def this_one_leads_again(self, turns: int) -> None:
        self.world.win()
        self.world.breathe(turns)

    @precondition(lambda self: not self.world.raft.leads)
    @rule()
    def another_one_rewrites(self) -> None:
        self.world.rewrite_elsewhere()

    @precondition(serves)
    @rule(length_ms=st.sampled_from([0, TICK_MS]))
    def this_one_stands_still(self, length_ms: int) -> None:
        self.world.stall(length_ms)

    @rule(turns=st.integers(0, 3))
    def a_majority_confirms(self, turns: int) -> None:
        self.world.recover()
        self.world.breathe(turns)

    @rule(length_ms=st.sampled_from([1, TICK_MS, 3 * TICK_MS]))
    def time_passes(self, length_ms: int) -> None:
        shard = self.world.shard
        is_certain = shard is not None and shard.runtime.is_certain and shard.life[-1] in {"begin", "recover"}
        before = 0 if shard is None else shard.ticks
        self.world.advance(length_ms)
        if shard is not None and is_certain and not shard.runtime.is_recovering:
            assert shard.ticks - before >= length_ms // TICK_MS, "nobody is thrown out any more"

    @invariant()
    def everything_is_as_the_log_says(self) -> None:
        self.world.check()


def make_small(patch: Any) -> None:
    """Have small batches, and tasks that let others go first at every occasion."""
    patch.setattr("barnabas_broker.coordinators.runtime.rewriting.BATCH_BYTES_MAX", 30)
    patch.setattr("barnabas_broker.timing.slices.SLICE_S", 0)
    patch.setattr("barnabas_broker.coordinators.runtime.coordinator.STANDBY_ENTRIES", 2)
