"""Metadata: say where the brokers are, which topics exist, and who leads their partitions.

The answer comes from this broker's own image and leader table. The leaders of topics that are named are first asked
whether they are there (`pings`): clients often come here because theirs has just gone. "All topics", which asks nobody,
is an empty list in version 0 and null since version 1, where an empty list means none.

A topic that is asked for by name and does not exist is created if the client and the broker's configuration both say
so. Kafka answers such a request with an error and lets the client come again; we wait until the new topic has leaders,
for at most `CREATION_S`, so the first answer is usually the right one. A request for more than `NAMED_MAX` topics that
do not exist is refused for all of these. If it asks for more than the cluster may have, the controller refuses them one
by one.

A topic whose leader has just died is about to have another: a request that names it waits for that, for as long as an
election may take. An answer without a leader would make librdkafka come back a whole second later; Kafka's brokers do
not wait. When the election takes longer, nobody waits any more. A broker that is cut off would not hear of it; it lets
nobody wait and names another replica (`leadership.cut_off`). A request that names more than `AWAITED_MAX` topics, or
topics of more than `PARTITIONS_AWAITED_MAX` partitions together, is answered at once. A topic that is named twice is
answered once.

A partition without a leader is told with its last epoch, as in Kafka, if one is known. To clients -1 stands for a
broker that knows no epochs, and some forget then which one they have seen.

Brokers are named where clients of this listener find them. As in Kafka, a broker that has no listener of that name is
left out, and what it leads has no leader: LISTENER_NOT_FOUND, or LEADER_NOT_AVAILABLE before version 6.

The controller id names a broker that takes requests, this one: any broker passes controller requests on.
"""

from collections.abc import Coroutine, Generator, Hashable, Iterable, Iterator
from functools import partial
from typing import Any

from barnabas_broker.leadership.known_leaders import ELECTION_S
from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.timing.pieces import distinct, sorted_names
from barnabas_broker.timing.slices import made, taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas_metadata_quorum.controller.commands import NAMED_MAX, NewTopic, RefusalReason, Refused
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS, name_complaint
from barnabas_raftlog.wire.schema import NO_UUID

from . import operations
from .create_topics import leaders_of
from .shown_partitions import ShownPartitions

__all__ = ["handle", "refuse"]

Outcome = Generator[None, None, MetadataResponse | Coroutine[Any, Any, MetadataResponse]]

CREATION_S = 2.0
AWAITED_MAX = 100  # Topics; a client that names more does not miss one leader, and is told what is known.
PARTITIONS_AWAITED_MAX = 2_000  # To look whether each has a leader takes a microsecond, at every change again.
PIECE = 32  # rows between two yields
AUTO_SINCE = 4
HIDDEN_SINCE = 6  # that clients know LISTENER_NOT_FOUND
IDS_SINCE = 12  # that topics may be asked for by them; versions 10 and 11 carry them, and may not
CARRIED_SINCE = 10
CODES = {
    None: ErrorCode.LEADER_NOT_AVAILABLE,
    RefusalReason.TOPIC_ALREADY_EXISTS: ErrorCode.LEADER_NOT_AVAILABLE,
    RefusalReason.INVALID_TOPIC: ErrorCode.INVALID_TOPIC_EXCEPTION,
    RefusalReason.INVALID_REPLICATION_FACTOR: ErrorCode.INVALID_REPLICATION_FACTOR,
    RefusalReason.POLICY_VIOLATION: ErrorCode.POLICY_VIOLATION,
}


def handle(broker: BrokerContext, exchange: Exchange, request: MetadataRequest) -> Outcome:
    """Answer now, or after creating what is missing."""
    asked = request.topics
    if asked is None or (exchange.version == 0 and not asked):
        return (yield from _everything(broker, request, exchange))
    request.topics = asked = yield from distinct(asked, _key)
    if CARRIED_SINCE <= exchange.version < IDS_SINCE and (yield from _are_ids(asked)):
        return refuse(request, ErrorCode.INVALID_REQUEST, broker.cluster_id)
    missing = yield from _missing(broker, asked)
    may_create = request.allow_auto_topic_creation or exchange.version < AUTO_SINCE
    if missing and may_create and broker.config.auto_create_topics_enable:
        return _create(broker, request, exchange, missing)
    if len(asked) <= AWAITED_MAX and _count(broker, request) <= PARTITIONS_AWAITED_MAX:
        if _expects_leaders(broker, request):
            return _await_leaders(broker, request, exchange)
        if leaders := _leaders_elsewhere(broker, request):
            return _ask_leaders(broker, request, exchange, leaders)
    return (yield from _named(broker, request, exchange, {}))


