"""FindCoordinator: name the broker that coordinates a group or a transactional id.

The first request in the life of a cluster has the topic made that holds them. A coordinator that has just died is about
to have a successor: the request waits for that, for as long as an election may take, and only then says
COORDINATOR_NOT_AVAILABLE. A client that is told so pauses before it asks again, and its whole group with it. A broker
that is cut off would not hear of the election, and says so at once; it guesses at no coordinator as it does at leaders,
because a group that goes to the wrong broker waits there. A client that asks has often just lost its coordinator,
before this broker has noticed. So another broker is asked whether it is there before it is named.

A broker that does not offer transactions refuses transactional ids with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as
InitProducerId does: this is the one code on which every client stops at once and says so. Share groups are an
INVALID_REQUEST, and so are more than `KEYS_MAX` keys in one request.
"""

from collections.abc import Coroutine, Generator, Sequence
from typing import Any

from barnabas_broker.coordinators.runtime.homes import Homes
from barnabas_broker.leadership.known_leaders import ELECTION_S
from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.server.connections import Exchange
from barnabas_broker.server.context import BrokerContext, in_words
from barnabas_broker.timing.pieces import PIECE
from barnabas_broker.timing.slices import taken
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_metadata_quorum.controller.features import NO_TRANSACTIONS, has_transactions

__all__ = ["handle", "refuse"]

GROUP = 0
TRANSACTION = 1
MANY_SINCE = 4
KEYS_MAX = 10_000
PIECE_CHARACTERS = 32 << 10  # of keys between two yields: to hash so many takes a millisecond
KEY_CHARACTERS = 1 << 10  # for each key beside its own

AnyHomes = Homes[Any, Any]
Outcome = Generator[None, None, FindCoordinatorResponse | Coroutine[Any, Any, FindCoordinatorResponse]]


def handle(broker: BrokerContext, exchange: Exchange, request: FindCoordinatorRequest) -> Outcome:
    """Answer now, or when there is somebody to name."""
    keys = request.coordinator_keys if exchange.version >= MANY_SINCE else (request.key,)
    if request.key_type == TRANSACTION and not has_transactions(broker.image):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        text = NO_TRANSACTIONS
        return (yield from _refused(exchange, keys, code, text))
    if request.key_type not in {GROUP, TRANSACTION}:
        return (yield from _refused(exchange, keys, ErrorCode.INVALID_REQUEST, "this has no coordinator here"))
    if len(keys) > KEYS_MAX:
        text = f"more than {KEYS_MAX} keys in one request"
        return (yield from _refused(exchange, keys, ErrorCode.INVALID_REQUEST, text))
    homes = broker.transactions if request.key_type == TRANSACTION else broker.coordinator
    indexes = yield from _indexes(homes, keys, [None] * len(keys))
    found = yield from _find_all(broker, exchange, homes, keys, indexes)
    if all(one.node_id == broker.node_id for one in found):
        return _response(exchange, found)
    elsewhere = {one.node_id for one in found if one.error_code == ErrorCode.NONE} - {broker.node_id}
    return _ask(broker, exchange, homes, list(keys), indexes, sorted(elsewhere))


def refuse(request: FindCoordinatorRequest, code: ErrorCode) -> FindCoordinatorResponse:
    """Answer every key with `code`, in both places; each version has one of them."""
    found = [_nobody(key, code, "") for key in request.coordinator_keys]
    return FindCoordinatorResponse(error_code=code, node_id=-1, port=-1, coordinators=found)


async def _ask(
    broker: BrokerContext,
    exchange: Exchange,
    homes: AnyHomes,
    keys: list[str],
    known: list[int | None],
    elsewhere: list[int],
) -> FindCoordinatorResponse:
    """Name other brokers only when they have said that they are there, or have had the time to; see `pings`."""
    await broker.pings.ask(elsewhere)
    complaint = await homes.ensure_topic()
    if complaint is not None:
        return await taken(_refused(exchange, keys, ErrorCode.COORDINATOR_NOT_AVAILABLE, complaint))
    hosted = broker.partitions.topics[homes.topic_name]
    indexes = await taken(_indexes(homes, keys, known))
    awaited = {index for index in indexes if index is not None}  # A thousand keys have few partitions between them.
    await broker.known_leaders.wait_while(
        lambda: any(_may_be_elected(broker, hosted, index) for index in awaited), ELECTION_S
    )
    return _response(exchange, await taken(_find_all(broker, exchange, homes, keys, indexes)))


def _indexes(
    homes: AnyHomes, keys: Sequence[str], known: Sequence[int | None]
) -> Generator[None, None, list[int | None]]:
    """Return the partition of each key, None without the topic; of those that are known it stays."""
    indexes: list[int | None] = []
    characters = 0
    for key, index in zip(keys, known, strict=True):
        indexes.append(homes.partition_of(key) if index is None else index)
        characters += KEY_CHARACTERS if index is not None else KEY_CHARACTERS + len(key)
        if characters >= PIECE_CHARACTERS:
            characters = 0
            yield
    return indexes


def _find_all(
    broker: BrokerContext, exchange: Exchange, homes: AnyHomes, keys: Sequence[str], indexes: Sequence[int | None]
) -> Generator[None, None, list[Coordinator]]:
    found: list[Coordinator] = []
    for key, index in zip(keys, indexes, strict=True):
        found.append(_find(broker, exchange, homes.topic_name, key, index))
        if not len(found) % PIECE:
            yield
    return found


def _find(broker: BrokerContext, exchange: Exchange, topic: str, key: str, index: int | None) -> Coordinator:
    if index is None:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} does not exist yet")
    hosted = broker.partitions.topics[topic]
    known = broker.image.brokers.get(broker.leader_of(hosted, index).leader_id)
    if known is None:
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic}-{index} has no leader")
    address = known.address_on(exchange.listener_name)
    if address is None:
        text = f"broker {known.node_id} has no listener {exchange.listener_name}"
        return _nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
    host, port = address
    return Coordinator(key=key, node_id=known.node_id, host=host, port=port, error_message="")


def _may_be_elected(broker: BrokerContext, hosted: HostedTopic, index: int) -> bool:
    """Tell whether a partition without a leader is about to have one that this broker will hear of."""
    has_leader = broker.leader_of(hosted, index).leader_id >= 0
    return not has_leader and not broker.known_leaders.is_cut_off(hosted.topic.partitions[index].voters)


def _nobody(key: str, code: ErrorCode, text: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=in_words(text))


def _refused(
    exchange: Exchange, keys: Sequence[str], code: ErrorCode, text: str
) -> Generator[None, None, FindCoordinatorResponse]:
    found = []
    for key in keys:
        found.append(_nobody(key, code, text))
        if not len(found) % PIECE:
            yield
    return _response(exchange, found)


def _response(exchange: Exchange, found: list[Coordinator]) -> FindCoordinatorResponse:
    if exchange.version >= MANY_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    one = found[0]
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or None,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )
