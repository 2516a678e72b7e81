"""Declares what a coordinator brings to the runtime: a table and a shard. Pure.

A coordinator keeps its state in an internal topic, and each partition of that topic is a state machine of its own. The
runtime replicates it, and knows nothing of what the records mean. The *table* holds that meaning on every replica; the
*shard* serves clients from the leader's table.

A record has a key and a value, and its key *names* something: the newest record of a name counts, and one without a
value (a tombstone) says that there is nothing under that name.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.records.reader import Record

__all__ = ["CoordinatorShard", "Done", "KeyAndValue", "Name", "RecordOf", "Steps", "Table"]

Name: TypeAlias = tuple[Any, ...]
"""The thing that a record's key names. The first element is its owner; all names of one owner that are under way can be
asked for."""
KeyAndValue: TypeAlias = tuple[bytes, bytes | None]
Done: TypeAlias = Callable[[ErrorCode], None]
"""Is called once with the outcome of an append."""
Steps: TypeAlias = Generator[None, None, None]
"""Long work in small pieces: it yields between two of them, and others run then."""

N = TypeVar("N")
T_contra = TypeVar("T_contra", contravariant=True)

RecordOf: TypeAlias = Callable[[N], KeyAndValue | None]
"""Returns the record that says what is committed under a name in this moment; None if nothing is."""


class Table(Protocol[N]):
    """The meaning of one partition's committed records, on every replica: followers and the leader."""

    @property
    def live_bytes(self) -> int:
        """About how many bytes of the log the records take that count."""

    def take(self, records: Iterable[Record]) -> Steps:
        """Take in the records of one committed batch, in their order. Keys of an unknown kind are skipped.

        Cancelled half-way, the whole batch is taken in once more later.

        Raises:
            MalformedMessageError, CorruptBatchError: a record holds something that nobody can have meant.
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
        by the function that was given to `ShardRuntime.append`.
        """

    def begin_in_steps(self) -> Steps:
        """Start the deadlines: the shard is active."""

    def recover_in_steps(self) -> Steps:
        """Start the deadlines anew: this broker stood still, could hear nobody meanwhile, and leads still."""

    def end_in_steps(self, error: ErrorCode, *, was_active: bool) -> Steps:
        """Cancel the deadlines, and tell everybody who is parked `error`: nothing is served any more."""

    def settle_account(self) -> None:
        """Count anew what is held for clients: something was appended, has committed, or the shard has ended."""

    @property
    def loaded_summary(self) -> str:
        """How much was loaded, in words for an operator."""

    @property
    def unloaded_summary(self) -> str:
        """How much is served no more, likewise."""
