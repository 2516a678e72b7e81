"""Counts what the members of a group subscribe to together, and tells when the topics behind it have changed. Pure.

Members that subscribe to the same count as one kind: most groups have one. Each kind's topics are counted, so a member
that comes or goes costs as much as it subscribes to, at most, and the others nothing. What a pattern matches is only
kept: it may be all topics that there are.

*The hash* stands for the topics that exist of those, with their ids and numbers of partitions. It is a sum, one number
for each topic, so nothing has to be in order. It says that something is different, never what; if two sums were the
same by chance (one time in 2^60), a change would go unseen until the next.

Limits: `TOPICS_MAX` names of a group; whoever brings more is refused (`group`). As many of its patterns together; what
they match beyond that is left out.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias

from .messages import Topics
from .values import MemberMetadata, ResolvedPattern

__all__ = ["TOPICS_MAX", "SubscribedIds", "SubscribedTopics", "is_among_names"]

TOPICS_MAX: Final = 20_000
NAMES_STEP: Final = 500  # names between two yields
Kind: TypeAlias = tuple[tuple[str, ...], str | None]
_WRAP = 1 << 64
_PRIME = _WRAP - 59


class SubscribedTopics:
    """See the module. `names` has how many kinds subscribe to each topic by its name; `patterns` how many members.

    It contains a topic's name if anybody subscribes to that, by name or by a pattern, whether it exists or not.
    """

    __slots__ = ("_kinds", "_resolved", "names", "patterns")

    def __init__(self) -> None:
        self._kinds: Counter[Kind] = Counter()
        self._resolved: dict[str, tuple[str, ...]] = {}
        self.names: Counter[str] = Counter()
        self.patterns: Counter[str] = Counter()

    def __contains__(self, name: object) -> bool:
        if name in self.names:
            return True
        return isinstance(name, str) and any(is_among_names(name, topics) for topics in self._resolved.values())

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
        if resolved is None:
            self._resolved.pop(pattern, None)
        else:
            self._resolved[pattern] = resolved.topics

    def growth(self, metadata: MemberMetadata) -> int:
        """Return how many topics more the group subscribes to by name with such a member."""
        if (metadata.topic_names, metadata.topic_pattern) in self._kinds:
            return 0
        return sum(name not in self.names for name in metadata.topic_names)

    def is_concerned(self, changed: Collection[str] | None) -> bool:
        """Tell whether one of these topics may be subscribed to; None: nobody knows which they are."""
        return changed is None or any(name in self for name in changed)

    def hash_in_steps(self, topics: Topics, resolved: Mapping[str, ResolvedPattern]) -> Generator[None, None, int]:
        """Return the hash of what there is, as a number of 64 bits with a sign.

        `resolved`: what patterns match, in place of what is known so far. A topic counts as often as there are patterns
        that match it, and once if somebody names it. What changes meanwhile may count or not.
        """
        total = 0
        known = {pattern: found for pattern, found in self._resolved.items() if pattern not in resolved}
        known |= {pattern: one.topics for pattern, one in resolved.items()}
        by_pattern = (known[pattern] for pattern in sorted(known) if pattern in self.patterns)
        for number, name in enumerate(chain(list(self.names), chain.from_iterable(by_pattern)), 1):
            found = topics.find(name)
            if found is not None:
                total += _weight(*found)
            if not number % NAMES_STEP:
                yield
        total %= _WRAP
        return total - _WRAP if total >= _WRAP >> 1 else total

    def _count(self, names: tuple[str, ...], sign: int) -> None:
        for name in names:
            count = self.names[name] + sign
            if count:
                self.names[name] = count
            else:
                del self.names[name]


class SubscribedIds:
    """The ids of the topics that one member subscribes to and that exist, whenever one is asked for.

    Any id is one of them while nobody knows what exists: what was given out with it was right then.
    """

    __slots__ = ("_names", "_resolved", "_topics")

    def __init__(self, metadata: MemberMetadata, resolved: ResolvedPattern | None, topics: Topics) -> None:
        self._names = metadata.topic_names
        self._resolved = () if resolved is None else resolved.topics
        self._topics = topics

    def __contains__(self, topic_id: object) -> bool:
        assert isinstance(topic_id, bytes)
        if not self._topics.is_known:
            return True
        name = self._topics.name_of(topic_id)
        return name is not None and (is_among_names(name, self._names) or is_among_names(name, self._resolved))


def is_among_names(name: str, names: Sequence[str]) -> bool:
    """Tell whether it is one of these, which are sorted."""
    place = bisect_left(names, name)
    return place < len(names) and names[place] == name


def _weight(topic_id: bytes, partition_count: int) -> int:
    # An id is random already. The factor is odd, so that no two ids become one.
    return int.from_bytes(topic_id, "big") % _PRIME * (2 * partition_count + 1)
