"""Remembers which topics an expression that groups subscribe with matches. Pure.

The expressions are RE2's, and match whole names (`../../patterns.py`). A topic is a place here, a number that
`topics.py` gives it, and what matches is a row of bits: a hundred thousand topics are 12.5 KB, whoever subscribes to
`.*`.
"""

from collections.abc import Generator, Iterator

from barnabas_broker.coordinators.patterns import Pattern

__all__ = ["TopicPattern"]


class TopicPattern:
    """One expression, and the places of the topics that match it."""

    __slots__ = ("_bits", "count", "heard", "is_queued", "is_resolved", "looked_at", "pattern", "spent", "users")

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.is_resolved = False
        """Whether all topics were looked at; until then some that match are missing."""
        self.users = 0
        """Groups that subscribe with it."""
        self.looked_at: int | None = 0
        """Places below this were looked at; None: all, but for what is news."""
        self.heard = 0
        """Where in the news it is (`topics.py`)."""
        self.spent = 0
        """Work that was done for it since there was none to do."""
        self.is_queued = False
        self.count = 0
        """Topics that match."""
        self._bits = bytearray()

    @property
    def text(self) -> str:
        return self.pattern.text

    @property
    def held_bytes(self) -> int:
        return self.pattern.held_bytes + len(self._bits)

    def has(self, place: int) -> bool:
        number = place >> 3
        return number < len(self._bits) and bool(self._bits[number] >> (place & 7) & 1)

    def put(self, place: int) -> None:
        """Say that the topic at a place matches; nothing changes if that was known."""
        if self.has(place):
            return
        missing = (place >> 3) + 1 - len(self._bits)
        if missing > 0:
            self._bits.extend(bytes(missing))
        self._bits[place >> 3] |= 1 << (place & 7)
        self.count += 1

    def remove(self, place: int) -> None:
        """Say that the topic at a place is gone; nothing changes if it did not match."""
        if self.has(place):
            self._bits[place >> 3] &= ~(1 << (place & 7))
            self.count -= 1

    def places(self) -> Iterator[int]:
        """Yield the places of topics that match, in ascending order, and none that is removed meanwhile."""
        number = 0
        while number < len(self._bits):
            byte = self._bits[number]
            for bit in range(8) if byte else ():
                if byte >> bit & 1:
                    yield 8 * number + bit
            number += 1

    def matching(self, name: str) -> Generator[None, None, bool]:
        """Return whether a topic's name matches; yield between pieces of work."""
        return self.pattern.matching(name)
