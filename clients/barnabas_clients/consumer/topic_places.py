"""Keeps a consumer's positions in topics that are missing in the metadata for a while. Pure.

A consumer without a group needs this, because brokers hear of topics at different times. A broker that was cut off from
the controllers may answer that a topic does not exist which others have been serving for an hour. So a topic that is
missing in an answer need not be deleted, and when it is back the consumer goes on where it was. The topic id tells the
difference: another id under the same name is another topic, of which everything is new. The same holds for single
partitions. A topic never gets fewer, so those that an answer lacks are kept, and only numbers that this id did not have
yet are new.

Brokers without topic ids (before Apache Kafka 2.8) leave only the name to go by. Then a topic that was deleted and made
again, while nobody looked, is taken for the old one.

Limits: positions are kept for `KEPT_S` after the topic was last seen, in at most `TOPICS_MAX` missing topics, the
newest.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from barnabas_clients.cluster.view import ClusterView
from barnabas_clients.topic_partition import TopicPartition

from .partition_queue import PartitionQueue

__all__ = ["TopicPlaces"]

KEPT_S = 3_600.0
TOPICS_MAX = 1_000
SOON_S = 30.0
"""So long it is worth looking often. A topic that is missing for longer was deleted, or its broker is cut off."""


class _Missing(NamedTuple):
    """A topic that is missing: its id, the positions in it, and since when."""

    topic_id: bytes | None
    queues: list[PartitionQueue]
    since_s: float


class TopicPlaces:
    """The ids of the topics read, and the positions in those that are missing."""

    def __init__(self) -> None:
        self._ids: dict[str, bytes | None] = {}
        self._missing: dict[str, _Missing] = {}

    def begin(self, partitions: Collection[TopicPartition], view: ClusterView) -> None:
        """Begin with the partitions read now, and forget all earlier ones."""
        self._missing.clear()
        self._ids = {topic: _id_of(view, topic) for topic in {topic for topic, _ in partitions}}

    def leaving(
        self,
        wanted: Collection[TopicPartition],
        queues: Mapping[TopicPartition, PartitionQueue],
        view: ClusterView,
        now_s: float,
    ) -> list[TopicPartition]:
        """Return the partitions that are not read any more, and keep the positions of those that are only missing."""
        there = {topic for topic, _ in wanted}
        self._forget_old(now_s)
        left = []
        for topic in sorted({topic for topic, _ in queues}):
            topic_id = self._ids.get(topic)
            if topic in there and _is_same(topic_id, _id_of(view, topic)):
                continue
            gone = sorted(partition for partition in queues if partition.topic == topic)
            left += gone
            if topic not in there:
                self._missing[topic] = _Missing(topic_id, [queues[partition] for partition in gone], now_s)
        return left

    def returning(self, wanted: Collection[TopicPartition], view: ClusterView) -> list[PartitionQueue]:
        """Return the positions in topics that are back, and note the topics that are read from now on."""
        back: list[PartitionQueue] = []
        for topic in sorted({topic for topic, _ in wanted}):
            self._ids[topic] = topic_id = _id_of(view, topic)
            missing = self._missing.pop(topic, None)
            if missing is not None and _is_same(missing.topic_id, topic_id):
                back += missing.queues
        return back

    def is_waiting(self, now_s: float) -> bool:
        """Say whether a topic went missing a moment ago, so that it is worth looking again soon."""
        return any(now_s - missing.since_s < SOON_S for missing in self._missing.values())

    def _forget_old(self, now_s: float) -> None:
        # Oldest first, because a topic that goes missing again is put at the end.
        for topic, missing in list(self._missing.items()):
            if now_s - missing.since_s > KEPT_S or len(self._missing) > TOPICS_MAX:
                del self._missing[topic]
                self._ids.pop(topic, None)


def _id_of(view: ClusterView, topic: str) -> bytes | None:
    known = view.topics.get(topic)
    return None if known is None else known.topic_id


def _is_same(one: bytes | None, other: bytes | None) -> bool:
    return one is None or other is None or one == other
