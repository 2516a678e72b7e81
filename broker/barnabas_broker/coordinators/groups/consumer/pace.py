"""Says how soon members come again, and how long new groups wait for members, so that they do not come too often. Pure.

Members hear of what has changed in their group when they come, and only then. So they had better come soon; if ten
thousand did, nobody would be served. Each of them gets an appointment, and appointments are `apart_ms` from one
another. Whoever would have to wait longer than the longest interval there is comes when that has passed.

No heartbeat is held back until there is news: a connection's answers come in order, so the commits of a member that
shares one between both, as Java's and librdkafka's do, would wait behind it.

- *While somebody in its group is waited for* a member hurries: 500 in a second at the most.
- *While nobody is* it comes as soon as that goes with 200 in a second: 100 members of a broker twice a second, 1,000 of
  them every five seconds. Such a heartbeat takes a broker 0.04 ms behind others of its connection, and about 0.1 ms
  alone, so all of them take 2 % of a processor at the most; and whoever joins a small group waits half a second for the
  others, not five. A group that has just changed is looked at sooner, out of the same appointments: when a thousand
  groups start, those that are ready must not keep the others from it.

*New groups* wait a little for their first members, for a target that comes too soon is made again, and everybody has to
give something up. How long is no matter of the group alone (`Gathering`).
"""

from collections import deque
from typing import Final

__all__ = ["HURRIED_APART_MS", "SETTLED_APART_MS", "Gathering", "Pace"]

HURRIED_APART_MS: Final = 2
SETTLED_APART_MS: Final = 5
CROWD: Final = 20
"""So many newcomers of new groups within `CROWD_MS` are a crowd."""
CROWD_MS: Final = 200
CROWD_FACTOR: Final = 10
"""In a crowd a group waits so many times as long as alone, at the most."""


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


class Gathering:
    """Until when the new groups of a broker wait for members, all of which tell of theirs.

    The members of a group are mostly started within a moment. If a thousand groups are started, the first two members
    of one do not come within that: there are a thousand others between them, and the broker is busy. So while newcomers
    are a crowd all groups that are new wait until there is none any more.
    """

    __slots__ = ("_came_at_ms",)

    def __init__(self) -> None:
        self._came_at_ms: deque[int] = deque(maxlen=CROWD)

    def come(self, now_ms: int) -> None:
        """Take in that a member has come to a group that waits."""
        self._came_at_ms.append(now_ms)

    def until_ms(self, since_ms: int, alone_ms: int) -> int:
        """Return until when a group waits whose first member came at `since_ms`; it may become later."""
        until_ms = since_ms + alone_ms
        came = self._came_at_ms
        if len(came) < CROWD or came[-1] - came[0] > CROWD_MS:
            return until_ms
        return min(max(until_ms, came[-1] + CROWD_MS), since_ms + CROWD_FACTOR * alone_ms)
