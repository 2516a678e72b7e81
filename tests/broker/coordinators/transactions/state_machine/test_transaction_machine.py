"""A transactional id among several clients, whatever networks, logs, coordinators and clocks do, in whatever order."""

from enum import Enum

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas_broker.coordinators.transactions.state_machine.messages import (
    PRODUCER_ID_WANTED,
    V1,
    V2,
    Answer,
    Decision,
    EndRequest,
    InitRequest,
    Place,
    SavedTransaction,
    TransactionSettings,
    Transition,
)
from barnabas_broker.coordinators.transactions.state_machine.producers import LAST_EPOCH, NOBODY, Producer
from barnabas_broker.coordinators.transactions.state_machine.records import decode_value, encode_value
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_broker.coordinators.transactions.state_machine.transaction import Transaction
from barnabas_clients.protocol.error_codes import ErrorCode

from .world import Client, Ledger, Partition, Request

PLACES: tuple[Place, ...] = (("a", 0), ("a", 1), ("b", 0))
TIMEOUT_MS = 10_000
EXPIRATION_MS = 1_000_000
NUMBERS = st.integers(0, 11)
MOSTLY = st.sampled_from([True, True, True, False])
SETS = st.frozensets(st.sampled_from(PLACES), min_size=1)
KINDS = st.sampled_from(
    ["next"] * 10 + ["init", "init shown", "init shown", "init keep", "init shown keep", "add", "commit", "abort"]
)


class Fate(Enum):
    """What becomes of a request."""

    THROUGH = "decided, committed, answered"
    REPEATED = "the same, and it comes once more later"
    UNANSWERED = "the same, but the answer is lost"
    UNCOMMITTED = "decided"
    DELAYED = "on its way"


FATES = st.sampled_from([Fate.THROUGH] * 6 + list(Fate))


