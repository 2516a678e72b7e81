"""OffsetFetch: return the positions that a group has stored.

A majority confirms this broker's leadership before it answers (ReadIndex), once for all groups of one partition, so a
coordinator that was deposed and does not know it yet never hands out an old position. Only committed positions are
shown. A group or a partition without one is answered with offset -1 and no error, as in Kafka.

A client that asks for stable positions (`require_stable`) is told UNSTABLE_OFFSET_COMMIT for each that a transaction
has written and that is not decided yet, and asks again. If it asks for all positions of a group, those are among them
that have an older one; the others are left out, as in Kafka.

Positions that were committed for an earlier topic of the same name are not shown: that topic's offsets mean nothing
now. All positions of a group are answered once, however often they are asked for; named ones each time, as in Kafka.
"""

from collections.abc import Generator, Hashable, Mapping, Sequence
from typing import NamedTuple

from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.state_machine.records import NO_TOPIC_ID, CommittedOffset, OffsetKey
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.pieces import distinct, let_go
from barnabas_broker.timing.slices import Slices, made, taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas_raftlog.steps import at_once

from .group_routing import CONFIRM_S, REQUEST_MS

__all__ = ["handle", "refuse"]

MANY_SINCE = 8
MEMBERS_SINCE = 9
IDS_SINCE = 10
TOP_LEVEL_SINCE = 2
PIECE = 100  # positions between two yields
Asked = Sequence[tuple[str, bytes, Sequence[int]]] | None


