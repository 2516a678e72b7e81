"""Says how soon members come again, so that all of a broker's together do not come too often. Pure.

Members hear of what has changed in their group when they come, and only then. So they had better come soon; if ten
thousand did, nobody would be served. Each of them gets an appointment, and appointments are `apart_ms` from one
another. Whoever would have to wait longer than the longest interval there is comes when that has passed.

No heartbeat is held back until there is news: a connection's answers come in order, so the commits of a member that
shares one between both, as Java's and librdkafka's do, would wait behind it.

- *While its group changes* a member hurries, or the others wait for it: 500 in a second at the most.
- *In a group that has settled* it comes as soon as that goes with 200 in a second: 100 members of a broker twice a
  second, 1,000 of them every five seconds. Such a heartbeat takes a broker 0.04 ms behind others of its connection, and
  about 0.1 ms alone, so all of them take 2 % of a processor at the most; and whoever joins a small group waits half a
  second for the others, not five.
"""

from typing import Final

__all__ = ["HURRIED_APART_MS", "SETTLED_APART_MS", "Pace"]

HURRIED_APART_MS: Final = 2
SETTLED_APART_MS: Final = 5


class Pace:
    """The appointments of one kind, for all groups of a broker. `_free_ms`: when the next one is free."""

    __slots__ = ("_apart_ms", "_free_ms")

    def __init__(self, apart_ms: int) -> None:
        self._apart_ms = apart_ms
        self._free_ms = -(1 << 62)

    def interval_ms(self, wanted_ms: int, longest_ms: int, now_ms: int) -> int:
        """Return in how many milliseconds a member is to come that is wanted so soon, `longest_ms` at the most."""
        at_ms = max(now_ms + wanted_ms, self._free_ms)
        if at_ms > now_ms + longest_ms:
            return longest_ms
        # What was free before then was not wanted: many may come at once that are not too many in a while.
        self._free_ms = max(self._free_ms, now_ms) + self._apart_ms
        return at_ms - now_ms
