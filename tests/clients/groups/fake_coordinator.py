"""A naive group coordinator on fake brokers, and a handler that records its calls.

A join waits until `size` members have joined. Until then every heartbeat is told of a rebalance, and nothing times out.
A test decides what goes wrong: `refuse` answers some requests with errors, `freeze` makes a broker answer nobody,
`move` makes another one the coordinator.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from clients.fake_broker import Answer, FakeBroker, FakeCluster

from barnabas_clients.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_clients.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_clients.protocol.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas_clients.protocol.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from barnabas_clients.protocol.metadata import MetadataRequest
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas_clients.protocol.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas_clients.topic_partition import TopicPartition

TOPIC = "t"
Code = ErrorCode


class FakeCoordinator:
    """One group on the first of some brokers, and a topic "t"."""

    def __init__(self, *brokers: FakeBroker, partitions: int = 4, size: int = 1) -> None:
        self.brokers = brokers
        self.home = brokers[0]
        self.size = size
        self.cluster = FakeCluster(*brokers)
        self.grow(partitions)
        self.generation_id = 0
        self.joined: dict[str, JoinGroupRequest] = {}
        self.assignments: dict[str, bytes] = {}
        self.commits: list[tuple[int, str, int]] = []
        self.refusals: dict[type[Any], deque[int]] = {}
        self.is_rebalancing = True
        self.changed = asyncio.Condition()
        self.frozen: set[FakeBroker] = set()
        self.handlers: dict[type[Any], Callable[[Any], Any]] = {
            FindCoordinatorRequest: self.find,
            JoinGroupRequest: self.join,
            SyncGroupRequest: self.sync,
            HeartbeatRequest: self.heartbeat,
            LeaveGroupRequest: self.leave,
            OffsetCommitRequest: self.commit,
        }
        for broker in brokers:
            for kind, handler in self.handlers.items():
                broker.answers[kind] = self.at(broker, handler, kind)
            broker.answers[MetadataRequest] = self.at(broker, self.cluster.metadata, MetadataRequest)

    # Called by tests.

    def refuse(self, kind: type[Any], *codes: int) -> None:
        """Answer the next requests of a kind with these codes; 0 lets one pass.

        A heartbeat of before the last join does not count: it comes on a connection of its own, at any time, and no
        member heeds its answer.
        """
        self.refusals.setdefault(kind, deque()).extend(codes)

    def freeze(self, broker: FakeBroker) -> None:
        """Let a broker take requests and answer none, as one that was stopped."""
        self.frozen.add(broker)

    def move(self, broker: FakeBroker) -> None:
        self.home = broker

    def grow(self, partitions: int) -> None:
        self.cluster.topics[TOPIC] = [(self.brokers[0].node_id, 1)] * partitions

    async def rebalance(self) -> None:
        """Make everybody join again."""
        self.is_rebalancing = True
        self.joined.clear()
        await self.tell()

    async def complete(self) -> None:
        """End the round of joins: whoever has joined is in the next generation."""
        self.generation_id += 1
        self.assignments = {}
        self.is_rebalancing = False
        await self.tell()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with self.changed:
            await self.changed.wait_for(holds)

    async def tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def beats(self, count: int) -> None:
        """Wait for so many heartbeats from now."""
        before = self.count(HeartbeatRequest)
        await self.until(lambda: self.count(HeartbeatRequest) >= before + count)

    def count(self, kind: type[Any], broker: FakeBroker | None = None) -> int:
        return sum(one.count(kind) for one in self.brokers if broker in (None, one))

    # Answers.

    def at(self, broker: FakeBroker, handler: Callable[[Any], Any], kind: type[Any]) -> Callable[[Any], Any]:
        async def answer(request: Any) -> Answer:
            await self.tell()
            if broker in self.frozen:
                await asyncio.Event().wait()
            if kind not in (FindCoordinatorRequest, MetadataRequest):
                is_late = kind is HeartbeatRequest and self.judge(request.member_id, request.generation_id)
                code = queue.popleft() if (queue := self.refusals.get(kind)) and not is_late else 0
                code = code or (0 if broker is self.home else Code.NOT_COORDINATOR)
                if code:
                    return refusal(request, code)
            reply: Answer = await handler(request)
            return reply

        return answer

    async def find(self, request: FindCoordinatorRequest) -> Answer:
        row = Coordinator(key=request.coordinator_keys[0], node_id=self.home.node_id, host="", port=0)
        return FindCoordinatorResponse(coordinators=[row])

    async def join(self, request: JoinGroupRequest) -> Answer:
        if not request.member_id:
            member_id = f"m{self.count(JoinGroupRequest)}"
            return JoinGroupResponse(error_code=Code.MEMBER_ID_REQUIRED, member_id=member_id)
        if not self.is_rebalancing:
            self.is_rebalancing = True
            self.joined.clear()
        self.joined[request.member_id] = request
        if len(self.joined) == self.size:
            await self.complete()
        await self.tell()
        await self.until(lambda: not self.is_rebalancing)
        leader = min(self.joined)
        rows = [
            JoinGroupResponseMember(
                member_id=member_id, group_instance_id=row.group_instance_id, metadata=row.protocols[0].metadata
            )
            for member_id, row in sorted(self.joined.items())
        ]
        return JoinGroupResponse(
            generation_id=self.generation_id,
            protocol_type="consumer",
            protocol_name=request.protocols[0].name,
            leader=leader,
            member_id=request.member_id,
            members=rows if leader == request.member_id else [],
        )

    async def sync(self, request: SyncGroupRequest) -> Answer:
        if request.assignments:
            self.assignments = {row.member_id: row.assignment for row in request.assignments}
            await self.tell()
        await self.until(lambda: bool(self.assignments))
        return SyncGroupResponse(
            protocol_type="consumer",
            protocol_name=request.protocol_name,
            assignment=self.assignments[request.member_id],
        )

    async def heartbeat(self, request: HeartbeatRequest) -> Answer:
        return HeartbeatResponse(error_code=self.judge(request.member_id, request.generation_id))

    async def leave(self, request: LeaveGroupRequest) -> Answer:
        rows = [MemberResponse(member_id=row.member_id) for row in request.members]
        for row in rows:
            self.joined.pop(row.member_id, None)
        await self.tell()
        return LeaveGroupResponse(members=rows)

    async def commit(self, request: OffsetCommitRequest) -> Answer:
        code = self.judge(request.member_id, request.generation_id_or_member_epoch)
        # As Kafka: until everybody has joined, the old generation may still commit.
        if code in (0, Code.REBALANCE_IN_PROGRESS):
            for topic in request.topics:
                self.commits += [
                    (row.partition_index, request.member_id, row.committed_offset) for row in topic.partitions
                ]
            code = 0
        return refusal(request, code)

    def judge(self, member_id: str, generation_id: int) -> int:
        if self.is_rebalancing:
            return Code.REBALANCE_IN_PROGRESS
        if member_id not in self.joined:
            return Code.UNKNOWN_MEMBER_ID
        return 0 if generation_id == self.generation_id else Code.ILLEGAL_GENERATION


def refusal(request: Any, code: int) -> Answer:
    """Answer a request with an error."""
    if isinstance(request, JoinGroupRequest):
        return JoinGroupResponse(error_code=code, member_id=request.member_id)
    if isinstance(request, SyncGroupRequest):
        return SyncGroupResponse(error_code=code)
    if isinstance(request, HeartbeatRequest):
        return HeartbeatResponse(error_code=code)
    if isinstance(request, LeaveGroupRequest):
        return LeaveGroupResponse(error_code=code)
    if isinstance(request, ConsumerGroupHeartbeatRequest):
        return ConsumerGroupHeartbeatResponse(error_code=code)
    assert isinstance(request, OffsetCommitRequest)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=row.partition_index, error_code=code)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class Recorder:
    """A handler. `log` has what it was told; a call waits at its gate, if the gate is shut."""

    def __init__(self, *topics: str) -> None:
        self.topics = frozenset(topics or (TOPIC,))
        self.mine: frozenset[TopicPartition] = frozenset()
        self.log: list[tuple[str, tuple[int, ...]]] = []
        self.changed = asyncio.Condition()
        self.gates = {name: asyncio.Event() for name in ("revoke", "lose", "assign")}
        for gate in self.gates.values():
            gate.set()

    def subscription(self) -> frozenset[str]:
        return self.topics

    def owned(self) -> frozenset[TopicPartition]:
        return self.mine

    async def revoke(self, partitions: frozenset[TopicPartition]) -> None:
        await self.note("revoke", partitions)
        self.mine -= partitions

    async def lose(self, partitions: frozenset[TopicPartition]) -> None:
        self.mine -= partitions
        await self.note("lose", partitions)

    async def assign(self, added: frozenset[TopicPartition], whole: frozenset[TopicPartition]) -> None:
        self.mine = whole
        await self.note("assign", added)

    async def note(self, what: str, partitions: frozenset[TopicPartition]) -> None:
        self.log.append((what, tuple(sorted(partition.partition for partition in partitions))))
        async with self.changed:
            self.changed.notify_all()
        await self.gates[what].wait()

    async def until(self, *told: str) -> None:
        """Wait until the handler has been told exactly these things."""
        async with self.changed:
            await self.changed.wait_for(lambda: tuple(what for what, _ in self.log) == told)

    async def holds(self, count: int) -> None:
        """Wait until the handler has so many partitions."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.mine) == count)
