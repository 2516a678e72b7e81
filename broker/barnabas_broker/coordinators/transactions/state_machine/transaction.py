"""Holds one transactional id on its coordinator: what has committed, and what is under way. Pure.

`Transaction` is the whole interface of the state machine: one method a request, `time_out`, `expire` and `complete` for
time and markers, and `committed` or `refused` for what the log says to the `Transition` that one of them returned. None
waits, and equal calls on equal states return equal decisions.

One transition is under way at a time. Until the log has answered, every request hears CONCURRENT_TRANSACTIONS, before
anything that it shows is looked at: a client may show what it is about to be told. What was decided on is the committed
state, so a record that the log refuses has changed nothing, and a new coordinator that finds it or does not find it
goes on from either.

*After a move* the log is all there is. What was prepared gives its `markers` again, all of them, since which were
written is known nowhere else; a marker is written twice without harm. A transaction that has outlived its timeout
meanwhile is aborted.

Not here: who is allowed to, requests that wait, how markers travel, and how much all ids of a broker may hold.
"""

from collections.abc import Collection, Mapping

from barnabas_clients.protocol.error_codes import ErrorCode

from .adding import add, verify
from .ending import complete, end, prepare
from .initializing import initialize, refusal
from .messages import (
    PRODUCER_ID_WANTED,
    V2,
    Answer,
    Decision,
    EndRequest,
    InitRequest,
    Markers,
    Place,
    ProducerIdWanted,
    SavedTransaction,
    TransactionSettings,
    Transition,
)
from .outcomes import Outcome, outcome_in
from .producers import EPOCH_MAX, Producer
from .states import TransactionEvent, TransactionState, may_follow

__all__ = ["Transaction"]

_BUSY = Answer(ErrorCode.CONCURRENT_TRANSACTIONS)


