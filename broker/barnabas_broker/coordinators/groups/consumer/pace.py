"""Says how soon members that hurry come again, so that all of a broker's together do not come too often. Pure.

While its group changes a member is to come again soon, or the others wait for it. If ten thousand groups change at
once, nobody would be served: so each of those members gets an appointment, and these are `1000 / APART_MS` in a second
at the most. Whoever would have to wait longer than a member that does not hurry comes when that one does.
"""

from typing import Final

__all__ = ["APART_MS", "Pace"]

APART_MS: Final = 2
"""So far apart are appointments: 500 heartbeats in a second."""


class Pace:
    """One for all groups of a broker. `_free_ms`: when the next appointment is free."""

    __slots__ = ("_free_ms",)

    def __init__(self) -> None:
        self._free_ms = -(1 << 62)

    def interval_ms(self, wanted_ms: int, longest_ms: int, now_ms: int) -> int:
        """Return in how many milliseconds a member is to come that is wanted so soon, `longest_ms` at the most."""
        at_ms = max(now_ms + wanted_ms, self._free_ms)
        if at_ms > now_ms + longest_ms:
            return longest_ms
        # What was free before then was not wanted: many may come at once that are not too many in a while.
        self._free_ms = max(self._free_ms, now_ms) + APART_MS
        return at_ms - now_ms
