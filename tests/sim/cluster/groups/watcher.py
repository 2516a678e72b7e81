"""A tool that describes groups of KIP-848, again and again, and looks their positions up as one that is no member."""

from collections.abc import Callable

from barnabas_clients.protocol.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from sim.cluster.clients.client import Trouble, WireClient

from .model import GroupModel, Place
from .process import Coordinated, Topics

__all__ = ["Watcher"]


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
        known_epoch = self.model.epoch
        found = (await self.ask(ConsumerGroupDescribeRequest(group_ids=[self.group]))).groups[0]
        if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            assert not known_epoch, f"{self.group} was in epoch {known_epoch}, and is not found"
            return
        self.pass_over(found.error_code)
        shares = dict[str, set[Place]]()
        for member in found.members:
            has = member.assignment.topic_partitions
            shares[member.member_id] = {(one.topic_id, number) for one in has for number in one.partitions}
        self.state = found.group_state
        self.model.look(found.group_epoch, known_epoch, shares)

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
