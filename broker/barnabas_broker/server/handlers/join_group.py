"""JoinGroup: enter a group's next generation. The answer waits until that has formed; nothing else waits with it.

A parked request is an object in the group's state machine, its ticket: no task, no timer of its own. When its
connection ends, the group is told that this answer is not waited for; the member itself stays until its session ends.
"""

from collections.abc import Generator

from barnabas_broker.coordinators.groups.consumer.embedded import CONSUMER
from barnabas_broker.coordinators.groups.consumer.messages import ConsumerAnswer, Refusal
from barnabas_broker.coordinators.groups.consumer.mixed import ClassicJoin
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
from .parked_answers import ParkedAnswer

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
    if consumers is not None and (consumers.group.members or consumers.is_moving):
        return _join_mixed(broker, exchange, request, shard)
    if hosted is None and request.member_id:
        return _refused(exchange, request, ErrorCode.UNKNOWN_MEMBER_ID)
    if not shard.make_way_for_classic(request.group_id):
        return _refused(exchange, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    hosted = hosted or shard.make_group(request.group_id)
    if hosted is None:
        return _refused(exchange, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    ticket = _Join(exchange, hosted)
    client_id = exchange.client_id or ""
    join = JoinRequest(
        ticket=ticket,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=_host(exchange),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_ms(exchange.version, request),
        protocol_type=request.protocol_type,
        protocols=_protocols(request),
        requires_known_member_id=_wants_id(exchange.version, request),
        skips_assignment=exchange.version >= SKIPS_SINCE,
        reason=(request.reason or "")[:REASON_MAX],
    )
    prefix = request.group_instance_id or client_id
    shard.join(hosted, join, lambda: f"{prefix}-{broker.new_id()}")
    if not exchange.is_answered:
        exchange.abandon = ticket.abandon
    return None


def _host(exchange: Exchange) -> str:
    # As Java prints an address without a name.
    return f"/{exchange.connection.peer.rpartition(':')[0]}"


def _rebalance_ms(version: int, request: JoinGroupRequest) -> int:
    return request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms


def _protocols(request: JoinGroupRequest) -> tuple[tuple[str, bytes], ...]:
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)


def _wants_id(version: int, request: JoinGroupRequest) -> bool:
    return version >= KNOWN_MEMBER_SINCE and request.group_instance_id is None


def _join_mixed(
    broker: BrokerContext, exchange: Exchange, request: JoinGroupRequest, shard: GroupShard
) -> JoinGroupResponse | None:
    """Join a group of KIP-848: nobody leads it, and the generation of a member is its own epoch."""
    config = broker.config
    low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not low <= request.session_timeout_ms <= high:
        return _refused(exchange, request, ErrorCode.INVALID_SESSION_TIMEOUT)
    prefix = request.group_instance_id or exchange.client_id or ""
    join = ClassicJoin(
        member_id=request.member_id or f"{prefix}-{broker.new_id()}",
        is_known=bool(request.member_id),
        instance_id=request.group_instance_id,
        client_id=exchange.client_id or "",
        client_host=_host(exchange),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=_rebalance_ms(exchange.version, request),
        protocol_type=request.protocol_type,
        protocols=_protocols(request),
    )

    def answered(answer: ConsumerAnswer | Refusal) -> tuple[JoinGroupResponse, bool]:
        if isinstance(answer, ConsumerAnswer):
            formed = JoinAnswer(
                ticket=None,
                error=ErrorCode.NONE,
                generation_id=answer.epoch,
                protocol_type=CONSUMER,
                protocol_name=join.protocols[0][0],
                member_id=answer.member_id,
            )
            return at_once(_response(exchange.version, formed)), False
        refused = _refused(exchange, request, answer.error)
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            refused.member_id = join.member_id
        return refused, False

    late: ConsumerAnswer | Refusal = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
    ticket = ParkedAnswer(broker, exchange, answered, late)
    wants_id = not request.member_id and _wants_id(exchange.version, request)
    shard.consumers.join(request.group_id, join, ticket, wants_id=wants_id)
    ticket.park()
    return None