def refuse(request: MetadataRequest, code: ErrorCode, cluster_id: str | None = None) -> MetadataResponse:
    """Answer every named topic with `code`."""
    topics = [
        MetadataResponseTopic(name=topic.name or "", topic_id=topic.topic_id, error_code=code)
        for topic in request.topics or ()
    ]
    return MetadataResponse(cluster_id=cluster_id, topics=topics, error_code=code)


def _are_ids(asked: Iterable[MetadataRequestTopic]) -> Generator[None, None, bool]:
    """Tell whether one is asked for by its id."""
    for number, topic in enumerate(asked, 1):
        if topic.name is None or topic.topic_id != NO_UUID:
            return True
        if not number % PIECE:
            yield
    return False


def _key(topic: MetadataRequestTopic) -> Hashable:
    """Return the key of a topic among those that are asked for: its name, its id, or both."""
    if topic.name is None:
        return topic.topic_id
    return topic.name if topic.topic_id == NO_UUID else (topic.name, topic.topic_id)


def _missing(broker: BrokerContext, asked: Iterable[MetadataRequestTopic]) -> Generator[None, None, list[str]]:
    """Return the names of those that are asked for by name, are not there and could be."""
    names = []
    for number, topic in enumerate(asked, 1):
        name = topic.name if topic.topic_id == NO_UUID else None
        if name is not None and name not in broker.partitions.topics and name_complaint(name) is None:
            names.append(name)
        if not number % PIECE:
            yield
    return names


def _hosted(broker: BrokerContext, request: MetadataRequest) -> Iterator[HostedTopic]:
    """Yield the topics that a request names and that exist."""
    for topic in request.topics or ():
        hosted = broker.topic(topic.name or "", topic.topic_id, by_id=topic.name is None)
        if hosted is not None:
            yield hosted


def _count(broker: BrokerContext, request: MetadataRequest) -> int:
    return sum([len(hosted.topic.partitions) for hosted in _hosted(broker, request)])


def _expects_leaders(broker: BrokerContext, request: MetadataRequest) -> bool:
    return any(broker.known_leaders.expects_leader(hosted.topic) for hosted in _hosted(broker, request))


def _leaders_elsewhere(broker: BrokerContext, request: MetadataRequest) -> list[int]:
    """Return the other brokers that would be named as leaders, as far as they are thought to be alive."""
    found = {
        known.leader_id
        for hosted in _hosted(broker, request)
        for index in range(len(hosted.topic.partitions))
        if (known := broker.known_leaders.leadership(hosted.topic.topic_id, index)) is not None
    }
    return sorted(node_id for node_id in found - {broker.node_id} if broker.partitions.is_live(node_id))


async def _ask_leaders(
    broker: BrokerContext, request: MetadataRequest, exchange: Exchange, leaders: list[int]
) -> MetadataResponse:
    """Name leaders only when they have said that they are there, or have had the time to; see `pings`."""
    await broker.pings.ask(leaders)
    return await _await_leaders(broker, request, exchange)


async def _await_leaders(broker: BrokerContext, request: MetadataRequest, exchange: Exchange) -> MetadataResponse:
    await broker.known_leaders.wait_while(lambda: _expects_leaders(broker, request), ELECTION_S)
    return await taken(_named(broker, request, exchange, {}))


