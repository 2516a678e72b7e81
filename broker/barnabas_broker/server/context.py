"""The broker as a handler sees it: its parts, and questions that several handlers ask."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, NamedTuple, TypeVar
from uuid import UUID, uuid4

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.config.dynamic import BrokerSettings
from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.groups.state_machine.location import OFFSETS_TOPIC
from barnabas_broker.coordinators.producer_ids import ProducerIds
from barnabas_broker.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas_broker.coordinators.transactions.questions import CoordinatorQuestions
from barnabas_broker.leadership.cut_off import somebody_else
from barnabas_broker.leadership.elections import Elections
from barnabas_broker.leadership.pings import Pings
from barnabas_broker.partition.lanes import Lanes
from barnabas_broker.partition.partition import Partition
from barnabas_broker.process.volume import Volume
from barnabas_broker.replicas.compaction import Compaction
from barnabas_broker.replicas.hosted_topic import HostedTopic
from barnabas_broker.replicas.partitions import Partitions
from barnabas_broker.replicas.retention import Retention
from barnabas_broker.replicas.transaction_markers import MarkersHere
from barnabas_broker.server.telemetry.exporter import Exporter
from barnabas_broker.server.telemetry.telemetry import Telemetry
from barnabas_broker.status.events import EventHistory, FetchCounters
from barnabas_broker.timing.deadlines import Deadline
from barnabas_broker.timing.pieces import let_go
from barnabas_broker.timing.timers import Timers
from barnabas_broker.timing.turns import Work
from barnabas_clients.protocol.consumer_group_describe import ConsumerGroupDescribeResponse
from barnabas_clients.protocol.create_snapshot import CreateSnapshotResponse
from barnabas_clients.protocol.create_topics import CreateTopicsResponse
from barnabas_clients.protocol.describe_configs import DescribeConfigsResponse
from barnabas_clients.protocol.describe_events import DescribeEventsResponse
from barnabas_clients.protocol.describe_groups import DescribeGroupsResponse
from barnabas_clients.protocol.describe_health import DescribeHealthResponse
from barnabas_clients.protocol.describe_log_dirs import DescribeLogDirsResponse
from barnabas_clients.protocol.describe_offset_ranges import DescribeOffsetRangesResponse
from barnabas_clients.protocol.describe_producers import DescribeProducersResponse
from barnabas_clients.protocol.describe_snapshots import DescribeSnapshotsResponse
from barnabas_clients.protocol.describe_topic_partitions import DescribeTopicPartitionsResponse
from barnabas_clients.protocol.describe_transactions import DescribeTransactionsResponse
from barnabas_clients.protocol.elect_leaders import ElectLeadersResponse
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from barnabas_clients.protocol.leader_hints import NodeEndpoint
from barnabas_clients.protocol.list_config_resources import ListConfigResourcesResponse
from barnabas_clients.protocol.list_groups import ListGroupsResponse
from barnabas_clients.protocol.list_partition_reassignments import ListPartitionReassignmentsResponse
from barnabas_clients.protocol.list_transactions import ListTransactionsResponse
from barnabas_clients.protocol.metadata import MetadataResponse
from barnabas_clients.protocol.offset_fetch import OffsetFetchResponse
from barnabas_clients.protocol.registry import APIS, Message, encode_response, encode_response_in_steps
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_metadata_quorum.image.image import Broker, Image
from barnabas_metadata_quorum.service import MetadataService
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.tasks import Tasks

from .connections import Exchange, Listener
from .fetch_sessions import IDLE_MS, FetchSessions
from .offer import Offer

__all__ = ["SMALL_BYTES", "BrokerContext", "Leader", "code_of", "in_words", "respond", "respond_in_steps"]

T = TypeVar("T")

SMALL_BYTES = 16 << 10
"""A request up to this size names so few things that it is decoded at once, and its answer encoded at once."""
WORDS_CHARACTERS_MAX = 1_000
_WIDE = frozenset(
    {
        ConsumerGroupDescribeResponse,
        CreateSnapshotResponse,
        CreateTopicsResponse,
        DescribeConfigsResponse,
        DescribeEventsResponse,
        DescribeGroupsResponse,
        DescribeHealthResponse,
        DescribeLogDirsResponse,
        DescribeOffsetRangesResponse,
        DescribeProducersResponse,
        DescribeSnapshotsResponse,
        DescribeTopicPartitionsResponse,
        DescribeTransactionsResponse,
        ElectLeadersResponse,
        GetTelemetrySubscriptionsResponse,
        ListConfigResourcesResponse,
        ListGroupsResponse,
        ListPartitionReassignmentsResponse,
        ListTransactionsResponse,
        MetadataResponse,
        OffsetFetchResponse,
    }
)
"""Answers that may be long though the question is short."""


class Leader(NamedTuple):
    """The leader of a partition as far as this broker has heard from itself; -1 is nobody, or unknown."""

    leader_id: int
    epoch: int
    isr: tuple[int, ...]


NOBODY = Leader(-1, -1, ())


class BrokerContext:
    """One broker's parts, put together by `node`. Owned by the loop.

    `config` is what holds now, `settings` also where it comes from.
    """

    listener: Listener
    elections: Elections
    lanes: Lanes[Partition]
    questions: CoordinatorQuestions
    transactions: TransactionCoordinator
    offer: Offer

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataService,
        partitions: Partitions,
        pings: Pings,
        events: EventHistory,
        *,
        clock: Callable[[], int],
        on_fatal: Callable[[BaseException], None],
        new_id: Callable[[], UUID] = uuid4,
        meter: LoopMeter | None = None,
    ) -> None:
        self.config = config
        self.settings = BrokerSettings.static(config)
        self.node_id = config.node_id
        self.cluster_id = config.cluster_id
        self.metadata = metadata
        self.partitions = partitions
        self.known_leaders = partitions.known_leaders
        self.parked_fetches = partitions.waiting.fetches
        self.parked_committed_fetches = partitions.waiting.committed_fetches
        self.pings = pings
        self.events = events
        self.now_ms = clock
        self.on_fatal = on_fatal
        self.new_id = new_id
        self.meter = meter or LoopMeter()
        self.timers = Timers(clock, self.meter)
        clocks = Clocks(clock, partitions.wall_ms)
        self.coordinator = GroupCoordinator(
            config, metadata, partitions, events, self.timers, clocks, on_fatal, self.meter
        )
        self.markers = MarkersHere(partitions, {OFFSETS_TOPIC: self.coordinator.end_transaction})
        interval_ms = config.log_retention_check_interval_ms
        self.retention = Retention(partitions, events, self.timers, self.spawn, interval_ms)
        self.compaction = Compaction(partitions, events, self.timers, self.spawn, config)
        self.fetches = FetchCounters()
        self.fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, config.fetch_sessions_max_bytes, lambda: new_id().int
        )
        self._session_sweep: Deadline[Callable[[], None]] | None = None
        self.volume = Volume(config.log_dir)
        self.producer_ids = ProducerIds(metadata.allocate_producer_ids, self.spawn)
        self.is_stopping = False
        self.proof_refused_ms = -(1 << 62)  # when the last event told that somebody does not know the secret
        self._tasks = Tasks(self.on_fatal)
        self.telemetry: Telemetry | None = None
        if (collector := config.collector) is not None:
            exporter = Exporter(collector, self.spawn)
            self.telemetry = Telemetry(exporter, config.telemetry_max_bytes, lambda: self.image)

    def configure(self, settings: BrokerSettings) -> None:
        """Go by other settings from now on (`live_settings`)."""
        is_other = settings.now != self.config
        self.settings = settings
        if is_other:
            self.config = settings.now
            self.partitions.configure(settings.now)
            self.compaction.configure(settings.now)

    @property
    def image(self) -> Image:
        return self.metadata.image

    def topic(self, name: str, topic_id: bytes, *, by_id: bool) -> HostedTopic | None:
        """Return a topic by the one of its two names that the request's version carries."""
        return self.partitions.topics_by_id.get(topic_id) if by_id else self.partitions.topics.get(name)

    def leader_of(self, hosted: HostedTopic, index: int) -> Leader:
        """Return the newest leader known: announced, there, and not silent for a moment.

        If a leader has just died, this names nobody: clients then ask again in a tenth of a second and find its
        successor; sent to a dead address, they try that for a second first.
        """
        leadership = self.known_leaders.leadership(hosted.topic.topic_id, index)
        if leadership is None:
            return NOBODY
        broker = self.image.brokers.get(leadership.leader_id)
        if broker is None or not self.is_there(broker) or self.known_leaders.absences.is_doubtful(leadership.leader_id):
            return Leader(-1, leadership.term, leadership.isr)
        return Leader(leadership.leader_id, leadership.term, leadership.isr)

    def where_to_ask(self, hosted: HostedTopic, index: int) -> Leader:
        """Return where a client should turn: to the leader, or, while this node is cut off from it, to a guess.

        Only for answers that say where to look. A client that is refused is told a leader that is known, or none.
        """
        leader = self.leader_of(hosted, index)
        placement = hosted.topic.partitions[index]
        if leader.leader_id >= 0 or not self.known_leaders.is_cut_off(placement.voters):
            return leader
        replicas = placement.replicas
        last = self.known_leaders.leadership(hosted.topic.topic_id, index)
        last_leader = -1 if last is None else last.leader_id
        in_sync = tuple(replica for replica in leader.isr if replica in replicas)  # observers lead nothing
        return leader._replace(leader_id=somebody_else(self.node_id, last_leader, in_sync, replicas))

    def partition_leader(self, partition: Partition) -> Leader:
        """As `leader_of`, for a partition with a replica here."""
        hosted = self.partitions.topics_by_id.get(partition.topic_id)
        return NOBODY if hosted is None else self.leader_of(hosted, partition.index)

    def is_there(self, broker: Broker) -> bool:
        """Tell whether clients may be sent to `broker`.

        One that was fenced for its silence and is heard again is there before the controller has its next heartbeat:
        its groups may elect it the moment its links are back, and nobody else would be named in its place.
        """
        if not broker.fenced:
            return True
        is_heard = broker.node_id == self.node_id or self.partitions.is_live(broker.node_id)
        return broker.has_served and not broker.shutting_down and is_heard

    def brokers(self) -> list[Broker]:
        """Return the brokers that clients may be sent to, by id."""
        return [broker for _, broker in sorted(self.image.brokers.items()) if self.is_there(broker)]

    def known_brokers(self) -> list[Broker]:
        """Return the brokers that clients should know, by id: also those that left a moment ago."""
        left = self.known_leaders.absences.has_just_left
        brokers = sorted(self.image.brokers.items())
        return [known for node_id, known in brokers if self.is_there(known) or left(node_id)]

    def endpoints(self, leader_ids: Iterable[int], listener: str) -> list[NodeEndpoint]:
        """Return where the brokers among `leader_ids` are for clients of a listener, by id, each once (KIP-951)."""
        brokers = self.image.brokers
        known = [brokers[leader_id] for leader_id in sorted(set(leader_ids)) if leader_id in brokers]
        return [
            NodeEndpoint(node_id=one.node_id, host=address[0], port=address[1], rack=one.rack)
            for one in known
            if (address := one.address_on(listener)) is not None
        ]

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run what must wait, and end the node if it fails. Bounded by the unanswered requests of all connections."""
        self._tasks.spawn(self.meter.measured(coroutine))

    def start_task(
        self, coroutine: Coroutine[Any, Any, T], on_done: Callable[[asyncio.Task[T]], None], name: str = ""
    ) -> None:
        """Run a request that must wait, and hand it to `on_done` when it is over; `close` cancels it.

        Events about long callbacks call it `name`.
        """
        self._tasks.spawn(self.meter.measured(coroutine, name), on_done)

    def sweep_fetch_sessions_later(self) -> None:
        """Let fetch sessions that nobody uses end in time; there is at least one."""
        if self._session_sweep is None:
            self._session_sweep = self.timers.add(IDLE_MS, self._sweep_fetch_sessions)

    def _sweep_fetch_sessions(self) -> None:
        self._session_sweep = None
        delay_ms = self.fetch_sessions.sweep(self.now_ms())
        if delay_ms is not None:
            self._session_sweep = self.timers.add(delay_ms, self._sweep_fetch_sessions)

    async def close(self) -> None:
        """Cancel what is still waiting."""
        self.retention.close()
        self.compaction.close()
        await self.coordinator.close()
        await self.transactions.close()
        self.lanes.close()
        self.timers.close()
        await self._tasks.close()


def code_of(error: Exception) -> ErrorCode:
    """Return the error code for clients if an error is one that nobody expected."""
    is_disk = isinstance(error, StorageFailedError)
    return ErrorCode.KAFKA_STORAGE_ERROR if is_disk else ErrorCode.UNKNOWN_SERVER_ERROR


def in_words(text: str | None) -> str | None:
    """Return the text of an error for a client: cut, as it may quote the client, and old versions have little room."""
    return text if text is None or len(text) <= WORDS_CHARACTERS_MAX else f"{text[:WORDS_CHARACTERS_MAX]}..."


def respond(exchange: Exchange, response: Message, request: Message | None = None, *, is_long: bool = False) -> None:
    """Encode the response in the version of the request, at once or in steps, and send it when its turn comes.

    Nobody needs `request` any more: if it is large it is let go in steps, too. `is_long`: the response has a great
    many rows though the request is small.
    """
    if exchange.size_bytes <= SMALL_BYTES and not is_long and type(response) not in _WIDE:
        exchange.answer(encode_response(exchange.api_key, exchange.version, exchange.correlation_id, response))
    else:
        respond_in_steps(exchange, _made(response), request)


def respond_in_steps(exchange: Exchange, steps: Generator[None, None, Message], request: Message | None = None) -> None:
    """Make the response in steps, encode it in steps, and send it when its turn comes; then let go of both."""

    def failed(error: Exception) -> None:
        exchange.give_up(f"an answer cannot be encoded: {error}")

    name = f"answer to {APIS[exchange.api_key].name}"
    exchange.turns.begin(Work(exchange, _answer_in_steps(exchange, steps, request), failed, name=name))


def _made(response: Message) -> Generator[None, None, Message]:
    yield from ()
    return response


def _answer_in_steps(
    exchange: Exchange, steps: Generator[None, None, Message], request: Message | None = None
) -> Generator[None, None, None]:
    response = yield from steps
    how = (exchange.api_key, exchange.version, exchange.correlation_id)
    exchange.answer((yield from encode_response_in_steps(*how, response)), keeps_frame=request is not None)
    yield from let_go(response)
    if request is not None:
        yield from let_go(request)
        exchange.forget_frame()
