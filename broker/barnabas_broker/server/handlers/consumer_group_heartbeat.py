"""ConsumerGroupHeartbeat: a member of a group of KIP-848 joins, stays or leaves, and hears what it may use.

The answer waits until what it says is committed; whoever joins waits for its target, too. Requests behind it on its
connection do not wait. No answer within `APPEND_S` is COORDINATOR_NOT_AVAILABLE: what the member said may count all the
same, and it says everything again.

While the group's partition is being read it is COORDINATOR_LOAD_IN_PROGRESS, after a little while: clients take
GROUP_ID_NOT_FOUND and INVALID_REQUEST for the end (trap G11).

Limits: `NAMES_MAX` topics of one member and `NAMES_BYTES_MAX` in their names; `OWNED_MAX` partitions.
"""

from itertools import chain

from barnabas_broker.coordinators.groups.consumer.messages import Beat, ConsumerAnswer, Refusal
from barnabas_broker.coordinators.groups.consumer.values import (
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    Partitions,
)
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_clients.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from barnabas_clients.protocol.error_codes import ErrorCode

from .group_routing import Outcome, route
from .parked_answers import ParkedAnswer

__all__ = ["handle", "refuse"]

MEMBER_ID_SINCE = 1  # the version from which on clients make their ids
NAMES_MAX = 5_000
NAMES_BYTES_MAX = 256 << 10
OWNED_MAX = 20_000
TOPICS_AT_ONCE = 200  # of an assignment, which is encoded at once if it has no more


LATE: ConsumerAnswer | Refusal = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The group could not answer in time.")


def _answered(answer: ConsumerAnswer | Refusal) -> tuple[ConsumerGroupHeartbeatResponse, bool]:
    is_long = isinstance(answer, ConsumerAnswer) and len(answer.assigned or ()) > TOPICS_AT_ONCE
    return _response(answer), is_long


def _response(answer: ConsumerAnswer | Refusal) -> ConsumerGroupHeartbeatResponse:
    if isinstance(answer, Refusal):
        return ConsumerGroupHeartbeatResponse(error_code=answer.error, error_message=in_words(answer.text))
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.interval_ms,
        assignment=None if answer.assigned is None else _assignment(answer.assigned),
    )


def _assignment(assigned: Partitions) -> ConsumerGroupHeartbeatAssignment:
    return ConsumerGroupHeartbeatAssignment(
        topic_partitions=[
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in sorted(assigned.items())
        ]
    )


def handle(broker: BrokerContext, exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> Outcome:
    """Ask the group; it answers now or later."""
    text = _fault(exchange.version, request)
    if text is not None:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
    return route(
        broker,
        exchange,
        request.group_id,
        lambda shard: _beat(broker, exchange, request, shard),
        lambda code: refuse(request, code),
    )


def refuse(_: ConsumerGroupHeartbeatRequest, code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    """Answer with `code`."""
    return ConsumerGroupHeartbeatResponse(error_code=code)


def _fault(version: int, request: ConsumerGroupHeartbeatRequest) -> str | None:
    """Return what is wrong with a request whatever its group is like; None: nothing (trap G1)."""
    epoch = request.member_epoch
    # Until clients made their ids the server did, for those that join.
    needs_id = version >= MEMBER_ID_SINCE or epoch > 0 or epoch == LEAVING_EPOCH
    for name, value in (
        ("MemberId", request.member_id if needs_id else None),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if value is not None and not value.strip():
            return f"{name} can't be empty."
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            return "RebalanceTimeoutMs must be provided in first request."
        if request.topic_partitions is None or request.topic_partitions:
            return "TopicPartitions must be empty when (re-)joining."
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    elif epoch == STATIC_LEAVING_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    elif epoch < STATIC_LEAVING_EPOCH:
        return "MemberEpoch is invalid."
    return _excess(request)


def _excess(request: ConsumerGroupHeartbeatRequest) -> str | None:
    names = request.subscribed_topic_names or ()
    if len(names) > NAMES_MAX or sum(map(len, names)) > NAMES_BYTES_MAX:
        return f"More than {NAMES_MAX} topics, or {NAMES_BYTES_MAX} characters of their names, of one member."
    if sum(len(topic.partitions) for topic in request.topic_partitions or ()) > OWNED_MAX:
        return f"More than {OWNED_MAX} partitions of one member."
    return None


def _beat(broker: BrokerContext, exchange: Exchange, request: ConsumerGroupHeartbeatRequest, shard: GroupShard) -> None:
    owned = request.topic_partitions
    beat = Beat(
        member_id=request.member_id or str(broker.new_id()),
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=exchange.client_id or "",
        # As Java prints an address without a name.
        client_host=f"/{exchange.connection.peer.rpartition(':')[0]}",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=request.subscribed_topic_names,
        topic_pattern=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=None if owned is None else _owned(owned),
    )
    ticket = ParkedAnswer(broker, exchange, _answered, LATE)
    if request.member_epoch < 0:
        shard.consumers.leave(request.group_id, beat, ticket)
    else:
        shard.consumers.beat(request.group_id, beat, ticket)
    ticket.park()


def _owned(topics: list[ConsumerGroupHeartbeatTopicPartitions]) -> dict[bytes, list[int]]:
    """Return partitions by topic; one that is named twice has all of them."""
    owned: dict[bytes, list[int]] = {}
    for topic in topics:
        known = owned.get(topic.topic_id, ())
        owned[topic.topic_id] = list(chain(known, topic.partitions))
    return owned