async def handle(broker: BrokerContext, exchange: Exchange, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Confirm, then read."""
    version = exchange.version
    groups = request.groups
    if version < MANY_SINCE:
        topics = None if request.topics is None else await made(_as_since_many, request.topics)
        groups = [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]
    groups = await taken(distinct(groups, _key))
    shards: dict[str, GroupShard | ErrorCode] = {}
    confirmed: dict[GroupShard, ErrorCode] = {}
    until_ms = broker.now_ms() + REQUEST_MS
    slices = Slices()
    for group in groups:
        await slices.yield_if_due()
        is_late = broker.now_ms() >= until_ms
        find = broker.coordinator.find_shard
        shard = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_late else await find(group.group_id)
        shards[group.group_id] = shard
        if isinstance(shard, GroupShard) and shard not in confirmed:
            confirmed[shard] = await shard.runtime.confirm(CONFIRM_S)
    results = []
    for group in groups:
        await slices.yield_if_due()
        shard = shards[group.group_id]
        code = confirmed[shard] if isinstance(shard, GroupShard) else shard
        if isinstance(shard, GroupShard) and code is ErrorCode.NONE:
            code = _member_refusal(shard, group, version)
        if isinstance(shard, GroupShard) and code is ErrorCode.NONE:
            reading = _Reading(broker, shard, group.group_id, version >= IDS_SINCE, request.require_stable)
            results.append(await taken(reading.all() if group.topics is None else reading.named(group.topics)))
        else:
            results.append(_failed(group, code))
    if version >= MANY_SINCE:
        return OffsetFetchResponse(groups=results)
    return await taken(_single(results[0], request, version))


def _member_refusal(shard: GroupShard, group: OffsetFetchRequestGroup, version: int) -> ErrorCode:
    """Say whether a member of a group of KIP-848 may ask; who names none may (trap G10)."""
    saved = shard.consumers.saved(group.group_id)
    if saved is None or version < MEMBERS_SINCE:
        return ErrorCode.NONE
    return saved.fetch_refusal(group.member_id, group.member_epoch)


def _key(group: OffsetFetchRequestGroup) -> Hashable:
    """Return its key among those that are answered once: many that ask for everything take few bytes."""
    return (group.group_id, group.member_id, group.member_epoch) if group.topics is None else id(group)


def refuse(request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    """Answer every group with `code`; before version 2 there are only the partitions to say it."""
    groups = [_failed(group, code) for group in request.groups]
    return OffsetFetchResponse(error_code=code, topics=at_once(_failed_topics(request, code)), groups=groups)


class _Reading(NamedTuple):
    """What is read of one group, and how."""

    broker: BrokerContext
    shard: GroupShard
    group_id: str
    by_id: bool
    require_stable: bool

    def named(self, topics: Sequence[OffsetFetchRequestTopics]) -> Generator[None, None, OffsetFetchResponseGroup]:
        """Return the positions that were asked for by name."""
        results = []
        for asked in topics:
            hosted = self.broker.topic(asked.name, asked.topic_id, by_id=self.by_id)
            name = asked.name if hosted is None else hosted.topic.name
            topic_id = NO_TOPIC_ID if hosted is None else hosted.topic.topic_id
            partitions = []
            for index in asked.partition_indexes:
                if hosted is None and self.by_id:
                    partitions.append(_none(index, ErrorCode.UNKNOWN_TOPIC_ID))
                else:
                    value = self.shard.offsets.get_for(OffsetKey(self.group_id, name, index), topic_id)
                    partitions.append(self._position(name, index, value))
                if not len(partitions) % PIECE:
                    yield
            yield
            results.append(OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id, partitions=partitions))
        return OffsetFetchResponseGroup(group_id=self.group_id, topics=results)

    def all(self) -> Generator[None, None, OffsetFetchResponseGroup]:
        """Return every position that the group has."""
        topics: dict[str, OffsetFetchResponseTopics] = {}
        offsets: Mapping[tuple[str, int], CommittedOffset] = self.shard.offsets.of_group(self.group_id)
        for number, ((name, index), value) in enumerate(sorted(offsets.items()), 1):
            if not number % PIECE:
                yield
            hosted = self.broker.partitions.topics.get(name)
            topic_id = NO_TOPIC_ID if hosted is None else hosted.topic.topic_id
            is_other = NO_TOPIC_ID not in {topic_id, value.topic_id} and value.topic_id != topic_id
            if is_other or (self.by_id and hosted is None):
                continue
            topic = topics.setdefault(name, OffsetFetchResponseTopics(name=name, topic_id=topic_id))
            topic.partitions.append(self._position(name, index, value))
        return OffsetFetchResponseGroup(group_id=self.group_id, topics=list(topics.values()))

    def _position(self, name: str, index: int, value: CommittedOffset | None) -> OffsetFetchResponsePartitions:
        if self.require_stable and self.shard.staging.is_pending(OffsetKey(self.group_id, name, index)):
            return _none(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        return _position(index, value)


def _position(index: int, value: CommittedOffset | None) -> OffsetFetchResponsePartitions:
    if value is None:
        return _none(index, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def _none(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=code)


def _failed(group: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)


def _as_since_many(topic: OffsetFetchRequestTopic) -> OffsetFetchRequestTopics:
    """Return a topic of versions before 8 in the form of the later ones."""
    return OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)


def _failed_topics(
    request: OffsetFetchRequest, code: ErrorCode
) -> Generator[None, None, list[OffsetFetchResponseTopic]]:
    topics = []
    for topic in request.topics or ():
        partitions = []
        for index in topic.partition_indexes:
            failed = OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, error_code=code)
            partitions.append(failed)
            if not len(partitions) % PIECE:
                yield
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
        yield
    return topics


def _single(
    result: OffsetFetchResponseGroup, request: OffsetFetchRequest, version: int
) -> Generator[None, None, OffsetFetchResponse]:
    """Return the answer in the form of versions 1 to 7, which know one group and no ids."""
    code = ErrorCode(result.error_code)
    if code is not ErrorCode.NONE:
        failed = (yield from _failed_topics(request, code)) if version < TOP_LEVEL_SINCE else []
        return OffsetFetchResponse(topics=failed, error_code=code)
    topics = []
    for topic in result.topics:
        partitions = []
        for one in topic.partitions:
            partitions.append(_plain(one))
            if not len(partitions) % PIECE:
                yield
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
        yield
    yield from let_go(result)
    return OffsetFetchResponse(topics=topics)


def _plain(one: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=one.partition_index,
        committed_offset=one.committed_offset,
        committed_leader_epoch=one.committed_leader_epoch,
        metadata=one.metadata,
        error_code=one.error_code,
    )
