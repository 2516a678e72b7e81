"""Gives tests a transactional id with a clock, producer ids, and a log that commits at once or when told.

`Desk` does what a coordinator's shell does. `move` goes on as a new coordinator would: from the bytes in the log.
"""

from collections.abc import Callable
from itertools import count

from barnabas_broker.coordinators.transactions.state_machine.messages import (
    PRODUCER_ID_WANTED,
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
from barnabas_broker.coordinators.transactions.state_machine.producers import NOBODY, Producer
from barnabas_broker.coordinators.transactions.state_machine.records import decode_value, encode_value
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionState
from barnabas_broker.coordinators.transactions.state_machine.transaction import Transaction
from barnabas_clients.protocol.error_codes import ErrorCode

A0: Place = ("a", 0)
A1: Place = ("a", 1)
B0: Place = ("b", 0)
TIMEOUT_MS = 60_000
TWO_PHASE = TransactionSettings(two_phase_commit_enabled=True)
DEFAULTS = TransactionSettings()


class Desk:
    def __init__(
        self, settings: TransactionSettings = DEFAULTS, saved: SavedTransaction | None = None, *, commits: bool = True
    ) -> None:
        self.settings = settings
        self.commits = commits
        self.now_ms = 1_700_000_000_000
        self.ids = count(100)
        self.transaction = Transaction("t", saved)
        self.steps: list[Transition] = []

    @property
    def saved(self) -> SavedTransaction:
        assert self.transaction.saved is not None
        return self.transaction.saved

    @property
    def state(self) -> TransactionState:
        return self.transaction.state

    def is_in(self, state: TransactionState) -> bool:
        """As `state`, for tests that ask before and after."""
        return self.state is state

    def init(
        self,
        producer: Producer = NOBODY,
        *,
        timeout_ms: int = TIMEOUT_MS,
        two_phase: bool = False,
        keep: bool = False,
    ) -> Answer:
        request = InitRequest(timeout_ms, producer, two_phase, keep)
        return self._done(lambda new: self.transaction.initialize(request, self.settings, self.now_ms, new))

    def add(self, producer: Producer, *places: Place, version: int = V2) -> ErrorCode:
        return self._done(lambda _: self.transaction.add(producer, places, version, self.now_ms)).code

    def verify(self, producer: Producer, place: Place) -> ErrorCode:
        return self.transaction.verify(producer, [place])[place]

    def end(self, producer: Producer, *, commit: bool, version: int = V2) -> Answer:
        request = EndRequest(producer, commit, version)
        return self._done(lambda new: self.transaction.end(request, self.now_ms, new))

    def time_out(self) -> bool:
        """Say whether the transaction was aborted."""
        found = self.transaction.time_out(self.settings, self.now_ms)
        if found == PRODUCER_ID_WANTED:
            found = self.transaction.time_out(self.settings, self.now_ms, next(self.ids))
        return isinstance(found, Transition) and bool(self._take(found))

    def expire(self) -> bool:
        found = self.transaction.expire(self.settings, self.now_ms)
        return found is not None and bool(self._take(found))

    def mark(self, *places: Place) -> bool:
        """Have the markers written of some partitions, or of all; say whether that was the last one."""
        markers = self.transaction.markers
        assert markers is not None
        for place in places or markers.places:
            self.transaction.marked(markers.producer, place)
        found = self.transaction.complete(self.now_ms)
        return found is not None and bool(self._take(found))

    def begun(self, *places: Place, version: int = V2, timeout_ms: int = TIMEOUT_MS) -> Producer:
        """Open a transaction of a new producer; return the producer."""
        producer = self.init(timeout_ms=timeout_ms).producer
        assert self.add(producer, *(places or (A0,)), version=version) == ErrorCode.NONE
        return producer

    def ended(self, producer: Producer, *, commit: bool, version: int = V2) -> Producer:
        """Commit or abort a transaction, have its markers written; return who is next."""
        answer = self.end(producer, commit=commit, version=version)
        assert answer.code == ErrorCode.NONE
        assert self.mark()
        return answer.producer if version >= V2 else producer

    def move(self) -> None:
        """Have another broker coordinate, which knows what has committed."""
        saved = self.transaction.saved
        self.transaction = Transaction("t", None if saved is None else decode_value(encode_value(saved)))

    def _done(self, ask: Callable[[int | None], Decision]) -> Answer:
        decision = ask(None)
        if decision == PRODUCER_ID_WANTED:
            decision = ask(next(self.ids))
        if isinstance(decision, Transition):
            return self._take(decision).answer
        assert isinstance(decision, Answer)
        return decision

    def _take(self, transition: Transition) -> Transition:
        self.steps.append(transition)
        assert self.transaction.pending is transition
        if self.commits:
            self.transaction.committed()
        return transition
