"""OffsetDelete: forget a group's positions in some partitions, unless its members subscribe to the topic."""

from functools import partial

from barnabas_broker.connections import Exchange
from barnabas_broker.context import BrokerContext
from barnabas_broker.coordinator_shard import Change, Shard
from barnabas_broker.groups.group import Group
from barnabas_broker.groups.records import OffsetKey
from barnabas_broker.groups.states import GroupState
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from .group_routing import certain_shard, has_outcome

__all__ = ["handle", "refuse"]


async def handle(broker: BrokerContext, _: Exchange, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Check each partition, then delete what may be deleted, and answer when that cannot come back."""
    shard = await certain_shard(broker, request.group_id)
    if isinstance(shard, ErrorCode):
        return refuse(request, shard)
    hosted = shard.group(request.group_id)
    if hosted is None:
        return refuse(request, ErrorCode.GROUP_ID_NOT_FOUND)
    subscribed = hosted.group.topics()
    if _has_members(hosted.group) and subscribed is None:
        return refuse(request, ErrorCode.NON_EMPTY_GROUP)
    response, changes, deleted = OffsetDeleteResponse(), list[Change](), list[OffsetDeleteResponsePartition]()
    for topic in request.topics:
        known = broker.partitions.topics.get(topic.name)
        results = []
        for asked in topic.partitions:
            result = OffsetDeleteResponsePartition(partition_index=asked.partition_index)
            if known is None or not 0 <= asked.partition_index < len(known.topic.partitions):
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif subscribed and topic.name in subscribed:
                result.error_code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            else:
                key = OffsetKey(request.group_id, topic.name, asked.partition_index)
                if shard.offsets.get(key) is not None or key in shard.under_way:
                    changes.append((key, None))
                    deleted.append(result)
            results.append(result)
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=results))
    if changes:
        code = await _write(shard, changes)
        for result in deleted:
            result.error_code = code
    return response


def refuse(_: OffsetDeleteRequest, code: ErrorCode) -> OffsetDeleteResponse:
    """Answer with `code` for everything."""
    return OffsetDeleteResponse(error_code=code)


def _has_members(group: Group) -> bool:
    return group.state is not GroupState.EMPTY


async def _write(shard: Shard, changes: list[Change]) -> ErrorCode:
    return await has_outcome(partial(shard.write_offsets, changes))
