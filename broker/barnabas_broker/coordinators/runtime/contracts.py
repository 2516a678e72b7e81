"""Declares what a coordinator brings to the runtime: a table of what the log says, and a shard that serves from it.

A coordinator keeps its state in an internal topic, and each partition of that topic is a state machine of its own. The
runtime replicates it, and knows nothing of what the records mean: that is all in these two, and in nothing else.

A record has a key and a value, and its key *names* something: the newest record of a name is what counts, and one
without a value (a tombstone) says that there is nothing under that name.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol, TypeAlias, TypeVar

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_raftlog.records.reader import Record

__all__ = ["CoordinatorShard", "Done", "KeyAndValue", "Name", "RecordOf", "Steps", "Table"]

Name: TypeAlias = tuple[Any, ...]
"""What a record's key names. Its first element is the owner: all that is on its way of one owner can be asked for."""
KeyAndValue: TypeAlias = tuple[bytes, bytes | None]
Done: TypeAlias = Callable[[ErrorCode], None]
"""Is told once what became of something that was appended."""
Steps: TypeAlias = Generator[None, None, None]
"""Long work in small pieces: it yields between two of them, and others run then."""

N = TypeVar("N")
T_contra = TypeVar("T_contra", contravariant=True)

RecordOf: TypeAlias = Callable[[N], KeyAndValue | None]
"""Returns the record that says what is committed under a name in this moment; None if nothing is."""


class Table(Protocol[N]):
    """What the committed records of one partition say, on every replica: followers' and the leader's."""

    @property
    def live_bytes(self) -> int:
        """About what the records that count take in the log."""

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
        """Return about what the record of a name takes in the log; 0 if there is none."""

    def prepare_in_steps(self, names: Iterable[N]) -> Generator[None, None, RecordOf[N]]:
        """Return what gives the records of these names; records that take long are encoded by then."""


class CoordinatorShard(Protocol[T_contra]):
    """What lives on one partition while this broker leads it: what serves clients, and ends with the leadership."""

    def build_in_steps(self, table: T_contra) -> Steps:
        """Make everything that is needed to serve out of what is committed. Nothing is served or appended yet.

        The table is this shard's from now on: it changes when something that was appended commits.
        """

    def begin_in_steps(self) -> Steps:
        """Start the deadlines of what was built: the shard is active."""

    def recover_in_steps(self) -> Steps:
        """Start the deadlines anew: this broker stood still, could hear nobody meanwhile, and leads still."""

    def end_in_steps(self, error: ErrorCode, *, was_active: bool) -> Steps:
        """Cancel the deadlines, and tell everybody who is parked `error`: nothing is served any more."""

    def settle_account(self) -> None:
        """Count anew what is held for clients: something was appended, or is committed, or the shard has ended."""

    @property
    def loaded_summary(self) -> str:
        """How much was loaded, in words for an operator."""

    @property
    def unloaded_summary(self) -> str:
        """How much is served no more, likewise."""
