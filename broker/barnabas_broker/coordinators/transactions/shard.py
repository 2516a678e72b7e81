"""Serves the transactional ids of one partition of `__transaction_state`, on the broker that leads it.

The shard's life, its log and the records under way are the runtime's (`coordinators.runtime.shard`); here is how the
state machine of transactional ids uses them (`state_machine.transaction`).

*One record, one step.* A request goes to the state machine, which answers or names a transition; that is one record.
When it has committed, the transition has happened: the table has it, the answer is given, and what follows is done.
A record that the log refuses has changed nothing. One whose fate nobody here will know ends with the shard: the next
coordinator finds it or does not, and goes on from either.

*What follows* (`_attend`). Markers are given to the sender when the record that decided on them has committed, not
before: then no coordinator can decide anything else. When every partition has its marker, a record says so. Whatever
is owed is owed again by the next coordinator, which finds it in the table.

*Busy.* While a record or markers are under way, most requests hear CONCURRENT_TRANSACTIONS, and clients come again
after a pause that is many times as long as the markers take. So a request waits here for a moment instead, and is
decided on again; so does an InitProducerId that has had the transaction of another aborted. When the moment is over, it
is told what it would have been told at once.

*Many at once.* After a failover thousands of ids may have markers to send and records to write. They are attended to
one after the other, in slices (`ShardRuntime.in_slices`). A long record is encoded in a turn of its own.

Limits: the memory of all ids of the broker (`room`); `PARKED_MAX` requests that wait for one id; `WAIT_MS` for each of
them, and `APPEND_MS` for a record.

Not here: the meaning of committed records (`table`), time (`expiry`), how markers travel (`SendsMarkers`), and the way
from an id to its coordinator (`coordinator`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from barnabas_broker.coordinators.producer_ids import ProducerIds
from barnabas_broker.coordinators.room import Room
from barnabas_broker.coordinators.runtime.contracts import Steps
from barnabas_broker.coordinators.runtime.shard import ShardRuntime, ShardState
from barnabas_broker.timing.deadlines import Deadline
from barnabas_broker.timing.slices import taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import Refused

from .hosted_transaction import Ask, Decide, HostedTransaction, OnAnswer
from .room import bytes_of
from .state_machine.messages import (
    Answer,
    Decision,
    EndRequest,
    InitRequest,
    Markers,
    Place,
    ProducerIdWanted,
    TransactionSettings,
    Transition,
)
from .state_machine.producers import Producer
from .state_machine.records import encode_key, encode_value
from .state_machine.states import TransactionEvent, TransactionState
from .state_machine.transaction import Transaction
from .table import TransactionalIdTable, TransactionName

__all__ = ["APPEND_MS", "PARKED_MAX", "WAIT_MS", "SendsMarkers", "Shared", "TellTransaction", "TransactionShard"]

PARKED_MAX = 16
WAIT_MS = 1_000
"""Markers take milliseconds; the election of a partition's leader, which they may have to wait for, a tenth of this."""
APPEND_MS = 5_000
AGAIN_MS = 200
"""After so long a record that the log has refused is tried again, if it is the coordinator's own."""

# How much is done between two yields.
IDS_STEP = 100
PLACES_STEP = 1_000
ATTENDED_AT_ONCE = 10  # in one turn of the loop; a record takes a tenth of a millisecond
LONG_PLACES = 500  # A record of so many takes a quarter of a millisecond or more.

TellTransaction = Callable[[str, str, str], None]
"""Remembers an event of a transactional id: kind, id, cause."""


class SendsMarkers(Protocol):
    """Has markers written; says of each that it is (`TransactionShard.written`)."""

    def send(self, shard_partition: int, coordinator_epoch: int, transactional_id: str, markers: Markers) -> None:
        """Have these written, however long it takes. The epoch is the term of the shard's partition."""

    def forget(self, shard_partition: int) -> None:
        """Have none of a shard's written any more: it has ended, and another coordinator does that."""

    def status(self) -> dict[str, Any]:
        """Return what is owed, and why it is not written, as plain values."""

    def close(self) -> None:
        """Begin nothing more."""


