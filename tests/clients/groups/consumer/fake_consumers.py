"""A naive coordinator that divides the partitions itself (KIP-848), on fake brokers.

Partition number n belongs to the member number n modulo their count. A member is given nothing of what another one has,
or may have. A heartbeat that says nothing of partitions changes nothing.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from clients.fake_broker import Answer, FakeBroker
from clients.groups.fake_coordinator import TOPIC, Recorder
from clients.groups.storing_coordinator import StoringCoordinator

from barnabas_clients.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.protocol.metadata import MetadataRequest
from barnabas_clients.protocol.offset_fetch import OffsetFetchRequest
from barnabas_clients.topic_partition import TopicPartition

TOPIC_ID = TOPIC.encode().ljust(16, b".")


class Known:
    """What the coordinator knows of one member."""

    def __init__(self) -> None:
        self.epoch = 0
        self.has: set[int] = set()
        self.given: set[int] = set()


class FakeConsumers(StoringCoordinator):
    """One group of members, on the first of some brokers. `beats_seen` has all heartbeats, `topic_id` is told."""

    def __init__(self, *brokers: FakeBroker, partitions: int = 4, interval_ms: int = 10) -> None:
        super().__init__(brokers[0], partitions=partitions)
        self.brokers = brokers
        self.interval_ms = interval_ms
        self.epoch = 0
        self.members: dict[str, Known] = {}
        self.beats_seen: list[ConsumerGroupHeartbeatRequest] = []
        self.topic_id = TOPIC_ID
        self.group_errors: deque[ErrorCode] = deque()
        self.share_first(*brokers)

    def share_first(self, *brokers: FakeBroker) -> None:
        """Give all brokers the answers of the first one, and this one's own."""
        self.cluster.brokers = brokers
        handlers: dict[type[Any], Callable[[Any], Any]] = {
            **self.handlers,
            MetadataRequest: self.cluster.metadata,
            OffsetFetchRequest: self.fetch_offsets,
            ConsumerGroupHeartbeatRequest: self.consumer_heartbeat,
        }
        for broker in brokers:
            for kind, handler in handlers.items():
                broker.answers[kind] = self.at(broker, handler, kind)

    @property
    def partitions(self) -> int:
        return len(self.cluster.topics[TOPIC])

    async def beats_of(self, count: int) -> None:
        """Wait for so many heartbeats from now."""
        before = self.count(ConsumerGroupHeartbeatRequest)
        await self.until(lambda: self.count(ConsumerGroupHeartbeatRequest) >= before + count)

    def change(self) -> None:
        """Begin another epoch, as after any change."""
        self.epoch += 1

    def forget(self, member_id: str) -> None:
        """Let a member be unknown."""
        del self.members[member_id]
        self.change()

    async def consumer_heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> Answer:
        self.beats_seen.append(request)
        if request.member_epoch < 0:
            if self.members.pop(request.member_id, None) is not None:
                self.change()
            await self.tell()
            return ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        if request.member_epoch == 0 and request.member_id not in self.members:
            self.members[request.member_id] = Known()
            self.change()
        known = self.members.get(request.member_id)
        if known is None:
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        if request.member_epoch not in (0, known.epoch):
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        answer = self.step(request, known)
        await self.tell()
        return answer

    def step(self, request: ConsumerGroupHeartbeatRequest, known: Known) -> ConsumerGroupHeartbeatResponse:
        if request.topic_partitions is not None:
            known.has = {number for row in request.topic_partitions for number in row.partitions}
        before = set(known.given)
        ids = sorted(self.members)
        target = set(range(ids.index(request.member_id), self.partitions, len(ids)))
        known.given &= target
        if not known.has - known.given:
            known.epoch = self.epoch
            others = [one for one in self.members.values() if one is not known]
            known.given = target - {number for one in others for number in one.has | one.given}
        is_full = request.rebalance_timeout_ms != -1
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=known.epoch,
            heartbeat_interval_ms=self.interval_ms,
            assignment=self.assignment(known.given) if is_full or known.given != before else None,
        )

    def assignment(self, numbers: set[int]) -> ConsumerGroupHeartbeatAssignment:
        rows = [ConsumerGroupHeartbeatTopicPartitions(topic_id=self.topic_id, partitions=sorted(numbers))]
        return ConsumerGroupHeartbeatAssignment(topic_partitions=rows if numbers else [])

    async def fetch_offsets(self, request: OffsetFetchRequest) -> Answer:
        self.group_error = self.group_errors.popleft() if self.group_errors else ErrorCode.NONE
        return await super().fetch_offsets(request)

    def judge(self, member_id: str, generation_id: int) -> int:
        known = self.members.get(member_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return 0 if generation_id == known.epoch else ErrorCode.STALE_MEMBER_EPOCH


class Owner(Recorder):
    """A handler that shares a list with others, and asserts that nobody has what it gets."""

    def __init__(self, others: list["Owner"], *topics: str, pattern: str | None = None) -> None:
        super().__init__(*topics)
        self.pattern = pattern
        if pattern is not None:
            self.topics = frozenset()
        self.others = others
        others.append(self)

    def server_pattern(self) -> str | None:
        return self.pattern

    async def assign(self, added: frozenset[TopicPartition], whole: frozenset[TopicPartition]) -> None:
        for other in self.others:
            assert other is self or not other.mine & whole, "two members have a partition"
        await super().assign(added, whole)
