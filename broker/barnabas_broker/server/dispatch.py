"""Decodes requests, gives each to its handler, and answers errors. Holds the table of APIs.

A handler gets the decoded request and returns the response; or a coroutine of one, if it must wait for others; or a
generator of either, if it may have much to do, which yields between small pieces (`turns`); or None when it answers the
exchange itself, now or later (produce and fetch, which park without a task). A large request is decoded in such pieces,
too, and refused if it names more than `ELEMENTS_MAX` things.

- A version that we do not speak, or a key that we do not know, closes the connection with a logged reason, as Kafka
  does; only ApiVersions answers in version 0 with its own versions, so that its reader asks again. The name and
  version that clients give there must look like such, or the answer is INVALID_REQUEST and nothing else. So it is if
  they name a cluster without a node, or the reverse; who means another cluster or node is told REBOOTSTRAP_REQUIRED.
- A malformed request closes its own connection with a logged reason. Bytes that follow a whole request in its frame are
  ignored, as Kafka ignores them: librdkafka 2.16 leaves three behind when it asks for the metadata of all topics.
- An error that nobody expected is logged with its traceback and answered UNKNOWN_SERVER_ERROR where the API can say so,
  KAFKA_STORAGE_ERROR if it is the disk's. So is one that comes up when the request has waited and is looked at again
  (`barnabas_raftlog.callbacks`, the only other module that catches `Exception`). Failed assertions pass: they are ours,
  and stop the process (`BrokerContext.on_fatal`).

Some versions have a gate: a broker whose settings keep it shut neither advertises nor serves them, and they are to it
like a key that it does not know. What is not finished stands behind `unstable.api.versions.enable`: nothing, now.

An API may belong to a level of a feature. Before the cluster has finalized that the API is not advertised, and who asks
all the same is answered UNSUPPORTED_VERSION, as by Kafka: clients may have learned of it before somebody lowered it.

Produce is advertised from version 0, because librdkafka turns features off otherwise (KAFKA-18659); versions 0 to 2
are refused like any other that we do not speak.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.server.handlers import (
    acls,
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_snapshot,
    create_topics,
    delegation_tokens,
    delete_groups,
    delete_records,
    delete_snapshot,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_events,
    describe_groups,
    describe_health,
    describe_log_dirs,
    describe_offset_ranges,
    describe_producers,
    describe_quorum,
    describe_snapshots,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    open_challenge,
    produce,
    push_telemetry,
    raft_voters,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from barnabas_broker.timing.turns import Work
from barnabas_clients.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.registry import APIS, Message, read_request_header, response_frame
from barnabas_metadata_quorum.controller.features import FEATURES, GROUP_VERSION, levels_of
from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.printable import printable

from .connections import Exchange
from .context import SMALL_BYTES, BrokerContext, code_of, respond
from .offer import Level, Offer

__all__ = ["ROUTES", "UNSTABLE", "Dispatcher", "Gate", "Outcome", "Route"]

logger = logging.getLogger(__name__)

Later = Coroutine[Any, Any, Message | None]
Steps = Generator[None, None, Message | Later | None]
Outcome = Message | None | Steps | Later
Handle = Callable[[BrokerContext, Exchange, Any], Outcome]
Refuse = Callable[[Any, ErrorCode], Message | None]

PRODUCE = 0
API_VERSIONS = 18
SOFTWARE_SINCE = 3  # the version of ApiVersions in which clients say what they are
SOFTWARE_CHARACTERS_MAX = 200  # kept of that, for as long as the connection lasts
_is_software = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?").fullmatch  # Kafka's pattern
ELEMENTS_MAX = 100_000
"""Of a request, in all its arrays together."""


class Gate(NamedTuple):
    """The versions of an API, from `since` on, that a broker offers only if its settings say so."""

    since: int
    is_open: Callable[[BrokerConfig], bool]


UNSTABLE = Gate(0, lambda config: config.unstable_api_versions_enable)
TWO_PHASE = Gate(6, lambda config: config.transaction_two_phase_commit_enable)
COLLECTED = Gate(0, lambda config: config.collector is not None)  # As Kafka does without a plugin for it.


class Route(NamedTuple):
    """One API: the versions that we say, the first that we mean, its handler, and the gate before some versions.

    `refuse` makes the response that says one error code for everything asked; None if there is no way to. `level`: what
    the cluster must have finalized.
    """

    key: int
    advertised: range
    served_from: int
    handle: Handle
    refuse: Refuse
    gate: Gate | None = None
    level: Level | None = None

    def offered(self, config: BrokerConfig) -> range:
        """Return the versions that a broker with these settings says; empty if it does not know the API."""
        if self.gate is None or self.gate.is_open(config):
            return self.advertised
        return range(self.advertised.start, min(self.advertised.stop, self.gate.since))


class Api(Protocol):
    """A module of `handlers`, or one of the APIs in it."""

    def handle(self, broker: BrokerContext, exchange: Exchange, request: Any, /) -> Outcome: ...
    def refuse(self, request: Any, code: ErrorCode, /) -> Message | None: ...


def _api_versions(broker: BrokerContext, exchange: Exchange, request: ApiVersionsRequest) -> Message | None:
    error = _refusal(broker, exchange.version, request)
    if error is not ErrorCode.NONE:
        return ApiVersionsResponse(error_code=error)
    if exchange.version >= SOFTWARE_SINCE:
        software = f"{request.client_software_name} {request.client_software_version}"
        is_new = not exchange.connection.software
        exchange.connection.software = printable(software, SOFTWARE_CHARACTERS_MAX)
        if is_new:  # Floods of them must not fill the log.
            logger.debug("client %s is %s", exchange.connection.peer, exchange.connection.software)
    _answer_what_we_speak(broker.offer, exchange, exchange.version, ErrorCode.NONE)
    return None


def _refusal(broker: BrokerContext, version: int, request: ApiVersionsRequest) -> ErrorCode:
    """Say what is wrong with what a client tells of itself, and whom it means (KIP-1242)."""
    names_cluster, names_node = request.cluster_id is not None, request.node_id != -1  # Neither before version 5.
    if names_cluster is not names_node:
        return ErrorCode.INVALID_REQUEST
    software = (request.client_software_name, request.client_software_version)
    if version >= SOFTWARE_SINCE and not all(map(_is_software, software)):
        return ErrorCode.INVALID_REQUEST
    is_meant = (request.cluster_id, request.node_id) == (broker.cluster_id, broker.node_id)
    return ErrorCode.NONE if is_meant or not names_cluster else ErrorCode.REBOOTSTRAP_REQUIRED


def _answer_what_we_speak(offer: Offer, exchange: Exchange, version: int, code: ErrorCode) -> None:
    body = [offer.body(version, code)]
    exchange.answer(response_frame(API_VERSIONS, version, exchange.correlation_id, ApiVersionsResponse, body))


_TABLE: tuple[tuple[int, range, int, Api], ...] = (  # key, versions that we say, the first that we mean, module
    (0, range(14), 3, produce),
    (1, range(4, 19), 4, fetch),
    (2, range(1, 12), 1, list_offsets),
    (3, range(14), 0, metadata),
    (8, range(2, 11), 2, offset_commit),
    (9, range(1, 11), 1, offset_fetch),
    (10, range(7), 0, find_coordinator),
    (11, range(10), 0, join_group),
    (12, range(5), 0, heartbeat),
    (13, range(6), 0, leave_group),
    (14, range(6), 0, sync_group),
    (15, range(7), 0, describe_groups),
    (16, range(6), 0, list_groups),
    (19, range(2, 8), 2, create_topics),
    (20, range(1, 7), 1, delete_topics),
    (21, range(3), 0, delete_records),
    (22, range(7), 0, init_producer_id),
    (23, range(2, 5), 2, offset_for_leader_epoch),
    (24, range(6), 0, add_partitions_to_txn),
    (25, range(5), 0, add_offsets_to_txn),
    (26, range(6), 0, end_txn),
    (27, range(1, 3), 1, write_txn_markers),
    (28, range(7), 0, txn_offset_commit),
    (29, range(1, 4), 1, acls.DESCRIBE),
    (30, range(1, 4), 1, acls.CREATE),
    (31, range(1, 4), 1, acls.DELETE),
    (32, range(1, 5), 1, describe_configs),
    (33, range(3), 0, alter_configs),
    (34, range(1, 3), 1, alter_replica_log_dirs),
    (35, range(1, 6), 1, describe_log_dirs),
    (37, range(4), 0, create_partitions),
    (38, range(1, 4), 1, delegation_tokens.CREATE),
    (39, range(1, 3), 1, delegation_tokens.RENEW),
    (40, range(1, 3), 1, delegation_tokens.EXPIRE),
    (41, range(1, 4), 1, delegation_tokens.DESCRIBE),
    (42, range(4), 0, delete_groups),
    (43, range(3), 0, elect_leaders),
    (44, range(2), 0, alter_configs),
    (45, range(2), 0, alter_partition_reassignments),
    (46, range(1), 0, list_partition_reassignments),
    (47, range(1), 0, offset_delete),
    (55, range(3), 0, describe_quorum),
    (57, range(3), 0, update_features),
    (60, range(3), 0, describe_cluster),
    (61, range(1), 0, describe_producers),
    (64, range(1), 0, unregister_broker),
    (65, range(1), 0, describe_transactions),
    (66, range(3), 0, list_transactions),
    (68, range(2), 0, consumer_group_heartbeat),
    (69, range(2), 0, consumer_group_describe),
    (71, range(1), 0, get_telemetry_subscriptions),
    (72, range(1), 0, push_telemetry),
    (74, range(2), 0, list_config_resources),
    (75, range(1), 0, describe_topic_partitions),
    (80, range(2), 0, raft_voters.ADD),
    (81, range(1), 0, raft_voters.REMOVE),
    (25185, range(1), 0, describe_health),
    (25186, range(1), 0, open_challenge),
    (25187, range(1), 0, describe_events),
    (25188, range(1), 0, describe_offset_ranges),
    (25190, range(1), 0, create_snapshot),
    (25191, range(1), 0, describe_snapshots),
    (25192, range(1), 0, delete_snapshot),
)
_GATES: Mapping[int, Gate] = {22: TWO_PHASE, 71: COLLECTED, 72: COLLECTED}
_GROUPS = Level(GROUP_VERSION, 1)
_LEVELS: Mapping[int, Level] = {68: _GROUPS, 69: _GROUPS}
ROUTES = {
    key: Route(
        key=key,
        advertised=advertised,
        served_from=served_from,
        handle=api.handle,
        refuse=api.refuse,
        gate=_GATES.get(key),
        level=_LEVELS.get(key),
    )
    for key, advertised, served_from, api in _TABLE
}
ROUTES[API_VERSIONS] = Route(
    key=API_VERSIONS,
    advertised=range(6),
    served_from=0,
    handle=_api_versions,
    refuse=lambda _, code: ApiVersionsResponse(error_code=code),
)


class Dispatcher:
    """Serves exchanges for one broker."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        offered = {key: route.offered(broker.config) for key, route in sorted(ROUTES.items())}
        self._offered = {key: versions for key, versions in offered.items() if versions}
        needed = {key: level for key in self._offered if (level := ROUTES[key].level) is not None}
        broker.offer = Offer(self._offered, {name: levels_of(name) for name in FEATURES}, lambda: broker.image, needed)
        self._counts = {
            (key, version): 0
            for key, versions in self._offered.items()
            for version in versions
            if version >= ROUTES[key].served_from
        }

    @property
    def counts(self) -> dict[str, int]:
        """Requests that reached their handler so far, by the API's name."""
        counts = dict.fromkeys((APIS[key].name for key in self._offered), 0)
        for (key, _), count in self._counts.items():
            counts[APIS[key].name] += count
        return counts

    @property
    def counts_by_version(self) -> dict[str, int]:
        """The same by name and version, as in "Produce v9"; those that nobody has sent are left out."""
        return {f"{APIS[key].name} v{version}": count for (key, version), count in self._counts.items() if count}

    def serve(self, exchange: Exchange) -> None:
        """Decode and handle one request; all that the handler does before it waits happens before this returns."""
        frame = exchange.frame
        assert frame is not None
        try:
            header = read_request_header(frame)
            exchange.api_key, exchange.version = key, version = header.api_key, header.api_version
            exchange.correlation_id = header.correlation_id
            exchange.client_id = header.client_id
            if (key, version) not in self._counts:
                self._refuse_version(exchange)
                return
            route = ROUTES[key]
            exchange.meter.what = APIS[key].name
            if len(frame) > SMALL_BYTES:
                self._take_turns(exchange, self._decode(route, exchange, frame, header.body_position))
                return
            request = APIS[key].request.decode(frame, version, header.body_position, exact=False)
        except MalformedMessageError as error:
            exchange.give_up(f"malformed request: {error}")
            return
        self._handle(route, exchange, request)

    def _decode(self, route: Route, exchange: Exchange, frame: bytearray, position: int) -> Generator[None, None, None]:
        """Decode and handle a request that may name a great many things."""
        decode = APIS[route.key].request.decode_in_steps
        try:
            request = yield from decode(frame, exchange.version, position, exact=False, elements_max=ELEMENTS_MAX)
        except MalformedMessageError as error:
            exchange.give_up(f"malformed request: {error}")
        else:
            if route.key != PRODUCE:  # Records are views of what was received; all else was copied.
                exchange.forget_frame()
            self._handle(route, exchange, request)

    def _handle(self, route: Route, exchange: Exchange, request: Message) -> None:
        self._counts[route.key, exchange.version] += 1
        try:
            if route.level is not None and not route.level.is_reached(self._broker.image):
                self._conclude(route, exchange, request, route.refuse(request, ErrorCode.UNSUPPORTED_VERSION))
                return
            self._conclude(route, exchange, request, route.handle(self._broker, exchange, request))
        except AssertionError as error:
            self._broker.on_fatal(error)
            raise
        except Exception as error:  # noqa: BLE001 - the one place for requests; see the module
            self._fail(route, exchange, request, error)

    def _conclude(self, route: Route, exchange: Exchange, request: Message, outcome: Outcome) -> None:
        if outcome is None:
            return
        if isinstance(outcome, Message):
            respond(exchange, outcome, request)
        elif isinstance(outcome, Generator):
            self._take_turns(exchange, self._finish_in_steps(route, exchange, request, outcome))
        else:
            name = APIS[route.key].name
            self._broker.start_task(outcome, partial(self._finish, route, exchange, request), name)

    def _take_turns(self, exchange: Exchange, steps: Generator[None, None, None]) -> None:
        key = exchange.api_key
        work = Work(exchange, steps, self._broker.on_fatal, is_produce=key == PRODUCE, name=APIS[key].name)
        exchange.turns.begin(work)

    def _finish_in_steps(
        self, route: Route, exchange: Exchange, request: Message, steps: Steps
    ) -> Generator[None, None, None]:
        try:
            self._conclude(route, exchange, request, (yield from steps))
        except AssertionError as error:
            self._broker.on_fatal(error)
            raise
        except Exception as error:  # noqa: BLE001 - the same place, for those who take turns
            self._fail(route, exchange, request, error)
        yield  # To free what a large request held takes milliseconds, too: not in the turn in which it was answered.

    def _finish(self, route: Route, exchange: Exchange, request: Message, task: asyncio.Task[Message | None]) -> None:
        if task.cancelled():
            return
        try:
            if (response := task.result()) is not None:
                respond(exchange, response, request)
        except AssertionError as error:
            self._broker.on_fatal(error)
        except Exception as error:  # noqa: BLE001 - the same place, for those who wait
            self._fail(route, exchange, request, error)

    def _fail(self, route: Route, exchange: Exchange, request: Message, error: Exception) -> None:
        name = f"{APIS[exchange.api_key].name} v{exchange.version}"
        logger.error("%s from %s failed", name, exchange.connection, exc_info=error)
        response = None if exchange.is_answered else route.refuse(request, code_of(error))
        if response is None:
            exchange.give_up(f"{name} failed and cannot say so")
        else:
            respond(exchange, response)

    def _refuse_version(self, exchange: Exchange) -> None:
        key = exchange.api_key
        if key == API_VERSIONS:
            _answer_what_we_speak(self._broker.offer, exchange, 0, ErrorCode.UNSUPPORTED_VERSION)
            return
        name = APIS[key].name if key in self._offered else f"API key {key}"
        exchange.give_up(f"{name} v{exchange.version} is not supported")
