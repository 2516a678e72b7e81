"""Remembers what happened on this broker and why, and which clients read what.

`EventHistory` keeps the last facts with their time, and writes each as one log line, at the level that `LEVELS` has for
its kind, as long as they come no faster than somebody could make use of: when thousands of groups elect leaders, the
lines cost more than the elections. Names and reasons that clients and peers chose are spelled out (`printable`).
`FetchCounters` keeps, for each client id and partition, how often and what ranges of offsets were read, so that one can
see that two readers shared the work, or that nobody read a range.

Limits: `EVENTS_MAX` events; `LINES_PER_SECOND` log lines, and `LINES_PER_TENTH` in a tenth of one, beyond which they
are counted, and the next second begins with how many of each kind there were; `READERS_MAX` (client, partition) pairs,
the one unused for longest goes first; `CLIENT_ID_CHARACTERS_MAX` of a client id; `RANGES_MAX` ranges a pair, beyond
which the two closest neighbours become one.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from barnabas_raftlog.printable import printable
from barnabas_raftlog.raft.messages import Fact

__all__ = ["EventHistory", "FetchCounters", "add_range"]

EVENTS_MAX = 1_000
READERS_MAX = 10_000
CLIENT_ID_CHARACTERS_MAX = 255
RANGES_MAX = 64
LINES_PER_SECOND = 100
LINES_PER_TENTH = 25  # A line takes 100 us, and thousands of events may be of one moment.
# Events that somebody should look at; all others are INFO.
LEVELS = {
    "replica failed": logging.ERROR,
    "storage failed": logging.ERROR,
    "segment damaged": logging.ERROR,
    "segment not repaired": logging.ERROR,
    "no term left": logging.ERROR,
    "replica suspended": logging.WARNING,
    "storage hampered": logging.WARNING,
    "long callback": logging.WARNING,
    "no room": logging.WARNING,
    "connections limited": logging.WARNING,
    "message refused": logging.WARNING,
    "token redeemed": logging.WARNING,
    "acknowledged records may be missing": logging.WARNING,
    "lost marker replaced": logging.WARNING,
    "lost marker refused": logging.ERROR,
}

logger = logging.getLogger(__name__)


class EventHistory:
    """The last events, oldest first: (milliseconds since 1970, kind, subject, cause)."""

    def __init__(self, wall_clock: Callable[[], int]) -> None:
        self._wall_clock = wall_clock
        self._events: deque[tuple[int, str, str, str]] = deque(maxlen=EVENTS_MAX)
        self._second = -1  # of the newest event
        self._lines = 0  # that this second has
        self._tenth = -1  # of a second, likewise
        self._lines_of_tenth = 0
        self._unsaid: dict[str, int] = {}  # events of that second without a line, by their kind

    def add(self, kind: str, subject: str, cause: str) -> None:
        """Remember an event and log it."""
        now_ms = self._wall_clock()
        subject = printable(subject)
        cause = printable(cause)
        self._events.append((now_ms, kind, subject, cause))
        if now_ms // 1000 != self._second:
            self._second = now_ms // 1000
            self._lines = 0
            unsaid, self._unsaid = self._unsaid, {}
            for name, count in unsaid.items():
                logger.log(LEVELS.get(name, logging.INFO), "%s: %d more, too many for a line each", name, count)
        if now_ms // 100 != self._tenth:
            self._tenth = now_ms // 100
            self._lines_of_tenth = 0
        if self._lines < LINES_PER_SECOND and self._lines_of_tenth < LINES_PER_TENTH:
            self._lines += 1
            self._lines_of_tenth += 1
            fields = {"event": kind, "subject": subject, "cause": cause}
            level = LEVELS.get(kind, logging.INFO)
            logger.log(level, "%s: %s: %s", subject, kind, cause, extra={"fields": fields})
        else:
            self._unsaid[kind] = self._unsaid.get(kind, 0) + 1

    def add_fact(self, subject: str, fact: Fact) -> None:
        """Remember a fact that a pure core has reported."""
        self.add(fact.kind, subject, f"{fact.cause} (term {fact.term})" if fact.term else fact.cause)

    def to_list(self) -> list[dict[str, Any]]:
        return [
            {"time_ms": time_ms, "kind": kind, "group": subject, "cause": cause}
            for time_ms, kind, subject, cause in self._events
        ]


class FetchCounters:
    """Requests, bytes and offset ranges by client id and partition."""

    def __init__(self) -> None:
        self._readers: dict[tuple[str, str, int], list[Any]] = {}

    def add(self, client_id: str, topic: str, partition: int, size_bytes: int, start: int, end: int) -> None:
        """Count one answer with the records [start, end)."""
        key = (client_id[:CLIENT_ID_CHARACTERS_MAX], topic, partition)
        reader = self._readers.pop(key, None)
        if reader is None:
            reader = [0, 0, []]
            if len(self._readers) >= READERS_MAX:
                del self._readers[next(iter(self._readers))]
        self._readers[key] = reader
        reader[0] += 1
        reader[1] += size_bytes
        ranges: list[list[int]] = reader[2]
        if ranges and ranges[-1][1] == start:
            ranges[-1][1] = end  # a reader that goes on where it was: nearly every fetch
        else:
            add_range(ranges, start, end)

    def to_list(self) -> list[dict[str, Any]]:
        return [
            {"client_id": client_id, "topic": topic, "partition": partition}
            | {"requests": requests, "bytes": size_bytes, "ranges": ranges}
            for (client_id, topic, partition), (requests, size_bytes, ranges) in self._readers.items()
        ]


def add_range(ranges: list[list[int]], start: int, end: int) -> None:
    """Unite [start, end) with `ranges`: sorted, disjoint, not touching; at most `RANGES_MAX` of them."""
    position = 0
    while position < len(ranges) and ranges[position][1] < start:
        position += 1
    last = position
    while last < len(ranges) and ranges[last][0] <= end:
        start, end = min(start, ranges[last][0]), max(end, ranges[last][1])
        last += 1
    ranges[position:last] = [[start, end]]
    if len(ranges) > RANGES_MAX:
        closest = min(range(len(ranges) - 1), key=lambda i: ranges[i + 1][0] - ranges[i][1])
        ranges[closest : closest + 2] = [[ranges[closest][0], ranges[closest + 1][1]]]
