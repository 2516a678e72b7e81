"""Tells when a computer gave processes no processor: what they missed in such a moment is not their doing.

A thread that could run and does not is counted by the kernel (`schedstat`): the count of a waiting thread grows as soon
as it runs again. Where the kernel does not count, nothing is seen.
"""

from collections.abc import Iterable
from pathlib import Path

__all__ = ["WAIT_S", "Waits", "waited_s"]

WAIT_S = 0.25
"""A process is starved while its first thread waits for so long: a quarter of what makes a broker silent by default."""


def waited_s(pid: int) -> float | None:
    """Return how long the first thread of a process has waited for a processor, in s, or None if that is not known."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        return None  # It has ended, or nothing is counted here.


class Waits:
    """The spans in which one of some processes was starved, from samples. Pure. Times are seconds of any one clock.

    Samples are to come more often than `WAIT_S`: many short waits between two are taken for a long one.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, float]] = {}
        self.spans: list[tuple[float, float]] = []

    def sample(self, at_s: float, waits: Iterable[tuple[int, float]]) -> None:
        """Take in how long each process (its id, s) has waited so far. Samples come in the order of time."""
        for pid, waited in waits:
            last_s, before = self._last.get(pid, (at_s, waited))
            self._last[pid] = at_s, waited
            if waited - before >= WAIT_S:
                # It may have begun to wait before the sample before, and be counted only now.
                self._add(min(last_s, at_s - (waited - before)), at_s)

    def _add(self, since_s: float, until_s: float) -> None:
        while self.spans and since_s <= self.spans[-1][1]:
            since_s = min(since_s, self.spans.pop()[0])
        self.spans.append((since_s, until_s))
