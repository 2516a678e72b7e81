"""A tool that describes groups, again and again, and looks their positions up as one that is no member.

Where members of both protocols come a group may be of either kind; one that is of neither has nobody.
"""

from collections.abc import Callable

from barnabas_clients.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_clients.protocol.describe_groups import DescribeGroupsRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from sim.cluster.clients.client import Trouble, WireClient

from .model import GroupModel, Place
from .process import Coordinated, Topics

__all__ = ["Watcher"]

ASKED_MAX = 4
"""So often each kind is asked for: meanwhile a group may become the other one, but hardly so often."""
NOT_FOUND_SINCE = range(6, 7)


class Watcher(Coordinated):
    """Watches one group. `state` and `epochs` (of the group, and of its target) are those of the last description."""

    def __init__(self, client: WireClient, model: GroupModel, topics: Topics, *, describes: bool) -> None:
        super().__init__(client, model.group)
        self.model = model
        self.topics = topics
        self.describes = describes
        self.state = ""
        self.looks = 0

    async def run(self, goes_on: Callable[[], bool]) -> None:
        while goes_on():
            try:
                if self.describes:
                    await self._describe()
                await self.look()
            except Trouble as trouble:
                self.client.world.note(self.client.name, f"watches {self.group}: {trouble}")
            await self.client.pause(100, 600)

    async def _describe(self) -> None:
        known = self.model.know()
        for _ in range(ASKED_MAX if self.model.is_mixed else 1):
            if await self._describe_consumer() or (self.model.is_mixed and await self._describe_classic()):
                return
        assert not self.model.is_there(known), f"{self.group} was in epoch {known.epoch}, and is not found"

    async def _describe_classic(self) -> bool:
        """Tell whether it is a classic group, whatever that says of itself."""
        request = DescribeGroupsRequest(groups=[self.group])
        found = (await self.ask(request, versions=NOT_FOUND_SINCE)).groups[0]
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        self.pass_over(found.error_code)
        self.client.world.counts["groups described as classic"] += 1
        return True

    async def _describe_consumer(self) -> bool:
        """Tell whether it is one of KIP-848, and hold it against the model."""
        known = self.model.know()
        found = (await self.ask(ConsumerGroupDescribeRequest(group_ids=[self.group]))).groups[0]
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        self.pass_over(found.error_code)
        shares = dict[str, set[Place]]()
        for member in found.members:
            has = member.assignment.topic_partitions
            shares[member.member_id] = {(one.topic_id, number) for one in has for number in one.partitions}
        self.state = found.group_state
        self.model.look(found.group_epoch, known, shares)
        return True

    async def look(self) -> None:
        """Look at the positions of all partitions of the lasting topics.

        Raises:
            Trouble: no answer.
        """
        for place in sorted(self.topics.places_of(sorted(self.topics.lasting))):
            asked = self.model.ask(None, place)
            offset = await self.position_of(self.topics, place)
            assert offset is not None
            self.model.tell(None, asked, offset)
        self.looks += 1
