"""The counters of a producer. Pure."""

from typing import NamedTuple

__all__ = ["Counters", "ProducerMetrics"]


class Counters:
    """Counts since the start, as `ProducerMetrics` explains them."""

    __slots__ = ("batches", "bytes_sent", "epochs", "records_delivered", "records_failed", "requests", "retries")

    def __init__(self) -> None:
        self.records_delivered = 0
        self.records_failed = 0
        self.batches = 0
        self.requests = 0
        self.retries = 0
        self.bytes_sent = 0
        self.epochs = 0


class ProducerMetrics(NamedTuple):
    """Counts since a producer was opened, and its batches and requests now."""

    records_delivered: int
    records_failed: int
    batches: int
    requests: int
    retries: int
    """Batches that were sent once more."""
    bytes_sent: int
    """Record batches on the wire, repetitions included."""
    epochs: int
    """The number of times that a partition began a new epoch."""
    buffered_bytes: int
    """At most `buffer_bytes`."""
    buffered_batches: int
    requests_in_flight: int
    sends_waiting: int
