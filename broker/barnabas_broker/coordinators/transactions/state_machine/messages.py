"""Values that enter and leave the state machine of a transactional id. Nothing here performs I/O. Pure.

Times are in milliseconds since 1970, also those called `now_ms`: they are saved, and another broker goes on with them.
"""

from typing import NamedTuple, TypeAlias

from barnabas_clients.protocol.error_codes import ErrorCode

from .outcomes import KeptOutcomes
from .producers import NOBODY, Producer
from .states import TransactionEvent, TransactionState

__all__ = [
    "NO_TIMEOUT_MS",
    "PRODUCER_ID_WANTED",
    "V1",
    "V2",
    "Answer",
    "Decision",
    "EndRequest",
    "InitRequest",
    "Markers",
    "Place",
    "ProducerIdWanted",
    "SavedTransaction",
    "TransactionSettings",
    "Transition",
]

V1 = 0
V2 = 2
"""Transactions as they always were, and those of KIP-890, in which every end raises the epoch, as Kafka's records name
them. (Of the levels of `transaction.version`, 1 only changes Kafka's records, not what a client sees.)"""

NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a transaction that somebody else decides about (two-phase commit, KIP-939): it has none."""

Place: TypeAlias = tuple[str, int]
"""A topic's name and a partition. By name: a topic that was deleted and made again is looked up when it is written."""


class TransactionSettings(NamedTuple):
    """The settings of an operator, the same for every id of a broker. Times in milliseconds, all positive."""

    timeout_ms_max: int = 900_000
    """transaction.max.timeout.ms"""

    expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms: how long an id is known after its last transaction."""

    two_phase_commit_enabled: bool = False
    """transaction.two.phase.commit.enable"""

    version: int = V2
    """The finalized `transaction.version`: how the coordinator itself ends transactions."""


class SavedTransaction(NamedTuple):
    """All that a new coordinator needs to carry on: the fields of Kafka's TransactionLogValue, and one that follows.

    `producer`: whose data and markers the transaction's are. From PREPARE on its epoch is that of the markers.
    `next_producer`: who may act instead of it, if that is another; it becomes `producer` when the transaction is
    complete. With `timeout_ms`, `started_ms` (-1: no transaction yet) says when the transaction times out.
    `previous_producer_id` and `last_epoch`: the producer before `owner`, so that a client which has not heard the
    answer to the request that replaced it is told once more; an epoch of -1: it is fenced. The epoch is not in the log,
    and a new coordinator knows it only after an end of v2 (`records`).
    `client_version`: the version of the transaction, hence of its markers.
    `outcomes`: how its transactions have ended, if they have partitions that may lose their markers (`outcomes`).
    """

    state: TransactionState
    producer: Producer
    timeout_ms: int
    updated_ms: int
    started_ms: int = -1
    places: frozenset[Place] = frozenset()
    next_producer: Producer = NOBODY
    previous_producer_id: int = -1
    last_epoch: int = -1
    client_version: int = 0
    outcomes: tuple[KeptOutcomes, ...] = ()

    @property
    def owner(self) -> Producer:
        """The one producer that may act under this transactional id."""
        return self.producer if self.next_producer == NOBODY else self.next_producer

    @property
    def predecessor(self) -> Producer:
        """The producer that `owner` has replaced at its own request; not in use if its epoch is -1."""
        return Producer(self.previous_producer_id, self.last_epoch)

    @property
    def is_kept(self) -> bool:
        """Whether the open transaction was written by a process before `owner`, which may only end it."""
        return self.state is TransactionState.ONGOING and self.next_producer != NOBODY

    @property
    def times_out_at_ms(self) -> int | None:
        """When the open transaction is aborted; None: there is none, or another system decides about it."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == NO_TIMEOUT_MS:
            return None
        return self.started_ms + self.timeout_ms

    @property
    def markers(self) -> "Markers | None":
        """The markers that are owed to `places`; None: none are."""
        if not self.state.is_prepared:
            return None
        return Markers(self.producer, self.state is TransactionState.PREPARE_COMMIT, self.client_version, self.places)


class Markers(NamedTuple):
    """What the leaders of `places` are to write, each of them at least once. The coordinator's term comes on top."""

    producer: Producer
    is_commit: bool
    version: int
    places: frozenset[Place]


class InitRequest(NamedTuple):
    """One InitProducerId. `producer`: the one that the client has (version 3 and later), or NOBODY.

    `enables_two_phase` and `keeps_prepared` are in version 6.
    """

    timeout_ms: int
    producer: Producer = NOBODY
    enables_two_phase: bool = False
    keeps_prepared: bool = False


class EndRequest(NamedTuple):
    """One EndTxn. `version`: `V2` from version 5 of the message on."""

    producer: Producer
    is_commit: bool
    version: int


class Answer(NamedTuple):
    """What a client is told. `producer`: who it is from now on, if the message has room for that.

    `ongoing`: of InitProducerId 6, the producer of the transaction that was kept.
    """

    code: ErrorCode = ErrorCode.NONE
    producer: Producer = NOBODY
    ongoing: Producer = NOBODY


class Transition(NamedTuple):
    """A record to append, and what is owed once it has committed: `answer`, and the markers of `saved`.

    `saved` None: a tombstone. `is_again`: the request has aborted a transaction of another; when that is complete it
    can be decided again, instead of giving `answer`, which tells the client to do the same.
    """

    event: TransactionEvent
    saved: SavedTransaction | None
    answer: Answer = Answer()
    is_again: bool = False


class ProducerIdWanted(NamedTuple):
    """Nothing was decided: ask again with a new producer id."""


PRODUCER_ID_WANTED = ProducerIdWanted()

Decision: TypeAlias = Answer | Transition | ProducerIdWanted