class Shared(NamedTuple):
    """What all shards of a broker have in common."""

    settings: Callable[[], TransactionSettings]
    room: Room
    producer_ids: ProducerIds
    markers: SendsMarkers
    tell: TellTransaction
    may_forget: Callable[[str], bool]
    """Whether the partitions of a topic, by its name, may lose markers (page-cache mode)."""


class TransactionShard:
    """See the module. Owned by the loop; `ids` has every transactional id that this partition knows.

    `open`: those of `ids` that have a transaction, also one whose markers are on their way.
    """

    def __init__(self, runtime: "ShardRuntime[TransactionalIdTable, TransactionShard]", shared: Shared) -> None:
        self.runtime = runtime
        self.ids: dict[str, HostedTransaction] = {}
        self.open: dict[str, HostedTransaction] = {}
        self._table = TransactionalIdTable()
        self._host = runtime.host
        self._shared = shared
        self._noted: deque[HostedTransaction] = deque()
        self._is_attending = False
        self._attended_count = 0  # in this turn of the loop
        self._refused: dict[str, HostedTransaction] = {}
        self._again: Deadline[Callable[[], None]] | None = None
        self._ids_bytes = 0
        self._counted_bytes = 0

    def __repr__(self) -> str:
        return repr(self.runtime)

    @property
    def loaded_summary(self) -> str:
        """How much was loaded, in words for an operator."""
        return f"{len(self.ids)} transactional ids, {len(self.open)} transactions"

    @property
    def unloaded_summary(self) -> str:
        """How much is served no more, likewise."""
        return self.loaded_summary

    @property
    def held_bytes(self) -> int:
        """Bytes that this shard holds for its clients (`room`): none before it serves, and none afterwards."""
        return self._ids_bytes if self.runtime.state is ShardState.ACTIVE else 0

    # The beginning and the end (CoordinatorShard).

    def build_in_steps(self, table: TransactionalIdTable) -> Steps:
        """Make every id that has a record."""
        self._table = table
        places = 0
        for number, (transactional_id, (saved, _)) in enumerate(table.saved.items(), 1):
            hosted = self.ids[transactional_id] = HostedTransaction(Transaction(transactional_id, saved))
            self._file(hosted)
            places += len(saved.places)
            if places >= PLACES_STEP or not number % IDS_STEP:
                places = 0
                yield

    def begin_in_steps(self) -> Steps:
        """Have every marker written that is owed; which were written before is known to nobody."""
        for number, hosted in enumerate(list(self.open.values()), 1):
            if hosted.transaction.state.is_prepared:
                self._note(hosted)
            if not number % IDS_STEP:
                yield

    def recover_in_steps(self) -> Steps:
        """Nothing: no deadline of an id is kept here, and what waits for a record or a marker waits on."""
        yield from ()

    def end_in_steps(self, error: ErrorCode, *, was_active: bool) -> Steps:
        """Answer everybody who waits with `error`."""
        self._shared.markers.forget(self.runtime.partition.index)
        if self._again is not None:
            self._host.timers.cancel(self._again)
        if was_active:
            for number, hosted in enumerate(list(self.ids.values()), 1):
                for ask in (hosted.ask, *hosted.parked):
                    if ask is not None:
                        ask.give(Answer(error))
                if not number % IDS_STEP:
                    yield

    def is_ending(self, _: TransactionName) -> bool:
        """No: nobody's transaction takes in what is kept here."""
        return False

    def settle_account(self) -> None:
        """Count towards the broker's room everything that is held now."""
        counted_bytes = self.held_bytes
        self._shared.room.held_bytes += counted_bytes - self._counted_bytes
        self._counted_bytes = counted_bytes

    # Requests. Each is answered once, now or later, also if the shard has ended.

    def initialize(self, transactional_id: str, request: InitRequest, on_answer: OnAnswer) -> Ask:
        """Give the id to the producer that asks (`Transaction.initialize`)."""

        def decide(transaction: Transaction, now_ms: int, new_producer_id: int | None) -> Decision:
            return transaction.initialize(request, self._shared.settings(), now_ms, new_producer_id)

        return self._begin(transactional_id, decide, on_answer, WAIT_MS)

    def add(
        self,
        transactional_id: str,
        producer: Producer,
        places: Collection[Place],
        client_version: int,
        on_answer: OnAnswer,
        *,
        wait_ms: int = WAIT_MS,
    ) -> Ask:
        """Have partitions in the transaction (`Transaction.add`). Names are kept as they are given here."""

        def decide(transaction: Transaction, now_ms: int, _: int | None) -> Decision:
            may_be_lost = any(map(self._shared.may_forget, {topic for topic, _ in places}))
            return transaction.add(producer, places, client_version, now_ms, may_be_lost=may_be_lost)

        return self._begin(transactional_id, decide, on_answer, wait_ms)

    def end(self, transactional_id: str, request: EndRequest, on_answer: OnAnswer) -> Ask:
        """Commit or abort the transaction (`Transaction.end`)."""

        def decide(transaction: Transaction, now_ms: int, new_producer_id: int | None) -> Decision:
            return transaction.end(request, now_ms, new_producer_id)

        return self._begin(transactional_id, decide, on_answer, WAIT_MS)

    def verify(self, transactional_id: str, producer: Producer, places: Collection[Place]) -> Mapping[Place, ErrorCode]:
        """Say which partitions are in the open transaction (`Transaction.verify`); only while `runtime.is_certain`."""
        hosted = self.ids.get(transactional_id)
        transaction = Transaction(transactional_id) if hosted is None else hosted.transaction
        return transaction.verify(producer, places)

    def _begin(self, transactional_id: str, decide: Decide, on_answer: OnAnswer, wait_ms: int) -> Ask:
        ask = Ask(transactional_id, decide, on_answer, self._host.timers, wait_ms=wait_ms)
        self._decide(ask)
        return ask

    # Markers and time.

    def written(self, transactional_id: str, producer: Producer, place: Place) -> None:
        """Hear that a marker is in its partition, or that there is no such partition."""
        hosted = self.ids.get(transactional_id)
        if hosted is not None and self.runtime.state is ShardState.ACTIVE:
            hosted.transaction.marked(producer, place)
            self._note(hosted)

    def time_out(self, hosted: HostedTransaction) -> None:
        """Abort the transaction if it is open for too long."""

        def decide(transaction: Transaction, now_ms: int, new_producer_id: int | None) -> Decision:
            decision = transaction.time_out(self._shared.settings(), now_ms, new_producer_id)
            return Answer() if decision is None else decision

        self._begin(hosted.transactional_id, decide, _unheard, 0)

    def expire(self, hosted: HostedTransaction) -> None:
        """Forget the id if it was not used for long."""
        if not hosted.parked:
            expired = hosted.transaction.expire(self._shared.settings(), self._host.wall_ms())
            if expired is not None:
                self._carry_out(hosted, expired, None)

    # Inside: decisions.

    def _decide(self, ask: Ask) -> None:
        if self.runtime.state is not ShardState.ACTIVE:
            ask.give(Answer(ErrorCode.NOT_COORDINATOR))
            return
        hosted = self.ids.get(ask.transactional_id)
        transaction = Transaction(ask.transactional_id) if hosted is None else hosted.transaction
        decision = ask.decide(transaction, self._host.wall_ms(), ask.new_producer_id)
        if isinstance(decision, Transition):
            self._carry_out(hosted or HostedTransaction(transaction), decision, ask)
        elif isinstance(decision, ProducerIdWanted):
            self._want_id(ask)
        elif decision.code != ErrorCode.CONCURRENT_TRANSACTIONS or not self._park(hosted, ask, decision):
            ask.give(decision)

    def _want_id(self, ask: Ask) -> None:
        assert ask.new_producer_id is None
        ask.new_producer_id = self._shared.producer_ids.take_now()
        if ask.new_producer_id is None:
            self._host.spawn(self._wait_for_id(ask))
        else:
            self._decide(ask)

    async def _wait_for_id(self, ask: Ask) -> None:
        try:
            ask.new_producer_id = await self._shared.producer_ids.take()
        except Refused:
            # As Kafka: every client comes again on that, and it need not look for another coordinator.
            ask.give(Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            if not ask.is_over:
                self._decide(ask)

    def _park(self, hosted: HostedTransaction | None, ask: Ask, answer: Answer) -> bool:
        """Let a request wait until the id is not busy, and have it told `answer` if that takes too long; or refuse."""
        now_ms = self._host.now_ms()
        if ask.waits_until_ms is None:
            ask.waits_until_ms = now_ms + ask.wait_ms
        if hosted is None or ask.is_over or now_ms >= ask.waits_until_ms:
            return False
        hosted.parked = [one for one in hosted.parked if not one.is_over]
        if len(hosted.parked) >= PARKED_MAX:
            return False
        hosted.parked.append(ask)
        ask.give_in(ask.waits_until_ms - now_ms, answer)
        if not hosted.is_busy:
            self._note(hosted)
        return True

    # Inside: records.

    def _carry_out(self, hosted: HostedTransaction, transition: Transition, ask: Ask | None) -> None:
        self.ids[hosted.transactional_id] = hosted
        hosted.ask = ask
        if ask is not None:
            ask.new_producer_id = None  # It is used, and must not be another time.
            ask.give_in(APPEND_MS, Answer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self.runtime.in_slices(self._append(hosted, transition, ask))

    def _append(self, hosted: HostedTransaction, transition: Transition, ask: Ask | None) -> Steps:
        saved = transition.saved
        key = encode_key(hosted.transactional_id)
        value = None if saved is None else encode_value(saved)
        size_bytes = len(key) + len(value or b"")
        if not self._has_room(hosted, transition, size_bytes):
            self._on_refused(hosted, ask, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        self._account(hosted, size_bytes)
        self.settle_account()
        if saved is not None and len(saved.places) > LONG_PLACES:
            yield
            if self.runtime.state is not ShardState.ACTIVE:
                return
        error = self.runtime.append(
            [(key, value)],
            [TransactionName(hosted.transactional_id)],
            partial(self._on_committed, hosted, size_bytes),
            None if ask is None else partial(self._on_stored, ask, transition),
        )
        if error is not ErrorCode.NONE:
            self._on_refused(hosted, ask, error)

    def _has_room(self, hosted: HostedTransaction, transition: Transition, size_bytes: int) -> bool:
        """Tell whether there is room for what a client wants to have kept; the end of a transaction always has some."""
        room = self._shared.room
        if transition.event is TransactionEvent.ADD:
            left_bytes = room.for_additions_bytes
        elif hosted.transaction.saved is None:
            left_bytes = room.for_newcomers_bytes
        else:
            return True
        places = () if transition.saved is None else transition.saved.places
        return bytes_of(size_bytes, len(places)) - hosted.held_bytes <= max(0, left_bytes)

    def _on_refused(self, hosted: HostedTransaction, ask: Ask | None, error: ErrorCode) -> None:
        """The record is not in the log: nothing has changed."""
        hosted.transaction.refused()
        hosted.ask = None
        self._file(hosted)
        self.settle_account()
        if ask is not None:
            ask.give(Answer(error))
            self._note(hosted)
        elif self.runtime.state is ShardState.ACTIVE:
            self._refused[hosted.transactional_id] = hosted
            if self._again is None:
                self._again = self._host.timers.add(AGAIN_MS, self._try_again)

    def _try_again(self) -> None:
        refused, self._refused = self._refused, {}
        self._again = None
        for hosted in refused.values():
            self._note(hosted)

    def _on_committed(self, hosted: HostedTransaction, size_bytes: int) -> None:
        """The record has committed: what it says is so, for everybody."""
        transaction = hosted.transaction
        transition = transaction.pending
        assert transition is not None
        ask, hosted.ask = hosted.ask, None
        self._table.put(hosted.transactional_id, transition.saved, size_bytes)
        self._tell(hosted, transition)
        transaction.committed()
        hosted.is_sent = False
        self._file(hosted)
        self._note(hosted)
        if ask is not None:
            ask.is_committed = True
            self._finish(ask, transition)

    def _on_stored(self, ask: Ask, transition: Transition, error: ErrorCode) -> None:
        """As many replicas have the record as the topic asks for; or nobody here will know."""
        if error is ErrorCode.NONE:
            ask.is_stored = True
            self._finish(ask, transition)
        else:
            ask.give(Answer(error))

    def _finish(self, ask: Ask, transition: Transition) -> None:
        """Give the answer once the transition holds here, too: what the client asks next is decided by that."""
        if not (ask.is_committed and ask.is_stored):
            return
        if transition.is_again:
            ask.is_committed = ask.is_stored = False
            if self._park(self.ids.get(ask.transactional_id), ask, transition.answer):
                return
        ask.give(transition.answer)

    def _file(self, hosted: HostedTransaction) -> None:
        """Have an id where it belongs, as committed."""
        transactional_id = hosted.transactional_id
        saved = hosted.transaction.saved
        _, record_bytes = self._table.saved.get(transactional_id, (None, 0))
        self._account(hosted, record_bytes)
        if saved is None:
            del self.ids[transactional_id]
        if saved is None or saved.state.is_idle:
            self.open.pop(transactional_id, None)
        else:
            self.open[transactional_id] = hosted

    def _account(self, hosted: HostedTransaction, record_bytes: int) -> None:
        """Count anew how much an id holds: what is committed of it, or what is under way if that is more."""
        transaction = hosted.transaction
        pending = None if transaction.pending is None else transaction.pending.saved
        known = [saved for saved in (transaction.saved, pending) if saved is not None]
        held_bytes = bytes_of(record_bytes, max(len(saved.places) for saved in known)) if known else 0
        self._ids_bytes += held_bytes - hosted.held_bytes
        hosted.held_bytes = held_bytes

    # Inside: what follows.

    def _note(self, hosted: HostedTransaction) -> None:
        """Attend to an id: now, or beside what else there is to do if many are in this turn of the loop."""
        if hosted.is_noted:
            return
        hosted.is_noted = True
        self._noted.append(hosted)
        if self._is_attending:
            return
        self._is_attending = True
        steps = self._attend_to_all()
        if self._attended_count < ATTENDED_AT_ONCE:
            self.runtime.in_slices(steps)
        else:
            self._host.spawn(taken(steps))

    def _attend_to_all(self) -> Steps:
        while self._noted and self.runtime.state is ShardState.ACTIVE:
            hosted = self._noted.popleft()
            hosted.is_noted = False
            if not self._attended_count:
                asyncio.get_running_loop().call_soon(self._begin_turn)
            self._attended_count += 1
            self._attend(hosted)
            if self._noted:
                yield
        self._is_attending = False

    def _begin_turn(self) -> None:
        self._attended_count = 0

    def _attend(self, hosted: HostedTransaction) -> None:
        """Do what is to be done about an id, if nothing of it is under way."""
        transaction = hosted.transaction
        if transaction.pending is not None:
            return
        if transaction.state.is_prepared:
            completed = transaction.complete(self._host.wall_ms())
            if completed is not None:
                self._carry_out(hosted, completed, None)
            elif not hosted.is_sent:
                self._send_markers(hosted)
            return
        parked, hosted.parked = hosted.parked, []
        for ask in parked:
            if not ask.is_over:
                self._decide(ask)

    def _send_markers(self, hosted: HostedTransaction) -> None:
        markers = hosted.transaction.markers
        assert markers is not None
        hosted.is_sent = True
        runtime = self.runtime
        self._shared.markers.send(runtime.partition.index, runtime.term, hosted.transactional_id, markers)

    def _tell(self, hosted: HostedTransaction, transition: Transition) -> None:
        """Remember that a transaction ends without its client having asked for it."""
        saved = transition.saved
        if saved is None or saved.state is not TransactionState.PREPARE_ABORT:
            return
        if transition.event is TransactionEvent.TIME_OUT:
            open_ms = self._host.wall_ms() - saved.started_ms
            text = f"open for {open_ms} ms, its timeout is {saved.timeout_ms} ms; {len(saved.places)} partitions"
            self._shared.tell("transaction timed out", hosted.transactional_id, text)
        elif transition.event is TransactionEvent.INITIALIZE:
            text = f"InitProducerId came while it was open; {len(saved.places)} partitions"
            self._shared.tell("transaction aborted", hosted.transactional_id, text)


def _unheard(_: Answer) -> None:
    pass
