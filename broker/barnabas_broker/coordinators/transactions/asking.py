"""Finds the coordinator of a transactional id, or all of them, and carries a question to it: here, or over a link."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_clients.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas_metadata_quorum.image.image import Topic
from barnabas_metadata_quorum.leaders.table import NO_LEADER, Leadership

from .questions import AskCoordinator
from .state_machine.location import TRANSACTION_TOPIC, partition_of_hash

__all__ = ["METHOD", "VERSION", "Coordinators"]

METHOD = "transactions.add_partitions"
"""The question to another broker, and its answer: the messages in `VERSION`."""
VERSION = 5
CALL_S = 5.0


class Coordinators:
    """See the module.

    Args:
        node_id: This node.
        topics: Those of the image, by name.
        leadership: Returns who leads a partition (topic id, number), as far as is known.
        call: Asks another node (`NodeLinks.call`).
        ask_here: Asks this node's coordinator.
    """

    def __init__(
        self,
        node_id: int,
        topics: Mapping[str, HostedTopic],
        leadership: Callable[[bytes, int], Leadership | None],
        call: Callable[[int, str, bytes, float], Awaitable[bytes]],
        ask_here: AskCoordinator,
    ) -> None:
        self._node_id = node_id
        self._topics = topics
        self._leadership = leadership
        self._call = call
        self._ask_here = ask_here

    def find(self, id_hash: int) -> int | None:
        """Return the node that coordinates the transactional id of that hash; None: it is not known."""
        hosted = self._topics.get(TRANSACTION_TOPIC)
        if hosted is None:
            return None
        return self._leader_of(hosted.topic, partition_of_hash(id_hash, len(hosted.topic.partitions)))

    def find_all(self) -> tuple[int, list[int]]:
        """Return how many partitions `__transaction_state` has, and the nodes that lead them as far as is known."""
        hosted = self._topics.get(TRANSACTION_TOPIC)
        if hosted is None:
            return 0, []
        count = len(hosted.topic.partitions)
        leaders = {self._leader_of(hosted.topic, index) for index in range(count)}
        return count, sorted(node_id for node_id in leaders if node_id is not None)

    def _leader_of(self, topic: Topic, partition: int) -> int | None:
        leadership = self._leadership(topic.topic_id, partition)
        return None if leadership is None or leadership.leader_id == NO_LEADER else leadership.leader_id

    async def ask(self, node_id: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Ask a node's coordinator.

        Raises:
            BarnabasError, TimeoutError: it cannot be reached, does not answer in time, or answers something else.
        """
        if node_id == self._node_id:
            async with asyncio.timeout(CALL_S):
                return await self._ask_here(request)
        body = await self._call(node_id, METHOD, request.to_bytes(VERSION), CALL_S)
        return AddPartitionsToTxnResponse.decode(body, VERSION)
