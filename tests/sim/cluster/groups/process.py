"""A process with one member of a group, by hand: it finds its coordinator, commits and looks positions up.

How it joins and hears of its share is its protocol's (`consumer_member`, `classic_member`). Its positions are any
numbers that grow. What happens to it from outside is the crowd's (`crowd`), which sets `is_asked_to_go` and the like;
whatever it hears and says it tells the model.
"""

import asyncio
from contextlib import suppress
from typing import Any

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_clients.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas_clients.protocol.registry import Message
from sim.cluster.clients.client import Trouble, WireClient

from .model import GroupModel, Place, Stay

__all__ = ["PASSING", "REQUEST_S", "Coordinated", "Process", "Topics"]

REQUEST_S = 2.5
PASSING = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
REFUSED = {  # a commit: it was not taken, and will not be
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
}
UNKNOWN_TOPIC = {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
COMMITS = range(9, 11)
LOOKS = range(9, 11)
FORGED = 1_000
"""So much above all others is an epoch that nobody was told."""


class Topics:
    """What members may subscribe to. `lasting`: ids of topics that stay, by name; their positions are looked at.

    `passing`: id and partitions of those that come and go, and are there for sure.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.lasting = dict[str, bytes]()
        self.passing = dict[str, tuple[bytes, int]]()

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name, known in self.lasting.items() if known == topic_id), None)

    def places_of(self, names: list[str]) -> set[Place]:
        found = {
            (self.lasting[name], index) for name in names if name in self.lasting for index in range(self.partitions)
        }
        passing = [self.passing[name] for name in names if name in self.passing]
        return found | {(topic_id, index) for topic_id, count in passing for index in range(count)}


class Coordinated:
    """Asks the coordinator of one group, whichever broker that is."""

    def __init__(self, client: WireClient, group: str) -> None:
        self.client = client
        self.group = group
        self._coordinator: int | None = None

    async def ask(self, request: Message, timeout_s: float = REQUEST_S, versions: range | None = None) -> Any:
        """Ask it.

        Raises:
            Trouble: no answer, or nobody knows the coordinator.
        """
        if self._coordinator is None:
            answer = await self.client.ask_anybody(FindCoordinatorRequest(coordinator_keys=[self.group]))
            found = answer.coordinators[0]
            if found.error_code == ErrorCode.INVALID_REPLICATION_FACTOR:
                raise Trouble("too few brokers for the offsets topic")
            self.pass_over(found.error_code)
            self._coordinator = found.node_id
        try:
            return await self.client.ask(self._coordinator, request, timeout_s, versions)
        except Trouble:
            self._coordinator = None
            raise

    def pass_over(self, code: int) -> None:
        """Go on upon NONE.

        Raises:
            Trouble: an error that passes.
        """
        if code == ErrorCode.NONE:
            return
        assert code in PASSING, f"group {self.group}, {self.client.name}: {ErrorCode(code).name}"
        self._coordinator = None
        raise Trouble(ErrorCode(code).name)

    async def position_of(
        self, topics: Topics, place: Place, member_id: str | None = None, epoch: int = -1
    ) -> int | None:
        """Return the committed offset, 0 for nothing; None: the group refuses this member.

        Raises:
            Trouble: no answer.
        """
        topic_id, index = place
        wanted = OffsetFetchRequestTopics(
            name=topics.name_of(topic_id) or "", topic_id=topic_id, partition_indexes=[index]
        )
        group = OffsetFetchRequestGroup(group_id=self.group, member_id=member_id, member_epoch=epoch, topics=[wanted])
        answer = (await self.ask(OffsetFetchRequest(groups=[group], require_stable=True), versions=LOOKS)).groups[0]
        if member_id is not None and answer.error_code in {
            ErrorCode.STALE_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
        }:
            return None
        self.pass_over(answer.error_code)
        row = answer.topics[0].partitions[0]
        self.pass_over(row.error_code)
        return max(0, int(row.committed_offset))


class Process(Coordinated):
    """See the module. `is_over`: it has ended by itself, or was killed. `names_itself`: when it looks positions up."""

    names_itself = True
    is_classic = False

    def __init__(
        self,
        client: WireClient,
        group: str,
        model: GroupModel,
        topics: Topics,
        instance_id: str | None,
        rebalance_ms: int,
    ) -> None:
        super().__init__(client, group)
        self.world = client.world
        self.model = model
        self.topics = topics
        self.instance_id = instance_id
        self.rebalance_ms = rebalance_ms
        self.stay: Stay | None = None
        self.is_asked_to_go = self.is_over = self.forges = False
        self.positions = dict[Place, int]()
        self.woken = asyncio.Event()
        self.lives = 0

    @property
    def wanted(self) -> set[Place]:
        """The partitions that it subscribes to."""
        raise NotImplementedError

    @property
    def member_id(self) -> str:
        raise NotImplementedError

    def begin_stay(self) -> Stay:
        self.lives += 1
        name = f"{self.client.name}.{self.lives}"
        self.stay = Stay(name, self.instance_id, self.rebalance_ms * 1_000, is_classic=self.is_classic)
        return self.stay

    def end_stay(self, *, is_removed: bool = False) -> None:
        if self.stay is not None:
            self.model.end(self.stay, is_removed=is_removed)
        self.stay = None
        self.positions.clear()

    def wake(self) -> None:
        """Let it look at once at what is wanted of it; called from outside of its loop."""
        self.client.loop.arrive(self.woken.set)

    async def rest(self, seconds: float) -> None:
        """Let time pass, unless it is woken."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.woken.wait()
        self.woken.clear()

    # Positions.

    async def commit_some(self, share: float) -> None:
        """Go on in some partitions, and say how far.

        Raises:
            Trouble: no answer, or the group does not take it.
        """
        for place in sorted(self.positions):
            if place in self.positions and self.client.rng.random() < share:
                self.positions[place] += self.client.rng.randrange(1, 10)
                await self.commit(place, self.positions[place])

    async def commit(self, place: Place, offset: int) -> None:
        """Commit; raises as `commit_some`."""
        stay = self.stay
        if stay is None or place not in stay.has:
            return
        known = self.model.send_commit(stay, place, offset)
        code = await self._send_commit(place, offset, stay.epoch)
        if code == ErrorCode.NONE:
            self.model.acknowledge(known)
        elif code in REFUSED:
            self.model.refuse_commit(known)
            self.world.counts[f"group commit refused {ErrorCode(code).name}"] += 1
            raise Trouble(ErrorCode(code).name)
        else:
            self.pass_over(code)

    async def _send_commit(self, place: Place, offset: int, epoch: int) -> int:
        topic_id, index = place
        rows = [OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)]
        name = self.topics.name_of(topic_id) or ""
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=rows)],
        )
        answer = await self.ask(request, versions=COMMITS)
        return int(answer.topics[0].partitions[0].error_code)

    async def forge_commit(self) -> None:
        """Commit in an epoch that there is not, or as in an older one that others have a partition since: in vain."""
        stay = self.stay
        if stay is None:
            return
        places = self.topics.places_of(sorted(self.topics.lasting))
        forged = [(place, stay.epoch + FORGED) for place in sorted(places)]
        if stay.epoch > 1:
            forged += [(place, stay.epoch - 1) for place in sorted(places - stay.has)]
        place, epoch = self.client.rng.choice(forged)
        code = await self._send_commit(place, 1, epoch)
        assert code in REFUSED or code in PASSING, f"a forged commit of {epoch}: {ErrorCode(code).name}"
        self.world.counts["group forged commits refused"] += code in REFUSED

    async def look_up(self, place: Place) -> bool:
        """Find out where to go on; False: the group does not know that it is in this epoch.

        Raises:
            Trouble: no answer.
        """
        stay = self.stay
        if stay is None:
            return False
        asked = self.model.ask(stay, place)
        member_id = self.member_id if self.names_itself else None
        offset = await self.position_of(self.topics, place, member_id, stay.epoch if self.names_itself else -1)
        if offset is None:
            return False
        self.model.tell(stay, asked, offset)
        if place in stay.has:
            self.positions[place] = offset
        return True
