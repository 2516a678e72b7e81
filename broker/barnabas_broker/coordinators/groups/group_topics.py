"""Tells the groups of KIP-848 which topics exist, and which of them their patterns match: once for all of a broker.

It hears of topics from the image, a few at a time and in order (`consumer.topics`); what patterns match is found beside
what else there is to do, behind all news of topics. So it is behind the image by some turns of the loop, and `version`
tells when it has come on.

*Only where it is wanted.* Until there is a group of KIP-848 on this broker it keeps nothing. From the first on
(`want`) it takes all topics in, which takes many turns; until that is done it says that it does not know
(`is_known`), and groups conclude nothing from what is missing. Nor do they before the first image: the caller brings
none that may be older than this process.
"""

from collections import deque
from collections.abc import Callable, Collection, Coroutine, Generator
from typing import Any

from barnabas_broker.coordinators.patterns import PatternError
from barnabas_broker.timing.slices import taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.image.image import Image, Topic, topic_changes

from .consumer.messages import Refusal
from .consumer.patterns import TopicPattern
from .consumer.topics import KnownTopic, KnownTopics, TooManyPatternsError

__all__ = ["GroupTopics"]

NAMES_STEP = 500  # between two yields
_ENDED = object()

Steps = Generator[None, None, None]


class GroupTopics:
    """See the module. Owned by the loop. `known` has the topics, and each pattern that a group holds, with its topics.

    `spawn` runs what has to be done later. `nothing` is an image without topics.
    """

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], None], nothing: Image) -> None:
        self.known = KnownTopics()
        self.is_known = False
        self.seen_version = -1
        """The version of the image of which `known` has everything."""
        self._image = nothing  # as far as `known` has, or will have, what is in it
        self._newest: Image | None = None
        self._is_wanted = False
        self._spawn = spawn
        self._held: dict[str, tuple[TopicPattern | None, int]] = {}
        self._news: deque[Steps] = deque()
        self._is_working = False

    # What groups ask (Topics).

    @property
    def version(self) -> int:
        return self.known.version

    def find(self, name: str) -> tuple[bytes, int] | None:
        topic = self.known.get(name)
        return None if topic is None else (topic.topic_id, topic.partition_count)

    def name_of(self, topic_id: bytes) -> str | None:
        return self.known.name_of(topic_id)

    def changed_since(self, version: int) -> Collection[str] | None:
        return self.known.changed_since(version)

    def pattern_refusal(self, pattern: str) -> Refusal | None:
        if pattern in self._held:
            return None
        try:
            self.known.check(pattern)
        except PatternError as error:
            text = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}."
            return Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, text)
        except TooManyPatternsError as error:
            return Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
        return None

    def hold(self, pattern: str) -> None:
        known, count = self._held.get(pattern, (None, 0))
        if not count:
            try:
                known = self.known.acquire(pattern)
            except (PatternError, TooManyPatternsError):
                # A group that was loaded has more than this broker has room for: it matches nothing.
                known = None
            else:
                self._work()
        self._held[pattern] = known, count + 1

    def let_go(self, pattern: str) -> None:
        known, count = self._held.pop(pattern)
        if count > 1:
            self._held[pattern] = known, count - 1
        elif known is not None:
            self.known.release(known)

    def is_ready(self, pattern: str) -> bool:
        known, _ = self._held.get(pattern, (None, 0))
        return known is None or known.is_resolved

    def matching_in_steps(self, pattern: str) -> Generator[None, None, Collection[str]]:
        known, _ = self._held.get(pattern, (None, 0))
        if known is None:
            return ()
        names = []
        for number, name in enumerate(self.known.names_of(known), 1):
            names.append(name)
            if not number % NAMES_STEP:
                yield
        return names

    # What there is.

    def want(self) -> None:
        """Know of topics from now on: a group asks."""
        if not self._is_wanted:
            self._is_wanted = True
            self._take_newest()

    def take(self, image: Image) -> None:
        """Take in what has changed since the last image."""
        self._newest = image
        self._take_newest()

    def _take_newest(self) -> None:
        if not self._is_wanted or self._newest is None:
            return
        before, self._image = self._image, self._newest
        changes = topic_changes(before, self._image)
        # Where partitions are is nothing to groups.
        grown = [one for one in changes.changed if len(before.topics[one.topic_id].partitions) < len(one.partitions)]
        if changes.created or changes.deleted or grown or not self.is_known:
            there = map(_known, (*changes.created, *grown))
            self._news.append(self.known.take_in_steps(there, map(_known, changes.deleted)))
            self._work()
        elif not self._news:
            self.seen_version = self._image.version

    def _work(self) -> None:
        if not self._is_working and (self._news or (self.is_known and self.known.is_behind)):
            self._is_working = True
            self._spawn(taken(self._work_in_steps()))

    def _work_in_steps(self) -> Steps:
        matching: Steps | None = None
        while self._news or matching is not None or self.known.is_behind:
            while self._news:
                yield from self._news[0]
                self._news.popleft()
            self.is_known = True
            self.seen_version = self._image.version
            matching = matching or self.known.resolve_in_steps()
            if next(matching, _ENDED) is _ENDED:
                matching = None
            else:
                yield
        self._is_working = False


def _known(topic: Topic) -> KnownTopic:
    return KnownTopic(topic.name, topic.topic_id, len(topic.partitions))
