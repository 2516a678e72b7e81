"""A member of a consumer group, by hand: it joins, divides the partitions, commits.

Its commits are any numbers that grow: the group's promises do not depend on records. When a commit gets no answer, it
may still arrive and be taken until the generation ends, so from then on less than the newest acknowledged commit may
be there; the history is told. It also asks for committed offsets.
"""

from collections.abc import Callable
from typing import Any

from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_clients.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
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
from barnabas_clients.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from sim.cluster.judges.history import ClientHistory, Partition

from .client import Trouble, WireClient

__all__ = ["SESSION_MS", "GroupMember"]

SESSION_MS = 2_000
REBALANCE_MS = 3_000
ROUNDS = 30  # commits before it leaves its place and joins anew
PASSING = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


class GroupMember:
    """One member. It owns the partitions of its last assignment until it joins again."""

    def __init__(
        self,
        client: WireClient,
        history: ClientHistory,
        group: str,
        partitions: list[Partition],
        goes_on: Callable[[], bool],
    ) -> None:
        self._goes_on = goes_on
        self.client = client
        self.history = history
        self.group = group
        self.partitions = partitions
        self.member_id = ""
        self.generation = -1
        self.rounds = 0
        self._coordinator: int | None = None
        self._positions = dict[Partition, int]()

    async def run(self) -> None:
        while self._goes_on():
            try:
                await self._join()
                for partition in list(self._positions):
                    self._positions[partition] = await self._fetch_commit(partition)
                for _ in range(ROUNDS):
                    if self._goes_on():
                        await self._work()
            except Trouble as trouble:
                self.client.world.note(self.client.name, f"group: {trouble}")
                await self.client.pause()
            self._positions.clear()

    async def _work(self) -> None:
        for partition in list(self._positions):
            self._positions[partition] += self.client.rng.randrange(1, 10)
            await self._commit(partition, self._positions[partition])
            if self.client.rng.random() < 0.2:
                await self._fetch_commit(partition)
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        self._check((await self._ask(request)).error_code)
        self.rounds += 1
        await self.client.pause(50, 300)

    async def _ask(self, request: Message, timeout_s: float = 2.0) -> Any:
        if self._coordinator is None:
            find = FindCoordinatorRequest(coordinator_keys=[self.group])
            found = (await self.client.ask_anybody(find)).coordinators[0]
            if found.error_code == ErrorCode.INVALID_REPLICATION_FACTOR:
                raise Trouble("too few brokers for the offsets topic")
            self._check(found.error_code)
            self._coordinator = found.node_id
        try:
            return await self.client.ask(self._coordinator, request, timeout_s)
        except Trouble:
            self._coordinator = None
            raise

    def _check(self, code: int) -> None:
        if code == ErrorCode.NONE:
            return
        assert code in PASSING, f"group {self.group}: {ErrorCode(code).name}"
        if code in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}:
            self._coordinator = None
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        raise Trouble(ErrorCode(code).name)

    async def _join(self) -> None:
        while True:
            protocols = [JoinGroupRequestProtocol(name="by-hand", metadata=b"")]
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=protocols,
            )
            joined: JoinGroupResponse = await self._ask(request, 10.0)
            if joined.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
            self.member_id = joined.member_id
        self._check(joined.error_code)
        self.member_id = joined.member_id
        self.generation = joined.generation_id
        shares = list[SyncGroupRequestAssignment]()
        if joined.leader == self.member_id and not joined.skip_assignment:
            members = sorted(member.member_id for member in joined.members)
            for place, member_id in enumerate(members):
                share = ",".join(str(index) for _, index in self.partitions[place :: len(members)])
                shares.append(SyncGroupRequestAssignment(member_id=member_id, assignment=share.encode()))
        sync = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="by-hand",
            assignments=shares,
        )
        synced = await self._ask(sync, 10.0)
        self._check(synced.error_code)
        topic = self.partitions[0][0]
        self._positions = {(topic, int(index)): 0 for index in bytes(synced.assignment).decode().split(",") if index}
        self.client.world.note(self.client.name, f"generation {self.generation}: owns {sorted(self._positions)}")
        for partition in self._positions:
            self.history.on_assigned(self.group, self.generation, partition, self.member_id)

    async def _commit(self, partition: Partition, offset: int) -> None:
        topic, index = partition
        await self._know(topic)
        rows = [OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=topic, topic_id=self.client.topic_ids[topic], partitions=rows)],
        )
        self.history.on_commit_sent(self.group, partition, offset)
        answer = await self._ask(request)
        self._check(answer.topics[0].partitions[0].error_code)
        self.history.on_committed(self.group, partition, offset)

    async def _fetch_commit(self, partition: Partition) -> int:
        """Return the committed offset, 0 for nothing."""
        topic, index = partition
        await self._know(topic)
        topics = [
            OffsetFetchRequestTopics(name=topic, topic_id=self.client.topic_ids[topic], partition_indexes=[index])
        ]
        group = OffsetFetchRequestGroup(group_id=self.group, topics=topics)
        at_least = self.history.on_commit_asked(self.client.name, self.group, partition)
        answer = (await self._ask(OffsetFetchRequest(groups=[group], require_stable=True))).groups[0]
        self._check(answer.error_code)
        row = answer.topics[0].partitions[0]
        self._check(row.error_code)
        offset = max(0, int(row.committed_offset))
        name = self.client.name
        self.history.on_fetched_commit(name, self.group, partition, offset, at_least, self.generation)
        return offset

    async def _know(self, topic: str) -> None:
        if topic not in self.client.topic_ids:
            await self.client.refresh(topic)
        if topic not in self.client.topic_ids:
            raise Trouble(f"the id of {topic} is not known")
