"""Puts one broker together: storage, links, Raft groups, metadata, partitions, listener.

`Node.start` brings the parts up from below and returns when the node takes part; `wait_ready` returns when clients
will find everything; `stop` takes them down from above, moving leaderships away first. Clients are let in when this
broker is registered and not fenced: before that it could tell them nothing true.

A bug anywhere ends in `failure`: the code that runs the node waits on it and ends the process, without a clean stop,
because after a broken assertion nothing that this process would still write can be trusted.
"""

import asyncio
import logging
import os
import random
from collections.abc import Generator, Iterable
from functools import partial
from typing import Any

import msgspec

from barnabas_broker.access.join_tokens import ISSUE, JOIN, JoinTokens
from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.config.listeners import DEFAULT_NAME
from barnabas_broker.coordinators.runtime.shard_host import ShardHost
from barnabas_broker.coordinators.transactions.asking import Coordinators
from barnabas_broker.coordinators.transactions.coordinator import ADD_PARTITIONS, TransactionCoordinator
from barnabas_broker.coordinators.transactions.doubts import Doubts
from barnabas_broker.coordinators.transactions.markers import MarkerSender
from barnabas_broker.coordinators.transactions.outcome_messages import METHOD as OUTCOMES
from barnabas_broker.coordinators.transactions.questions import CoordinatorQuestions
from barnabas_broker.coordinators.transactions.whereabouts import Whereabouts
from barnabas_broker.leadership.elections import METHOD as ELECT
from barnabas_broker.leadership.elections import Elections
from barnabas_broker.leadership.hand_over import hand_over
from barnabas_broker.leadership.no_room import Led, LedGroup, NoRoom
from barnabas_broker.leadership.pings import METHOD as PING
from barnabas_broker.leadership.pings import Pings
from barnabas_broker.partition.check_threads import CheckThreads
from barnabas_broker.partition.lanes import Lanes
from barnabas_broker.process.descriptors import share
from barnabas_broker.replicas.failed_replicas import METHOD as REPLICA_FAILED
from barnabas_broker.replicas.hosted_topic import place_of
from barnabas_broker.replicas.lost_voters import METHOD as LOST_VOTER
from barnabas_broker.replicas.lost_voters import LostVoters
from barnabas_broker.replicas.partitions import Partitions
from barnabas_broker.replicas.transaction_markers import METHOD as WRITE_MARKERS
from barnabas_broker.server import request_log
from barnabas_broker.server.connections import Exchange, Limits, Listener
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.server.dispatch import Dispatcher
from barnabas_broker.server.live_settings import LiveSettings
from barnabas_broker.status.events import EventHistory
from barnabas_broker.status.packing import packed
from barnabas_broker.timing.collector import put_by
from barnabas_broker.timing.slices import taken
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_metadata_quorum.controller.commands import Refused
from barnabas_metadata_quorum.controller.controller import ControllerConfig
from barnabas_metadata_quorum.controller.features import NEWEST
from barnabas_metadata_quorum.image.image import Image
from barnabas_metadata_quorum.image.records import ListenerAddress
from barnabas_metadata_quorum.leaders.announcer import LeaderAnnouncer
from barnabas_metadata_quorum.registration import BrokerIdentity
from barnabas_metadata_quorum.service import Membership, MetadataService, open_log
from barnabas_metadata_quorum.snapshot_store import SnapshotStore
from barnabas_raftlog.catch_up.receiving import CatchUp
from barnabas_raftlog.catch_up.repair import SegmentRepair
from barnabas_raftlog.links.links import Links, NodeAddress
from barnabas_raftlog.log.scrub import Scrub
from barnabas_raftlog.log.storage import Storage, StorageConfig
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.multiraft.multiraft import METADATA_GROUP, MultiRaft
from barnabas_raftlog.raft.core import Timing
from barnabas_raftlog.raft.messages import Fact, GroupId
from barnabas_raftlog.steps import at_once
from barnabas_raftlog.tasks import Tasks

from .environment import NodeEnvironment, configured_delay

__all__ = ["Node"]

logger = logging.getLogger(__name__)

