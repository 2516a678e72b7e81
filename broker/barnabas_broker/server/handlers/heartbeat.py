"""Heartbeat: keep a member's session, and say whether it should join again.

A coordinator that is still reading its log answers NONE, as Kafka's does: it does not know the member yet, and will
let every session begin anew when it does.
"""

from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse

from .group_routing import Outcome, route

__all__ = ["handle", "refuse"]


def handle(broker: BrokerContext, exchange: Exchange, request: HeartbeatRequest) -> Outcome:
    """Answer now."""
    if not request.group_id:
        return refuse(request, ErrorCode.INVALID_GROUP_ID)

    def beat(shard: GroupShard) -> HeartbeatResponse:
        member = (request.member_id, request.group_instance_id, request.generation_id)
        if shard.consumers.hosted(request.group_id) is not None:
            return refuse(request, shard.consumers.heartbeat(request.group_id, *member))
        hosted = shard.group(request.group_id)
        if hosted is None:
            return refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
        return refuse(request, shard.heartbeat(hosted, *member))

    shard = broker.coordinator.shard_of(request.group_id)
    if shard is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return refuse(request, ErrorCode.NONE)
    return route(broker, exchange, request.group_id, beat, lambda code: refuse(request, code))


def refuse(_: HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse:
    """Answer with `code`."""
    return HeartbeatResponse(error_code=code)