async def _create(
    broker: BrokerContext, request: MetadataRequest, exchange: Exchange, names: list[str]
) -> MetadataResponse:
    if len(names) > NAMED_MAX:
        return await taken(_named(broker, request, exchange, {}, ErrorCode.POLICY_VIOLATION))
    fates: dict[str, ErrorCode]
    wanted = await made(partial(_new_topic, broker), names)
    try:
        created = await broker.metadata.create_topics(wanted, CREATION_S)
    except Refused as refused:
        fates = dict.fromkeys(names, CODES.get(refused.reason, ErrorCode.LEADER_NOT_AVAILABLE))
    else:
        fates = {topic.name: CODES.get(topic.error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for topic in created}
        await leaders_of(broker, [topic.topic_id for topic in created if topic.error is None], CREATION_S)
    return await taken(_named(broker, request, exchange, fates))


def _new_topic(broker: BrokerContext, name: str) -> NewTopic:
    for homes in (broker.coordinator, broker.transactions):
        if name == homes.topic_name:
            return homes.runtime.topic
    return NewTopic(name, broker.config.num_partitions, broker.config.replication_factor)


def _everything(
    broker: BrokerContext, request: MetadataRequest, exchange: Exchange
) -> Generator[None, None, MetadataResponse]:
    topics = []
    for name in (yield from sorted_names(broker.partitions.topics)):
        hosted = broker.partitions.topics.get(name)
        if hosted is not None:  # It may have been deleted meanwhile.
            topics.append((yield from _topic(broker, request, exchange, hosted)))
    return _response(broker, request, exchange, topics)


def _named(
    broker: BrokerContext,
    request: MetadataRequest,
    exchange: Exchange,
    fates: dict[str, ErrorCode],
    fate_of_others: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> Generator[None, None, MetadataResponse]:
    """Answer for each topic that was asked for. `fates` and `fate_of_others` are for names of topics that are none."""
    topics = []
    for topic in request.topics or ():
        if topic.name is None or (topic.topic_id != NO_UUID and exchange.version >= IDS_SINCE):
            found = broker.partitions.topics_by_id.get(topic.topic_id)
            unknown = MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                name=None if exchange.version >= IDS_SINCE else "",
                topic_id=topic.topic_id,
            )
        else:
            found = broker.partitions.topics.get(topic.name)
            code = fates.get(topic.name, fate_of_others)
            if topic.name not in fates and name_complaint(topic.name):
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            is_internal = topic.name in INTERNAL_TOPICS
            unknown = MetadataResponseTopic(
                error_code=code,
                name=topic.name,
                is_internal=is_internal,
                topic_authorized_operations=_operations(request),
            )
        topics.append(unknown if found is None else (yield from _topic(broker, request, exchange, found)))
        if not len(topics) % PIECE:
            yield
    return _response(broker, request, exchange, topics)


def _operations(request: MetadataRequest) -> int:
    return operations.OF_TOPICS if request.include_topic_authorized_operations else operations.NOT_ASKED


def _response(
    broker: BrokerContext, request: MetadataRequest, exchange: Exchange, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    brokers = [
        MetadataResponseBroker(node_id=known.node_id, host=address[0], port=address[1], rack=known.rack)
        for known in broker.known_brokers()
        if (address := known.address_on(exchange.listener_name)) is not None
    ]
    ids = [known.node_id for known in broker.brokers()]
    return MetadataResponse(
        brokers=brokers,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id if broker.node_id in ids else next(iter(ids), -1),
        topics=topics,
        cluster_authorized_operations=(
            operations.OF_CLUSTERS if request.include_cluster_authorized_operations else operations.NOT_ASKED
        ),
    )


def _topic(
    broker: BrokerContext, request: MetadataRequest, exchange: Exchange, hosted: HostedTopic
) -> Generator[None, None, MetadataResponseTopic]:
    topic = hosted.topic
    shown_partitions = ShownPartitions(broker, exchange.listener_name)
    code_of_hidden = (
        ErrorCode.LISTENER_NOT_FOUND if exchange.version >= HIDDEN_SINCE else ErrorCode.LEADER_NOT_AVAILABLE
    )
    partitions = []
    for index in range(len(topic.partitions)):
        if not index % PIECE:
            yield
        shown = shown_partitions.one(hosted, index)
        has_leader = shown.leader.leader_id >= 0
        code = ErrorCode.NONE if has_leader else code_of_hidden if shown.is_hidden else ErrorCode.LEADER_NOT_AVAILABLE
        partitions.append(
            MetadataResponsePartition(
                error_code=code,
                partition_index=index,
                leader_id=shown.leader.leader_id,
                leader_epoch=shown.leader.epoch,
                replica_nodes=shown.replicas,
                isr_nodes=shown.in_sync,
                offline_replicas=shown.offline,
            )
        )
    is_internal = topic.name in INTERNAL_TOPICS
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal,
        partitions=partitions,
        topic_authorized_operations=_operations(request),
    )
