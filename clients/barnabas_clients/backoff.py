"""Computes the pause before the next attempt. Pure.

The pauses grow exponentially, with jitter in the upper half of each step: attempt n waits between half and all of
`initial_s * 2**n`, at most `limit_s`. The jitter keeps a thousand clients that lost the same broker from coming back in
step. The fixed lower half keeps the first retry from being instant.
"""

from typing import NamedTuple, Protocol

__all__ = ["Backoff", "Jitter"]


class Jitter(Protocol):
    """The part of `random.Random` that is used here."""

    def random(self) -> float: ...


class Backoff(NamedTuple):
    """A policy. Kafka's defaults are 100 ms and 1 s (`retry.backoff.ms`, `retry.backoff.max.ms`).

    Ours start lower, because an election here takes tens of milliseconds and the first retry usually finds the
    new leader.
    """

    initial_s: float = 0.02
    limit_s: float = 1.0

    def delay_s(self, attempt: int, jitter: Jitter) -> float:
        """Return the pause after failed attempt `attempt`, counted from 0."""
        assert attempt >= 0
        # The limit is reached long before 2**30; the bound keeps the power a small number.
        step = min(self.limit_s, self.initial_s * 2.0 ** min(attempt, 30))
        return step * (0.5 + jitter.random() / 2)
