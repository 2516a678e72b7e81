"""A client's view of a cluster: brokers, topics, and the leader of each partition. Pure.

A `ClusterView` is an immutable snapshot; `with_metadata` and `with_leader` return a new one. Brokers learn of elections
at different times, so an answer that arrives later may know less. Of two statements about a partition of the same topic
id, the one with the higher leader epoch wins (KIP-320), whichever came last. At equal epochs the later one wins,
because its in-sync replicas are fresher. An answer that knows neither leader nor epoch, as of a broker that has just
started, says that nobody leads, and takes no epoch back: else older news would win after it. A different topic id under
the same name is another topic, whose epochs start anew: it replaces everything known about the name.

Not here: when to ask, and which broker (cluster.py).
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.protocol.metadata import MetadataResponse
from barnabas_raftlog.wire.schema import NO_UUID

from .topic_view import BrokerAddress, PartitionView, TopicView

__all__ = ["ClusterView"]

NO_LEADER = -1
"""Stands for "unknown" in leader and controller ids, on the wire and here."""


class ClusterView(NamedTuple):
    """The metadata at one moment. `errors` holds the codes of topics that were asked for and are missing."""

    cluster_id: str | None = None
    controller_id: int = NO_LEADER
    brokers: Mapping[int, BrokerAddress] = MappingProxyType({})
    topics: Mapping[str, TopicView] = MappingProxyType({})
    topics_by_id: Mapping[bytes, TopicView] = MappingProxyType({})
    errors: Mapping[str, int] = MappingProxyType({})

    def leader(self, topic: str, partition: int) -> BrokerAddress | None:
        """Return the partition's leader, or None when it is unknown or not among the brokers."""
        view = self.topics.get(topic)
        if view is None or partition not in view.partitions:
            return None
        return self.brokers.get(view.partitions[partition].leader_id)

    def with_metadata(self, response: MetadataResponse, asked: Collection[str] | None) -> "ClusterView":
        """Return the view after a Metadata answer. `asked` names the topics that it is about; None means all."""
        topics = {} if asked is None else {name: view for name, view in self.topics.items() if name not in asked}
        errors = {} if asked is None else {name: code for name, code in self.errors.items() if name not in asked}
        for row in response.topics:
            if row.name is None:
                continue
            if row.error_code != ErrorCode.NONE and not row.partitions:
                errors[row.name] = row.error_code
                continue
            topic_id = None if row.topic_id == NO_UUID else row.topic_id
            known = self.topics.get(row.name)
            before = known.partitions if known is not None and known.topic_id == topic_id else {}
            partitions = {}
            for part in row.partitions:
                view = PartitionView(
                    partition=part.partition_index,
                    leader_id=part.leader_id,
                    leader_epoch=part.leader_epoch,
                    replicas=tuple(part.replica_nodes),
                    in_sync_replicas=tuple(part.isr_nodes),
                    offline_replicas=tuple(part.offline_replicas),
                    error_code=part.error_code,
                )
                partitions[view.partition] = _newer(before.get(view.partition), view)
            topics[row.name] = TopicView(row.name, topic_id, row.is_internal, MappingProxyType(partitions))
        return ClusterView(
            cluster_id=response.cluster_id,
            controller_id=response.controller_id,
            brokers=MappingProxyType(
                {row.node_id: BrokerAddress(row.node_id, row.host, row.port, row.rack) for row in response.brokers}
            ),
            topics=MappingProxyType(topics),
            topics_by_id=_by_id(topics),
            errors=MappingProxyType(errors),
        )

    def with_leader(
        self, topic: str, partition: int, leader_id: int, leader_epoch: int, address: BrokerAddress | None = None
    ) -> "ClusterView":
        """Return the view after a hint that came with an error (KIP-951). A hint that is not newer changes nothing."""
        view = self.topics.get(topic)
        if view is None or partition not in view.partitions:
            return self
        known = view.partitions[partition]
        if leader_epoch < known.leader_epoch or (leader_epoch == known.leader_epoch and known.leader_id != NO_LEADER):
            return self
        if address is None and leader_id not in self.brokers:
            return self
        brokers = self.brokers if address is None else MappingProxyType({**self.brokers, leader_id: address})
        led = known._replace(leader_id=leader_id, leader_epoch=leader_epoch)
        changed = view._replace(partitions=MappingProxyType({**view.partitions, partition: led}))
        topics = {**self.topics, topic: changed}
        return self._replace(brokers=brokers, topics=MappingProxyType(topics), topics_by_id=_by_id(topics))


def _newer(known: PartitionView | None, told: PartitionView) -> PartitionView:
    if known is None or told.leader_epoch >= known.leader_epoch:
        return told
    if told.leader_epoch >= 0:
        return known
    # Brokers older than Metadata v7 tell no epochs, which gives -1: then the last answer counts.
    return told if told.leader_id != NO_LEADER else told._replace(leader_epoch=known.leader_epoch)


def _by_id(topics: Mapping[str, TopicView]) -> Mapping[bytes, TopicView]:
    return MappingProxyType({view.topic_id: view for view in topics.values() if view.topic_id is not None})
