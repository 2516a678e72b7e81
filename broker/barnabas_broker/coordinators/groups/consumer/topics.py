"""Knows the topics that exist, and which of them match the expressions that groups subscribe with. Pure.

A broker has one of these for all its groups: ten thousand groups with the same expression have one `TopicPattern`, and
a new topic is matched once with each expression. Kafka's server matches for each group, every ten minutes; here a new
topic is known to all groups as soon as the broker has heard of it.

    topics = KnownTopics()
    at_once(topics.take_in_steps([KnownTopic("orders-eu", topic_id, 8)]))
    pattern = topics.acquire("orders-.*")
    at_once(topics.resolve_in_steps())
    list(topics.names_of(pattern))  # ["orders-eu"]

*Work.* Compiling an expression takes 3 ms at most. What it matches is found in pieces, which the caller takes one after
the other beside all else (`resolve_in_steps`, one caller at a time); an expression is not resolved until then. On each
character of a name no more than all nodes of an expression are looked at.

Limits: `PATTERNS_MAX` expressions, and `NODES_MAX` nodes in all of them together, 35 MB. 300 bytes for each topic that
exists, and a bit for each expression and topic. What an expression has learnt while it was matched it then forgets.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from barnabas_broker.coordinators.patterns import Pattern

from .patterns import TopicPattern

__all__ = ["NODES_MAX", "PATTERNS_MAX", "KnownTopic", "KnownTopics", "TooManyPatternsError"]

PATTERNS_MAX = 4_000
NODES_MAX = 100_000
PIECE = 200
"""Topics that are passed between two yields: 1 ms, beside what matching takes."""
LOOKS = 5_000
"""Likewise, how often an expression is asked for its bit."""


class TooManyPatternsError(Exception):
    """The groups of this broker have no room for another expression."""


class KnownTopic(NamedTuple):
    """One topic that exists."""

    name: str
    topic_id: bytes
    partition_count: int


class _Placed(NamedTuple):
    topic: KnownTopic
    place: int


class KnownTopics:
    """See the module."""

    def __init__(self) -> None:
        self._by_name: dict[str, _Placed] = {}
        self._places: list[_Placed | None] = []
        self._free: list[int] = []
        self._patterns: dict[str, TopicPattern] = {}
        self._nodes = 0
        self.version = 0
        """Goes up whenever a topic comes, goes or changes, and when an expression has been resolved."""

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> KnownTopic | None:
        placed = self._by_name.get(name)
        return None if placed is None else placed.topic

    def matches(self, pattern: TopicPattern, name: str) -> bool:
        """Tell whether a topic exists and is known to match."""
        placed = self._by_name.get(name)
        return placed is not None and pattern.has(placed.place)

    def names_of(self, pattern: TopicPattern) -> Iterator[str]:
        """Yield the names of topics that match, in no order that means anything."""
        return (topic.name for topic in self.topics_of(pattern))

    def topics_of(self, pattern: TopicPattern) -> Iterator[KnownTopic]:
        """Yield the topics that match, and none that is deleted meanwhile."""
        for place in pattern.places():
            placed = self._places[place]
            if placed is not None and pattern.has(place):
                yield placed.topic

    def acquire(self, text: str) -> TopicPattern:
        """Return the expression with its topics, for one more group; `release` gives it back.

        Raises:
            PatternError: it is none, or one that is not supported: INVALID_REGULAR_EXPRESSION.
            TooManyPatternsError: there is no room for it.
        """
        known = self._patterns.get(text)
        if known is None:
            pattern = Pattern.compile(text)
            if len(self._patterns) >= PATTERNS_MAX or self._nodes + pattern.node_count > NODES_MAX:
                raise TooManyPatternsError(
                    f"{len(self._patterns)} expressions with {self._nodes} parts are subscribed with on this broker"
                )
            known = self._patterns[text] = TopicPattern(pattern)
            self._nodes += pattern.node_count
        known.users += 1
        return known

    def release(self, pattern: TopicPattern) -> None:
        """Say that one group less subscribes with it; with the last one it goes."""
        pattern.users -= 1
        assert pattern.users >= 0
        if not pattern.users:
            assert self._patterns.pop(pattern.text) is pattern
            self._nodes -= pattern.pattern.node_count

    def take_in_steps(
        self, put: Iterable[KnownTopic], deleted: Iterable[KnownTopic] = ()
    ) -> Generator[None, None, None]:
        """Take in that topics are gone, and that others exist now or have other partitions.

        A topic that is deleted and one that is put may have one name: the new one counts, if it has another id.
        """
        gone = iter(deleted)
        while piece := list(islice(gone, self._piece())):
            for topic in piece:
                placed = self._by_name.get(topic.name)
                if placed is not None and placed.topic.topic_id == topic.topic_id:
                    self._remove(placed)
            yield
        left = iter(put)
        while piece := list(islice(left, self._piece())):
            new = [placed for topic in piece if (placed := self._put(topic)) is not None]
            yield
            for pattern in list(self._patterns.values()):
                yield from self._match(pattern, new)

    def resolve_in_steps(self) -> Generator[None, None, None]:
        """Find what matches for all expressions that are not resolved yet, one after the other."""
        while unresolved := [one for one in self._patterns.values() if not one.is_resolved]:
            yield
            for pattern in unresolved:
                yield from self._resolve(pattern)

    def _piece(self) -> int:
        """Return how many topics may be taken in at once: each looks at all expressions."""
        return max(1, min(PIECE, LOOKS // (len(self._patterns) + 1)))

    def _resolve(self, pattern: TopicPattern) -> Generator[None, None, None]:
        start = 0
        # Topics that come meanwhile are matched when they come.
        while start < len(self._places) and pattern.users:
            piece = self._places[start : start + PIECE]
            yield from self._match(pattern, [placed for placed in piece if placed is not None])
            start += PIECE
            yield
        pattern.is_resolved = True
        self.version += 1

    def _match(self, pattern: TopicPattern, topics: Iterable[_Placed]) -> Generator[None, None, None]:
        """Find which of these topics match an expression."""
        for placed in topics:
            if (yield from pattern.matching(placed.topic.name)):
                now = self._places[placed.place]
                if now is not None and now.topic.name == placed.topic.name:  # Else it went meanwhile.
                    pattern.put(now.place)
                    self.version += 1
        pattern.pattern.forget()

    def _remove(self, placed: _Placed) -> None:
        for pattern in self._patterns.values():
            pattern.remove(placed.place)
        del self._by_name[placed.topic.name]
        self._places[placed.place] = None
        self._free.append(placed.place)
        self.version += 1

    def _put(self, topic: KnownTopic) -> _Placed | None:
        """Give a topic a place, and return that; None: it is a change of one that was there."""
        self.version += 1
        before = self._by_name.get(topic.name)
        if before is not None:
            self._by_name[topic.name] = self._places[before.place] = _Placed(topic, before.place)
            return None
        if not self._free:
            self._free.append(len(self._places))
            self._places.append(None)
        placed = _Placed(topic, self._free.pop())
        self._by_name[topic.name] = self._places[placed.place] = placed
        return placed
