"""Members of groups of both protocols that say just what a client must: for `protocols`, many in one process.

Each has a connection of its own to its group's coordinator, on which it sends heartbeats and commits, as Java's
consumer does. A member of the classic protocol (`ClassicMember`) joins, leads if it is asked to, and joins again when
it is told; one of KIP-848 (`ConsumerMember`) says what it has when that has changed, at once, and comes again when it
was told to. Nobody fetches records.
"""

import asyncio
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from barnabas_clients.assignors.assignor import Subscription
from barnabas_clients.assignors.subscription import decode_assignment, encode_assignment, encode_subscription
from barnabas_clients.cluster.connection import Connection
from barnabas_clients.errors import ClientError
from barnabas_clients.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_clients.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas_clients.protocol.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.wire.schema import Message

__all__ = ["ClassicMember", "ConsumerMember", "Member", "Place"]

REQUEST_S = 10.0
JOIN_S = 90.0
BACKOFF_S = 0.1  # Java's retry.backoff.ms
SESSION_MS = 45_000
CLASSIC_HEARTBEAT_S = 3.0
COMMIT_VERSIONS = range(9, 10)
MOVED = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


class Place:
    """The cluster, and the topic that everybody reads; `asking` are connections to find coordinators with."""

    def __init__(self, bootstrap: str, topic: str, topic_id: bytes, partitions: int) -> None:
        self.brokers = [(host, int(port)) for host, _, port in (one.rpartition(":") for one in bootstrap.split(","))]
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = partitions
        self._asking: dict[tuple[str, int], Connection] = {}
        self._turn = 0

    async def coordinator_of(self, group: str) -> tuple[str, int] | None:
        """Return the address of a group's coordinator, or None if the next broker to be asked does not say."""
        self._turn += 1
        address = self.brokers[self._turn % len(self.brokers)]
        try:
            known = self._asking.get(address)
            if known is None or not known.is_open:
                known = self._asking[address] = await Connection.open(*address, timeout_s=REQUEST_S)
            answer = await known.request(FindCoordinatorRequest(coordinator_keys=[group]), REQUEST_S)
        except ClientError:
            return None
        found = answer.coordinators[0]
        return None if found.error_code else (found.host, found.port)


class Member(Protocol):
    """One member. `epoch` is its generation's, or its own; times are the loop's.

    `told_at_s`: when it was told what it has; `kept_at_s`: when the coordinator first knew that it has just that.
    """

    group: str
    owned: frozenset[int]
    epoch: int
    told_at_s: float
    kept_at_s: float
    wanted_at_s: float
    """When it wanted to make its last successful commit; it may have tried before."""
    committed_at_s: float
    """When that began."""
    acknowledged_at_s: float
    """When that was answered."""
    failures: int

    async def run(self) -> None: ...


class _Member(ABC):
    def __init__(self, place: Place, group: str, commit_s: float) -> None:
        self.place = place
        self.group = group
        self.member_id = ""
        self.owned: frozenset[int] = frozenset()
        self.epoch = -1
        self.told_at_s = self.kept_at_s = self.wanted_at_s = self.committed_at_s = self.acknowledged_at_s = 0.0
        self._due_at_s: float | None = None
        self.failures = 0
        self._commit_s = commit_s
        self._connection: Connection | None = None
        self._used: Connection | None = None  # by the answer that was read last, or by the request that failed
        self._opening = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._forever(self._stay))
            tasks.create_task(self._forever(self._commit))

    @abstractmethod
    async def _stay(self) -> None:
        """Say once more that it is there, when that is due."""

    async def _forever(self, step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await step()
            except ClientError:
                self._forget()
                self.failures += 1
                await asyncio.sleep(BACKOFF_S)

    async def ask(self, request: Message, timeout_s: float = REQUEST_S, versions: range | None = None) -> Any:
        connection = await self._coordinator()
        try:
            return await connection.request(request, timeout_s, versions)
        finally:
            self._used = connection

    async def _coordinator(self) -> Connection:
        async with self._opening:
            while self._connection is None or not self._connection.is_open:
                address = await self.place.coordinator_of(self.group)
                if address is None:
                    await asyncio.sleep(BACKOFF_S)
                    continue
                self._connection = await Connection.open(*address, timeout_s=REQUEST_S)
            return self._connection

    def _forget(self) -> None:
        """Ask who coordinates next time, unless that has been done since this request: two tasks share a connection."""
        if self._connection is not None and self._connection is self._used:
            self._connection.abandon()
            self._connection = None

    def _tell(self, owned: frozenset[int]) -> None:
        self.owned = owned
        self.told_at_s = self._loop.time()

    async def _commit(self) -> None:
        """Commit what it has, and try again soon if that fails; then wait for the next time."""
        if self._due_at_s is None:
            self._due_at_s = self._loop.time()
        if not self.owned or self.epoch <= 0:
            await asyncio.sleep(BACKOFF_S)
        while self.owned and self.epoch > 0:
            began_s = self._loop.time()
            partitions = [
                OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in sorted(self.owned)
            ]
            request = OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=self.epoch,
                member_id=self.member_id,
                topics=[OffsetCommitRequestTopic(name=self.place.topic, partitions=partitions)],
            )
            answer = await self.ask(request, versions=COMMIT_VERSIONS)
            codes = {one.error_code for topic in answer.topics for one in topic.partitions}
            if codes == {ErrorCode.NONE}:
                self.wanted_at_s, self._due_at_s = self._due_at_s, None
                self.committed_at_s, self.acknowledged_at_s = began_s, self._loop.time()
                await asyncio.sleep(self._commit_s)
                return
            self.failures += 1
            if ErrorCode.NOT_COORDINATOR in codes:
                self._forget()
            await asyncio.sleep(BACKOFF_S)


