"""LeaveGroup: let members leave a group before their sessions end.

If very many are named in one request, some leave at a time, and the group goes on in between.
"""

from collections.abc import Sequence

from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.runtime.shard import ShardState
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

from .group_routing import REASON_MAX, Outcome, Steps, route

__all__ = ["handle", "refuse"]

MANY_SINCE = 3
PIECE = 100  # members between two yields


def handle(broker: BrokerContext, exchange: Exchange, request: LeaveGroupRequest) -> Outcome:
    """Answer now; the consequences for the others do not concern those that leave."""
    if not request.group_id:
        return refuse(request, ErrorCode.INVALID_GROUP_ID)
    leaving = request.members
    if exchange.version < MANY_SINCE:
        leaving = [MemberIdentity(member_id=request.member_id)]

    def leave(shard: GroupShard) -> Steps:
        rows = []
        for begin in range(0, len(leaving), PIECE):
            if begin:
                yield
            some = leaving[begin : begin + PIECE]
            for one, error in zip(some, _leave(shard, request.group_id, some), strict=True):
                rows.append(
                    MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=error)
                )
        if exchange.version < MANY_SINCE:
            return LeaveGroupResponse(error_code=rows[0].error_code)
        return LeaveGroupResponse(members=rows)

    return route(broker, exchange, request.group_id, leave, lambda code: refuse(request, code))


def _leave(shard: GroupShard, group_id: str, leaving: Sequence[MemberIdentity]) -> Sequence[ErrorCode]:
    if shard.runtime.state is not ShardState.ACTIVE:
        return (ErrorCode.NOT_COORDINATOR,) * len(leaving)
    if shard.consumers.hosted(group_id) is not None:
        return shard.consumers.leave_classic(group_id, [(one.member_id, one.group_instance_id) for one in leaving])
    hosted = shard.group(group_id)
    if hosted is None:
        return (ErrorCode.UNKNOWN_MEMBER_ID,) * len(leaving)
    return shard.leave(
        hosted, [(one.member_id, one.group_instance_id, (one.reason or "")[:REASON_MAX]) for one in leaving]
    )


def refuse(_: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
    """Answer with `code` for all of them."""
    return LeaveGroupResponse(error_code=code)
