"""Makes topics and groups for a run, and takes away the leftovers of requests.

Requests that lie still create topics and groups, as requests do. Those are no growth: an administrator who looks after
the cluster deletes them, and memory is compared when that is done.
"""

import asyncio
from collections.abc import Awaitable, Iterable

from barnabas_clients import Admin, ClientError, KafkaError
from barnabas_clients.cluster.topic_view import TopicView

from .boundaries import Names
from .neighbour import GROUP, TOPIC

__all__ = ["Janitor"]

TOPICS = tuple(f"fuzz-{number}" for number in range(4))
NOT_THERE = ("fuzz-made", "fuzz-never", "__consumer_offsets")
GROUPS = tuple(f"fuzzers-{number}" for number in range(8))
PARTITIONS = 3
AT_ONCE = 20
LIMIT_S = 5.0
NAME_CHARACTERS_MAX = 8_000


class Janitor:
    """Sees to it that the topics of a run are there, and nothing else but those of its neighbour."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self.names = Names((*TOPICS, *NOT_THERE), GROUPS, {})
        self.deleted = 0

    async def prepare(self) -> None:
        """Create the neighbour's topic and the run's."""
        await self._admin.create_topic(TOPIC, 1)
        await self._make_missing(())

    async def clean(self) -> None:
        """Delete topics and groups that the run has made, and make its own again."""
        topics = await self._admin.list_topics()
        left = [topic.name for topic in topics if topic.name not in {TOPIC, *TOPICS}]
        self.deleted += len(left)
        await _all(self._admin.delete_topics([name], timeout_s=LIMIT_S) for name in left)
        listed = await self._admin.list_groups(timeout_s=10 * LIMIT_S)
        groups = [one.group_id for one in listed if _is_deletable(one.group_id) and not one.group_id.startswith(GROUP)]
        await _all(self._admin.delete_groups([group_id], timeout_s=LIMIT_S) for group_id in groups)
        await self._make_missing(topics)

    async def _make_missing(self, topics: Iterable[TopicView]) -> None:
        known = {topic.name for topic in topics}
        await _all(self._admin.create_topic(name, PARTITIONS) for name in TOPICS if name not in known)
        for topic in await self._admin.list_topics():
            if topic.name in TOPICS and topic.topic_id is not None:
                self.names.topic_ids[topic.name] = topic.topic_id


def _is_deletable(group_id: str) -> bool:
    """Tell whether our client takes the name, as it does those that people use."""
    return 0 < len(group_id) <= NAME_CHARACTERS_MAX


async def _all(acts: Iterable[Awaitable[object]]) -> None:
    """Carry out all of them, as far as possible: requests that are still on their way change the same things."""

    async def each(act: Awaitable[object]) -> None:
        try:
            await act
        except (KafkaError, ClientError):
            return

    left = list(acts)
    for first in range(0, len(left), AT_ONCE):
        await asyncio.gather(*(each(act) for act in left[first : first + AT_ONCE]))
