"""OffsetCommit: store positions of a group, and answer when a majority has them.

The group's state machine says whether the member may commit; a commit outside of group management (generation -1) makes
the group if it does not exist. A member that is thrown out while a request that names thousands is worked off is told
so for the rest. How positions are stored is said in `storing_offsets`.
"""

from collections.abc import Sequence

from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.state_machine.records import CommittedOffset, OffsetKey
from barnabas_broker.coordinators.runtime.contracts import Done
from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas_raftlog.steps import at_once

from .consumer_offsets import may_commit
from .group_routing import Outcome, route
from .storing_offsets import Forms, Place, Storing, refused

__all__ = ["handle", "refuse"]

IDS_SINCE = 10
NOT_FOUND_SINCE = 9
TIMESTAMP_MAX = (1 << 63) - 1


def _topic(asked: OffsetCommitRequestTopic, results: list[OffsetCommitResponsePartition]) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=results)


def _result(index: int, code: ErrorCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=index, error_code=code)


FORMS = Forms(OffsetCommitResponse, _topic, _result)


class _Commit(Storing):
    """One request."""

    def __init__(self, broker: BrokerContext, exchange: Exchange, request: OffsetCommitRequest) -> None:
        super().__init__(broker, exchange, request.group_id, FORMS)
        self._request = request
        self._by_id = exchange.version >= IDS_SINCE
        if request.retention_time_ms >= 0:
            self.expire_ms = min(self.now_ms + request.retention_time_ms, TIMESTAMP_MAX)

    def may(self, shard: GroupShard) -> ErrorCode:
        request = self._request
        if request.group_id not in shard.consumers.groups:
            return _check_member(self.exchange.version, request, shard)
        code, self.since = may_commit(shard, request, self.exchange.version)
        return code

    def find(self, topic: OffsetCommitRequestTopic) -> HostedTopic | ErrorCode:
        hosted = self.broker.topic(topic.name, topic.topic_id, by_id=self._by_id)
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if self._by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return unknown if hosted is None else hosted

    def has_room_for(self, shard: GroupShard, key: OffsetKey, value: CommittedOffset) -> bool:
        return shard.has_room_for(key, value)

    def write(self, shard: GroupShard, places: Sequence[Place], done: Done) -> None:
        shard.write_offsets(places, done)


def handle(broker: BrokerContext, exchange: Exchange, request: OffsetCommitRequest) -> Outcome:
    """Check, append, and wait without a task."""
    return route(
        broker,
        exchange,
        request.group_id,
        lambda shard: _Commit(broker, exchange, request).run(shard, request.topics),
        lambda code: refused(FORMS, request.topics, code),
    )


def refuse(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Answer every partition with `code`."""
    response: OffsetCommitResponse = at_once(refused(FORMS, request.topics, code))
    return response


def _check_member(version: int, request: OffsetCommitRequest, shard: GroupShard) -> ErrorCode:
    generation_id = request.generation_id_or_member_epoch
    hosted = shard.group(request.group_id) if generation_id >= 0 else shard.make_group(request.group_id)
    if hosted is None:
        if generation_id < 0:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.GROUP_ID_NOT_FOUND if version >= NOT_FOUND_SINCE else ErrorCode.ILLEGAL_GENERATION
    return shard.check_commit(hosted, request.member_id, request.group_instance_id, generation_id)
