"""Models what surrounds a transactional id: clients, partitions, and a ledger of what everybody was told.

The model does not know how a transaction is coordinated. It knows what must never happen, whatever is delayed, repeated
or lost on the way, and says so by an assertion:

- an owner comes back, or two clients are told that they are the same producer;
- a transaction has two outcomes, commits though nobody asked for that, or has another outcome than its client was told;
- two producers have a transaction open in partitions at once, or one is open there when it is complete.
"""

from dataclasses import dataclass, field

from barnabas_broker.coordinators.transactions.state_machine.messages import (
    V2,
    Answer,
    EndRequest,
    InitRequest,
    Markers,
    Place,
    SavedTransaction,
    Transition,
)
from barnabas_broker.coordinators.transactions.state_machine.producers import NOBODY, Producer
from barnabas_broker.coordinators.transactions.state_machine.states import TransactionEvent, TransactionState
from barnabas_clients.protocol.error_codes import ErrorCode


@dataclass
class Client:
    """A process that uses the transactional id. It believes the answer to its newest request alone."""

    name: str
    version: int
    producer: Producer = NOBODY
    newest: "Request | None" = None
    is_open: bool = False
    is_fenced: bool = False

    def hear(self, request: "Request", answer: Answer) -> None:
        """Take in the answer to the newest request."""
        self.is_fenced |= answer.code in {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
        if answer.code == ErrorCode.NONE:
            self.is_open = isinstance(request.what, frozenset)
            self.is_fenced &= not isinstance(request.what, InitRequest)
        if answer.producer != NOBODY:
            self.producer = answer.producer

    def next_step(self, *, commits: bool) -> str:
        if self.is_fenced:
            return "init"
        if not self.is_open:
            return "add"
        return "commit" if commits else "abort"


@dataclass(eq=False)
class Request:
    """One request on its way. `what` are the partitions that are added, or the request that the machine takes."""

    client: Client
    producer: Producer
    what: InitRequest | EndRequest | frozenset[Place]


@dataclass
class Partition:
    """The leader of one partition: whose transaction is open, which epochs it knows, and whom it lets begin."""

    open: Producer | None = None
    epochs: dict[int, int] = field(default_factory=dict)
    verified: Producer | None = None

    def write(self, producer: Producer) -> None:
        """Take a batch, if it belongs to the open transaction or one may be opened, and its epoch is no older."""
        is_known = producer in {self.open, self.verified}
        if is_known and producer.epoch >= self.epochs.get(producer.producer_id, 0):
            assert self.open in {None, producer}, f"{self.open} and {producer} are both open"
            self.open = producer
            self.epochs[producer.producer_id] = producer.epoch

    def mark(self, markers: Markers) -> None:
        producer_id, epoch = markers.producer
        self.verified = None
        if self.open is not None:
            assert self.open.producer_id == producer_id, "a marker of another producer"
            assert epoch > self.open.epoch or (markers.version < V2 and epoch == self.open.epoch), "T5"
            self.open = None
        self.epochs[producer_id] = max(epoch, self.epochs.get(producer_id, 0))


@dataclass
class Ledger:
    """Everything that was ever told or decided."""

    told: dict[Producer, str] = field(default_factory=dict)
    owners: list[Producer] = field(default_factory=list)
    outcomes: dict[Producer, bool] = field(default_factory=dict)
    ended: set[Producer] = field(default_factory=set)  # Of v1 one producer has many transactions, but none after these.
    commits_asked: set[Producer] = field(default_factory=set)
    marked: set[Place] = field(default_factory=set)

    def asked(self, request: Request) -> None:
        if isinstance(request.what, EndRequest) and request.what.is_commit:
            self.commits_asked.add(request.producer)

    def answered(self, request: Request, answer: Answer) -> None:
        """Check what a client is told, whether that reaches it or not."""
        if answer.code != ErrorCode.NONE:
            assert answer.producer == NOBODY
            return
        if answer.producer != NOBODY:
            teller = self.told.setdefault(answer.producer, request.client.name)
            assert teller == request.client.name, f"{answer.producer} is two clients"
        if isinstance(request.what, EndRequest):
            assert self.outcomes.get(request.producer) == request.what.is_commit, "it was told another outcome"

    def committed(self, before: SavedTransaction | None, step: Transition) -> None:
        """Check a step that the log has taken."""
        after = step.saved
        if after is None:
            return
        if not self.owners or self.owners[-1] != after.owner:
            assert after.owner not in self.owners, f"{after.owner} owns it again"
            self.owners.append(after.owner)
        if after.state.is_prepared:
            assert before is not None
            is_commit = after.state is TransactionState.PREPARE_COMMIT
            raises = after.owner != before.owner
            assert before.owner not in self.ended, "two outcomes"
            if raises:
                self.ended.add(before.owner)
            assert raises == (step.event is not TransactionEvent.END or after.client_version >= V2)
            self.outcomes[before.owner] = is_commit
            if is_commit:
                assert step.event is TransactionEvent.END
                assert before.owner in self.commits_asked, "nobody asked for a commit"
            self.marked = set()
        if step.event is TransactionEvent.MARKED:
            assert before is not None
            assert before.places <= self.marked, "it is complete without its markers"
            assert after.owner == before.owner
