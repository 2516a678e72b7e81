"""DescribeGroups: show members and assignments of groups that this broker coordinates.

Subscriptions and assignments are shown of a stable group only, as in Kafka: in between they belong to two generations.
A group that does not exist is "Dead" without an error before version 6, and GROUP_ID_NOT_FOUND since. So is a group of
KIP-848, which ConsumerGroupDescribe shows.
"""

from barnabas_broker.coordinators.groups.state_machine.group import ConsumerGroup
from barnabas_broker.coordinators.groups.state_machine.states import GroupState
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_broker.timing.pieces import distinct
from barnabas_broker.timing.slices import Slices, taken
from barnabas_clients.protocol.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from barnabas_clients.protocol.error_codes import ErrorCode

from . import operations
from .group_routing import ShardFinder

__all__ = ["handle", "refuse"]

NOT_FOUND_SINCE = 6
PIECE = 100  # members between two looks at the clock


async def handle(broker: BrokerContext, exchange: Exchange, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Describe each group, once; a coordinator that may have been deposed asks first."""
    described = []
    slices = Slices()
    shards = ShardFinder(broker)
    for group_id in await taken(distinct(request.groups, str)):
        await slices.yield_if_due()
        shard = await shards.find(group_id)
        if isinstance(shard, ErrorCode):
            described.append(DescribedGroup(group_id=group_id, error_code=shard))
            continue
        hosted = shard.group(group_id)
        if hosted is None:
            is_other = shard.consumers.hosted(group_id) is not None
            described.append(_missing(group_id, exchange.version, is_other=is_other))
            continue
        result = await _described(group_id, hosted.group, slices)
        if request.include_authorized_operations:
            result.authorized_operations = operations.OF_GROUPS
        described.append(result)
    return DescribeGroupsResponse(groups=described)


def refuse(request: DescribeGroupsRequest, code: ErrorCode) -> DescribeGroupsResponse:
    """Answer every group with `code`."""
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.groups]
    )


def _missing(group_id: str, version: int, *, is_other: bool) -> DescribedGroup:
    result = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= NOT_FOUND_SINCE:
        result.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        result.error_message = in_words(f"Group {group_id} {'is not a classic group' if is_other else 'not found'}.")
    return result


async def _described(group_id: str, group: ConsumerGroup, slices: Slices) -> DescribedGroup:
    is_stable = group.state is GroupState.STABLE
    protocol_name = group.protocol_name
    result = DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(protocol_name or "") if is_stable else "",
    )
    for number, member in enumerate(list(group.members.values()), 1):
        result.members.append(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol_name) if is_stable else b"",
                member_assignment=member.assignment if is_stable else b"",
            )
        )
        if not number % PIECE:
            await slices.yield_if_due()
            if (group.state, group.protocol_name) != (GroupState.STABLE, protocol_name):
                is_stable = False  # The rest would be of another generation.
    return result
