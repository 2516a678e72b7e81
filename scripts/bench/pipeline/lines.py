"""Judges what was measured: one line of the table each, with its limit. Pure."""

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

__all__ = [
    "Latencies",
    "Limit",
    "Line",
    "Pause",
    "at_least",
    "at_most",
    "latencies_of",
    "noise_of",
    "not_above",
    "pauses_of",
]

PAUSE_MS = 1_000


class Limit(NamedTuple):
    """What a line has to keep to: a bound of the ratio to the other side, or of the figure itself.

    `is_above`: the figure must not be larger; else it must not be smaller.
    """

    bound: float
    is_above: bool
    is_of_ratio: bool = True

    @property
    def text(self) -> str:
        return f"{'<=' if self.is_above else '>='} {self.bound:g}{'x' if self.is_of_ratio else ''}"

    def holds(self, value: float) -> bool:
        return value <= self.bound if self.is_above else value >= self.bound


def at_least(ratio: float) -> Limit:
    """Return the limit of a rate: so many times the other side's, or more."""
    return Limit(ratio, is_above=False)


def at_most(ratio: float) -> Limit:
    """Return the limit of a time: so many times the other side's, or less."""
    return Limit(ratio, is_above=True)


def not_above(value: float) -> Limit:
    """Return the limit of a figure that is compared with nothing."""
    return Limit(value, is_above=True, is_of_ratio=False)


class Line(NamedTuple):
    """One line of the table. `ours` and `theirs` have a figure of each round; `limit` None: shown, not judged.

    Attributes:
        mode: How the brokers write: `page-cache` or `synced`.
        beside: What `theirs` are figures of; "" if there is nothing.
        instead: A line whose limit may hold in place of this one's.
    """

    part: str
    what: str
    mode: str
    unit: str
    ours: Sequence[float]
    theirs: Sequence[float] = ()
    beside: str = ""
    limit: Limit | None = None
    remark: str = ""
    instead: "Line | None" = None

    @property
    def median(self) -> float:
        return statistics.median(self.ours)

    @property
    def ratio(self) -> float | None:
        """The median of ours as a multiple of the median of theirs."""
        return self.median / other if self.theirs and (other := statistics.median(self.theirs)) else None

    @property
    def verdict(self) -> str:
        """`holds`, `the other holds`, `BROKEN`, or "" where there is no limit.

        A ratio that cannot be taken breaks its limit.
        """
        if self.limit is None:
            return ""
        value = self.ratio if self.limit.is_of_ratio else self.median
        if value is not None and self.limit.holds(value):
            return "holds"
        return "the other holds" if self.instead is not None and self.instead.verdict == "holds" else "BROKEN"


class Latencies(NamedTuple):
    """Two percentiles of one round, in milliseconds, and of how many records."""

    p50_ms: float
    p99_ms: float
    records: int


def latencies_of(arrivals: Sequence[tuple[int, int]], start_ms: int, end_ms: int) -> Latencies:
    """Return the latencies of the records whose timestamps are in [start_ms, end_ms).

    `arrivals` are pairs of a record's timestamp and of the sink's clock when it came, both in milliseconds.

    Raises:
        ValueError: there is no such record.
    """
    ranked = sorted(at_ms - timestamp for timestamp, at_ms in arrivals if start_ms <= timestamp < end_ms)
    if not ranked:
        raise ValueError("no record of the measured time came to the sink")
    return Latencies(_ranked(ranked, 0.5), _ranked(ranked, 0.99), len(ranked))


def _ranked(ranked: Sequence[int], share: float) -> float:
    return float(ranked[min(len(ranked) - 1, int(share * len(ranked)))])


class Pause(NamedTuple):
    """Records that were late one after the other: since when and for how long, as their timestamps tell."""

    since_s: float
    lasts_s: float
    records: int
    worst_ms: int

    @property
    def text(self) -> str:
        return (
            f"{self.records:,} records of {self.lasts_s:.1f} s, from second {self.since_s:.1f} on, came up to "
            f"{self.worst_ms:,} ms late"
        )


def pauses_of(arrivals: Sequence[tuple[int, int]], start_ms: int, end_ms: int) -> list[Pause]:
    """Return when records with timestamps in [start_ms, end_ms) came more than `PAUSE_MS` late.

    A percentile tells how many were late, and not whether that was once or all the time.
    """
    pauses = list[Pause]()
    begin = last = 0
    records = worst_ms = 0
    late = sorted((sent, at - sent) for sent, at in arrivals if start_ms <= sent < end_ms and at - sent > PAUSE_MS)
    for sent, late_ms in [*late, (end_ms + 2 * PAUSE_MS, 0)]:
        if records and sent - last > PAUSE_MS:
            pauses.append(Pause((begin - start_ms) / 1000, (last - begin) / 1000, records, worst_ms))
            records = worst_ms = 0
        if not records:
            begin = sent
        last = sent
        records += 1
        worst_ms = max(worst_ms, late_ms)
    return pauses


def noise_of(rounds: Sequence[float]) -> str:
    """Return the least and the largest ratio of a round to the one before it, of one system; "" for one round."""
    ratios = [later / earlier for earlier, later in pairwise(rounds) if earlier]
    return f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
