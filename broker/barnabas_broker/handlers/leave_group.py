"""LeaveGroup: members leave a group, which others need not wait for their sessions to end to notice."""

from barnabas_broker.connections import Exchange
from barnabas_broker.context import BrokerContext
from barnabas_broker.coordinator_shard import Shard
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

from .group_routing import Outcome, route

__all__ = ["handle", "refuse"]

MANY_SINCE = 3


def handle(broker: BrokerContext, exchange: Exchange, request: LeaveGroupRequest) -> Outcome:
    """Answer now; what follows for the others does not concern those who leave."""
    if not request.group_id:
        return refuse(request, ErrorCode.INVALID_GROUP_ID)
    leaving = request.members
    if exchange.version < MANY_SINCE:
        leaving = [MemberIdentity(member_id=request.member_id)]

    def leave(shard: Shard) -> LeaveGroupResponse:
        hosted = shard.group(request.group_id)
        if hosted is None:
            errors: tuple[ErrorCode, ...] = (ErrorCode.UNKNOWN_MEMBER_ID,) * len(leaving)
        else:
            asked = [(one.member_id, one.group_instance_id, one.reason or "") for one in leaving]
            errors, effects = hosted.group.leave(asked, broker.now_ms())
            shard.carry_out(hosted, effects)
        if exchange.version < MANY_SINCE:
            return LeaveGroupResponse(error_code=errors[0])
        return LeaveGroupResponse(
            members=[
                MemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id, error_code=error)
                for one, error in zip(leaving, errors, strict=True)
            ]
        )

    return route(broker, exchange, request.group_id, leave, lambda code: refuse(request, code))


def refuse(_: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
    """Answer with `code` for all of them."""
    return LeaveGroupResponse(error_code=code)