GATHER_S = 10.0  # how long readiness waits for configured brokers that do not show up
COUNTED_AT_ONCE = 500
CONTROLLER_S = 2.0
CONTROLLER_LEAVING_S = 0.3  # when every other broker is leaving too: nobody is left to benefit


class Node:
    """See the module. Made on the loop that runs it; `failure` is set by the first bug."""

    def __init__(self, config: BrokerConfig, environment: NodeEnvironment | None = None) -> None:
        self.config = config
        self._environment = environment or NodeEnvironment()
        self.events = EventHistory(self._environment.wall_ms)
        clocks = self._environment.precise_ns, self._environment.processor_ns
        self.meter = LoopMeter(*clocks, self._on_long_callback, self._put_by_soon)
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.state = "starting"
        self._tasks = Tasks(self.fail)

    @property
    def port(self) -> int:
        """Where clients are served, on the first listener."""
        return self.listener.port

    async def start(self) -> None:
        """Take part in the cluster; clients are let in as soon as this broker is registered.

        Raises:
            OSError: an address is taken.
            TooFewDescriptorsError: this process may not open enough files.
            StorageFailedError: the data directory is in use, is another node's, or is damaged as a whole.
        """
        environment = self._environment
        self.descriptors = share(environment.descriptors(), self.config.max_connections)
        incarnation = int.from_bytes(environment.random_bytes(7), "big")
        rng = random.Random(incarnation)
        self._make_links(incarnation, rng)
        await self._open_storage()
        self._watch_storage()
        self._make_groups(rng)
        self.listener = Listener(self._limits(), self._serve, self.meter)
        if request_log.is_wanted():
            self.listener.new_exchange = request_log.RequestLog(environment.precise_ns).exchange
        for one in self.config.named_listeners:
            await self.listener.bind(*one.bind, one.name)
        clocks = Clocks(environment.monotonic_ms, environment.wall_ms)
        self._make_metadata(incarnation, clocks)
        self._make_broker(clocks)
        await self.links.start()
        await self.metadata.start()
        nothing = Image(self.config.cluster_id)
        self.live_settings.on_image(nothing, self.metadata.image)
        self.partitions.on_image(nothing, self.metadata.image)
        self._run_parts()
        self._tell_limits()

    def _limits(self) -> Limits:
        """Return the limits for connections of clients."""
        config = self.config
        return Limits(
            bytes_max=config.queued_max_request_bytes,
            connections_max=self.descriptors.connections,
            per_host_max=config.max_connections_per_ip,
            backlog=self.descriptors.backlog,
            exchanges_max=config.queued_max_requests_per_connection,
            frame_bytes_max=config.socket_request_max_bytes,
            idle_ms=config.connections_max_idle_ms,
        )

    def _tell_limits(self) -> None:
        """Say so if clients may not open as many connections as was configured."""
        mine = self.descriptors
        wanted = self.config.max_connections
        if mine.connections < wanted:
            text = f"{mine.connections} and not max.connections={wanted}: this process may open {mine.limit} files, and"
            self.events.add(
                "connections limited", f"node {self.config.node_id}", f"{text} {mine.reserved} of them are reserved"
            )

    async def wait_ready(self) -> list[int]:
        """Return when clients will find every partition's leader; name the configured brokers that are missing."""
        await self.metadata.wait_until(self._is_member, 3_600.0)
        everybody = set(self.config.cluster_nodes)
        missing: list[int] = []
        try:
            await self.metadata.wait_until(lambda image: everybody <= image.brokers.keys(), GATHER_S)
        except TimeoutError:
            missing = sorted(everybody - self.metadata.image.brokers.keys())
        while not self.is_ready:
            await self.partitions.known_leaders.leaders_changed()
        return missing

    @property
    def is_ready(self) -> bool:
        """Registered, not fenced, every replica open, and every partition has a leader as far as this node knows."""
        return (
            self._is_member(self.metadata.image)
            and self.partitions.is_reconciled
            and self.partitions.known_leaders.has_all_leaders
        )

    async def stop(self) -> None:
        """Leave in good order: hand leaderships on, answer all that wait, write a clean checkpoint. Bounded in time."""
        if self.state == "stopping":
            return
        self.state = "stopping"
        self.no_room.close()
        until_ms = self._environment.monotonic_ms() + self.config.controlled_shutdown_timeout_ms
        await self._hand_over(until_ms)
        self.broker.is_stopping = True
        self.listener.stop_accepting()
        await self.partitions.close()
        await self.broker.close()
        await self.listener.close()
        if self._has_controller():
            others = [known for known in self.metadata.image.brokers.values() if known.is_available]
            timeout_s = min(CONTROLLER_S if others else CONTROLLER_LEAVING_S, self._left_s(until_ms))
            try:
                await self.metadata.finish_shutdown(timeout_s)
            except (Refused, TimeoutError) as error:
                logger.info("the controller was not told of the stop: %s", error)
        self.announcer.close()
        await self.metadata.close()
        await self.catch_up.close()
        await self.multiraft.close()
        await self.links.close()
        await self._tasks.close()
        await self.storage.close()
        if self._syncer is not None:
            self._syncer.close()
        self._check_threads.close()
        self._sync_worker.stop()
        self._write_worker.stop()
        self._checkpoint_worker.stop()

    # Inside.

    def _make_links(self, incarnation: int, rng: random.Random) -> None:
        config = self.config
        environment = self._environment
        self.links = Links(
            config.cluster_id,
            config.node_id,
            incarnation,
            NodeAddress(*config.nodes[config.node_id]),
            {node_id: NodeAddress(*peer) for node_id, peer in config.nodes.items()},
            secret=config.cluster_secret.encode() or None,
            clock=environment.monotonic_ms,
            rng=rng,
            random_bytes=environment.random_bytes,
            new_datagrams=environment.new_datagrams,
            liveness_timeout_ms=config.raft_election_timeout_ms,
            delay=environment.link_delay or configured_delay(config),
            meter=self.meter,
        )
        self.links.on_fact = lambda fact: self.events.add_fact("links", fact)

    async def _open_storage(self) -> None:
        config = self.config
        environment = self._environment
        loop = asyncio.get_running_loop()
        self._sync_worker = environment.new_worker(loop, "journal")
        self._syncer = environment.new_syncer(loop)
        self._write_worker = environment.new_worker(loop, "segments")
        self._checkpoint_worker = environment.new_worker(loop, "checkpoints")
        self.storage = await Storage.open(
            environment.files,
            config.log_dir,
            StorageConfig(
                journal_file_bytes=config.log_journal_file_bytes,
                stored_bytes_min=config.log_journal_bypass_bytes,
                segment_bytes=config.log_segment_bytes,
                tail_cache_bytes=config.log_tail_cache_bytes,
                open_files_max=self.descriptors.segment_files,
            ),
            sync_worker=self._sync_worker,
            syncer=self._syncer,
            write_worker=self._write_worker,
            checkpoint_worker=self._checkpoint_worker,
            on_durable=self._on_durable,
            cluster_id=config.cluster_id,
            node_id=config.node_id,
            on_failed=self._on_storage_failed,
            boot_id=environment.boot_id(),
            new_id=lambda: str(environment.new_id()),
        )

    def _watch_storage(self) -> None:
        """Tell of changes of the disk, and look for damage on it."""
        config = self.config
        environment = self._environment
        self.storage.on_recovered = self._on_storage_recovered
        self.storage.hampered.on_news = self._on_storage_hampered
        call_later = asyncio.get_running_loop().call_later
        self.no_room = NoRoom(self._led, self._able_to_lead, self._on_room_event, call_later)
        self.storage.on_room = self.no_room.on_room
        self.links.is_busy = self.storage.shared.is_busy
        self.scrub = Scrub(
            self.storage,
            environment.wall_ms,
            self._on_fact,
            rate_bytes=config.log_scrub_rate_bytes,
            period_ms=config.log_scrub_interval_hours * 3_600_000,
        )

    def _make_groups(self, rng: random.Random) -> None:
        """Make the Raft groups, and the parts that fill replicas and segments from other nodes."""
        config = self.config
        environment = self._environment
        self.multiraft = MultiRaft(
            config.node_id,
            self.storage,
            self.links,
            Timing(
                election_timeout_ms=config.raft_election_timeout_ms,
                heartbeat_interval_ms=config.raft_heartbeat_interval_ms,
            ),
            environment.monotonic_ms,
            rng,
            self._on_fact,
            meter=self.meter,
        )
        self.catch_up = CatchUp(
            config.node_id,
            self.links,
            self.multiraft,
            environment.monotonic_ms,
            config.replica_catchup_rate_bytes,
            self._on_fact,
            self.fail,
        )
        self._limit_catch_up(config)
        self.scrub.repair = SegmentRepair(self.links, self.multiraft.groups, self.storage.shared, config.log_dir)
        self.scrub.on_unmended = self._on_unmended

    def _limit_catch_up(self, config: BrokerConfig) -> None:
        rate_bytes = config.replica_catchup_rate_bytes
        self.catch_up.limit(
            min(rate_bytes, config.leader_replication_throttled_rate),
            min(rate_bytes, config.follower_replication_throttled_rate),
        )

    def _on_settings(self, before: BrokerConfig, now: BrokerConfig) -> None:
        """Let the parts of a node that no client meets go by other settings."""
        if _rates(before) != _rates(now):
            self._limit_catch_up(now)
        limits = self.listener.limits
        limits.connections_max = share(self.descriptors.limit, now.max_connections).connections
        limits.per_host_max = now.max_connections_per_ip

    def _make_metadata(self, incarnation: int, clocks: Clocks) -> None:
        config = self.config
        voters = frozenset(config.voters)
        places = self._places()
        has_names = [one.name for one in places] != [DEFAULT_NAME]
        self.metadata = MetadataService(
            Membership(
                node_id=config.node_id,
                cluster_id=config.cluster_id,
                voters=voters,
                learners=frozenset(config.cluster_nodes) - voters,
                directory_id=self.storage.directory_id,
            ),
            self.multiraft,
            self.links,
            open_log(self.storage),
            SnapshotStore(self._environment.files, config.log_dir, self._write_worker),
            broker=BrokerIdentity(
                incarnation=incarnation,
                host=places[0].host,
                port=places[0].port,
                rack=config.broker_rack or None,
                directory_id=self.storage.directory_id,
                listeners=places if has_names else (),
            ),
            config=ControllerConfig(
                default_partitions=config.num_partitions,
                default_replication_factor=config.replication_factor,
                session_timeout_ms=config.broker_session_timeout_ms,
                topics_max=config.max_topics,
                partitions_max=config.max_partitions,
                flush_mode=config.flush_mode,
                founding_features=NEWEST,
            ),
            clocks=clocks,
            on_fact=self._on_metadata_fact,
            new_id=self._environment.new_id,
            meter=self.meter,
        )

    def _places(self) -> tuple[ListenerAddress, ...]:
        """Return what clients of each listener are told, the first one first."""
        ports = self.listener.ports
        return tuple(
            ListenerAddress(one.name, one.advertised.host, one.advertised.port or ports[one.name])
            for one in self.config.named_listeners
        )

    def _make_broker(self, clocks: Clocks) -> None:
        """Make the parts that stand on the metadata: partitions, and those that serve clients and other nodes."""
        config = self.config
        self.announcer = LeaderAnnouncer(config.node_id, frozenset(config.cluster_nodes), self.links, self.metadata)
        self.partitions = Partitions(
            config,
            self.storage,
            self.multiraft,
            self.announcer,
            clocks,
            self.links,
            self.metadata.submit,
            self._on_fact,
            self.fail,
            meter=self.meter,
        )
        self.metadata.subscribe(self.partitions.on_image)
        self.links.on_peer.append(self.partitions.on_peer)
        pings = Pings(self.links)
        self._serve_nodes(pings)
        self._serve_tokens()
        self.broker = BrokerContext(
            config,
            self.metadata,
            self.partitions,
            pings,
            self.events,
            clock=clocks.monotonic_ms,
            on_fatal=self.fail,
            new_id=self._environment.new_id,
            meter=self.meter,
        )
        self.live_settings = LiveSettings(self.broker, self._on_settings)
        self.metadata.subscribe(self.live_settings.on_image)
        self._make_transactions(clocks)
        self._serve_elections(clocks)
        new_worker = partial(self._environment.new_worker, asyncio.get_running_loop())
        self._check_threads = CheckThreads(new_worker)
        self.broker.lanes = Lanes(self._check_threads, self.meter)
        self.metadata.subscribe(self.broker.coordinator.on_image)
        self.dispatcher = Dispatcher(self.broker)

    def _make_transactions(self, clocks: Clocks) -> None:
        """Make the coordinator of transactions, and those who ask other brokers' coordinators and are asked by them."""
        broker, config, links = self.broker, self.config, self.links
        host = ShardHost(broker.timers, clocks, self.events.add, self.fail, self.meter)
        leaders = Whereabouts(config.node_id, self.partitions, self.metadata)
        broker.transactions = TransactionCoordinator(
            config,
            self.metadata,
            self.partitions,
            host,
            broker.producer_ids,
            partial(MarkerSender, config.node_id, host, leaders, links.call, broker.markers.write),
        )
        coordinators = Coordinators(
            config.node_id,
            self.partitions.topics,
            self.partitions.known_leaders.leadership,
            links.call,
            broker.transactions.add_partitions,
        )
        broker.questions = CoordinatorQuestions(
            coordinators.find, coordinators.ask, broker.timers, clocks.monotonic_ms, broker.spawn
        )
        doubts = Doubts(
            config.node_id,
            host,
            coordinators,
            links.call,
            broker.transactions.outcomes,
        )
        self.partitions.on_doubts = doubts.note
        links.serve(ADD_PARTITIONS, broker.transactions.answer)
        links.serve(OUTCOMES, broker.transactions.answer_outcomes)
        links.serve(WRITE_MARKERS, broker.markers.answer)

    def _serve_elections(self, clocks: Clocks) -> None:
        """Let this broker's clients, and other brokers, have partitions led by their preferred replica."""
        partitions = self.partitions
        self.broker.elections = Elections(
            self.config.node_id, partitions.find, partitions.known_leaders, self.links.call, clocks.monotonic_ms
        )
        self.links.serve(ELECT, self.broker.elections.answer)

    def _serve_nodes(self, pings: Pings) -> None:
        """Answer the questions of other nodes, and of operators."""
        self.links.serve_admins("status", self._on_status)
        self.links.serve(PING, pings.answer)
        self.links.serve(REPLICA_FAILED, self.partitions.failed.answer)
        self.links.serve_admins(LOST_VOTER, LostVoters(self.partitions).answer)

    def _serve_tokens(self) -> None:
        config = self.config
        tokens = JoinTokens(
            config.cluster_secret.encode() or None,
            self._environment.monotonic_ms,
            lambda kind, text: self.events.add(kind, f"node {config.node_id}", text),
        )
        self.links.key_of = tokens.key
        self.links.serve_admins(ISSUE, tokens.issue)
        self.links.serve_newcomers(JOIN, tokens.join)

    def _run_parts(self) -> None:
        parts = (self.multiraft.run(), self.links.wait(), self.metadata.wait(), self._let_clients_in(), self._scrub())
        for part in parts:
            self._tasks.spawn(part)

    async def _let_clients_in(self) -> None:
        await self.metadata.wait_until(self._is_member, 365 * 86_400.0)
        if self.state == "stopping":
            return
        # The image holds this start's registration, so it is newer than every replica that an earlier start left.
        self.partitions.on_current()
        self.broker.retention.start()
        self.broker.compaction.start()
        await self.listener.accept()
        self.state = "running"
        self.events.add("serving", f"node {self.config.node_id}", f"clients are served on {self._served_on()}")

    def _served_on(self) -> str:
        ports = self.listener.ports
        if len(ports) == 1:
            return f"port {self.port}"
        return "ports " + ", ".join(f"{port} ({name.lower()})" for name, port in ports.items())

    async def _scrub(self) -> None:
        """Look for damage on the disk, from when all replicas are open."""
        await self.metadata.wait_until(self._is_member, 365 * 86_400.0)
        while not self.partitions.is_reconciled:
            await self.partitions.known_leaders.leaders_changed()
        await self.scrub.run()

    def _is_member(self, image: Image) -> bool:
        known = image.brokers.get(self.config.node_id)
        return known is not None and not known.fenced and known.epoch == self.metadata.broker_epoch

    async def _hand_over(self, until_ms: int) -> None:
        if not self._has_controller():
            return
        try:
            await self.metadata.begin_shutdown(min(CONTROLLER_S, self._left_s(until_ms)))
        except (Refused, TimeoutError) as error:
            logger.info("the controller does not know of the stop: %s", error)
        # Half of what is left: the rest is for closing files.
        timeout_s = self._left_s(until_ms) / 2
        self.partitions.keep_leaders()
        leaders_changed = self.partitions.known_leaders.leaders_changed
        await hand_over(list(self.partitions), self._successors, leaders_changed, timeout_s)

    def _led(self) -> Iterable[Led]:
        """Return what this node may lead, the metadata first: without them nothing else can be changed."""
        metadata = self.multiraft.groups.get(METADATA_GROUP)
        return [*([LedGroup(metadata)] if metadata is not None else []), *self.partitions]

    def _able_to_lead(self) -> set[int]:
        """Return the other nodes that could take over from this one now, and have room for what follows."""
        return self._successors() - self.links.busy_peers - {self.config.node_id}

    def _on_room_event(self, kind: str, cause: str) -> None:
        self.events.add(kind, f"node {self.config.node_id}", cause)

    def _left_s(self, until_ms: int) -> float:
        return max(0, until_ms - self._environment.monotonic_ms()) / 1000

    def _successors(self) -> set[int]:
        """Return the nodes that could take over from this one now."""
        brokers = self.metadata.image.brokers.values()
        return {known.node_id for known in brokers if known.is_available and self.links.is_live(known.node_id)}

    def _has_controller(self) -> bool:
        """Tell whether the metadata group can have a leader: a majority of its voters is alive."""
        voters = self.metadata.voter_ids
        alive = sum(node_id == self.config.node_id or self.links.is_live(node_id) for node_id in voters)
        return alive * 2 > len(voters)

    def _on_unmended(self, group_id: GroupId, cause: str) -> None:
        # The partitions are younger than the scrub.
        self.partitions.on_unmended(group_id, cause)

    def _serve(self, exchange: Exchange) -> None:
        # The listener, whose port goes into the registration, is older than the dispatcher.
        self.dispatcher.serve(exchange)

    def _on_durable(self) -> None:
        # The storage is older than the driver that it tells; nothing becomes durable before.
        self.multiraft.on_durable()

    def _on_fact(self, group_id: GroupId, fact: Fact) -> None:
        self.events.add_fact(self._name_of(group_id), fact)

    def _name_of(self, group_id: GroupId) -> str:
        if group_id == METADATA_GROUP:
            return "metadata"
        topic_id, partition = place_of(group_id)
        hosted = self.partitions.topics_by_id.get(topic_id)
        return f"{hosted.topic.name if hosted else topic_id.hex()}-{partition}"

    def _catch_up_status(self) -> dict[str, Any]:
        status = self.catch_up.status()
        for transfer in status["transfers"]:
            transfer["group"] = self._name_of(transfer["group"])
        return status

    def _on_metadata_fact(self, fact: Fact) -> None:
        # Before this broker has registered it reads old records again: no news, and not of now.
        if self.metadata.broker_epoch is not None or not fact.kind.startswith(("broker", "topic", "partition")):
            self.events.add_fact("metadata", fact)

    def _on_storage_failed(self, error: Exception) -> None:
        self.events.add("storage failed", f"node {self.config.node_id}", str(error))

    def _on_storage_recovered(self) -> None:
        self.events.add("storage recovered", f"node {self.config.node_id}", "the journal can be written again")

    def _on_storage_hampered(self, reason: str) -> None:
        text = f"{reason}: work that this stops waits, and is tried again every second"
        self.events.add("storage hampered", f"node {self.config.node_id}", text)

    def _on_long_callback(self, what: str, processor_ns: int, wall_ns: int, unsaid: int) -> None:
        text = f"{what} used {processor_ns // 1_000_000} ms of the processor in {wall_ns // 1_000_000} ms"
        more = f"; so did {unsaid} more since the last such event" if unsaid else ""
        self.events.add("long callback", f"node {self.config.node_id}", text + more)

    def _put_by_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self.meter.run, "collector", put_by)

    def fail(self, error: BaseException) -> None:
        """Be broken from now on: `failure` says why. Only the first one counts."""
        if not self.failure.done():
            self.failure.set_exception(error)

    async def _on_status(self, _source: int, _body: bytes) -> bytes:
        status = await taken(self._status())
        # Only the loop can count them; `status` may be asked for from any thread.
        status["stats"]["tasks"] = len(asyncio.all_tasks())
        return await taken(packed(status))

    def status(self) -> dict[str, Any]:
        """Return the answers to an operator's questions, as plain values."""
        return at_once(self._status())

    def _counts(self) -> Generator[None, None, dict[str, Any]]:
        """Return the counts over all partitions."""
        counts = dict.fromkeys(("leaders", "leaders_confirmed", "under_replicated", "replicas", "witnesses"), 0)
        topics = dict[str, int]()
        looked_at = 0
        for hosted in list(self.partitions.topics_by_id.values()):
            topics[hosted.topic.name] = len(hosted.topic.partitions)
            for partition in list(hosted.partitions.values()):
                if partition.is_witness:
                    counts["witnesses"] += 1
                else:
                    counts["replicas"] += 1
                    counts["leaders"] += partition.group.is_leader
                    counts["leaders_confirmed"] += partition.can_serve
                    lacks_copies = partition.is_leader and partition.copies_in_sync < len(partition.replicas)
                    counts["under_replicated"] += lacks_copies
                looked_at += 1
                if not looked_at % COUNTED_AT_ONCE:
                    yield
            looked_at += 1
        return {**counts, "topics": topics}

    def _moves(self) -> Generator[None, None, dict[str, str]]:
        """Return the reasons why partitions that change their members wait."""
        moves = dict[str, str]()
        for number, (group_id, reason) in enumerate(list(self.partitions.moves.waiting.items()), 1):
            moves[self._name_of(group_id)] = reason
            if not number % COUNTED_AT_ONCE:
                yield
        return moves

    def _status(self) -> Generator[None, None, dict[str, Any]]:
        counts = yield from self._counts()
        moves = yield from self._moves()
        return {
            "node_id": self.config.node_id,
            "cluster_id": self.config.cluster_id,
            "state": self.state,
            "host": self.config.advertised.host,
            "port": self.config.advertised.port or self.port,
            "listeners": {one.name: f"{one.host}:{one.port}" for one in self._places()},
            "pid": os.getpid(),
            **counts,
            "ready": self.state == "running" and self.is_ready,
            "controller": self.metadata.leader_id,
            "quorum": self.metadata.status(),
            "storage": {
                "refusing": self.storage.refusal,
                "hampered": self.storage.hampered.reason,
                "last_error": self.storage.last_error,
                "scrub": self.scrub.status(),
                "failed_replicas": {
                    self._name_of(group_id): reason for group_id, reason in self.partitions.failed.status().items()
                },
            },
            "moves": moves,
            "groups": self.broker.coordinator.status(),
            "transactions": self.broker.transactions.status(),
            "fetches": self.broker.fetches.to_list(),
            "catch_up": self._catch_up_status(),
            "peers": [peer._asdict() for peer in self.links.status()],
            "events": sorted(
                self.events.to_list()
                + self.broker.coordinator.group_events.to_list()
                + self.broker.transactions.transaction_events.to_list(),
                key=lambda event: event["time_ms"],
            ),
            "loop": self.meter.status(),
            "stats": {
                "connections": len(self.listener),
                "connections_accepted": self.listener.accepted_count,
                "connections_refused": self.listener.refused_count,
                "connections_max": self.listener.limits.connections_max,
                "open_files_max": self.descriptors.limit,
                "request_bytes_in_use": self.listener.bytes_in_use,
                "request_bytes_max": self.listener.account.total_max,
                "requests": self.dispatcher.counts,
                "requests_by_version": self.dispatcher.counts_by_version,
                "raft": self.multiraft.status(),
                "links": msgspec.structs.asdict(self.links.stats),
                "storage": msgspec.structs.asdict(self.storage.stats),
            },
        }


def _rates(config: BrokerConfig) -> tuple[int, ...]:
    return (
        config.replica_catchup_rate_bytes,
        config.leader_replication_throttled_rate,
        config.follower_replication_throttled_rate,
    )
