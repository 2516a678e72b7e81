"""Knows the topics that exist, and which of them match the expressions that groups subscribe with. Pure.

A broker has one of these for all its groups: ten thousand groups with the same expression have one `TopicPattern`, and
a new topic is matched once with each expression. Kafka's server matches for each group, every ten minutes; here a new
topic is known to all groups as soon as the broker has heard of it.

    topics = KnownTopics()
    at_once(topics.take_in_steps([KnownTopic("orders-eu", topic_id, 8)]))
    pattern = topics.acquire("orders-.*")
    at_once(topics.resolve_in_steps())
    list(topics.names_of(pattern))  # ["orders-eu"]

*Work.* Compiling an expression takes 3 ms at most. That a topic is there is known at once (`take_in_steps`); which
expressions match it is found in pieces, which the caller takes one after the other beside all else
(`resolve_in_steps`, one caller at a time). On each character of a name no more than all nodes of an expression are
looked at.

*Turns.* An expression that takes long harms itself: the next piece is for the one for which least was done since it had
nothing to do. So what is quick is done first, whatever else there is, and a hostile expression delays the others by one
name of its own.

Limits: `PATTERNS_MAX` expressions, and `NODES_MAX` nodes in all of them together, 35 MB. 400 bytes for each topic that
exists, and a bit for each expression and topic. What an expression has learnt while it was matched it then forgets. New
topics are news until all expressions have seen them; if these are more than all topics, whoever has not looks at all
topics again. The names of the last `CHANGES_MAX` topics that changed are kept.
"""

