"""What Apache Kafka 4.4 offers and Barnabas does not, and why: docs/protocol.md shows it, and `test_talks` checks it."""

from typing import NamedTuple

__all__ = ["LEFT_OUT", "LeftOut"]


class LeftOut(NamedTuple):
    """An API of Kafka's, or the versions of one from `since` on, that a broker with default settings does not offer."""

    key: int
    name: str
    reason: str
    since: int = 0


LEFT_OUT: tuple[LeftOut, ...] = ()
