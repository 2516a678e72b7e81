"""Makes and removes replicas as the metadata image says; finds them by name or id.

The image is what should be; this is where it becomes so. Topics that come, change and go are queued and worked off by
one task, in the order of the image, because opening a log with a tail to check takes time; a replica without data is
ready within the loop iteration. A topic may have ten thousand partitions, so replicas come and go in pieces, each in an
iteration of the loop of its own (`WORK_PER_ITERATION`).

Files of topics and replicas that were deleted or moved elsewhere while this node was away go as soon as the image is
known to be current (`on_current`). Until then no replica is made that is not there: a restart begins with an older
image, which may name what this node has deleted; empty, it would vote against what it had acknowledged.

A topic that is deleted, or a partition that is moved elsewhere, is found by nobody from the moment when the image says
so. Its replicas (`_leaving`) end one after the other in their turn in the same queue, before those of the next topic of
its name.

Not here, but held by it: who leads (`known_leaders`), requests that wait (`waiting`), in-sync replicas and members
under review (`reviews`), replicas whose logs have failed (`failed`).

Limit: one entry per partition of the image.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Protocol

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.config.topic import SharedSettings
from barnabas_broker.leadership.known_leaders import KnownLeaders
from barnabas_broker.leadership.preferred_leaders import PreferredLeaders
from barnabas_broker.partition.contracts import PartitionObserver
from barnabas_broker.partition.partition import Partition
from barnabas_broker.partition.record_rules import rules_of
from barnabas_broker.timing.pieces import one_by_one
from barnabas_broker.timing.slices import Slices
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_metadata_quorum.image.image import Image, Topic, configured_topics, topic_changes
from barnabas_metadata_quorum.leaders.announcer import LeaderAnnouncer
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.links.interfaces import NodeLinks
from barnabas_raftlog.log.errors import DiskFullError, StorageBusyError
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.multiraft.multiraft import MultiRaft
from barnabas_raftlog.raft.membership import Configuration
from barnabas_raftlog.raft.messages import Fact, GroupId
from barnabas_raftlog.tasks import Tasks, failure_of

from .failed_replicas import FailedReplicas
from .hosted_topic import HostedTopic, directory_of, group_id_of, place_of
from .open_replicas import LogStorage, Mode, OpenReplicas
from .reassignment import Moves, Submit, founding_configuration
from .reviews import Reviews
from .waiting_requests import WaitingRequests

__all__ = ["Partitions", "ReplicaStorage"]

logger = logging.getLogger(__name__)

WORK_PER_ITERATION = 400
WORK_OF_A_REPLICA = 80
"""In one iteration five replicas are opened, ended or deleted, or four hundred only looked at. Measured: 100 to 150 us
for one that goes, 400 to 700 us for one that comes among ten thousand, 1 to 3 us for a look."""
CHANGED_AT_ONCE = 200
OPEN_AGAIN_S = 1.0  # what could not be opened for a reason that will pass


class ReplicaStorage(LogStorage, Protocol):
    """The part of `Storage` that is used here."""

    directory_id: bytes

    def checkpoint(self) -> None: ...
    def unopened(self, is_expected: Callable[[GroupId], bool]) -> list[tuple[GroupId, str, Mode]]: ...


class Partitions:
    """See the module. `topics` and `topics_by_id` hold every topic of the image; the keys of both go together."""

    __slots__ = (  # CPython keeps 30 attributes of an instance in place; of more, each costs a look-up
        "_closing",
        "_config",
        "_leaving",
        "_meter",
        "_multiraft",
        "_on_fact",
        "_on_fatal",
        "_preferred",
        "_put_off",
        "_queue",
        "_queued",
        "_reconciling",
        "_reconfigured",
        "_reconfiguring",
        "_replicas",
        "_settings",
        "_storage",
        "_taken_out",
        "_tasks",
        "_unfounded",
        "fail",
        "failed",
        "finish",
        "gained",
        "is_live",
        "known_leaders",
        "moves",
        "node_id",
        "now_ms",
        "observers",
        "on_doubts",
        "review_soon",
        "reviews",
        "topics",
        "topics_by_id",
        "waiting",
        "wake",
        "wall_ms",
    )

    def __init__(  # noqa: PLR0913 - what it stands on is brought by the caller
        self,
        config: BrokerConfig,
        storage: ReplicaStorage,
        multiraft: MultiRaft,
        announcer: LeaderAnnouncer,
        clocks: Clocks,
        links: NodeLinks,
        submit: Submit,
        on_fact: Callable[[GroupId, Fact], None],
        on_fatal: Callable[[BaseException], None],
        *,
        meter: LoopMeter | None = None,
    ) -> None:
        self._meter = meter or LoopMeter()
        self.node_id = config.node_id
        self.now_ms, self.wall_ms = clocks
        self.is_live = links.is_live
        self.topics: dict[str, HostedTopic] = {}
        self.topics_by_id: dict[bytes, HostedTopic] = {}
        self.observers: dict[str, Callable[[Partition], PartitionObserver]] = {}  # by the name of the topic
        self.on_doubts: Callable[[Partition], None] = _nobody_asks
        self._config = config
        self._settings = SharedSettings(config)
        self._storage = storage
        self._multiraft = multiraft
        self._on_fact = on_fact
        self._on_fatal = on_fatal
        self._queue: deque[tuple[bool, Topic]] = deque()
        self._queued: dict[bytes, int] = {}  # how many partitions of a topic the queue has, by its id
        self._put_off: dict[bytes, None] = {}  # topics with replicas that could not be opened for the moment
        self._taken_out: set[GroupId] = set()  # opened, and to be deleted when the queue comes to it
        self._leaving: dict[bytes, dict[int, Partition]] = {}  # served no more, and to be ended then; by topic id
        self._unfounded: set[GroupId] = set()  # opened without members, by an image that may be old
        self._tasks = Tasks(on_fatal)
        self._reconciling: asyncio.Task[None] | None = None
        self._reconfiguring: asyncio.Task[None] | None = None
        self._reconfigured = config  # the settings that all topics go by, or will when they have been looked at
        self._closing = False
        self._replicas = OpenReplicas(storage, self.wall_ms, self._open_again)
        self._add_parts(announcer, links, submit)

    def _add_parts(self, announcer: LeaderAnnouncer, links: NodeLinks, submit: Submit) -> None:
        """Make what goes through the replicas here for a purpose of its own."""
        config = self._config
        now_ms = self.now_ms
        self.known_leaders = KnownLeaders(
            self.node_id,
            announcer,
            links.busy_peers,
            now_ms,
            config.broker_session_timeout_ms,
            self._topic,
        )
        leadership = self.known_leaders.leadership
        self.failed = FailedReplicas(self.node_id, links, leadership, self.find, now_ms, self._recreate)
        self.moves = Moves(self.node_id, links.is_live, submit, self._on_fact)
        self.reviews = Reviews(self, self._hosts, self.moves, now_ms, self._on_fact, self._meter)
        self.waiting = WaitingRequests(self._multiraft.stats, self._meter)
        # Part of what partitions tell (PartitionHost), each commit for example, goes there without a call between.
        self.review_soon = self.reviews.review_soon
        self.wake = self.waiting.wake
        self.gained = self.waiting.gained
        self.finish = self.waiting.finish
        self.fail = self.waiting.fail
        self._preferred: PreferredLeaders | None = None
        if config.auto_leader_rebalance_enable:
            self._preferred = PreferredLeaders(
                self.node_id,
                lambda: self,
                self.known_leaders.available_since_ms,
                now_ms,
                config.leader_imbalance_check_interval_seconds * 1000,
                self._meter,
            )

    def __iter__(self) -> Iterator[Partition]:
        """Yield every partition that is hosted, also while they come and go; those that were yielded are not kept."""
        for hosted in one_by_one(self.topics_by_id.values()):
            yield from one_by_one(hosted.partitions.values())

    @property
    def is_reconciled(self) -> bool:
        """True when every replica that the image gives to this node is open."""
        return not (self._queue or self._reconciling or self._replicas.late or self._put_off)

    def find(self, topic_id: bytes, partition: int) -> Partition | None:
        hosted = self.topics_by_id.get(topic_id)
        return None if hosted is None else hosted.partitions.get(partition)

    def _hosts(self, partition: Partition) -> bool:
        return self.find(partition.topic_id, partition.index) is partition

    def _topic(self, topic_id: bytes) -> Topic | None:
        hosted = self.topics_by_id.get(topic_id)
        return None if hosted is None else hosted.topic

    # The image.

    def on_image(self, old: Image, new: Image) -> None:
        """Take in a change of the image. Subscribed to the metadata service."""
        if old.brokers is not new.brokers:
            self.known_leaders.on_brokers(old, new)
            if self._preferred is not None:
                self._preferred.look_soon()  # A broker may have been live, but fenced, at the last turn.
            if replaced := self.moves.on_brokers(new):
                self.reviews.review_led(
                    lambda partition: not partition.group.configuration.node_ids.isdisjoint(replaced)
                )
        created, deleted, changed = topic_changes(old, new)
        for topic in deleted:
            self.topics_by_id.pop(topic.topic_id, None)
            self.known_leaders.on_deleted(topic.topic_id)
            hosted = self.topics.get(topic.name)
            if hosted is not None and hosted.topic.topic_id == topic.topic_id:
                del self.topics[topic.name]
                self._leaving.setdefault(topic.topic_id, {}).update(hosted.partitions)
                hosted.partitions = {}
        for topic in created:
            hosted = HostedTopic(topic, self._settings.of(topic.name, topic.configs))
            self.topics[topic.name] = self.topics_by_id[topic.topic_id] = hosted
        self._queue.extend((False, topic) for topic in deleted)
        for topic in (*changed, *configured_topics(old, new)):
            self._change(self.topics_by_id[topic.topic_id], topic)
            self._queue_up(topic)
        for topic in created:
            self._queue_up(topic)
        self.known_leaders.on_topics((*created, *changed))
        self._reconcile_soon()

    def configure(self, config: BrokerConfig) -> None:
        """Go by other settings from now on: topics that are made at once, the others as their turn comes."""
        self._config = config
        self._settings = SharedSettings(config)
        self._reconfigure_soon()

    def _reconfigure_soon(self) -> None:
        if self._config is not self._reconfigured and self._reconfiguring is None and not self._closing:
            configuring = self._meter.measured(self._reconfigure(), "topics that follow the broker's settings")
            self._reconfiguring = self._tasks.start(configuring, self._on_all_configured)

    async def _reconfigure(self) -> None:
        slices = Slices()
        while (config := self._config) is not self._reconfigured:
            is_everybodys = config.producer_id_expiration_ms != self._reconfigured.producer_id_expiration_ms
            self._reconfigured = config
            for hosted in one_by_one(self.topics_by_id.values()):
                topic = hosted.topic
                if is_everybodys or hosted.settings != self._settings.of(topic.name, topic.configs):
                    self._change(hosted, topic)
                    self._queue_up(topic)
                    self._reconcile_soon()
                await slices.yield_if_due()

    async def configured(self) -> None:
        """Return when all topics go by the settings, but for partitions beyond the first two hundred of one."""
        while self._reconfiguring is not None:
            await asyncio.wait((self._reconfiguring,))

    def _on_all_configured(self, task: asyncio.Task[None]) -> None:
        self._reconfiguring = None
        if (error := failure_of(task)) is not None:
            self._on_fatal(error)
        # The settings may have changed between the task's last look at them and now.
        self._reconfigure_soon()

    def _queue_up(self, topic: Topic) -> None:
        """Have every partition of a topic looked at, once however often it changes before its turn."""
        if self._queued.get(topic.topic_id) != len(topic.partitions):
            self._queued[topic.topic_id] = len(topic.partitions)
            self._queue.append((True, topic))

    def _reconcile_soon(self) -> None:
        if self._queue and self._reconciling is None and not self._closing:
            self._multiraft.hold_elections()
            reconciling = self._meter.measured(self._reconcile(), "replicas that come and go")
            self._reconciling = self._tasks.start(reconciling, self._on_reconciled)

    def _change(self, hosted: HostedTopic, topic: Topic) -> None:
        """Let the replicas here know what has changed: the first at once, the others when the queue comes there."""
        hosted.topic = topic
        hosted.settings = self._settings.of(topic.name, topic.configs)
        for index in list(islice(hosted.partitions, CHANGED_AT_ONCE)):
            self._adapt(hosted, index)

    def _adapt(self, hosted: HostedTopic, index: int) -> None:
        """Let a replica know where its partition should be; one that should not be here serves no more."""
        partition = hosted.partitions.get(index)
        topic = hosted.topic
        if partition is None:
            return
        placement = topic.partitions[index]
        observers = topic.observers
        settings = hosted.settings
        partition.expiration_ms = self._config.producer_id_expiration_ms
        is_configured = partition.settings is settings or partition.settings == settings
        if is_configured and partition.placement is placement and partition.observing == observers:
            return
        if not is_configured:
            partition.configure(settings)
        partition.placement = placement
        partition.observing = observers
        if self.node_id in topic.hosts_of(index):
            self.review_soon(partition)
        else:
            self._taken_out.add(group_id_of(topic.topic_id, index))
            self._leaving.setdefault(topic.topic_id, {})[index] = hosted.partitions.pop(index)

    def checkpoint(self) -> None:
        """Let the disk have the present state in files of their own, so that replaced ones can go."""
        self._storage.checkpoint()

    def on_current(self) -> None:
        """Delete what was deleted or moved elsewhere while this node was away, make what it was given meanwhile.

        Only for when the image is not older than this start: a topic that it does not name then is gone for good.
        """
        for group_id, name, mode in self._storage.unopened(self._belongs_here):
            was_deleted = place_of(group_id)[0] not in self.topics_by_id
            self._storage.open_log(group_id, name, mode)
            self._storage.delete_log(group_id, for_good=was_deleted)
            fate = "the topic was deleted" if was_deleted else "the partition was moved"
            self._on_fact(group_id, Fact("replica removed", 0, f"{name}: {fate} while this broker was away"))
        if self._replicas.allow_new(self.topics_by_id):
            for hosted in self.topics_by_id.values():
                self._queue_up(hosted.topic)
        unfounded, self._unfounded = self._unfounded, set()
        for group_id in sorted(unfounded):
            partition = self.find(*place_of(group_id))
            if partition is not None and not partition.group.configuration.voters:
                founding = self._founding(partition)
                if founding is not None:
                    partition.group.begin_with(founding, stand=partition.replicas[0] == self.node_id)
        self._reconcile_soon()
        self.known_leaders.on_opened()

    def _belongs_here(self, group_id: GroupId) -> bool:
        topic_id, index = place_of(group_id)
        hosted = self.topics_by_id.get(topic_id)
        return hosted is not None and self.node_id in hosted.topic.hosts_of(index)

    async def _reconcile(self) -> None:
        done = 0
        while self._queue:
            is_there, topic = self._queue.popleft()
            self._queued.pop(topic.topic_id, None)
            for index in range(len(topic.partitions)):
                done += WORK_OF_A_REPLICA if await self._reconcile_one(topic, index, is_there=is_there) else 1
                if done >= WORK_PER_ITERATION:
                    done = 0
                    await asyncio.sleep(0)

    async def _reconcile_one(self, topic: Topic, index: int, *, is_there: bool) -> bool:
        """Let one replica go that should, and make it if it should be; return whether there was anything to do."""
        group_id = group_id_of(topic.topic_id, index)
        hosted = self.topics_by_id.get(topic.topic_id)
        if hosted is not None:
            self._adapt(hosted, index)
        is_busy = False
        if not is_there or group_id in self._taken_out:
            is_busy = self._let_go(topic, index, for_good=not is_there)
        # The queue may be older than the image.
        if hosted is None or self.node_id not in hosted.topic.hosts_of(index):
            return is_busy
        if self._replicas.is_done(group_id) or self._replicas.must_wait(group_id):
            return is_busy  # The topic has changed, and had this one before; or the image may be too old.
        try:
            await self._open(hosted, index)
        except (DiskFullError, StorageBusyError) as error:
            self._open_later(topic, group_id, error)
        except StorageFailedError as error:
            self._on_not_opened(group_id, error)
        return True

    def _on_reconciled(self, task: asyncio.Task[None]) -> None:
        self._reconciling = None
        self._multiraft.release_elections()
        if (error := failure_of(task)) is not None:
            self._on_fatal(error)
        self.known_leaders.on_opened()
        # The image may have changed between the task's last look at the queue and now.
        self._reconcile_soon()

    async def _open(self, hosted: HostedTopic, index: int) -> None:
        topic = hosted.topic
        group_id = group_id_of(topic.topic_id, index)
        settings = hosted.settings
        config = self._config
        name = directory_of(topic, index)
        log, state = await self._replicas.open(group_id, name, settings.flush_mode, settings.segment_bytes)
        if self.topics_by_id.get(topic.topic_id) is not hosted or self._closing:
            return  # Deleted while its producers were being read; the queue says so next.
        if self.node_id not in hosted.topic.hosts_of(index):
            self._taken_out.add(group_id)
            return  # Moved away meanwhile: likewise.
        partition = Partition(
            self,
            hosted.topic,
            index,
            log,
            state,
            min_insync=settings.min_insync_replicas,
            rules=rules_of(settings),
            lag_ms_max=config.replica_lag_time_max_ms,
            expiration_ms=config.producer_id_expiration_ms,
        )
        log.on_state_needed = partial(state.save, log)
        if topic.name in self.observers:
            partition.observer = self.observers[topic.name](partition)
        founding = None
        preferred = partition.replicas[0] == self.node_id
        if not log.configuration.voters:  # Else it counts for nothing, and takes time to make.
            if self._replicas.is_new_allowed:
                founding = self._founding(partition)
            else:  # This image may name as founder a node that has left since, and alone could elect itself.
                self._unfounded.add(group_id)
        partition.group = self._multiraft.add_group(group_id, log, founding, partition, preferred=preferred)
        partition.group.sends_files = True
        partition.group.prepare_state = state.prepare
        # The topic may have been configured differently while its log was being read.
        partition.configure(hosted.settings)
        hosted.partitions[index] = partition
        self.failed.forget(group_id)

    def _founding(self, partition: Partition) -> Configuration | None:
        return founding_configuration(partition.placement, self.node_id, self._storage.directory_id)

    def _on_not_opened(self, group_id: GroupId, error: StorageFailedError) -> None:
        is_waiting = self._replicas.is_waiting(group_id)
        self._on_fact(group_id, Fact("replica suspended" if is_waiting else "replica failed", 0, str(error)))
        if not is_waiting:
            self.failed.note(group_id, error)

    def on_unmended(self, group_id: GroupId, cause: str) -> None:
        """A segment cannot be mended, because nobody has a copy: others may have deleted what is in it, for example.

        A replica that cannot be opened without it is made anew, if its leader agrees.
        """
        if self._replicas.is_waiting(group_id):
            self.failed.note(group_id, StorageFailedError(cause))

    def _recreate(self, group_id: GroupId, leader_id: int) -> None:
        topic_id, index = place_of(group_id)
        hosted = self.topics_by_id.get(topic_id)
        if hosted is None:
            return
        partition = hosted.partitions.pop(index, None) or self._leaving.get(topic_id, {}).pop(index, None)
        if partition is not None:
            self._end(partition, ErrorCode.KAFKA_STORAGE_ERROR)
        self._replicas.delete(group_id, for_good=False)
        self._on_fact(group_id, Fact("replica made anew", 0, f"its log has failed; node {leader_id} fills it again"))
        self._open_again(group_id)

    def _open_later(self, topic: Topic, group_id: GroupId, error: StorageFailedError) -> None:
        """Nothing is wrong with this replica: look at it again in a second."""
        self._on_fact(group_id, Fact("replica not opened yet", 0, str(error)))
        if not self._put_off:
            asyncio.get_running_loop().call_later(OPEN_AGAIN_S, self._open_put_off)
        self._put_off[topic.topic_id] = None

    def _open_put_off(self) -> None:
        put_off, self._put_off = self._put_off, {}
        for topic_id in put_off:
            if topic_id in self.topics_by_id:
                self._queue_up(self.topics_by_id[topic_id].topic)
        self._reconcile_soon()

    def _open_again(self, group_id: GroupId) -> None:
        hosted = self.topics_by_id.get(place_of(group_id)[0])
        if hosted is not None:
            self._queue_up(hosted.topic)
            self._reconcile_soon()

    def _end(self, partition: Partition, code: ErrorCode) -> None:
        group_id = group_id_of(partition.topic_id, partition.index)
        self._multiraft.remove_group(group_id)
        partition.end(code)
        # Objects in a cycle go only when the collector looks at everything, which it hardly ever does.
        partition.log.on_state_needed = partition.group.prepare_state = None
        self.reviews.forget(partition)
        self.moves.forget(group_id)

    def _let_go(self, topic: Topic, index: int, *, for_good: bool) -> bool:
        """End a replica and delete its files; return whether it was here."""
        leaving = self._leaving.get(topic.topic_id, {})
        partition = leaving.pop(index, None)
        if not leaving:
            self._leaving.pop(topic.topic_id, None)
        if partition is not None:
            self._end(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if for_good else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        group_id = group_id_of(topic.topic_id, index)
        self.failed.forget(group_id)
        self._taken_out.discard(group_id)
        return self._replicas.delete(group_id, for_good=for_good) or partition is not None

    # Told by partitions (PartitionHost), beside what `reviews` and `waiting` are told.

    def on_failed(self, partition: Partition, error: StorageFailedError) -> None:
        self.failed.note(group_id_of(partition.topic_id, partition.index), error)

    def announce(self, partition: Partition, term: int, leader_id: int, isr: tuple[int, ...]) -> None:
        self.known_leaders.announce(partition, term, leader_id, isr)
        if self._preferred is not None and leader_id == self.node_id != partition.replicas[0]:
            self._preferred.look_soon()

    def learn(self, partition: Partition, term: int, leader_id: int) -> None:
        self.known_leaders.learn(partition, term, leader_id)

    def on_peer(self, peer: int, live: bool) -> None:
        """Review what this node leads together with `peer`. Subscribed to the links."""
        self.known_leaders.on_peer(peer, live)
        if live and self._preferred is not None:
            self._preferred.look_soon()
        self.reviews.review_led(lambda partition: peer in partition.replicas or peer in partition.observing)

    # The end.

    def keep_leaders(self) -> None:
        """Move no leadership back to where it belongs any more: this node is about to stop."""
        if self._preferred is not None:
            self._preferred.close()

    async def close(self) -> None:
        """Answer all that waits, and save the states of replicas. The groups go on until the driver closes."""
        self._closing = True
        self.reviews.stop()
        await self.failed.close()
        self._queue.clear()
        self.keep_leaders()
        await self.moves.close()
        await self._tasks.close()
        self.reviews.close()
        call_each(list(self), _end_in_order)
        leaving, self._leaving = self._leaving, {}
        for partitions in leaving.values():
            call_each(partitions.values(), _end_late)
        self.waiting.close()


def _end_late(partition: Partition) -> None:
    partition.end(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _end_in_order(partition: Partition) -> None:
    partition.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.group.failed is None:
        partition.state.save(partition.log)


def _nobody_asks(_: Partition) -> None:
    """Leave a partition in its doubts; a node sets something better."""
