"""Tells the groups of one offsets partition which topics exist, once it is certain that no coordinator knew of more.

Any replica may come to lead an offsets partition, also one whose broker's image is behind: its groups may have
partitions of topics of which it has not heard yet. So from the time when it leads nothing counts as known until the
image is as new as the controller's was then (`rest_on`): what earlier coordinators saw is in that. As long as the
controller cannot be reached, groups keep what they have, and nobody gets a new target.

A coordinator that stays needs nothing of the kind. Its image only comes on: what it has not heard of it has given to
nobody, and a deleted topic of which it hears late is held a while longer, with no records in it.
"""

from collections.abc import Collection, Generator

from .consumer.messages import Refusal
from .group_topics import GroupTopics

__all__ = ["ShardTopics"]


class ShardTopics:
    """See the module. `Topics` of one shard, in front of those of the broker."""

    def __init__(self, topics: GroupTopics) -> None:
        self._topics = topics
        self._needed_version: int | None = None

    def rest_on(self, version: int) -> None:
        """Hear that an image of this version, and a later one, has all that the coordinators before this one saw."""
        self._needed_version = version

    @property
    def is_known(self) -> bool:
        needed = self._needed_version
        return needed is not None and self._topics.is_known and self._topics.seen_version >= needed

    @property
    def version(self) -> int:
        return self._topics.version

    def want(self) -> None:
        self._topics.want()

    def find(self, name: str) -> tuple[bytes, int] | None:
        return self._topics.find(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return self._topics.name_of(topic_id)

    def changed_since(self, version: int) -> Collection[str] | None:
        return self._topics.changed_since(version)

    def pattern_refusal(self, pattern: str) -> Refusal | None:
        return self._topics.pattern_refusal(pattern)

    def hold(self, pattern: str) -> None:
        self._topics.hold(pattern)

    def let_go(self, pattern: str) -> None:
        self._topics.let_go(pattern)

    def is_ready(self, pattern: str) -> bool:
        return self._topics.is_ready(pattern)

    def matching_in_steps(self, pattern: str) -> Generator[None, None, Collection[str]]:
        return self._topics.matching_in_steps(pattern)
