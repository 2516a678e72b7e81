"""Declares what a coordinator brings to the runtime: a table and a shard. Pure.

A coordinator keeps its state in an internal topic, and each partition of that topic is a state machine of its own. The
runtime replicates it, and knows nothing of what the records mean. The *table* holds that meaning on every replica; the
*shard* serves clients from the leader's table.

A record has a key and a value, and its key *names* something: the newest record of a name counts, and one without a
value (a tombstone) says that there is nothing under that name.

*Transactions.* A producer whose transaction takes in what a coordinator keeps has its records in the partition, too, in
batches of its own id and epoch (`Writer`). They count for nothing until a marker in the same partition ends the
transaction: then all of them do, or none. What they mean until then is the table's affair; it tells from where on the
log must be kept for that (`first_open_offset`).

*Written again.* A rewritten log has records that say only what was said before (`AGAIN`, see `rewriting`). To whatever
asks which of two records is the newer one, they are as old as the one that they repeat.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from barnabas_broker.partition.verifications import Verification
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.records.builder import Header
from barnabas_raftlog.records.header import TRANSACTIONAL, BatchHeader
from barnabas_raftlog.records.markers import EndMarker
from barnabas_raftlog.records.reader import Record

__all__ = [
    "AGAIN",
    "Apply",
    "CoordinatorShard",
    "Done",
    "KeyAndValue",
    "Name",
    "RecordOf",
    "Steps",
    "Table",
    "Writer",
    "writer_of",
]

AGAIN: tuple[Header, ...] = (("again", b""),)
"""The headers of a record that only says once more what was committed before, written with the log (`rewriting`)."""

Name: TypeAlias = tuple[Any, ...]
"""The thing that a record's key names. The first element is its owner; all names of one owner that are under way can be
asked for."""
KeyAndValue: TypeAlias = tuple[bytes, bytes | None]
Done: TypeAlias = Callable[[ErrorCode], None]
"""Is called once with the outcome of an append."""
Apply: TypeAlias = Callable[[], object]
"""Takes in what has committed, or a part of it: while it returns True it is called once more, in a later turn."""
Steps: TypeAlias = Generator[None, None, None]
"""Long work in small pieces: it yields between two of them, and others run then."""

N = TypeVar("N")
T_contra = TypeVar("T_contra", contravariant=True)

RecordOf: TypeAlias = Callable[[N], KeyAndValue | None]
"""Returns the record that says what is committed under a name in this moment; None if nothing is."""


class Writer(NamedTuple):
    """The producer in whose name, and as part of whose transaction, a batch is written.

    `guard`: what the partition gave before the transaction's coordinator was asked (`Partition.verification`); None if
    it need not be asked.
    """

    producer_id: int
    producer_epoch: int
    guard: Verification | None = None


def writer_of(header: BatchHeader) -> Writer | None:
    """Return whose transaction a batch is part of; None: it counts as soon as it is committed."""
    is_transactional = header.attributes & TRANSACTIONAL and header.producer_id >= 0
    return Writer(header.producer_id, header.producer_epoch) if is_transactional else None


class Table(Protocol[N]):
    """The meaning of one partition's committed records, on every replica: followers and the leader."""

    @property
    def live_bytes(self) -> int:
        """About how many bytes of the log the records take that count."""

    @property
    def first_open_offset(self) -> int | None:
        """The offset of the oldest batch of a transaction that has not ended and may count yet; None: there is none."""

    def take(self, header: BatchHeader, records: Iterable[Record]) -> Steps:
        """Take in the records of one committed batch, in their order. Keys of an unknown kind are skipped.

        Cancelled half-way, the whole batch is taken in once more later.

        Raises:
            MalformedMessageError, CorruptBatchError: a record holds something that nobody can have meant.
        """

    def take_marker(self, marker: EndMarker) -> Steps:
        """Take in the end of a producer's transaction, which is committed; one that has nothing open ends nothing.

        Cancelled half-way, it is taken in once more later.
        """

    def names_in_steps(self) -> Generator[None, None, list[N]]:
        """Return every name that a rewritten log must have, in the order in which it is to be written.

        Names that come or go between two steps may be missing or too many.
        """

    def size_of(self, name: N) -> int:
        """Return about how many bytes of the log the record of a name takes; 0 if there is none."""

    def prepare_in_steps(self, names: Iterable[N]) -> Generator[None, None, RecordOf[N]]:
        """Return a function that gives the records of these names; long records are encoded by then."""


class CoordinatorShard(Protocol[T_contra]):
    """The part of a coordinator that lives on one partition while this broker leads it, and serves clients."""

    def build_in_steps(self, table: T_contra) -> Steps:
        """Make everything that serving needs out of the table. Nothing is served or appended yet.

        The table is this shard's from now on. It changes when something that the shard has appended commits, and only
        by the function that was given to `ShardRuntime.append` or `append_marker`.
        """

    def begin_in_steps(self) -> Steps:
        """Start the deadlines: the shard is active."""

    def recover_in_steps(self) -> Steps:
        """Start the deadlines anew: this broker stood still, could hear nobody meanwhile, and leads still."""

    def end_in_steps(self, error: ErrorCode, *, was_active: bool) -> Steps:
        """Cancel the deadlines, and tell everybody who is parked `error`: nothing is served any more."""

    def is_ending(self, name: Any) -> bool:
        """Tell whether a marker under way may bring something newer under a name than what is committed there."""

    def settle_account(self) -> None:
        """Count anew what is held for clients: something was appended, has committed, or the shard has ended."""

    @property
    def loaded_summary(self) -> str:
        """How much was loaded, in words for an operator."""

    @property
    def unloaded_summary(self) -> str:
        """How much is served no more, likewise."""