def shows(what: InitRequest | EndRequest | frozenset[Place]) -> bool:
    return not isinstance(what, InitRequest) or what.producer != NOBODY


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000_000
        self.next_id = 100
        self.transaction = Transaction("t")
        self.clients = [Client("v2", V2), Client("v2 as well", V2), Client("v1", V1)]
        self.latest = self.clients[0]
        self.partitions = {place: Partition() for place in PLACES}
        self.ledger = Ledger()
        self.underway: list[Request] = []
        self.parked: tuple[Request, bool] | None = None
        self.settings = TransactionSettings(expiration_ms=EXPIRATION_MS, two_phase_commit_enabled=True)

    @initialize(epoch=st.sampled_from([None, LAST_EPOCH - 3, LAST_EPOCH - 1]), version=st.sampled_from([V1, V2]))
    def begin(self, epoch: int | None, version: int) -> None:
        self.settings = self.settings._replace(version=version)
        if epoch is not None:
            saved = SavedTransaction(TransactionState.EMPTY, Producer(99, epoch), TIMEOUT_MS, self.now_ms)
            self.transaction = Transaction("t", saved)
            self.ledger.owners.append(saved.owner)

    # Clients and the network.

    def send(self, client: Client, what: InitRequest | EndRequest | frozenset[Place], fate: Fate) -> None:
        request = Request(client, client.producer if shows(what) else NOBODY, what)
        client.newest = request
        self.ledger.asked(request)
        if fate is not Fate.THROUGH:
            self.underway.append(request)
        if fate is not Fate.DELAYED:
            self.arrive(request, fate)

    def arrive(self, request: Request, fate: Fate) -> None:
        """Have a request decided, and in most fates its record committed and its answer given."""
        arrives = fate is not Fate.UNANSWERED
        decision = self.decide(request, None)
        if decision == PRODUCER_ID_WANTED:
            self.next_id += 1
            decision = self.decide(request, self.next_id)
        if not isinstance(decision, Transition):
            assert isinstance(decision, Answer)
            self.answer(request, decision, arrives=arrives)
            return
        self.parked = request, arrives
        if fate is not Fate.UNCOMMITTED:
            self.the_log_answers(taken=True)

    def settle(self) -> None:
        """End what is under way, and have the markers written that are owed."""
        if self.transaction.pending is not None:
            self.the_log_answers(taken=True)
        if self.transaction.markers is not None:
            self.markers_are_written(frozenset(PLACES), heard=True)
        if self.transaction.pending is not None:
            self.the_log_answers(taken=True)

    @rule(number=NUMBERS, kind=KINDS, places=SETS, fate=FATES, settles=MOSTLY)
    def a_client_asks(self, number: int, kind: str, places: frozenset[Place], fate: Fate, settles: bool) -> None:
        """Mostly the one that was the last to initialize, and mostly what a client does next."""
        client = self.clients[number % 3] if number < 5 else self.latest
        if settles:
            self.settle()
        if kind == "next":
            kind = client.next_step(commits=number % 4 > 0)
        if client.producer == NOBODY or kind.startswith("init"):
            self.latest = client
            shown = client.producer if "shown" in kind else NOBODY
            self.send(client, InitRequest(TIMEOUT_MS, shown, number > 9, "keep" in kind), fate)
        elif kind == "add":
            self.send(client, places, fate)
            if number > 5:
                self.a_client_writes(number, places, verifies=True, writes=True)
        else:
            self.send(client, EndRequest(client.producer, kind == "commit", client.version), fate)

    @precondition(lambda self: self.underway)
    @rule(number=NUMBERS, fate=FATES, goes=st.booleans(), settles=st.booleans())
    def a_late_request_arrives(self, number: int, fate: Fate, goes: bool, settles: bool) -> None:
        """It may stay on its way to come once more."""
        if settles:
            self.settle()
        place = number % len(self.underway)
        request = self.underway[place]
        if goes:
            del self.underway[place]
        self.arrive(request, fate)

    @rule(number=NUMBERS, places=SETS, verifies=MOSTLY, writes=MOSTLY)
    def a_client_writes(self, number: int, places: frozenset[Place], verifies: bool, writes: bool) -> None:
        """The partition's leader may have asked about it long before the batch arrives."""
        producer = self.clients[number].producer if number < 3 else self.latest.producer
        codes = self.transaction.verify(producer, places)
        for place in sorted(places):
            partition = self.partitions[place]
            if verifies and codes[place] == ErrorCode.NONE:
                partition.verified = producer
            if writes:
                partition.write(producer if number < 9 else partition.verified or producer)

    def decide(self, request: Request, new_id: int | None) -> Decision:
        match request.what:
            case InitRequest():
                return self.transaction.initialize(request.what, self.settings, self.now_ms, new_id)
            case EndRequest():
                return self.transaction.end(request.what, self.now_ms, new_id)
            case places:
                return self.transaction.add(request.producer, places, request.client.version, self.now_ms)

    def answer(self, request: Request, answer: Answer, *, arrives: bool) -> None:
        self.ledger.answered(request, answer)
        if arrives and request.client.newest is request:
            request.client.hear(request, answer)

    # The log, and coordinators.

    @precondition(lambda self: self.transaction.pending)
    @rule(taken=MOSTLY)
    def the_log_answers(self, taken: bool) -> None:
        step = self.transaction.pending
        assert step is not None
        before, parked = self.transaction.saved, self.parked
        self.parked = None
        if not taken:
            self.transaction.refused()
            assert self.transaction.saved is before
            return
        self.ledger.committed(before, step)
        self.transaction.committed()
        if parked is not None:
            self.answer(parked[0], step.answer, arrives=parked[1])

    @rule(taken=st.booleans())
    def the_coordinator_moves(self, taken: bool) -> None:
        """Nobody hears what has become of the record that was under way."""
        step, saved = self.transaction.pending, self.transaction.saved
        if step is not None and taken:
            self.ledger.committed(saved, step)
            saved = step.saved
        self.parked = None
        if saved is not None:
            loaded = decode_value(encode_value(saved))
            assert loaded.last_epoch in {-1, saved.last_epoch}
            assert loaded._replace(last_epoch=saved.last_epoch) == saved
            saved = loaded
        self.transaction = Transaction("t", saved)

    @precondition(lambda self: self.transaction.markers)
    @rule(places=SETS, heard=MOSTLY)
    def markers_are_written(self, places: frozenset[Place], heard: bool) -> None:
        markers = self.transaction.markers
        assert markers is not None
        for place in sorted(markers.places & places):
            self.partitions[place].mark(markers)
            self.ledger.marked.add(place)
            if heard:
                self.transaction.marked(markers.producer, place)
        self.transaction.complete(self.now_ms)

    @rule(place=st.sampled_from(PLACES), number=NUMBERS)
    def an_old_marker_is_said_to_be_written(self, place: Place, number: int) -> None:
        owner = self.ledger.owners[-1 - number] if number < len(self.ledger.owners) else NOBODY
        saved = self.transaction.saved
        if saved is not None and owner != saved.producer:
            self.transaction.marked(owner, place)

    @rule(length_ms=st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS - 1, TIMEOUT_MS, EXPIRATION_MS, -TIMEOUT_MS]))
    def time_passes(self, length_ms: int) -> None:
        self.now_ms += length_ms
        due_ms = self.transaction.times_out_at_ms
        found = self.transaction.time_out(self.settings, self.now_ms)
        if found == PRODUCER_ID_WANTED:
            self.next_id += 1
            found = self.transaction.time_out(self.settings, self.now_ms, self.next_id)
        if found is not None:
            assert due_ms is not None
            assert due_ms <= self.now_ms
        elif self.transaction.pending is None:
            assert due_ms is None or due_ms > self.now_ms
            self.transaction.expire(self.settings, self.now_ms)

    # Invariants.

    @invariant()
    def one_transaction_at_most_is_open_in_partitions_and_none_when_it_is_complete(self) -> None:
        open_ = {partition.open for partition in self.partitions.values() if partition.open is not None}
        assert len(open_) <= 1
        saved = self.transaction.saved
        if open_:
            assert saved is not None
            assert saved.state is TransactionState.ONGOING or saved.state.is_prepared
            of_it = {place for place, partition in self.partitions.items() if partition.open is not None}
            assert of_it <= saved.places, "it will get no marker"

    @invariant()
    def markers_are_owed_when_the_outcome_is_decided(self) -> None:
        markers, saved = self.transaction.markers, self.transaction.saved
        assert (markers is not None) == self.transaction.state.is_prepared
        if markers is not None and saved is not None:
            assert markers.places <= saved.places
            assert markers.is_commit == (saved.state is TransactionState.PREPARE_COMMIT)

    @invariant()
    def nothing_waits_that_nothing_will_answer(self) -> None:
        assert self.parked is None or self.transaction.pending is not None

    def teardown(self) -> None:
        """Once nothing fails any more, a new process gets the id, and its transaction commits."""
        self.underway.clear()
        client = Client("new", V2)
        for _ in range(3):  # One may abort what is open, and one may come while that ends.
            self.settle()
            if client.producer == NOBODY:
                self.send(client, InitRequest(TIMEOUT_MS), Fate.THROUGH)
        assert client.producer == self.ledger.owners[-1]
        self.send(client, frozenset(PLACES), Fate.THROUGH)
        self.send(client, EndRequest(client.producer, True, V2), Fate.THROUGH)
        self.settle()
        assert self.transaction.state is TransactionState.COMPLETE_COMMIT
        assert client.producer == self.ledger.owners[-1]


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
