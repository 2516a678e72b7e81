"""The errors of a client that got no usable answer from a broker. Pure.

An answer with an error code is a `KafkaError` (protocol/errors.py). The classes here are for the other cases: the
connection broke, the deadline passed, the broker speaks no common version. Both kinds have `retriable` and
`may_be_done`. If `retriable` is true, the same call may succeed later or elsewhere. It does not say that nothing has
happened: if `may_be_done` is true, the request may have been carried out, which matters to callers who must not do a
thing twice.
"""

from typing import ClassVar

from barnabas_raftlog.errors import BarnabasError

__all__ = [
    "ClientClosedError",
    "ClientError",
    "CommitFailedError",
    "ConnectionLostError",
    "DeadlineExceededError",
    "UnknownLeaderError",
    "UnsupportedVersionError",
]


class ClientError(BarnabasError):
    """Base of the failures without an answer of a broker that explains them."""

    retriable: ClassVar[bool] = False
    may_be_done = False
    """The request had left when the failure came, so it may have been carried out, or will be."""


class ConnectionLostError(ClientError):
    """The connection to `broker` could not be opened, or ended before the answer came."""

    retriable = True

    def __init__(self, broker: str, reason: str, *, may_be_done: bool = False) -> None:
        super().__init__(f"connection to {broker}: {reason}")
        self.broker = broker
        self.reason = reason
        self.may_be_done = may_be_done


class DeadlineExceededError(ClientError, TimeoutError):
    """The caller's deadline passed. The answer to a request that was sent is discarded."""

    retriable = True

    def __init__(self, text: str, *, may_be_done: bool = False) -> None:
        super().__init__(text)
        self.may_be_done = may_be_done


class UnsupportedVersionError(ClientError):
    """Client and broker share no version of an API."""


class UnknownLeaderError(ClientError):
    """The metadata names no leader for a partition, or a broker that the metadata does not list."""

    retriable = True


class ClientClosedError(ClientError):
    """The client was closed while the call was under way, or before it."""


class CommitFailedError(ClientError):
    """Positions were not stored, because this member had lost the partitions, or its membership."""
