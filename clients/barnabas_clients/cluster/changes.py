"""Compares two views of a cluster: which partitions have another leader. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

from barnabas_clients.topic_partition import TopicPartition

from .topic_view import TopicView
from .view import NO_LEADER, ClusterView

__all__ = ["LeaderMove", "leader_in", "leader_moves"]


class LeaderMove(NamedTuple):
    """A partition whose leader was `before` and is `after`; -1 stands for none."""

    partition: TopicPartition
    before: int
    after: int


def leader_moves(before: ClusterView, after: ClusterView) -> Iterator[LeaderMove]:
    """Yield the partitions of both views that have another leader. A topic made again is another topic."""
    if before.topics is after.topics:
        return
    for name, topic in after.topics.items():
        known = before.topics.get(name)
        if known is not None and known is not topic and known.topic_id == topic.topic_id:
            yield from _moves_of(name, known, topic)


def _moves_of(name: str, known: TopicView, topic: TopicView) -> Iterator[LeaderMove]:
    for number, view in topic.partitions.items():
        was = known.partitions.get(number)
        if was is not None and was.leader_id != view.leader_id:
            yield LeaderMove(TopicPartition(name, number), was.leader_id, view.leader_id)


def leader_in(view: ClusterView, partition: TopicPartition) -> int:
    """Return the id of a partition's leader, or -1."""
    topic = view.topics.get(partition.topic)
    if topic is None or partition.partition not in topic.partitions:
        return NO_LEADER
    return topic.partitions[partition.partition].leader_id
