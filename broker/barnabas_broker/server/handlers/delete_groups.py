"""DeleteGroups: forget groups without members, and their offsets. Answered when that cannot come back."""

from functools import partial

from barnabas_broker.coordinators.groups.hosted_group import HostedGroup
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.pieces import distinct
from barnabas_broker.timing.slices import Slices, taken
from barnabas_clients.protocol.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from barnabas_clients.protocol.error_codes import ErrorCode

from .group_routing import ShardFinder, has_outcome

__all__ = ["handle", "refuse"]


async def handle(broker: BrokerContext, _: Exchange, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Delete one after the other; naming one twice is naming it once."""
    results = []
    shards = ShardFinder(broker)
    slices = Slices()
    for group_id in await taken(distinct(request.groups_names, str)):
        shard = await shards.find(group_id)
        code = await _delete(shard, group_id) if isinstance(shard, GroupShard) else shard
        await slices.yield_if_due()
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return DeleteGroupsResponse(results=results)


def refuse(request: DeleteGroupsRequest, code: ErrorCode) -> DeleteGroupsResponse:
    """Answer every group with `code`."""
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names]
    )


async def _delete(shard: GroupShard, group_id: str) -> ErrorCode:
    hosted = shard.group(group_id) or shard.consumers.hosted(group_id)
    if hosted is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    is_classic = isinstance(hosted, HostedGroup)
    if hosted.group.state is not GroupState.EMPTY if is_classic else hosted.group.members:
        return ErrorCode.NON_EMPTY_GROUP
    return await has_outcome(partial(shard.remove, hosted))
