"""Lets anything happen to a partition of transactional ids, its clients, its markers and its leaders, in any order.

`World.check` says what must hold after each step. Beside that: what was answered has committed, each record follows the
one before as the table of states says, no producer is given to two, and once everything goes well again nobody waits
and every transaction that was decided on is complete.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas_broker.coordinators.transactions.shard import AGAIN_MS, APPEND_MS, WAIT_MS
from barnabas_broker.coordinators.transactions.state_machine.messages import V1, V2, SavedTransaction
from barnabas_broker.coordinators.transactions.state_machine.producers import NOBODY, Producer
from barnabas_broker.coordinators.transactions.state_machine.states import (
    TransactionEvent,
    TransactionState,
    may_follow,
)
from barnabas_broker.coordinators.transactions.table import TransactionName
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.errors import StorageFailedError

from .transaction_world import TIMEOUT_MS, Heard, World

__all__ = ["ShardMachine"]

IDS = ("a", "b")
NONE = ErrorCode.NONE
EXPIRATION_MS = 3_600_000
ids = st.sampled_from(IDS)
versions = st.sampled_from([V1, V2])
State = TransactionState


class ShardMachine(RuleBasedStateMachine):
    """See the module. `known` has the producers that were given, by id, the newest last."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.known: dict[str, list[Producer]] = {name: [] for name in IDS}
        self.heard: list[Heard] = []
        self.judged = 0
        self.last: dict[str, SavedTransaction | None] = dict.fromkeys(IDS)
        self.owners: set[tuple[str, Producer]] = set()
        self.is_refusing = False

    def teardown(self) -> None:
        self.world.close()

    def serves(self) -> bool:
        return self.world.shard is not None

    @initialize(min_insync=st.sampled_from([1, 3]))
    def begin(self, min_insync: int) -> None:
        self.world.partition.min_insync = min_insync
        self.world.lead()

    # Requests.

    def _watch(self, heard: Heard, on_success: Callable[[Heard], None]) -> None:
        """Judge a success at the moment at which it is told."""
        self.heard.append(heard)
        heard.on_told = lambda: on_success(heard) if heard.code == NONE else None
        if heard.is_told:
            heard.on_told()

    def _producer(self, name: str, back: int) -> Producer:
        given = self.known[name]
        return given[-1 - back] if back < len(given) else Producer(77, 0)

    @precondition(serves)
    @rule(name=ids, back=st.integers(-1, 1))
    def somebody_takes_an_id(self, name: str, back: int) -> None:
        producer = NOBODY if back < 0 else self._producer(name, back)
        index = len(self.world.history)

        def given(heard: Heard) -> None:
            saved = self.world.saved(name)
            assert saved is not None
            assert producer != NOBODY or heard.producer not in self.known[name], "it was given before"
            said = [one.get(TransactionName(name)) for one in map(self.world.said_in, self.world.history[index - 50 :])]
            assert heard.producer in {one.owner for one in said if one is not None} | {saved.owner}
            if heard.producer not in self.known[name]:
                self.known[name].append(heard.producer)

        self._watch(self.world.initialize(name, producer), given)

    @precondition(serves)
    @rule(name=ids, back=st.integers(0, 1), place=st.integers(0, 3), version=versions)
    def somebody_adds_a_partition(self, name: str, back: int, place: int, version: int) -> None:
        producer = self._producer(name, back)

        def added(_: Heard) -> None:
            log = [self.world.said_in(entry).get(TransactionName(name)) for entry in self.world.history]
            assert any(one is not None and ("t", place) in one.places for one in log), "it is not in the log"

        self._watch(self.world.add(producer, place, transactional_id=name, version=version), added)

    @precondition(serves)
    @rule(name=ids, back=st.integers(0, 1), commit=st.booleans(), version=versions)
    def somebody_ends_a_transaction(self, name: str, back: int, commit: bool, version: int) -> None:
        producer = self._producer(name, back)

        def ended(heard: Heard) -> None:
            outcome = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
            log = [self.world.said_in(entry).get(TransactionName(name)) for entry in self.world.history]
            assert any(one is not None and one.state is outcome for one in log), "it is not decided"
            if heard.producer not in {NOBODY, *self.known[name]}:
                self.known[name].append(heard.producer)

        self._watch(self.world.end(producer, commit=commit, transactional_id=name, version=version), ended)

    @precondition(lambda self: any(not one.is_told for one in self.heard))
    @rule(data=st.data())
    def a_client_goes(self, data: Any) -> None:
        one = data.draw(st.sampled_from([one for one in self.heard if not one.is_told]))
        one.ask.abandon()
        self.heard.remove(one)

    # Markers and time.

    @rule(data=st.data())
    def a_marker_is_written(self, data: Any) -> None:
        owed = [(name, place) for name, sent in self.world.markers.owed.items() for place in sent.markers.places]
        if owed:
            name, (topic, place) = data.draw(st.sampled_from(sorted(owed)))
            self.world.write(place, name, topic=topic)

    @rule()
    def all_markers_are_written(self) -> None:
        self.world.write_all()

    @rule(length_ms=st.sampled_from([1, AGAIN_MS, WAIT_MS, APPEND_MS, TIMEOUT_MS, EXPIRATION_MS]))
    def time_passes(self, length_ms: int) -> None:
        self.world.advance(length_ms)

    @rule(is_abort=st.booleans())
    def upkeep_looks(self, is_abort: bool) -> None:
        (self.world.abort_round if is_abort else self.world.expire_round)()

    # The log.

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

    @rule(is_refusing=st.booleans())
    def the_disk_falls_behind_or_catches_up(self, is_refusing: bool) -> None:
        if is_refusing != self.is_refusing:
            self.is_refusing = is_refusing
            if is_refusing:
                self.world.raft.propose = refuse  # type: ignore[method-assign, assignment]
            else:
                del self.world.raft.propose

    # Leaders.

    @precondition(lambda self: self.world.raft.leads)
    @rule(kept=st.integers(0, 2), is_told_late=st.booleans())
    def another_one_leads(self, kept: int, is_told_late: bool) -> None:
        uncommitted = self.world.log.last_index - self.world.partition.producers.commit_index
        self.world.lose(kept=min(kept, uncommitted), is_told_late=is_told_late)

    @precondition(lambda self: not self.world.raft.leads)
    @rule(turns=st.sampled_from([0, 10]))
    def this_one_leads_again(self, turns: int) -> None:
        self.world.win()
        self.world.breathe(turns)

    @precondition(serves)
    @rule(length_ms=st.sampled_from([0, TIMEOUT_MS]))
    def this_one_stands_still(self, length_ms: int) -> None:
        self.world.stall(length_ms)

    @rule()
    def a_majority_confirms(self) -> None:
        self.world.recover()

    @rule()
    def everything_goes_well_for_a_while(self) -> None:
        world = self.world
        self.the_disk_falls_behind_or_catches_up(is_refusing=False)
        world.partition.min_insync = 1
        if not world.raft.leads:
            world.lead()
        world.recover()
        world.breathe(10)
        for _ in range(3):
            world.advance(AGAIN_MS)
            world.finish()
        world.copy()
        world.breathe(10)
        world.finish()
        assert all(one.is_told for one in self.heard), "somebody waits for nothing"
        assert not any(saved.state.is_prepared for saved in world.truth().values()), "it is never complete"
        assert not world.markers.owed

    # What must hold.

    @invariant()
    def everything_is_as_the_log_says(self) -> None:
        self.world.check()
        history = self.world.history
        for entry in history[self.judged :]:
            for name, saved in self.world.said_in(entry).items():
                self.judge(name.transactional_id, saved)
        self.judged = len(history)

    def judge(self, name: str, saved: SavedTransaction | None) -> None:
        """A record follows the one before as the table of states says, and no owner comes back."""
        before = self.last[name]
        state = State.DEAD if before is None else before.state
        following = State.DEAD if saved is None else saved.state
        assert any(may_follow(state, event, following) for event in TransactionEvent), (before, saved)
        if saved is not None and (before is None or saved.owner != before.owner):
            assert (name, saved.owner) not in self.owners, "an owner has come back"
            self.owners.add((name, saved.owner))
        self.last[name] = saved


def refuse(_: bytearray) -> None:
    raise StorageFailedError("behind")
