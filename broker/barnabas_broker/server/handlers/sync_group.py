"""SyncGroup: hand in the assignment of a generation (its leader), and get one's own (everybody).

The answer waits until the leader's assignment is in the coordinator's log, so that a coordinator that takes over knows
the same generation. Waits as JoinGroup does.
"""

from collections.abc import Mapping

from barnabas_broker.coordinators.groups.hosted_group import HostedGroup
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.state_machine.messages import Answer, SyncAnswer, SyncRequest
from barnabas_broker.coordinators.runtime.shard import ShardState
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, respond
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.sync_group import SyncGroupRequest, SyncGroupResponse

from .group_routing import Outcome, Reply, Steps, route
from .parked_answers import ParkedAnswer

__all__ = ["handle", "refuse"]

PROTOCOL_SINCE = 5
PIECE = 500  # assignments between two yields


class _Sync:
    """One request that waits for an assignment (Parked)."""

    __slots__ = ("exchange", "hosted")

    def __init__(self, exchange: Exchange, hosted: HostedGroup) -> None:
        self.exchange = exchange
        self.hosted = hosted

    def on_answer(self, answer: Answer) -> None:
        assert isinstance(answer, SyncAnswer)
        respond(
            self.exchange,
            SyncGroupResponse(
                error_code=answer.error,
                protocol_type=answer.protocol_type,
                protocol_name=answer.protocol_name,
                assignment=answer.assignment,
            ),
        )

    def abandon(self) -> None:
        self.hosted.group.forget(self)


def handle(broker: BrokerContext, exchange: Exchange, request: SyncGroupRequest) -> Outcome:
    """Ask the group; it answers now or later."""
    if not request.group_id:
        return refuse(request, ErrorCode.INVALID_GROUP_ID)
    if exchange.version >= PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
        return refuse(request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return route(
        broker,
        exchange,
        request.group_id,
        lambda shard: _sync(broker, exchange, request, shard),
        lambda code: refuse(request, code),
    )


def refuse(_: SyncGroupRequest, code: ErrorCode) -> SyncGroupResponse:
    """Answer with `code` and no assignment."""
    return SyncGroupResponse(error_code=code)


def _sync(broker: BrokerContext, exchange: Exchange, request: SyncGroupRequest, shard: GroupShard) -> Reply:
    if shard.consumers.hosted(request.group_id) is not None:
        _sync_mixed(broker, exchange, request, shard)
        return None
    hosted = shard.group(request.group_id)
    if hosted is None:
        return refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
    if request.member_id != hosted.group.leader_id:
        return _ask(exchange, request, shard, hosted, {})  # Only the leader's count.
    return _hand_in(exchange, request, shard)


def _sync_mixed(broker: BrokerContext, exchange: Exchange, request: SyncGroupRequest, shard: GroupShard) -> None:
    """Ask a group of KIP-848 that has classic members, too: nobody leads it, and whoever asks has an assignment."""
    protocol = (request.protocol_type, request.protocol_name)

    def answered(answer: bytes | ErrorCode) -> tuple[SyncGroupResponse, bool]:
        if isinstance(answer, ErrorCode):
            return refuse(request, answer), False
        return SyncGroupResponse(protocol_type=protocol[0], protocol_name=protocol[1], assignment=answer), False

    late: bytes | ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE
    ticket = ParkedAnswer(broker, exchange, answered, late)
    member = (request.member_id, request.group_instance_id, request.generation_id)
    shard.consumers.sync(request.group_id, *member, protocol, ticket)
    ticket.park()


def _hand_in(exchange: Exchange, request: SyncGroupRequest, shard: GroupShard) -> Steps:
    assignments = {}
    for number, one in enumerate(request.assignments, 1):
        if not number % PIECE:
            yield
        assignments[one.member_id] = bytes(one.assignment)
    hosted = shard.group(request.group_id)
    if hosted is None:
        return refuse(request, ErrorCode.UNKNOWN_MEMBER_ID)
    return _ask(exchange, request, shard, hosted, assignments)


def _ask(
    exchange: Exchange,
    request: SyncGroupRequest,
    shard: GroupShard,
    hosted: HostedGroup,
    assignments: Mapping[str, bytes],
) -> SyncGroupResponse | None:
    if shard.runtime.state is not ShardState.ACTIVE:
        return refuse(request, ErrorCode.NOT_COORDINATOR)
    ticket = _Sync(exchange, hosted)
    sync = SyncRequest(
        ticket=ticket,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=assignments,
    )
    shard.sync(hosted, sync)
    if not exchange.is_answered:
        exchange.abandon = ticket.abandon
    return None
