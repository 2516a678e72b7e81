"""Shows how partitions look to the clients of one listener: who leads, who holds them, who is in sync.

Brokers that have no listener of that name are hidden from its clients, and what they lead has no leader, as in Kafka.
"""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.context import BrokerContext, Leader

__all__ = ["ShownPartition", "ShownPartitions"]


class ShownPartition(NamedTuple):
    """One partition. The id of `leader` is -1 if nobody leads, or one of whom the client must not hear (`is_hidden`).

    `replicas`: also its observers, last. Java's consumer reads only from brokers that it is told to be replicas.
    """

    leader: Leader
    is_hidden: bool
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


class ShownPartitions:
    """The partitions of a topic, as brokers are at the moment of making this."""

    __slots__ = ("_available", "_broker", "_hidden")

    def __init__(self, broker: BrokerContext, listener_name: str) -> None:
        self._broker = broker
        self._available = {known.node_id for known in broker.brokers()}
        brokers = broker.image.brokers
        self._hidden = {node_id for node_id in brokers if brokers[node_id].address_on(listener_name) is None}

    def one(self, hosted: HostedTopic, index: int) -> ShownPartition:
        """Show one partition, of those that the topic has."""
        topic = hosted.topic
        desired = topic.partitions[index]
        leader = self._broker.where_to_ask(hosted, index)
        shown = (*desired.replicas, *(one for one in topic.observers if one not in desired.voters))
        is_hidden = leader.leader_id in self._hidden
        return ShownPartition(
            leader=leader._replace(leader_id=-1) if is_hidden else leader,
            is_hidden=is_hidden,
            replicas=shown,
            in_sync=_known(leader.isr, shown),
            offline=tuple(node_id for node_id in shown if node_id not in self._available),
        )


def _known(isr: Iterable[int], replicas: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(node_id for node_id in isr if node_id in replicas)
