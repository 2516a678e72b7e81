"""What a producer keeps about each broker that it sends to, and about each request that is not answered yet."""

from barnabas_clients.cluster.connection import Connection
from barnabas_clients.protocol.produce import ProduceRequest

from .accumulator import Batch, PartitionQueue
from .sequences import UnderWay

__all__ = ["Asked", "BrokerLane"]


class BrokerLane:
    """One broker, as far as we produce to it."""

    __slots__ = ("connection", "failures", "in_flight", "is_reaching", "is_scheduled", "node_id", "ready")

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.connection: Connection | None = None
        self.ready: dict[PartitionQueue, None] = {}
        self.in_flight = self.failures = 0
        self.is_scheduled = self.is_reaching = False


class Asked:
    """A request under way, and where; suspicious when the answer is late."""

    __slots__ = ("chosen", "connection", "node", "request")

    def __init__(
        self, node: BrokerLane, connection: Connection, chosen: list[UnderWay[Batch]], request: ProduceRequest
    ) -> None:
        self.node, self.connection, self.chosen, self.request = node, connection, chosen, request
