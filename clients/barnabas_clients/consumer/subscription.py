"""Describes what to read: partitions, topics, or all topics that match a pattern. Pure.

A pattern of Python's is matched here. A server's pattern is one of RE2's, which the group's coordinator matches
(KIP-848): which topics those are is known here only as far as partitions of theirs are assigned.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from barnabas_clients.arguments import names, shown, text, topic_name
from barnabas_clients.cluster.view import ClusterView
from barnabas_clients.topic_partition import TopicPartition

__all__ = ["NOTHING", "Subscription"]


class Subscription(NamedTuple):
    """Either `partitions`, or topics by name or by one of the patterns. If all are empty, nothing is read.

    A pattern matches whole names, as Kafka's does, and never an internal topic.
    """

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[TopicPartition] = frozenset()
    server_pattern: str | None = None

    @classmethod
    def to_topics(cls, topics: Iterable[str], pattern: str | None, server_pattern: str | None = None) -> "Subscription":
        """Return a checked subscription to topics, by name or by one of the patterns.

        Raises:
            TypeError: topics are not names, or a pattern is not a `str`.
            ValueError: not just one of the three is given, or the pattern is not a regular expression.
        """
        wanted = frozenset(topic_name("a name in topics", name) for name in names("topics", topics))
        if bool(wanted) + (pattern is not None) + (server_pattern is not None) != 1:
            raise ValueError("subscribe to topics or to a pattern")
        if server_pattern is not None:
            return cls(server_pattern=text("server_pattern", server_pattern))
        if pattern is None:
            return cls(wanted)
        try:
            return cls(wanted, re.compile(text("pattern", pattern)))
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(
                f"pattern is {shown(pattern)}, which is not a regular expression: {str(error)[:80]}"
            ) from error

    @property
    def is_nothing(self) -> bool:
        return not (self.partitions or self.is_by_topic)

    @property
    def is_by_topic(self) -> bool:
        return bool(self.topics) or self.pattern is not None or self.server_pattern is not None

    def topics_in(self, view: ClusterView) -> frozenset[str]:
        """Return the topics subscribed to. Those named by name need not exist."""
        if self.pattern is None:
            return self.topics
        matches = self.pattern.fullmatch
        return frozenset(name for name, topic in view.topics.items() if not topic.is_internal and matches(name))

    def partitions_in(self, view: ClusterView) -> frozenset[TopicPartition]:
        """Return all known partitions of the topics subscribed to."""
        return frozenset(
            TopicPartition(name, number)
            for name in self.topics_in(view)
            if name in view.topics
            for number in view.topics[name].partitions
        )


NOTHING = Subscription()
