"""What a consumer has been told to read: some partitions, some topics, or every topic that a pattern matches. Pure."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from .cluster_view import ClusterView
from .topic_partition import TopicPartition

__all__ = ["NOTHING", "Subscription"]


class Subscription(NamedTuple):
    """Either `partitions` by hand, or topics by name and pattern; all empty: nothing.

    A pattern matches whole names, as Kafka's does, and never an internal topic.
    """

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[TopicPartition] = frozenset()

    @classmethod
    def to_topics(cls, topics: Iterable[str], pattern: str | None) -> "Subscription":
        """Check and return a subscription by name.

        Raises:
            ValueError: neither topics nor a pattern are given, or both, or the pattern is none.
        """
        if isinstance(topics, str):
            raise ValueError(f"topics is {topics!r}; write a list of names")  # noqa: TRY004 - a wrong value of Iterable[str]
        names = frozenset(topics)
        if bool(names) == (pattern is not None):
            raise ValueError("subscribe to topics or to a pattern")
        try:
            return cls(names, None if pattern is None else re.compile(pattern))
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error

    @property
    def is_by_topic(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    def topics_in(self, view: ClusterView) -> frozenset[str]:
        """Return the topics meant, those named whether they exist or not."""
        if self.pattern is None:
            return self.topics
        matches = self.pattern.fullmatch
        return frozenset(name for name, topic in view.topics.items() if not topic.is_internal and matches(name))

    def partitions_in(self, view: ClusterView) -> frozenset[TopicPartition]:
        """Return every partition of the topics meant that is known."""
        return frozenset(
            TopicPartition(name, number)
            for name in self.topics_in(view)
            if name in view.topics
            for number in view.topics[name].partitions
        )


NOTHING = Subscription()
