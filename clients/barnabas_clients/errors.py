"""The errors of a client that got no usable answer from a broker. Pure.

An answer with an error code is a `KafkaError` (protocol/errors.py). The classes here are for the other cases: the
connection broke, the deadline passed, the broker speaks no common version. `BarnabasError` is the base of both kinds.
All have a `reason`, a `hint`, `retriable` and `may_be_done`. If `retriable` is true, the same call may succeed later or
elsewhere. It does not say that nothing has happened: unless `may_be_done` is false, the request may have been carried
out, which matters to callers who must not do a thing twice. Both kinds also have `abortable` and `fenced`, which say
what is left to do after a failure in a transaction.
"""

from typing import TypeVar

from barnabas_raftlog.errors import BarnabasError

__all__ = [
    "BarnabasError",
    "ClientClosedError",
    "ClientError",
    "CommitFailedError",
    "ConnectionLostError",
    "DeadlineExceededError",
    "SnapshotExistsError",
    "TransactionAbortedError",
    "UnknownLeaderError",
    "UnsupportedVersionError",
    "copy_of",
]

E = TypeVar("E", bound=BaseException)


def copy_of(error: E) -> E:
    """Return an error to raise in the place of one that is kept, and that others may be given, too.

    Whoever catches an error has its traceback, and with that the frames of all callers and what they hold. The one that
    is kept must not: a `Delivery` that one of them holds leads back to it, and is hidden from the garbage collector.
    """
    copy = type(error).__new__(type(error), *error.args)
    copy.args = error.args  # OSError's are made by __init__.
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    copy.__suppress_context__ = error.__suppress_context__
    return copy


class ClientError(BarnabasError):
    """Base of the failures without an answer of a broker that explains them."""

    retriable = False
    may_be_done: bool = False
    abortable: bool = False
    fenced: bool = False


class ConnectionLostError(ClientError):
    """The connection to `broker` could not be opened, or ended before the answer came."""

    retriable = True
    hint = "check that a broker runs at this address, and that it can be reached from here"

    def __init__(self, broker: str, reason: str, *, may_be_done: bool = False) -> None:
        super().__init__(f"connection to {broker}: {reason}")
        self.broker = broker
        self.reason = reason
        self.may_be_done = may_be_done


class DeadlineExceededError(ClientError, TimeoutError):
    """The caller's deadline passed. The answer to a request that was sent is discarded."""

    retriable = True
    hint = "try again, or give the call more time (timeout_s); the message says what went wrong last"

    def __init__(self, text: str, *, may_be_done: bool = False) -> None:
        super().__init__(text)
        self.may_be_done = may_be_done


class UnsupportedVersionError(ClientError):
    """Client and broker share no version of an API."""

    hint = "the broker is too old or too new for this call"


class SnapshotExistsError(ClientError):
    """The name has a snapshot already, and it stays."""

    hint = "delete it first, or take another name"


class UnknownLeaderError(ClientError):
    """The metadata names no leader for a partition, or a broker that the metadata does not list."""

    retriable = True
    hint = "wait for the election, or look for brokers that are down"


class ClientClosedError(ClientError):
    """The client is not open: it was closed before the call or meanwhile, or was never started."""

    hint = "use the client as `async with`, or between start() and stop()"


class CommitFailedError(ClientError):
    """Positions were not stored, because this member had lost the partitions, or its membership."""

    hint = "go on: the new owner of the partitions reads the records again"


class TransactionAbortedError(ClientError):
    """A record was not delivered, because its transaction was aborted, or has failed; `because` is why, if it failed.

    No reader of committed records is shown it, whatever has become of it.
    """

    hint = "send it again in another transaction"

    def __init__(self, partition: str, because: BarnabasError | None = None) -> None:
        why = "was aborted" if because is None else f"has failed: {because}"
        super().__init__(f"a record for {partition} was not delivered: its transaction {why}")
        self.because = because
        self.abortable = getattr(because, "abortable", False)
        self.fenced = getattr(because, "fenced", False)