from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from heapq import heappop, heappush
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
LONG = 25
"""A pause in the midst of a name counts as so many topics that are passed."""
CHANGES_MAX = 1_000
NEWS_SPARE = 1_000  # topics beyond all that there are


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
        self._names: dict[bytes, str] = {}
        self._places: list[_Placed | None] = []
        self._free: list[int] = []
        self._patterns: dict[str, TopicPattern] = {}
        self._nodes = 0
        self._checked: Pattern | None = None
        self._news: list[_Placed] = []
        self._news_start = 0  # how many were before these
        self._queue: list[tuple[int, int, TopicPattern]] = []  # a heap: work done, and in which order they came
        self._queued_count = 0
        self._changes: deque[tuple[int, str]] = deque()
        self._forgotten_version = 0
        self.version = 0
        """Goes up whenever a topic comes, goes or changes, and when an expression has been resolved."""

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> KnownTopic | None:
        placed = self._by_name.get(name)
        return None if placed is None else placed.topic

    def name_of(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def changed_since(self, version: int) -> Collection[str] | None:
        """Return the names of topics that came, went or changed since then; None: too many to remember."""
        if version < self._forgotten_version:
            return None
        found = []
        for changed_at, name in reversed(self._changes):
            if changed_at <= version:
                break
            found.append(name)
        return found

    @property
    def is_behind(self) -> bool:
        """Whether there is something that expressions have not looked at."""
        return bool(self._queue)

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

    def check(self, text: str) -> None:
        """Find out whether `acquire` would return the expression. Raises as that does."""
        if text not in self._patterns:
            self._checked = self._compiled(text)

    def acquire(self, text: str) -> TopicPattern:
        """Return the expression with its topics, for one more group; `release` gives it back.

        Raises:
            PatternError: it is none, or one that is not supported: INVALID_REGULAR_EXPRESSION.
            TooManyPatternsError: there is no room for it.
        """
        known = self._patterns.get(text)
        if known is None:
            pattern = self._compiled(text)
            self._checked = None
            known = self._patterns[text] = TopicPattern(pattern)
            self._nodes += pattern.node_count
            known.heard = self._news_start + len(self._news)
            self._enqueue(known)
        known.users += 1
        return known

    def _compiled(self, text: str) -> Pattern:
        # Whoever has it checked acquires it in the same breath.
        checked = self._checked
        pattern = checked if checked is not None and checked.text == text else Pattern.compile(text)
        if len(self._patterns) >= PATTERNS_MAX or self._nodes + pattern.node_count > NODES_MAX:
            raise TooManyPatternsError(
                f"{len(self._patterns)} expressions with {self._nodes} parts are subscribed with on this broker"
            )
        return pattern

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

        A topic that is deleted and one that is put may have one name: the new one counts, if it has another id. What
        expressions match of them is found later.
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
            self._tell([placed for topic in piece if (placed := self._put(topic)) is not None])
            yield

    def resolve_in_steps(self) -> Generator[None, None, None]:
        """Find what matches until all expressions have looked at all topics."""
        while self._queue:
            _, _, pattern = heappop(self._queue)
            pattern.is_queued = False
            yield from self._serve(pattern)
            if self._has_work(pattern):
                self._enqueue(pattern)
            else:
                pattern.spent = 0
            yield
        self._news_start += len(self._news)
        self._news = []

    def _piece(self) -> int:
        """Return how many topics may be taken in at once: each looks at all expressions."""
        return max(1, min(PIECE, LOOKS // (len(self._patterns) + 1)))

    def _enqueue(self, pattern: TopicPattern) -> None:
        pattern.is_queued = True
        self._queued_count += 1
        heappush(self._queue, (pattern.spent, self._queued_count, pattern))

    def _has_work(self, pattern: TopicPattern) -> bool:
        is_behind = pattern.looked_at is not None or pattern.heard < self._news_start + len(self._news)
        return is_behind and pattern.users > 0

    def _tell(self, new: Sequence[_Placed]) -> None:
        """Let all expressions have a look at new topics."""
        if len(self._news) > len(self._places) + NEWS_SPARE:
            self._cut_news()
        if not new or not self._patterns:
            return
        self._news += new
        for pattern in self._patterns.values():
            if not pattern.is_queued:
                self._enqueue(pattern)

    def _cut_news(self) -> None:
        self._news_start += len(self._news)
        self._news = []
        for pattern in self._patterns.values():
            if pattern.heard < self._news_start:
                pattern.heard = self._news_start
                pattern.looked_at = 0

    def _serve(self, pattern: TopicPattern) -> Generator[None, None, None]:
        """Do a piece of work for an expression."""
        end = pattern.spent + PIECE
        while pattern.spent < end and self._has_work(pattern):
            placed = self._next_for(pattern)
            pattern.spent += 1
            if placed is None:
                continue
            steps = pattern.matching(placed.topic.name)
            while (is_match := _outcome(steps)) is None:
                pattern.spent += LONG
                yield
            now = self._places[placed.place]
            if is_match and now is not None and now.topic.name == placed.topic.name:  # Else it went meanwhile.
                pattern.put(now.place)
                self.version += 1
        pattern.pattern.forget()

    def _next_for(self, pattern: TopicPattern) -> _Placed | None:
        """Go on to what an expression has not looked at: the topics in their places, then those that came meanwhile."""
        if pattern.looked_at is not None:
            if pattern.looked_at < len(self._places):
                pattern.looked_at += 1
                return self._places[pattern.looked_at - 1]
            pattern.looked_at = None
            if not pattern.is_resolved:
                pattern.is_resolved = True
                self.version += 1
            return None
        pattern.heard += 1
        return self._news[pattern.heard - 1 - self._news_start]

    def _note(self, name: str) -> None:
        self.version += 1
        self._changes.append((self.version, name))
        if len(self._changes) > CHANGES_MAX:
            self._forgotten_version, _ = self._changes.popleft()

    def _remove(self, placed: _Placed) -> None:
        for pattern in self._patterns.values():
            pattern.remove(placed.place)
        del self._by_name[placed.topic.name]
        self._names.pop(placed.topic.topic_id, None)
        self._places[placed.place] = None
        self._free.append(placed.place)
        self._note(placed.topic.name)

    def _put(self, topic: KnownTopic) -> _Placed | None:
        """Give a topic a place, and return that; None: it is a change of one that was there."""
        self._note(topic.name)
        before = self._by_name.get(topic.name)
        if before is not None:
            self._names.pop(before.topic.topic_id, None)
        self._names[topic.topic_id] = topic.name
        if before is not None:
            self._by_name[topic.name] = self._places[before.place] = _Placed(topic, before.place)
            return None
        if not self._free:
            self._free.append(len(self._places))
            self._places.append(None)
        placed = _Placed(topic, self._free.pop())
        self._by_name[topic.name] = self._places[placed.place] = placed
        return placed


def _outcome(steps: Generator[None, None, bool]) -> bool | None:
    """Take a step; None: it was not the last."""
    try:
        next(steps)
    except StopIteration as end:
        return bool(end.value)
    return None