class ConsumerMember(_Member):
    """A member of a group of KIP-848."""

    def __init__(self, place: Place, group: str, commit_s: float) -> None:
        super().__init__(place, group, commit_s)
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.interval_s = 0.0
        self._is_unsaid = True  # Everything is to be said again.
        self._said: frozenset[int] | None = None

    async def _stay(self) -> None:
        said = self.owned
        request = self._request()
        self._is_unsaid = True  # Unless it is heard.
        answer = await self.ask(request)
        code = answer.error_code
        if code in {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID}:
            self.failures += 1
            self.epoch = 0
            self._tell(frozenset())
            return
        if code != ErrorCode.NONE:
            assert code in MOVED, answer
            self.failures += 1
            if code == ErrorCode.NOT_COORDINATOR:
                self._forget()
            await asyncio.sleep(BACKOFF_S)
            return
        self._is_unsaid = False
        self._said = said
        self.epoch = answer.member_epoch
        self.interval_s = answer.heartbeat_interval_ms / 1_000
        if answer.assignment is not None:
            told = frozenset(n for one in answer.assignment.topic_partitions for n in one.partitions)
            if told != self.owned:
                self._tell(told)
        if self._said == self.owned:
            if self.kept_at_s <= self.told_at_s:
                self.kept_at_s = self._loop.time()
            await asyncio.sleep(self.interval_s)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=self.epoch)
        if self._is_unsaid or self.epoch == 0:
            request.rebalance_timeout_ms = 300_000
            request.subscribed_topic_names = [self.place.topic]
        if self._is_unsaid or self._said != self.owned:
            one = ConsumerGroupHeartbeatTopicPartitions(topic_id=self.place.topic_id, partitions=sorted(self.owned))
            request.topic_partitions = [one] if self.owned else []
        return request


class ClassicMember(_Member):
    """A member of a classic group; the leader deals partitions out in turn."""

    async def _stay(self) -> None:
        if self.epoch < 0:
            await self._join()
            return
        await asyncio.sleep(CLASSIC_HEARTBEAT_S)
        request = HeartbeatRequest(group_id=self.group, generation_id=self.epoch, member_id=self.member_id)
        answer = await self.ask(request)
        await self._heed(answer.error_code)

    async def _heed(self, code: int) -> None:
        """Do what an error asks for."""
        if code == ErrorCode.NONE:
            return
        self.failures += code != ErrorCode.REBALANCE_IN_PROGRESS
        if code in {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}:
            self.epoch = -1
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            return
        assert code in MOVED, code
        if code == ErrorCode.NOT_COORDINATOR:
            self._forget()
        await asyncio.sleep(BACKOFF_S)

    async def _join(self) -> None:
        metadata = encode_subscription(Subscription(frozenset({self.place.topic})))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=300_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="turns", metadata=metadata)],
        )
        joined = await self.ask(request, JOIN_S)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return
        if joined.error_code != ErrorCode.NONE:
            await self._heed(joined.error_code)
            return
        self.member_id = joined.member_id
        sync = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="turns",
            assignments=self._dealt([one.member_id for one in joined.members]),
        )
        synced = await self.ask(sync, JOIN_S)
        if synced.error_code != ErrorCode.NONE:
            await self._heed(synced.error_code)
            return
        self.epoch = joined.generation_id
        self._tell(frozenset(place.partition for place in decode_assignment(synced.assignment)))
        self.kept_at_s = self.told_at_s

    def _dealt(self, member_ids: list[str]) -> list[SyncGroupRequestAssignment]:
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=encode_assignment(
                    TopicPartition(self.place.topic, index)
                    for index in range(number, self.place.partitions, len(member_ids))
                ),
            )
            for number, member_id in enumerate(sorted(member_ids))
        ]
