"""Tells the groups of KIP-848 which topics exist, and which of them their patterns match: once for all of a broker.

It hears of topics from the image, a few at a time and in order (`consumer.topics`); what patterns match is found beside
what else there is to do. So it is behind the image by some turns of the loop, and `version` tells when it has come on.
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

Steps = Generator[None, None, None]


class GroupTopics:
    """See the module. Owned by the loop. `known` has the topics, and each pattern that a group holds, with its topics.

    `spawn` runs what has to be done later. `image` is the last one that was heard of, at first one without topics.
    """

    def __init__(self, spawn: Callable[[Coroutine[Any, Any, None]], None], image: Image) -> None:
        self.known = KnownTopics()
        self._image = image
        self._spawn = spawn
        self._held: dict[str, tuple[TopicPattern | None, int]] = {}
        self._work: deque[Steps] = deque()
        self._is_working = False

    # What groups ask (Topics).

    @property
    def version(self) -> int:
        return self.known.version

    def find(self, name: str) -> tuple[bytes, int] | None:
        topic = self.known.get(name)
        return None if topic is None else (topic.topic_id, topic.partition_count)

    def pattern_refusal(self, pattern: str) -> Refusal | None:
        if pattern in self._held:
            return None
        try:
            self.known.release(self.known.acquire(pattern))
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
                if not known.is_resolved:
                    self._do(self.known.resolve_in_steps())
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

    def take(self, image: Image) -> None:
        """Take in what has changed since the last image."""
        before, self._image = self._image, image
        changes = topic_changes(before, image)
        # Where partitions are is nothing to groups.
        grown = [one for one in changes.changed if len(before.topics[one.topic_id].partitions) < len(one.partitions)]
        if changes.created or changes.deleted or grown:
            there = map(_known, (*changes.created, *grown))
            self._do(self.known.take_in_steps(there, map(_known, changes.deleted)))

    def _do(self, steps: Steps) -> None:
        self._work.append(steps)
        if not self._is_working:
            self._is_working = True
            self._spawn(self._work_off())

    async def _work_off(self) -> None:
        while self._work:
            await taken(self._work.popleft())
        self._is_working = False


def _known(topic: Topic) -> KnownTopic:
    return KnownTopic(topic.name, topic.topic_id, len(topic.partitions))
