"""What can go wrong between a client and a cluster, apart from the answers that carry a Kafka error code. Pure.

An answer with an error code is a `KafkaError` (protocol/errors.py). The classes here are for when no usable answer
came: the connection broke, the deadline passed, the broker speaks no common version. Both kinds have `retriable`,
which says whether the same call may succeed later or elsewhere without the caller changing anything. It does not
say that nothing has happened: that is `may_be_done`, which both have, for callers who must not do a thing twice.
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
    """Base of the failures in which no answer of a broker says what is wrong."""

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
    """The caller's deadline passed. The answer to a request already sent will be discarded."""

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
    """Positions were not stored, because this member lost the partitions, or its membership, before they were."""
