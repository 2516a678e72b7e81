"""Finds the leaders of partitions that transactions name, by the names that topics have now.

A transaction names its partitions by topic and number, and may outlive a topic: whoever bears the name when the marker
is written gets it, and does nothing with what it knows nothing of. A name that this broker's image does not have may be
one that the image does not have *yet*: so `confirm` asks the controller how far it is, before that counts for anything.
"""

import asyncio

from barnabas_broker.coordinators.runtime.catching_up import catch_up
from barnabas_broker.replicas.partitions import Partitions
from barnabas_metadata_quorum.leaders.table import NO_LEADER
from barnabas_metadata_quorum.service import MetadataService

from .marker_queues import GONE, NOBODY
from .state_machine.messages import Place

__all__ = ["Whereabouts"]


class Whereabouts:
    """See the module. `Leaders` of a `MarkerSender`."""

    def __init__(self, node_id: int, partitions: Partitions, metadata: MetadataService) -> None:
        self._node_id = node_id
        self._partitions = partitions
        self._metadata = metadata

    def find(self, place: Place) -> int:
        """Return the node that leads, NOBODY if none is known that can be reached, GONE if the image has no such."""
        name, index = place
        hosted = self._partitions.topics.get(name)
        if hosted is None or index >= len(hosted.topic.partitions):
            return GONE
        leadership = self._partitions.known_leaders.leadership(hosted.topic.topic_id, index)
        if leadership is None or leadership.leader_id == NO_LEADER:
            return NOBODY
        leader_id = leadership.leader_id
        return leader_id if leader_id == self._node_id or self._partitions.is_live(leader_id) else NOBODY

    def news(self) -> asyncio.Future[None]:
        """Return what is done at the next change, from now on, of leaders, links, brokers or topics."""
        return self._partitions.known_leaders.leaders_changed()

    async def confirm(self) -> None:
        """Return when the image shows all that the controller had said before this call.

        Raises:
            BarnabasError, TimeoutError: that could not be found out.
        """
        await catch_up(self._metadata)
