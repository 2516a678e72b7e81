"""OffsetCommit: store positions of a group, and answer when a majority has them.

The group's state machine says whether the member may commit; a group that does not exist is made by whoever commits
outside of group management (generation -1). Each partition is checked for itself: it must exist, and the note must not
be too long (`offset.metadata.max.bytes`). What passes becomes records of the coordinator's log, and is answered when
those are committed: an offset that was acknowledged never goes back, whatever fails afterwards.

No answer within `APPEND_S` is COORDINATOR_NOT_AVAILABLE; the offsets may be stored later all the same, and a client
that commits again does no harm.
"""

from collections.abc import Callable

from barnabas_broker.connections import Exchange
from barnabas_broker.context import BrokerContext, respond
from barnabas_broker.coordinator_shard import Change, Shard
from barnabas_broker.groups.records import NO_TIMESTAMP, CommittedOffset, OffsetKey
from barnabas_broker.waiting import Deadline
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

from .group_routing import APPEND_S, Outcome, is_storable, route

__all__ = ["handle", "refuse"]

IDS_SINCE = 10
NOT_FOUND_SINCE = 9


class _Commit:
    """One request that waits for its records."""

    __slots__ = ("broker", "deadline", "exchange", "response", "stored")

    def __init__(
        self,
        broker: BrokerContext,
        exchange: Exchange,
        response: OffsetCommitResponse,
        stored: list[OffsetCommitResponsePartition],
    ) -> None:
        self.broker, self.exchange, self.response, self.stored = broker, exchange, response, stored
        self.deadline: Deadline[Callable[[], None]] | None = None

    def park(self) -> None:
        if not self.exchange.is_answered:
            self.exchange.abandon = self._abandon
            self.deadline = self.broker.timers.add(
                int(APPEND_S * 1000), lambda: self.done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            )

    def done(self, error: ErrorCode) -> None:
        # The deadline may have been first, or the client may be gone.
        if self.exchange.is_answered:
            return
        self._abandon()
        for partition in self.stored:
            partition.error_code = error
        respond(self.exchange, self.response)

    def _abandon(self) -> None:
        if self.deadline is not None:
            self.broker.timers.cancel(self.deadline)


def handle(broker: BrokerContext, exchange: Exchange, request: OffsetCommitRequest) -> Outcome:
    """Check, append, and wait without a task."""
    if not is_storable(request.group_id):
        return refuse(request, ErrorCode.INVALID_GROUP_ID)
    return route(
        broker,
        exchange,
        request.group_id,
        lambda shard: _commit(broker, exchange, request, shard),
        lambda code: refuse(request, code),
    )


def refuse(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Answer every partition with `code`."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _commit(
    broker: BrokerContext, exchange: Exchange, request: OffsetCommitRequest, shard: Shard
) -> OffsetCommitResponse | None:
    code = _check_member(exchange.version, request, shard)
    if code is not ErrorCode.NONE:
        return refuse(request, code)
    response, changes, stored = OffsetCommitResponse(), list[Change](), list[OffsetCommitResponsePartition]()
    expire_ms = NO_TIMESTAMP
    now_ms = broker.coordinator.wall_ms()
    if request.retention_time_ms >= 0:
        expire_ms = now_ms + request.retention_time_ms
    for topic in request.topics:
        hosted = broker.topic(topic.name, topic.topic_id, by_id=exchange.version >= IDS_SINCE)
        results = []
        for asked in topic.partitions:
            result = OffsetCommitResponsePartition(partition_index=asked.partition_index)
            if hosted is None:
                by_id = exchange.version >= IDS_SINCE
                result.error_code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif not 0 <= asked.partition_index < len(hosted.topic.partitions):
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len((asked.committed_metadata or "").encode()) > broker.config.offset_metadata_max_bytes:
                result.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                # The image's own string: a million offsets of one topic share it.
                key = OffsetKey(request.group_id, hosted.topic.name, asked.partition_index)
                changes.append((key, _value(asked, hosted.topic.topic_id, now_ms, expire_ms)))
                stored.append(result)
            results.append(result)
        response.topics.append(_result(topic, results))
    if not changes:
        _settle(shard, request.group_id)
        return response
    commit = _Commit(broker, exchange, response, stored)
    shard.write_offsets(changes, commit.done)
    commit.park()
    return None


def _check_member(version: int, request: OffsetCommitRequest, shard: Shard) -> ErrorCode:
    generation_id = request.generation_id_or_member_epoch
    hosted = shard.group(request.group_id) if generation_id >= 0 else shard.make_group(request.group_id)
    if hosted is None:
        if generation_id < 0:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.GROUP_ID_NOT_FOUND if version >= NOT_FOUND_SINCE else ErrorCode.ILLEGAL_GENERATION
    return shard.check_commit(hosted, request.member_id, request.group_instance_id, generation_id)


def _settle(shard: Shard, group_id: str) -> None:
    """Let go of a group that was made for a commit of which nothing is stored."""
    hosted = shard.group(group_id)
    if hosted is not None:
        shard.settle(hosted)


def _value(asked: OffsetCommitRequestPartition, topic_id: bytes, now_ms: int, expire_ms: int) -> CommittedOffset:
    return CommittedOffset(
        asked.committed_offset,
        asked.committed_leader_epoch,
        asked.committed_metadata or "",
        now_ms,
        expire_ms,
        topic_id,
    )


def _result(topic: OffsetCommitRequestTopic, results: list[OffsetCommitResponsePartition]) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=results)
