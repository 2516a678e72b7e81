"""JoinGroup: enter a group's next generation. The answer waits until that has formed; nothing else waits with it.

A parked request is an object in the group's state machine, its ticket: no task, no timer of its own. When its
connection ends, the group is told that this answer is not waited for; the member itself stays until its session ends.
"""

from collections.abc import Generator

from barnabas_broker.coordinators.groups.hosted_group import HostedGroup
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.groups.state_machine.messages import Answer, JoinAnswer, JoinRequest
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, respond, respond_in_steps
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from barnabas_raftlog.steps import at_once
from barnabas_raftlog.wire.primitives import TEXT_BYTES_MAX

from .group_routing import REASON_MAX, Outcome, route

__all__ = ["handle", "refuse"]

PROTOCOLS_MAX = 10  # of one member; Kafka's own clients offer four at most
MEMBER_ID_TAIL_BYTES = 37  # a hyphen and a UUID
PIECE = 200  # members between two yields
SUBSCRIPTION_BYTES_MAX = 1 << 20  # of one member, in all its protocols; a thousand topics take some 30 KiB
KNOWN_MEMBER_SINCE = 4
SKIPS_SINCE = 9
NULL_PROTOCOL_SINCE = 7


class _Join:
    """One request that waits for its generation (Parked)."""

    __slots__ = ("exchange", "hosted")

    def __init__(self, exchange: Exchange, hosted: HostedGroup) -> None:
        self.exchange = exchange
        self.hosted = hosted

    def on_answer(self, answer: Answer) -> None:
        assert isinstance(answer, JoinAnswer)
        if len(answer.members) > PIECE:
            respond_in_steps(self.exchange, _response(self.exchange.version, answer))
        else:
            respond(self.exchange, at_once(_response(self.exchange.version, answer)))

    def abandon(self) -> None:
        self.hosted.group.forget(self)


def _response(version: int, answer: JoinAnswer) -> Generator[None, None, JoinGroupResponse]:
    """Return the answer; the leader of a large group is told of thousands."""
    rows = []
    for number, member in enumerate(answer.members, 1):
        if not number % PIECE:
            yield
        rows.append(
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
        )
    name = answer.protocol_name
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name="" if name is None and version < NULL_PROTOCOL_SINCE else name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=rows,
    )


def handle(broker: BrokerContext, exchange: Exchange, request: JoinGroupRequest) -> Outcome:
    """Ask the group; it answers now or later."""
    if not request.group_id:
        return _refused(exchange, request, ErrorCode.INVALID_GROUP_ID)
    if len(request.protocols) > PROTOCOLS_MAX:
        return _refused(exchange, request, ErrorCode.INVALID_REQUEST)
    if sum(len(protocol.metadata) for protocol in request.protocols) > SUBSCRIPTION_BYTES_MAX:
        return _refused(exchange, request, ErrorCode.INVALID_REQUEST)
    # The member id is made of it.
    begins = request.group_instance_id or exchange.client_id or ""
    if len(begins.encode()) + MEMBER_ID_TAIL_BYTES > TEXT_BYTES_MAX:
        return _refused(exchange, request, ErrorCode.INVALID_REQUEST)
    return route(
        broker,
        exchange,
        request.group_id,
        lambda shard: _join(broker, exchange, request, shard),
        lambda code: _refused(exchange, request, code),
    )


def refuse(request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    """Answer with `code` and the member id that was sent."""
    return JoinGroupResponse(error_code=code, member_id=request.member_id)


def _refused(exchange: Exchange, request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    response = refuse(request, code)
    if exchange.version >= NULL_PROTOCOL_SINCE:
        response.protocol_name = None
    return response


def _join(
    broker: BrokerContext, exchange: Exchange, request: JoinGroupRequest, shard: GroupShard
) -> JoinGroupResponse | None:
    hosted = shard.group(request.group_id)
    consumers = shard.consumers.hosted(request.group_id)
    if consumers is not None and consumers.group.members:
        return _refused(exchange, request, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if hosted is None and request.member_id:
        return _refused(exchange, request, ErrorCode.UNKNOWN_MEMBER_ID)
    if not shard.make_way_for_classic(request.group_id):
        return _refused(exchange, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    hosted = hosted or shard.make_group(request.group_id)
    if hosted is None:
        return _refused(exchange, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    ticket = _Join(exchange, hosted)
    client_id = exchange.client_id or ""
    timeout_ms = request.rebalance_timeout_ms if exchange.version >= 1 else request.session_timeout_ms
    join = JoinRequest(
        ticket=ticket,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=client_id,
        # As Java prints an address without a name.
        client_host=f"/{exchange.connection.peer.rpartition(':')[0]}",
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        requires_known_member_id=exchange.version >= KNOWN_MEMBER_SINCE and request.group_instance_id is None,
        skips_assignment=exchange.version >= SKIPS_SINCE,
        reason=(request.reason or "")[:REASON_MAX],
    )
    prefix = request.group_instance_id or client_id
    shard.join(hosted, join, lambda: f"{prefix}-{broker.new_id()}")
    if not exchange.is_answered:
        exchange.abandon = ticket.abandon
    return None
