"""Counts what the members of a group subscribe to all together. Pure.

A member subscribes to names, or with an expression, or both; it gets what either gives. Members that subscribe alike
are one kind, and all is kept by kinds, because most groups have one. What an expression matches belongs to
`KnownTopics`, and is the same for all groups of a broker; so nothing here grows with the topics that it matches.

*The hash* tells whether a new target assignment is wanted though no member has come, gone or changed: it is another
one when a topic that somebody subscribes to comes, goes, or has another id or number of partitions. It is stored with
the group, and is the same on every broker that has the same members and the same topics. It is not Kafka's number,
which nobody but its writer looks at; like that it is 0 where no topic exists.

Not here: limits of names. A subscription has to be let in before it gets here: what is counted is the client's bytes.
"""

from collections.abc import Collection, Generator, Iterable
from typing import NamedTuple

from .patterns import DIGEST_MASK, TopicPattern
from .topics import KnownTopics

__all__ = ["Subscription", "Subscriptions", "Wanted"]

PIECE = 1_000
"""Topics that are passed between two yields: 1 ms."""


class Subscription(NamedTuple):
    """What one member subscribes to. `regex` None: to names only."""

    names: frozenset[str] = frozenset()
    regex: str | None = None


class Wanted(NamedTuple):
    """What a group subscribes to, as an assignor takes it."""

    topic_ids: dict[Subscription, frozenset[bytes]]
    """By kind, of topics that exist."""
    partition_counts: dict[bytes, int]
    """By topic id, of all of them."""


class _Kind:
    __slots__ = ("count", "subscription")

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.count = 0


class Subscriptions:
    """Those of one group.

    Members are the caller's, who says with `put` and `remove` what changes. `close` gives all expressions back.
    """

    def __init__(self, topics: KnownTopics) -> None:
        self._topics = topics
        self._kinds: dict[Subscription, _Kind] = {}
        self._names: dict[str, int] = {}
        """How many kinds have a name."""
        self._patterns: dict[str, tuple[TopicPattern, int]] = {}
        """Expressions, and how many kinds have each."""
        self._hash = 0
        self._hash_of = (-1, -1)
        self._changes = 0

    @property
    def version(self) -> tuple[int, int]:
        """Changes whenever a kind comes or goes, and whenever any topic or what an expression matches does."""
        return self._changes, self._topics.version

    @property
    def kinds(self) -> Collection[Subscription]:
        return self._kinds.keys()

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe alike."""
        return len(self._kinds) <= 1

    @property
    def is_resolved(self) -> bool:
        """Whether it is known of all expressions what they match; until then a group has to wait with assigning."""
        return all(pattern.is_resolved for pattern, _ in self._patterns.values())

    @property
    def patterns(self) -> Iterable[TopicPattern]:
        """The expressions that members subscribe with."""
        return [pattern for pattern, _ in self._patterns.values()]

    def put(self, subscription: Subscription, before: Subscription | None = None) -> Subscription:
        """Count a member that subscribes to this now, and to `before` no more; return what it should hold on to.

        Members of a kind share that, so that its names are held once.

        Raises:
            PatternError: the expression is none, or one that is not supported; nothing has changed.
            TooManyPatternsError: this broker has no room for it; nothing has changed.
        """
        if before == subscription:
            return before
        kind = self._kinds.get(subscription)
        if kind is None:
            kind = self._add_kind(subscription)
        kind.count += 1
        if before is not None:
            self.remove(before)
        return kind.subscription

    def remove(self, subscription: Subscription) -> None:
        """Count one member less that subscribes to this."""
        kind = self._kinds[subscription]
        kind.count -= 1
        if not kind.count:
            self._remove_kind(subscription)

    def close(self) -> None:
        """Give all expressions back: the group is gone."""
        for subscription in list(self._kinds):
            self._remove_kind(subscription)

    def subscribes_to(self, name: str) -> bool:
        """Tell whether anybody subscribes to a topic, which need not exist if it is by name."""
        return name in self._names or any(self._topics.matches(pattern, name) for pattern, _ in self._patterns.values())

    def subscribers_of(self, name: str) -> int:
        """Return how many members subscribe to a topic."""
        matching = {text for text, (pattern, _) in self._patterns.items() if self._topics.matches(pattern, name)}
        return sum(kind.count for one, kind in self._kinds.items() if name in one.names or one.regex in matching)

    def wanted_in_steps(self) -> Generator[None, None, Wanted]:
        """Return what an assignor needs; yield between pieces of 1 ms.

        If `version` is another one afterwards, it may be a mixture, and is to be made again.
        """
        wanted = Wanted({}, {})
        for kind in list(self._kinds):
            topic_ids: set[bytes] = set()
            for number, name in enumerate(kind.names, 1):
                topic = self._topics.get(name)
                if topic is not None:
                    topic_ids.add(topic.topic_id)
                    wanted.partition_counts[topic.topic_id] = topic.partition_count
                if not number % PIECE:
                    yield
            if kind.regex in self._patterns:
                pattern, _ = self._patterns[kind.regex]
                for number, topic in enumerate(self._topics.topics_of(pattern), 1):
                    topic_ids.add(topic.topic_id)
                    wanted.partition_counts[topic.topic_id] = topic.partition_count
                    if not number % PIECE:
                        yield
            wanted.topic_ids[kind] = frozenset(topic_ids)
            yield
        return wanted

    def hash_in_steps(self) -> Generator[None, None, int]:
        """Return the hash of all topics that exist and that somebody subscribes to, from -2**63 on, below 2**63.

        It is known at once if neither the group nor any topic has changed since the last time.
        """
        while self._hash_of != (now := self.version):
            total = sum(pattern.digest for pattern, _ in self._patterns.values())
            for number, name in enumerate(list(self._names), 1):
                total += self._topics.digest(name)
                if not number % PIECE:
                    yield
            total &= DIGEST_MASK
            self._hash = total - (1 << 64) if total >> 63 else total
            self._hash_of = now
        return self._hash

    def _add_kind(self, subscription: Subscription) -> _Kind:
        if subscription.regex is not None:
            known = self._patterns.get(subscription.regex)
            pattern = self._topics.acquire(subscription.regex) if known is None else known[0]
            self._patterns[subscription.regex] = pattern, 1 if known is None else known[1] + 1
        kind = self._kinds[subscription] = _Kind(subscription)
        for name in subscription.names:
            self._names[name] = self._names.get(name, 0) + 1
        self._changes += 1
        return kind

    def _remove_kind(self, subscription: Subscription) -> None:
        del self._kinds[subscription]
        for name in subscription.names:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]
        if subscription.regex is not None:
            pattern, count = self._patterns.pop(subscription.regex)
            if count > 1:
                self._patterns[subscription.regex] = pattern, count - 1
            else:
                self._topics.release(pattern)
        self._changes += 1
