"""Counts what the members of a group subscribe to together, and tells when the topics behind it have changed. Pure.

Members that subscribe to the same count as one kind: most groups have one. Each kind's topics are counted, so a member
that comes or goes costs as much as it subscribes to, at most, and the others nothing.

*The hash* stands for the topics that exist of those, with their ids and numbers of partitions. It is a sum, one number
for each topic, so that what has changed is taken out and put in. It says that something is different, never what; if
two sums were the same by chance (one time in 2^64), a change would go unseen until the next.

Limit: `TOPICS_MAX` of a group; whoever brings more is refused (`group`), and what patterns match beyond that is left
out.
"""

from collections import Counter
from hashlib import blake2b
from typing import Final, TypeAlias

from .messages import Topics
from .values import MemberMetadata, ResolvedPattern

__all__ = ["TOPICS_MAX", "SubscribedTopics"]

TOPICS_MAX: Final = 20_000
Kind: TypeAlias = tuple[tuple[str, ...], str | None]
_WRAP = 1 << 64


class SubscribedTopics:
    """See the module. `names` has how many kinds, and patterns, subscribe to each topic; `patterns` how many members.

    Invariant: `_seen` are those of `names` that existed when they were last looked at, `_sum` the sum over them.
    """

    __slots__ = ("_kinds", "_looked_at", "_resolved", "_seen", "_sum", "names", "patterns")

    def __init__(self) -> None:
        self._kinds: Counter[Kind] = Counter()
        self._resolved: dict[str, tuple[str, ...]] = {}
        self._seen: dict[str, tuple[bytes, int]] = {}
        self._sum = 0
        self._looked_at = -1
        self.names: Counter[str] = Counter()
        self.patterns: Counter[str] = Counter()

    def change(self, before: MemberMetadata | None, after: MemberMetadata | None) -> None:
        """Take in that a member subscribes to something else; None: it is not there."""
        for metadata, sign in ((before, -1), (after, 1)):
            if metadata is None:
                continue
            names, pattern = metadata.topic_names, metadata.topic_pattern
            kind = (names, pattern)
            self._kinds[kind] += sign
            if self._kinds[kind] == max(sign, 0):  # It is the first, or was the last.
                self._count(names, sign)
            if not self._kinds[kind]:
                del self._kinds[kind]
            if pattern:
                self.patterns[pattern] += sign
                if not self.patterns[pattern]:
                    del self.patterns[pattern]

    def resolve(self, pattern: str, resolved: ResolvedPattern | None) -> None:
        """Take in which topics a pattern matches; None: nobody knows."""
        self._count(self._resolved.pop(pattern, ()), -1)
        if resolved is not None:
            self._resolved[pattern] = resolved.topics
            self._count(resolved.topics, 1)

    def growth(self, metadata: MemberMetadata) -> int:
        """Return how many topics more the group subscribes to with such a member."""
        if (metadata.topic_names, metadata.topic_pattern) in self._kinds:
            return 0
        return sum(name not in self.names for name in metadata.topic_names)

    def hash(self, topics: Topics) -> int:
        """Return the hash of what there is now, as a number of 64 bits with a sign."""
        if self._looked_at != topics.version:
            for name in self.names:
                self._look_at(name, topics)
            self._looked_at = topics.version
        else:
            for name in self.names.keys() - self._seen.keys():
                self._look_at(name, topics)
        return self._sum - _WRAP if self._sum >= _WRAP >> 1 else self._sum

    def _look_at(self, name: str, topics: Topics) -> None:
        found = topics.find(name)
        old = self._seen.get(name)
        if found == old:
            return
        if old is not None:
            self._forget(name)
        if found is not None:
            self._seen[name] = found
            self._sum = (self._sum + _weight(name, *found)) % _WRAP

    def _forget(self, name: str) -> None:
        found = self._seen.pop(name, None)
        if found is not None:
            self._sum = (self._sum - _weight(name, *found)) % _WRAP

    def _count(self, names: tuple[str, ...], sign: int) -> None:
        for name in names:
            count = self.names[name] + sign
            if count:
                self.names[name] = count
            else:
                del self.names[name]
                self._forget(name)


def _weight(name: str, topic_id: bytes, partition_count: int) -> int:
    said = topic_id + partition_count.to_bytes(4, "big") + name.encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(said, digest_size=8).digest(), "big")
