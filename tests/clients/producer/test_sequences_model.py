"""Sequences keep their promises against a naive leader and a network that loses and delays."""

from collections import deque
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas_clients.producer import sequences
from barnabas_clients.producer.sequences import EPOCH_MAX, SEQUENCE_MODULUS, Outcome, Sequences, UnderWay, Verdict

from .naive_leader import Copy, NaiveLeader

IN_FLIGHT_MAX = 5


class Attempt:
    def __init__(self, under_way: UnderWay[int]) -> None:
        self.under_way = under_way
        self.copy = Copy(
            item=under_way.item,
            size=under_way.count,
            producer_id=under_way.producer_id,
            epoch=under_way.epoch,
            base_sequence=under_way.base_sequence,
        )
        self.outcome: Outcome | None = None


class ProducerMachine(RuleBasedStateMachine):
    """One partition. Attempts go over one connection in order; when it breaks, what is in it may be taken later."""

    module: Any = sequences
    """The class under test. Mutants put themselves here."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: deque[Attempt] = deque()
        self.late: list[deque[Copy]] = []
        self.items = 0
        self.delivered: set[int] = set()
        self.refused: set[int] = set()
        self.uncertain: set[int] = set()
        self.renewals = 0
        self.pieces: dict[int, list[int]] = {}

    @initialize(
        takes_any_first=st.booleans(),
        epoch=st.sampled_from([0, 0, EPOCH_MAX - 1]),
        sequence=st.sampled_from([0, 0, SEQUENCE_MODULUS - 7]),
    )
    def begin(self, takes_any_first: bool, epoch: int, sequence: int) -> None:
        self.identity = self.module.Identity(1, epoch)
        self.leader = NaiveLeader(takes_any_first=takes_any_first)
        self.sequences: Sequences[int] = self.module.Sequences(self.identity, IN_FLIGHT_MAX)
        if sequence:
            # A producer that has been at it for a while: its numbers wrap soon.
            first = self.sequences.begin(self.new_item(), 1)
            first.base_sequence = sequence
            self.sequences.next_sequence = sequence + 1
            self.leader.log.append(Copy(item=first.item, size=1, producer_id=1, epoch=epoch, base_sequence=sequence))
            self.settle(first, Outcome.APPENDED)

    def new_item(self) -> int:
        self.items += 1
        return self.items

    # The producer's side.

    @rule(count=st.integers(1, 4))
    def send_new(self, count: int) -> None:
        if self.sequences.may_begin():
            self.connection.append(Attempt(self.sequences.begin(self.new_item(), count)))

    @rule()
    def send_again(self) -> None:
        for lost in self.sequences.take_lost():
            assert lost.may_be_appended
            self.uncertain.add(lost.item)
        again = self.sequences.next_again()
        if again is not None:
            self.sequences.sent_again(again)
            self.connection.append(Attempt(again))

    @precondition(lambda self: self.sequences.pipeline)
    @rule(which=st.integers(0, IN_FLIGHT_MAX - 1))
    def give_up(self, which: int) -> None:
        batch = self.sequences.pipeline[which % len(self.sequences.pipeline)]
        if not batch.is_given_up:
            self.uncertain.add(batch.item)
            self.sequences.give_up(batch)

    @precondition(lambda self: self.identity.producer_id < 0)
    @rule()
    def get_an_id(self) -> None:
        self.renewals += 1
        self.identity.producer_id = 1 + self.renewals
        self.identity.epoch = 0

    # The network and the leader.

    def next_unseen(self) -> Attempt | None:
        return next((attempt for attempt in self.connection if attempt.outcome is None), None)

    @precondition(lambda self: self.next_unseen() is not None)
    @rule(
        fault=st.sampled_from([None, None, None, Outcome.NOT_NOW, Outcome.REFUSED, Outcome.UNKNOWN, Outcome.DOUBTFUL]),
        after=st.booleans(),
    )
    def leader_takes(self, fault: Outcome | None, after: bool) -> None:
        attempt = self.next_unseen()
        assert attempt is not None
        if fault is None:
            attempt.outcome = self.leader.take(attempt.copy)
        else:
            if after and fault in {Outcome.UNKNOWN, Outcome.DOUBTFUL}:
                self.leader.take(attempt.copy)
            attempt.outcome = fault

    @precondition(lambda self: self.connection and self.connection[0].outcome is not None)
    @rule()
    def answer_comes(self) -> None:
        attempt = self.connection.popleft()
        assert attempt.outcome is not None
        self.settle(attempt.under_way, attempt.outcome)

    @precondition(lambda self: self.connection)
    @rule()
    def connection_breaks(self) -> None:
        attempts, self.connection = self.connection, deque()
        self.late.append(deque(attempt.copy for attempt in attempts if attempt.outcome is None))
        for attempt in attempts:
            self.settle(attempt.under_way, Outcome.UNKNOWN)

    @precondition(lambda self: any(self.late))
    @rule(which=st.integers(0, 9))
    def late_copy_is_taken(self, which: int) -> None:
        queues = [queue for queue in self.late if queue]
        self.leader.take(queues[which % len(queues)].popleft())

    @precondition(lambda self: not self.sequences.pipeline and not any(self.late))
    @rule()
    def leader_forgets(self) -> None:
        """Nothing happened for days."""
        self.leader.forget_producers()
        self.sequences.rest()

    def settle(self, under_way: UnderWay[int], outcome: Outcome) -> None:
        is_uncertain = under_way.may_be_appended or outcome is Outcome.DOUBTFUL
        # By name: a mutant's members are its own.
        verdict = Verdict[self.sequences.on_outcome(under_way, self.module.Outcome[outcome.name]).name]
        if verdict is Verdict.DELIVERED:
            self.delivered.add(under_way.item)
        elif verdict is Verdict.FAILED and not under_way.is_given_up:
            (self.uncertain if is_uncertain else self.refused).add(under_way.item)

    # Invariants.

    @invariant()
    def nothing_is_doubled(self) -> None:
        items = [copy.item for copy in self.leader.log] if hasattr(self, "leader") else []
        assert len(items) == len(set(items))

    @invariant()
    def order_holds(self) -> None:
        if hasattr(self, "leader") and not self.renewals:
            items = [copy.item for copy in self.leader.log]
            assert items == sorted(items)

    @invariant()
    def what_is_told_is_true(self) -> None:
        if hasattr(self, "leader"):
            items = {copy.item for copy in self.leader.log}
            assert self.delivered <= items
            assert not self.refused & items

    def teardown(self) -> None:
        """Once the network behaves, everything ends, and nothing is lost without a word."""
        if not hasattr(self, "leader"):
            return
        for _ in range(20 * IN_FLIGHT_MAX):
            if self.identity.producer_id < 0:
                self.get_an_id()
            while self.next_unseen() is not None:
                self.leader_takes(None, after=False)
            while self.connection:
                self.answer_comes()
            self.send_again()
            if not self.sequences.pipeline and not self.connection:
                break
        assert not self.sequences.pipeline
        if self.identity.producer_id < 0:
            self.get_an_id()
        self.send_new(1)
        for _ in range(6):
            while self.next_unseen() is not None:
                self.leader_takes(None, after=False)
            while self.connection:
                self.answer_comes()
            if self.identity.producer_id < 0:
                self.get_an_id()
            self.send_again()
        assert self.items in self.delivered
        every = set(range(1, self.items + 1))
        assert every == self.delivered | self.refused | self.uncertain
        self.nothing_is_doubled()
        self.what_is_told_is_true()


TestSequences = ProducerMachine.TestCase
TestSequences.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
