"""Counts rows over time, in bins that grow with the time that they cover. Pure."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["BINS_MAX", "Timeline", "joined"]

BINS_MAX = 256
_SECOND_US = 1_000_000


class Timeline(NamedTuple):
    """How many rows have a timestamp in [bin * width_s, (bin + 1) * width_s), in seconds since 1970, by bin.

    Widths are powers of two, so bins of one width are whole bins of a larger one.
    """

    width_s: int = 1
    counts: tuple[tuple[int, int], ...] = ()

    def with_times(self, times_us: Any) -> "Timeline":
        """Return it with more rows; `times_us` is an array of microseconds since 1970."""
        bins, counts = np.unique(times_us // (_SECOND_US * self.width_s), return_counts=True)
        return joined((self, Timeline(self.width_s, tuple(zip(bins.tolist(), counts.tolist(), strict=True)))))


def joined(timelines: Iterable[Timeline]) -> Timeline:
    """Return the sum of some, with at most `BINS_MAX` bins from the first to the last one that has rows."""
    found = list(timelines)
    width_s = max((one.width_s for one in found), default=1)
    counts: dict[int, int] = {}
    for one in found:
        for at, count in one.counts:
            place = at * one.width_s // width_s
            counts[place] = counts.get(place, 0) + count
    while counts and max(counts) - min(counts) >= BINS_MAX:
        width_s *= 2
        halved: dict[int, int] = {}
        for at, count in counts.items():
            halved[at // 2] = halved.get(at // 2, 0) + count
        counts = halved
    return Timeline(width_s, tuple(sorted(counts.items())))
