"""The replicas that this broker holds: made and removed as the metadata image says, found by name or id.

The image is what should be; this is where it becomes so. Topics that come, change and go are queued and worked off by
one task, in the order of the image, because opening a log with a tail to check takes time; a replica without data is
ready within the loop iteration. Files of what was deleted or moved elsewhere while this node was away go as soon as the
image is known to be current (`on_current`). Until then no replica is made that is not there: a restart begins with an
older image, which may name what this node has deleted; empty, it would vote against what it had acknowledged.
A topic that is deleted, or a partition that is moved elsewhere, is found by nobody from the moment when the image says
so. That its replicas end, one after the other, is in the same queue (`_leaving`), before what has its name next.
What a partition's members should be is reviewed together with its in-sync replicas, by `reassignment`.

Requests that wait are woken here. A fetch may read many partitions, and one drive may commit to all of them, so
woken fetches are collected and looked at once per loop iteration.

A topic may have ten thousand partitions, and a partition as many that wait. So all of this goes in pieces, each in an
iteration of the loop of its own: replicas that come and go (`WORK_PER_ITERATION`), reviews, and fetches that are woken.
Who waits for appends is told at once of what one drive brings, as long as that are few; the others are told in
callbacks of their own, `TOLD_AT_ONCE` in each, in their order (`finish`, `fail`).

In-sync replicas are reviewed every `REVIEW_MS` for those partitions where something moved; a partition at rest costs
nothing. The same timer serves acks=all above a majority (`min.insync.replicas` 3 of 3), because replication progress
itself makes no noise.
Limit: one entry per partition of the image; `SETTINGS_MAX` different settings of topics are remembered.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.config.topic import TopicSettings, topic_settings
from barnabas_broker.leadership.absences import Absences
from barnabas_broker.leadership.cut_off import is_cut_off
from barnabas_broker.leadership.hand_over import hand_over
from barnabas_broker.leadership.pings import Pings
from barnabas_broker.leadership.preferred_leaders import PreferredLeaders
from barnabas_broker.partition.contracts import PartitionObserver, PendingAppend
from barnabas_broker.partition.partition import Partition
from barnabas_broker.partition.waiters import FetchWaiters, ParkedFetch
from barnabas_broker.timing.pieces import one_by_one
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_metadata_quorum.image.image import Image, Topic, configured_topics, topic_changes
from barnabas_metadata_quorum.leaders.announcer import LeaderAnnouncer
from barnabas_metadata_quorum.leaders.table import NO_LEADER, Leadership, PartitionKey
from barnabas_metadata_quorum.pulse import Pulse
from barnabas_metadata_quorum.topic_names import INTERNAL_TOPICS
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.links.interfaces import NodeLinks
from barnabas_raftlog.log.errors import DiskFullError, StorageBusyError
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.multiraft.multiraft import MultiRaft
from barnabas_raftlog.raft.membership import Configuration
from barnabas_raftlog.raft.messages import Fact, GroupId

from .failed_replicas import FailedReplicas
from .hosted_topic import HostedTopic, directory_of, group_id_of, place_of
from .open_replicas import LogStorage, Mode, OpenReplicas
from .reassignment import Moves, Submit, founding_configuration

__all__ = ["ELECTION_S", "Partitions", "ReplicaStorage"]

logger = logging.getLogger(__name__)

REVIEW_MS = 100
ELECTION_MS = 1_000  # elections take a tenth of that, or, without a majority, for ever
ELECTION_S = ELECTION_MS / 1000
WORK_PER_ITERATION, WORK_OF_A_REPLICA = 400, 80
"""In one iteration five replicas are opened, ended or deleted, or four hundred only looked at. Measured: 100 to 150 us
for one that goes, 400 to 700 us for one that comes among ten thousand, 1 to 3 us for a look."""
CHANGED_AT_ONCE = 200
SETTINGS_MAX = 1_000
WOKEN_PER_ITERATION = 50
REVIEWED_PER_ITERATION, LOOKED_PER_ITERATION = 100, 2_000
TOLD_AT_ONCE, TOLD_CALLBACKS = 50, 4
"""How many who wait for appends are told in one drive, or callback, and how many callbacks an iteration may have of
those. Measured: 20 to 60 us for an answer, most of it in the system call that sends it."""
OPEN_AGAIN_S = 1.0  # what could not be opened for a reason that will pass


class ReplicaStorage(LogStorage, Protocol):
    """The part of `Storage` that is used here."""

    directory_id: bytes

    def checkpoint(self) -> None: ...
    def unopened(self, is_expected: Callable[[GroupId], bool]) -> list[tuple[GroupId, str, Mode]]: ...


class Partitions:
    """See the module. `topics` and `topics_by_id` hold every topic of the image; the keys of both go together."""

    __slots__ = (  # CPython keeps 30 attributes of an instance in place; of more, each costs a look-up
        "_announcer",
        "_busy_peers",
        "_changed",
        "_closing",
        "_config",
        "_drives",
        "_leaving",
        "_looking",
        "_meter",
        "_multiraft",
        "_on_fact",
        "_on_fatal",
        "_preferred",
        "_put_off",
        "_queue",
        "_queued",
        "_reconciling",
        "_replicas",
        "_review_timer",
        "_reviewing",
        "_reviewing_now",
        "_settings",
        "_storage",
        "_taken_out",
        "_told_callbacks",
        "_told_drive",
        "_told_left",
        "_unfounded",
        "_unled",
        "_untold",
        "_vacant_since_ms",
        "_woken",
        "absences",
        "failed",
        "fetch_waiters",
        "is_live",
        "moves",
        "node_id",
        "now_ms",
        "observers",
        "pings",
        "topics",
        "topics_by_id",
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
        self.is_live, self._busy_peers = links.is_live, links.busy_peers
        self.topics: dict[str, HostedTopic] = {}
        self.topics_by_id: dict[bytes, HostedTopic] = {}
        self.fetch_waiters: FetchWaiters[Partition, ParkedFetch] = FetchWaiters()
        self.observers: dict[str, Callable[[Partition], PartitionObserver]] = {}  # by the name of the topic
        self._config, self._storage, self._multiraft, self._announcer = config, storage, multiraft, announcer
        self._on_fact, self._on_fatal = on_fact, on_fatal
        self._queue: deque[tuple[bool, Topic]] = deque()
        self._queued: dict[bytes, int] = {}  # how many partitions of a topic the queue has, by its id
        self._settings: dict[tuple[object, ...], TopicSettings] = {}
        self._put_off: dict[bytes, None] = {}  # topics with replicas that could not be opened for the moment
        self._replicas = OpenReplicas(storage, self.wall_ms, self._open_again)
        self.pings = Pings(links)
        self.failed = FailedReplicas(config.node_id, links, announcer.table.get, self.find, self.now_ms, self._recreate)
        self._unled: dict[bytes, None] = {}  # topics that may have a partition without a leader
        self._taken_out: set[GroupId] = set()  # opened, and to be deleted when the queue comes to it
        self._leaving: dict[bytes, dict[int, Partition]] = {}  # served no more, and to be ended then; by topic id
        self._unfounded: set[GroupId] = set()  # opened without members, by an image that may be old
        self.moves = Moves(config.node_id, links.is_live, submit, on_fact)
        self.absences = Absences(self.now_ms, config.broker_session_timeout_ms)
        self._preferred: PreferredLeaders | None = None
        if config.auto_leader_rebalance_enable:
            interval_ms = config.leader_imbalance_check_interval_seconds * 1000
            self._preferred = PreferredLeaders(
                self.node_id, lambda: self, self._available_since_ms, self.now_ms, interval_ms, self._meter
            )
        self._vacant_since_ms: dict[PartitionKey, int] = {}
        self._reconciling: asyncio.Task[None] | None = None
        self._woken: dict[Partition, None] = {}  # those for which fetches are still to be woken
        self._drives = multiraft.stats
        self._told_drive, self._told_left = -1, 0  # in which drive waiters were told last, how many more may be in it
        self._untold: deque[tuple[PendingAppend, ErrorCode | None]] = deque()
        self._told_callbacks = 0  # that have been asked for
        # What is still to be gone through to find what is to be reviewed.
        self._looking: deque[tuple[Iterator[Partition], Callable[[Partition], bool]]] = deque()
        self._reviewing: dict[Partition, None] = {}
        self._reviewing_now: dict[Partition, None] = {}
        self._review_timer: asyncio.TimerHandle | None = None
        self._changed = Pulse()
        self._closing = False
        announcer.subscribe(self._on_leaders)

    def __iter__(self) -> Iterator[Partition]:
        """Yield every partition that is hosted, also while they come and go; what was yielded is not kept."""
        for hosted in one_by_one(self.topics_by_id.values()):
            yield from one_by_one(hosted.partitions.values())

    @property
    def is_reconciled(self) -> bool:
        """True when every replica that the image gives to this node is open."""
        return not (self._queue or self._reconciling or self._replicas.late or self._put_off)

    def find(self, topic_id: bytes, partition: int) -> Partition | None:
        hosted = self.topics_by_id.get(topic_id)
        return None if hosted is None else hosted.partitions.get(partition)

    def leadership(self, topic_id: bytes, partition: int) -> Leadership | None:
        """Return who leads, as far as this node has heard from the leader itself."""
        return self._announcer.table.get(topic_id, partition)

    # The image.

    def on_image(self, old: Image, new: Image) -> None:
        """Take in a change of the image. Subscribed to the metadata service."""
        if old.brokers is not new.brokers:
            self.absences.on_brokers(old, new)
            self._changed.fire()
            if self._preferred is not None:
                self._preferred.look_soon()  # Who was live, but fenced, at the last turn.
            if replaced := self.moves.on_brokers(new):
                self._review_led(lambda partition: not partition.group.configuration.node_ids.isdisjoint(replaced))
        created, deleted, changed = topic_changes(old, new)
        for topic in deleted:
            self.topics_by_id.pop(topic.topic_id, None)
            self._unled.pop(topic.topic_id, None)
            hosted = self.topics.get(topic.name)
            if hosted is not None and hosted.topic.topic_id == topic.topic_id:
                del self.topics[topic.name]
                self._leaving.setdefault(topic.topic_id, {}).update(hosted.partitions)
                hosted.partitions = {}
        for topic in created:
            hosted = HostedTopic(topic, self._settings_of(topic))
            self.topics[topic.name] = self.topics_by_id[topic.topic_id] = hosted
        self._queue.extend((False, topic) for topic in deleted)
        for topic in (*changed, *configured_topics(old, new)):
            self._change(self.topics_by_id[topic.topic_id], topic)
            self._queue_up(topic)
        for topic in created:
            self._queue_up(topic)
        self._unled |= {topic.topic_id: None for topic in (*created, *changed)}
        self._reconcile_soon()

    def _queue_up(self, topic: Topic) -> None:
        """Have every partition of a topic looked at, once however often it changes before its turn."""
        if self._queued.get(topic.topic_id) != len(topic.partitions):
            self._queued[topic.topic_id] = len(topic.partitions)
            self._queue.append((True, topic))

    def _reconcile_soon(self) -> None:
        if self._queue and self._reconciling is None and not self._closing:
            self._multiraft.hold_elections()
            reconciling = self._meter.measured(self._reconcile(), "replicas that come and go")
            self._reconciling = asyncio.get_running_loop().create_task(reconciling)
            self._reconciling.add_done_callback(self._on_reconciled)

    def _change(self, hosted: HostedTopic, topic: Topic) -> None:
        """Let the replicas here know what has changed: the first at once, the others when the queue comes there."""
        hosted.topic, hosted.settings = topic, self._settings_of(topic)
        for index in list(islice(hosted.partitions, CHANGED_AT_ONCE)):
            self._adapt(hosted, index)

    def _settings_of(self, topic: Topic) -> TopicSettings:
        """Return what holds for a topic: those that are configured alike share it, and it takes time to make."""
        key = topic.name if topic.name in INTERNAL_TOPICS else "", *topic.configs.items()
        settings = self._settings.get(key)
        if settings is None:
            if len(self._settings) >= SETTINGS_MAX:
                self._settings.clear()
            settings = self._settings[key] = topic_settings(topic.name, topic.configs, self._config)
        return settings

    def _adapt(self, hosted: HostedTopic, index: int) -> None:
        """Let a replica know where its partition should be; one that should not be here serves no more."""
        partition, topic = hosted.partitions.get(index), hosted.topic
        if partition is None:
            return
        placement, observers, settings = topic.partitions[index], topic.observers, hosted.settings
        is_configured = partition.settings is settings or partition.settings == settings
        if is_configured and partition.placement is placement and partition.observing == observers:
            return
        if not is_configured:
            partition.configure(settings)
        partition.placement, partition.observing = placement, observers
        if self.node_id in topic.hosts_of(index):
            self.review_soon(partition)
        else:
            self._taken_out.add(group_id_of(topic.topic_id, index))
            self._leaving.setdefault(topic.topic_id, {})[index] = hosted.partitions.pop(index)

    def checkpoint(self) -> None:
        """Let the disk have what is true now, in files of their own: what was replaced by that can go."""
        self._storage.checkpoint()

    def on_current(self) -> None:
        """Delete what was deleted or moved elsewhere while this node was away, make what it was given meanwhile.

        Only for when the image is not older than this start: what it does not name then is gone for good.
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
        self._changed.fire()

    def _belongs_here(self, group_id: GroupId) -> bool:
        topic_id, index = place_of(group_id)
        hosted = self.topics_by_id.get(topic_id)
        return hosted is not None and self.node_id in hosted.topic.hosts_of(index)

    async def wait_for_leaders(self, topic_ids: Iterable[bytes], timeout_s: float) -> None:
        """Return when every partition of these topics has a leader in the table, or the time is up."""
        waiting = deque(topic_ids)

        def is_waiting() -> bool:
            # Asked at every change, so it looks no further than to the first that has to be waited for.
            while waiting and self._has_leaders(waiting[0]):
                waiting.popleft()
            return bool(waiting)

        await self.wait_while(is_waiting, timeout_s)

    async def wait_while(self, is_undecided: Callable[[], bool], timeout_s: float) -> None:
        """Wait while this is so, asked again whenever leaders have changed, or until the time is up."""
        await self._changed.wait_while(is_undecided, timeout_s)

    def leaders_changed(self) -> asyncio.Future[None]:
        """Return what is done at the next change, from now on, of anything that decides who is said to lead."""
        return self._changed.wait()

    @property
    def has_all_leaders(self) -> bool:
        """True if every partition of the image has a leader in the table. Asked at every change, so it remembers."""
        while self._unled:
            topic_id = next(iter(self._unled))
            if not self._has_leaders(topic_id):
                return False
            del self._unled[topic_id]
        return True

    def _has_leaders(self, topic_id: bytes) -> bool:
        hosted = self.topics_by_id.get(topic_id)
        if hosted is None:
            return True  # Deleted again: nobody will ever lead it.
        # More than the image has: partitions were added, and it does not tell of them yet.
        return self._announcer.table.count_led(topic_id) >= len(hosted.topic.partitions)

    def _on_leaders(self, changed: list[PartitionKey]) -> None:
        for key in changed:
            leadership = self._announcer.table.get(*key)
            if leadership is not None and leadership.leader_id == NO_LEADER:
                self._vacant_since_ms[key] = self.now_ms()
                self._unled[key[0]] = None
            else:
                self._vacant_since_ms.pop(key, None)
        self._changed.fire()

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
        group_id, hosted = group_id_of(topic.topic_id, index), self.topics_by_id.get(topic.topic_id)
        if hosted is not None:
            self._adapt(hosted, index)
        is_busy = False
        if not is_there or group_id in self._taken_out:
            is_busy = self._let_go(topic, index, for_good=not is_there)
        # What is in the queue may be older than what should be now.
        if hosted is None or self.node_id not in hosted.topic.hosts_of(index):
            return is_busy
        if self._replicas.is_done(group_id) or self._replicas.must_wait(group_id):
            return is_busy  # The topic has changed, and this is what it had before; or the image may be too old.
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
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_fatal(error)
        self._changed.fire()
        # The image may have changed between the task's last look at the queue and now.
        self._reconcile_soon()

    async def _open(self, hosted: HostedTopic, index: int) -> None:
        topic = hosted.topic
        group_id = group_id_of(topic.topic_id, index)
        settings, config = hosted.settings, self._config
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
            state.producers,
            min_insync=settings.min_insync_replicas,
            message_bytes_max=settings.max_message_bytes,
            lag_ms_max=config.replica_lag_time_max_ms,
            expiration_ms=config.producer_id_expiration_ms,
        )
        partition.starts, partition.saved_index = state.starts, state.saved_index
        log.on_state_needed = partition.save_producers
        if topic.name in self.observers:
            partition.observer = self.observers[topic.name](partition)
        founding, preferred = None, partition.replicas[0] == self.node_id
        if not log.configuration.voters:  # Else it counts for nothing, and takes time to make.
            if self._replicas.is_new_allowed:
                founding = self._founding(partition)
            else:  # This image may name as founder who has left since, and alone could elect itself.
                self._unfounded.add(group_id)
        partition.group = self._multiraft.add_group(group_id, log, founding, partition, preferred=preferred)
        partition.group.sends_files, partition.group.prepare_state = True, partition.prepare
        # The topic may have been configured differently while its log was being read.
        partition.configure(hosted.settings)
        hosted.partitions[index] = partition

    def _founding(self, partition: Partition) -> Configuration | None:
        return founding_configuration(partition.placement, self.node_id, self._storage.directory_id)

    def _on_not_opened(self, group_id: GroupId, error: StorageFailedError) -> None:
        is_waiting = self._replicas.is_waiting(group_id)
        self._on_fact(group_id, Fact("replica suspended" if is_waiting else "replica failed", 0, str(error)))
        if not is_waiting:
            self.failed.note(group_id, error)

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
        # What holds each other goes only when the collector looks at everything, which it hardly ever does.
        partition.log.on_state_needed = partition.group.prepare_state = None
        self._reviewing.pop(partition, None)
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

    # What partitions tell (PartitionHost).

    def wake(self, partition: Partition) -> None:
        if self.fetch_waiters.changed(partition):
            self._wake_soon(partition)

    def gained(self, partition: Partition, start_offset: int) -> None:
        waiters = self.fetch_waiters
        if not waiters.is_awaited(partition):
            return  # So it is on followers, for each append.
        count = partition.bytes_since(start_offset) if waiters.counts(partition) else 0
        if waiters.changed(partition) if count is None else waiters.gained(partition, count):
            self._wake_soon(partition)

    def _wake_soon(self, partition: Partition) -> None:
        if not self._woken:
            self._soon("fetches that are woken", self._wake_fetches)
        self._woken[partition] = None

    def _soon(self, name: str, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(self._meter.run, name, call)

    def finish(self, waiters: Sequence[PendingAppend]) -> None:
        drive = self._drives.drives
        if drive != self._told_drive:
            self._told_drive, self._told_left = drive, TOLD_AT_ONCE
        self._told_left -= len(waiters)
        if self._told_left < 0 or self._untold:
            self._tell_soon([(waiter, None) for waiter in waiters])
        else:
            call_each(waiters, _finish)

    def fail(self, waiters: Sequence[PendingAppend], code: ErrorCode) -> None:
        self._tell_soon([(waiter, code) for waiter in waiters])

    def _tell_soon(self, waiters: Iterable[tuple[PendingAppend, ErrorCode | None]]) -> None:
        self._untold.extend(waiters)
        while self._told_callbacks < min(TOLD_CALLBACKS, -(-len(self._untold) // TOLD_AT_ONCE)):
            self._told_callbacks += 1
            self._soon("answers to producers", self._tell_some)

    def on_failed(self, partition: Partition, error: StorageFailedError) -> None:
        self.failed.note(group_id_of(partition.topic_id, partition.index), error)

    def review_soon(self, partition: Partition) -> None:
        self._reviewing[partition] = None
        if self._review_timer is None and not self._closing:
            self._review_timer = asyncio.get_running_loop().call_later(
                REVIEW_MS / 1000, self._meter.run, "reviews", self._review
            )

    def announce(self, partition: Partition, term: int, leader_id: int, isr: tuple[int, ...]) -> None:
        self._announcer.announce(partition.topic_id, partition.index, term, leader_id, isr)
        if self._preferred is not None and leader_id == self.node_id != partition.replicas[0]:
            self._preferred.look_soon()

    def learn(self, partition: Partition, term: int, leader_id: int) -> None:
        # Who is in sync is the leader's to say, and it will in a moment; until then, what was true before.
        known = self._announcer.table.get(partition.topic_id, partition.index)
        isr = known.isr if known is not None and leader_id in known.isr else partition.replicas
        self._announcer.learn(partition.topic_id, partition.index, term, leader_id, isr)

    def expects_leader(self, hosted: HostedTopic) -> bool:
        """Tell whether an election that began within the last second decides who leads a partition of this topic."""
        return any(self.expects_leader_of(hosted, index) for index in range(len(hosted.topic.partitions)))

    def expects_leader_of(self, hosted: HostedTopic, index: int) -> bool:
        """As `expects_leader`, for one partition."""
        leadership = self.leadership(hosted.topic.topic_id, index)
        if leadership is None:
            return False
        if leadership.leader_id == NO_LEADER:
            vacant_ms = self._vacant_since_ms.get((hosted.topic.topic_id, index))
        else:
            vacant_ms = self.absences.silent_since_ms(leadership.leader_id)
        if vacant_ms is None or vacant_ms <= self.now_ms() - ELECTION_MS:
            return False
        # Whoever is cut off would wait in vain: it hears of no election.
        return not self.is_cut_off(hosted.topic.partitions[index].voters)

    def is_cut_off(self, voters: Sequence[int]) -> bool:
        """Tell whether this node, one of `voters`, has just ceased to hear a majority of them."""
        return is_cut_off(self.node_id, voters, self.absences.is_doubtful)

    def on_peer(self, peer: int, live: bool) -> None:
        """Review what this node leads together with `peer`. Subscribed to the links."""
        self.absences.on_peer(peer, live)
        if live and self._preferred is not None:
            self._preferred.look_soon()
        self._changed.fire()
        self._review_led(lambda partition: peer in partition.replicas or peer in partition.observing)

    def _available_since_ms(self, node_id: int) -> int | None:
        """Return since when a leadership could be handed to `node_id`; None: not now.

        One that is behind with its disk, or has no room on it, counts as if it had just come: it is looked at again.
        """
        since_ms = self.absences.available_since_ms(node_id)
        return self.now_ms() if since_ms is not None and node_id in self._busy_peers else since_ms

    def _review_led(self, concerned: Callable[[Partition], bool]) -> None:
        """Have what is led here reviewed where it is concerned; all that is hosted is gone through for that."""
        if not self._looking:
            self._soon("what is to be reviewed", self._look_through_some)
        self._looking.append((iter(self), concerned))

    def _look_through_some(self) -> None:
        some, concerned = self._looking[0]
        for partition in (looked := list(islice(some, LOOKED_PER_ITERATION))):
            if partition.is_leader and concerned(partition):
                self.review_soon(partition)
        if len(looked) < LOOKED_PER_ITERATION:
            self._looking.popleft()
        if self._looking and not self._closing:
            self._soon("what is to be reviewed", self._look_through_some)

    def _wake_fetches(self) -> None:
        """Wake some, each once: whoever finds too little and parks again waits for more than there was."""
        taken: list[ParkedFetch] = []
        left = WOKEN_PER_ITERATION
        while self._woken and left > 0:
            partition = next(iter(self._woken))
            some, count = self.fetch_waiters.take(partition, left)
            taken += some
            left -= max(count, 1)
            if not self.fetch_waiters.is_due(partition):
                del self._woken[partition]
        if self._woken:
            self._soon("fetches that are woken", self._wake_fetches)
        call_each(taken, _wake, _say)

    def _tell_some(self) -> None:
        self._told_callbacks -= 1
        some = [self._untold.popleft() for _ in range(min(len(self._untold), TOLD_AT_ONCE))]
        self._tell_soon(())
        call_each(some, _tell)

    def _review(self) -> None:
        self._review_timer = None
        is_at_it = bool(self._reviewing_now)
        self._reviewing_now |= self._reviewing
        self._reviewing = {}
        if not is_at_it:
            self._review_some()

    def _review_some(self) -> None:
        now_ms = self.now_ms()

        def review(partition: Partition) -> None:
            if self.find(partition.topic_id, partition.index) is not partition:
                return  # It is about to end.
            is_moving = self.moves.review(partition, partition.placement, partition.observing)
            if partition.review(now_ms) or is_moving:
                self.review_soon(partition)

        some = list(islice(self._reviewing_now, REVIEWED_PER_ITERATION))
        for partition in some:
            del self._reviewing_now[partition]
        if self._reviewing_now and not self._closing:
            self._soon("reviews", self._review_some)
        call_each(some, review, self._on_review_failed)

    def _on_review_failed(self, partition: Partition, error: Exception) -> None:
        """Nobody waits for it. It is reviewed again when something moves there."""
        text = f"its replicas could not be reviewed: {type(error).__name__}: {error}"
        self._on_fact(group_id_of(partition.topic_id, partition.index), Fact("review failed", partition.term, text))

    # The end.

    def keep_leaders(self) -> None:
        """Move no leadership back to where it belongs any more: this node is about to stop."""
        if self._preferred is not None:
            self._preferred.close()

    async def hand_over(self, targets: Callable[[], set[int]], timeout_s: float) -> None:
        """Transfer every leadership; see `hand_over`."""
        self.keep_leaders()
        await hand_over(list(self), targets, self.leaders_changed, timeout_s)

    async def close(self) -> None:
        """Answer whoever waits, and save the producer tables. The groups go on until the driver closes."""
        self._closing = True
        await self.failed.close()
        self._queue.clear()
        self.keep_leaders()
        await self.moves.close()
        if self._reconciling is not None:
            self._reconciling.cancel()
            await asyncio.wait([self._reconciling])
        if self._review_timer is not None:
            self._review_timer.cancel()
        call_each(list(self), _end_in_order)
        leaving, self._leaving = self._leaving, {}
        for partitions in leaving.values():
            call_each(partitions.values(), _end_late)
        untold, self._untold = self._untold, deque()
        call_each(untold, _tell)
        call_each(self.fetch_waiters.take_all(), _wake, _say)


def _wake(fetch: ParkedFetch) -> None:
    fetch.on_woken()


def _say(fetch: ParkedFetch, error: Exception) -> None:
    fetch.on_error(error)


def _finish(waiter: PendingAppend) -> None:
    waiter.on_committed()


def _tell(untold: tuple[PendingAppend, ErrorCode | None]) -> None:
    waiter, code = untold
    if code is None:
        waiter.on_committed()
    else:
        waiter.on_failed(code)


def _end_late(partition: Partition) -> None:
    partition.end(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _end_in_order(partition: Partition) -> None:
    partition.end(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.group.failed is None:
        partition.save_producers()