class Transaction:
    """One transactional id, as its coordinator knows it.

    Public to read: `transactional_id`; `saved`, what has committed (None: nothing, or a tombstone); `pending`, the
    transition that was decided on and has neither committed nor been refused. After each method that returns a
    `Transition` the owner appends it, and calls `committed` or `refused` once.
    """

    __slots__ = ("_unmarked", "pending", "saved", "transactional_id")

    def __init__(self, transactional_id: str, saved: SavedTransaction | None = None) -> None:
        self.transactional_id = transactional_id
        self.pending: Transition | None = None
        self.saved: SavedTransaction | None = None
        self._unmarked: set[Place] = set()
        self._settle(saved)

    @property
    def state(self) -> TransactionState:
        return TransactionState.DEAD if self.saved is None else self.saved.state

    @property
    def is_forgotten(self) -> bool:
        """Whether there is nothing to keep of it."""
        return self.saved is None and self.pending is None

    @property
    def times_out_at_ms(self) -> int | None:
        """When `time_out` has something to do; None: not as things stand. After a move it may be long ago."""
        return None if self.saved is None else self.saved.times_out_at_ms

    @property
    def unmarked(self) -> frozenset[Place]:
        """The partitions to which a marker is owed, and which have not been said to have it."""
        return frozenset(self._unmarked)

    @property
    def markers(self) -> Markers | None:
        """The markers that are owed, without those that are written; None: the outcome is not decided, or complete.

        When nothing is missing any more, `complete` has something to do.
        """
        markers = None if self.saved is None else self.saved.markers
        return None if markers is None else markers._replace(places=self.unmarked)

    # Requests.

    def initialize(
        self, request: InitRequest, settings: TransactionSettings, now_ms: int, new_producer_id: int | None = None
    ) -> Decision:
        """Give the transactional id to the producer that asks: InitProducerId."""
        error = refusal(self.transactional_id, request, settings)
        if error != ErrorCode.NONE:
            return Answer(error)
        if self.pending is not None:
            return _BUSY
        return self._begin(initialize(self.saved, request, settings, now_ms, new_producer_id))

    def add(
        self,
        producer: Producer,
        places: Collection[Place],
        client_version: int,
        now_ms: int,
        *,
        may_be_lost: bool = False,
    ) -> Decision:
        """Have partitions in the transaction: AddPartitionsToTxn, AddOffsetsToTxn. The first one opens it.

        `may_be_lost`: a marker in one of them may be lost later (`outcomes`).
        """
        if self.pending is not None:
            return _BUSY
        return self._begin(add(self.saved, producer, places, client_version, now_ms, may_be_lost=may_be_lost))

    def verify(self, producer: Producer, places: Collection[Place]) -> Mapping[Place, ErrorCode]:
        """Say of each partition whether it is in the producer's open transaction: AddPartitionsToTxn, verify only.

        To be asked of a leader that has confirmed that it leads.
        """
        coming = None if self.pending is None else self.pending.saved
        if coming is not None and coming.state.is_prepared:
            return dict.fromkeys(places, ErrorCode.CONCURRENT_TRANSACTIONS)
        return verify(self.saved, producer, places)

    def outcome(self, producer: Producer, place: Place) -> tuple[Outcome, int]:
        """Return how the transaction stands whose data `place` has of `producer`, and the epoch of its marker.

        To be asked of a leader that has confirmed that it leads, about data that the partition has had before.
        """
        saved = self.saved
        assert saved is not None
        if saved.producer == producer and place in (self._unmarked if saved.state.is_prepared else saved.places):
            return Outcome.OPEN, producer.epoch
        bumped = Producer(producer.producer_id, min(producer.epoch + 1, EPOCH_MAX))
        found = outcome_in(saved.outcomes, producer)
        if saved.producer == bumped and place in self._unmarked:
            # With version 1 it may be the marker of another one, of the next process; an abort does no harm.
            is_abort = saved.state is TransactionState.PREPARE_ABORT and found is not Outcome.COMMIT
            if saved.client_version >= V2 or is_abort:
                return Outcome.OPEN, bumped.epoch
        owner = saved.owner
        # In the epoch that its owner has, more transactions may follow; with version 1 its marker has the same.
        is_last = owner.producer_id == producer.producer_id and owner.epoch <= producer.epoch
        marked = producer if is_last else bumped
        if found is None and saved.state.is_prepared and saved.producer == marked:
            # Whether its partitions may lose a marker was not known when they were added, and it is decided.
            is_commit = saved.state is TransactionState.PREPARE_COMMIT and saved.client_version >= V2
            found = Outcome.COMMIT if is_commit else Outcome.ABORT
        return Outcome.ABORT if found is None else found, marked.epoch

    def end(self, request: EndRequest, now_ms: int, new_producer_id: int | None = None) -> Decision:
        """Commit or abort the transaction: EndTxn."""
        if self.pending is not None:
            return _BUSY
        return self._begin(end(self.saved, request, now_ms, new_producer_id))

    # Time.

    def time_out(
        self, settings: TransactionSettings, now_ms: int, new_producer_id: int | None = None
    ) -> Transition | ProducerIdWanted | None:
        """Abort a transaction that is open for too long, and fence its producer; None if there is none such."""
        saved = self.saved
        if saved is None or self.pending is not None:
            return None
        if saved.times_out_at_ms is None or saved.times_out_at_ms > now_ms:
            return None
        aborted = prepare(saved, TransactionState.PREPARE_ABORT, settings.version, now_ms, new_producer_id, fences=True)
        if aborted is None:
            return PRODUCER_ID_WANTED
        return self._append(Transition(TransactionEvent.TIME_OUT, aborted))

    def expire(self, settings: TransactionSettings, now_ms: int) -> Transition | None:
        """Forget the id if it was not used for so long; None if it was."""
        saved = self.saved
        if saved is None or self.pending is not None or not saved.state.is_idle:
            return None
        if saved.updated_ms + settings.expiration_ms > now_ms:
            return None
        return self._append(Transition(TransactionEvent.EXPIRE, None))

    # Markers.

    def marked(self, producer: Producer, place: Place) -> None:
        """Note that a partition has its marker, of that producer; what belongs to an earlier transaction is ignored."""
        if self.saved is not None and self.saved.state.is_prepared and self.saved.producer == producer:
            self._unmarked.discard(place)

    def complete(self, now_ms: int) -> Transition | None:
        """Say that the transaction is over, if every partition has its marker; None if not, or if it was said."""
        if self.saved is None or self.pending is not None or self._unmarked or not self.saved.state.is_prepared:
            return None
        return self._append(Transition(TransactionEvent.MARKED, complete(self.saved, now_ms)))

    # The log.

    def committed(self) -> None:
        """Note that `pending` has committed: its answer may be given, its markers may leave."""
        assert self.pending is not None
        saved = self.pending.saved
        self.pending = None
        self._settle(saved)

    def refused(self) -> None:
        """Note that the log has not taken `pending`, and never will: nothing has changed.

        If it is not known whether it was taken, this coordinator has ended, and no method is called any more.
        """
        assert self.pending is not None
        self.pending = None

    def _begin(self, decision: Decision) -> Decision:
        return self._append(decision) if isinstance(decision, Transition) else decision

    def _append(self, transition: Transition) -> Transition:
        assert self.pending is None
        following = transition.saved
        state = TransactionState.DEAD if following is None else following.state
        assert may_follow(self.state, transition.event, state), (self.state, transition)
        if self.saved is not None and following is not None:
            assert following.updated_ms >= self.saved.updated_ms
        self.pending = transition
        return transition

    def _settle(self, saved: SavedTransaction | None) -> None:
        self.saved = saved
        self._unmarked = set(saved.places) if saved is not None and saved.state.is_prepared else set()
