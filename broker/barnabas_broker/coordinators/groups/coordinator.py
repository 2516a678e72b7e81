"""Who coordinates a group, on this broker: the shards of the offsets partitions that it leads, and the way to them.

Every broker computes a group's partition from its id (`groups.location`); the leader of that partition is the group's
coordinator. A broker holds a `Shard` for each offsets partition that it leads, from the moment its leadership is
confirmed to the moment it ends; requests for a group whose shard is elsewhere are answered NOT_COORDINATOR, for one
that is still being read COORDINATOR_LOAD_IN_PROGRESS.

The offsets topic is made when a client first looks for a coordinator (`ensure_topic`), by the controller, whichever
broker is asked. Callers at the same time share one creation.

A topic that is deleted takes its offsets with it: the shards write tombstones when the image says so. What a shard
missed, because nobody led it then, is found by the next round of upkeep.

Limits: one task for each shard that is being loaded, one for the creation, one for upkeep, which goes shard by shard,
one for each group whose answers or record take long; what groups hold by `groups.room`.
One entry in the node's heap of deadlines per group, and one per parked request.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.coordinators.groups.state_machine.location import OFFSETS_TOPIC, offsets_topic, partition_for
from barnabas_broker.coordinators.groups.state_machine.messages import GroupConfig
from barnabas_broker.coordinators.groups.state_machine.room import Room
from barnabas_broker.coordinators.runtime.rewriting import rewrite
from barnabas_broker.coordinators.runtime.shard import ShardRuntime, ShardState
from barnabas_broker.coordinators.runtime.shard_host import ShardHost
from barnabas_broker.coordinators.runtime.standby import STANDBY_ENTRIES, Standby
from barnabas_broker.partition.partition import Partition
from barnabas_broker.replicas.partitions import Partitions
from barnabas_broker.status.events import EventHistory
from barnabas_broker.timing.timers import Timers
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_metadata_quorum.controller.commands import RefusalReason, Refused
from barnabas_metadata_quorum.image.image import Image, topic_changes
from barnabas_metadata_quorum.service import MetadataService
from barnabas_raftlog.errors import CorruptBatchError, MalformedMessageError, StorageFailedError
from barnabas_raftlog.loop_meter import LoopMeter

from .shard import GroupShard
from .table import GroupTable
from .upkeep import Upkeep

__all__ = ["Coordinator"]

logger = logging.getLogger(__name__)

CREATION_S = 5.0
LOAD_S = 0.5
TEXT_MAX = 1_000
"""Characters of a name or a reason that the history keeps: both are a client's, and a thousand events are kept."""


class Coordinator:
    """See the module. Made with the broker's context; `attach` makes an observer for each replica of the topic."""

    def __init__(
        self,
        config: BrokerConfig,
        metadata: MetadataService,
        partitions: Partitions,
        events: EventHistory,
        timers: Timers,
        clocks: Clocks,
        on_fatal: Callable[[BaseException], None],
        meter: LoopMeter | None = None,
    ) -> None:
        self.host = ShardHost(timers, clocks, events.add, on_fatal, meter or LoopMeter())
        self.config = config
        self.group_config = GroupConfig(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            size_max=config.group_max_size,
            rebalance_interval_ms=config.group_rebalance_interval_ms,
        )
        self.room = Room(config.group_state_max_bytes)
        # Beside the broker's own: a thousand groups that start would push its elections out of the history.
        self.group_events = EventHistory(clocks.wall_ms)
        self.shards: dict[int, ShardRuntime[GroupTable, GroupShard]] = {}
        self._metadata = metadata
        self._partitions = partitions
        self._creation: asyncio.Task[None] | None = None
        self._changed: asyncio.Future[None] | None = None
        self.load_s = LOAD_S
        self.is_closed = False
        self._upkeep = Upkeep(
            self.host,
            self.tell_group,
            metadata,
            self.active_shards,
            config.offsets_retention_check_interval_ms,
            config.offsets_retention_minutes * 60_000,
        )
        partitions.observers[OFFSETS_TOPIC] = self.attach

    # Where groups are.

    def partition_of(self, group_id: str) -> int | None:
        """Return the offsets partition of a group; None while there is no offsets topic."""
        hosted = self._partitions.topics.get(OFFSETS_TOPIC)
        return None if hosted is None else partition_for(group_id, len(hosted.topic.partitions))

    def shard_of(self, group_id: str) -> GroupShard | ErrorCode:
        """Return the shard that has a group, or why this broker does not answer for it now."""
        index = self.partition_of(group_id)
        if index is None or self.is_closed:
            return ErrorCode.NOT_COORDINATOR
        shard = self.shards.get(index)
        partition = self._partitions.topics[OFFSETS_TOPIC].partitions.get(index)
        # One of an offsets topic that was deleted ends in its turn.
        if shard is not None and shard.partition is not partition:
            return ErrorCode.NOT_COORDINATOR
        if shard is not None and shard.state is ShardState.ACTIVE:
            return shard.shard
        if shard is not None or (partition is not None and partition.is_leader):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR

    async def find_shard(self, group_id: str) -> GroupShard | ErrorCode:
        """Return the same as `shard_of`; wait for a shard that is being read, at most for `load_s` seconds.

        Most are read within milliseconds. A client that is sent away meanwhile pauses for a hundred times as long.
        """
        found = self.shard_of(group_id)
        try:
            async with asyncio.timeout(self.load_s):
                while found is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    if self._changed is None:
                        self._changed = asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._changed)
                    found = self.shard_of(group_id)
        except TimeoutError:
            pass
        return found

    def fire_changed(self) -> None:
        """Let those look again who wait for a shard."""
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def active_shards(self) -> list[GroupShard]:
        """Return the shards that serve, by partition."""
        return [shard.shard for _, shard in sorted(self.shards.items()) if shard.state is ShardState.ACTIVE]

    @property
    def is_loading(self) -> bool:
        """True while a partition that this broker leads is being read."""
        return any(shard.state is ShardState.LOADING for shard in self.shards.values())

    async def ensure_topic(self) -> str | None:
        """Have the offsets topic made if there is none; return None when it is there, with leaders, else why not.

        Takes at most `CREATION_S`. Cancelled, the creation goes on.
        """
        if OFFSETS_TOPIC in self._partitions.topics:
            return None
        creation = self._creation
        if creation is None:
            creation = self._creation = self.host.start_task(self._create())
        await asyncio.wait([creation])
        return None if OFFSETS_TOPIC in self._partitions.topics else "the offsets topic could not be made"

    async def _create(self) -> None:
        wanted = offsets_topic(self.config)
        try:
            async with asyncio.timeout(CREATION_S):
                # While a cluster starts, its brokers come one by one.
                await self._metadata.wait_until(
                    lambda image: len(image.brokers) >= wanted.replication_factor, CREATION_S
                )
                (made,) = await self._metadata.create_topics([wanted], CREATION_S)
                if made.error not in {None, RefusalReason.TOPIC_ALREADY_EXISTS}:
                    logger.warning("%s is not made: %s", OFFSETS_TOPIC, made.message)
                    return
                image = await self._metadata.wait_until(
                    lambda image: image.topic_named(OFFSETS_TOPIC) is not None, CREATION_S
                )
                topic = image.topic_named(OFFSETS_TOPIC)
                assert topic is not None
                await self._partitions.known_leaders.wait_for_leaders([topic.topic_id], CREATION_S)
        except (Refused, TimeoutError) as error:
            logger.warning("%s is not made: %s", OFFSETS_TOPIC, error)
        finally:
            self._creation = None

    def tell_group(self, kind: str, group_id: str, cause: str) -> None:
        self.group_events.add(kind, f"group {group_id[:TEXT_MAX]}", cause[:TEXT_MAX])

    # Replicas come, lead, and go.

    def attach(self, partition: Partition) -> "_Replica":
        """Watch a replica of the offsets topic. Called by `Partitions` before the replica takes part."""
        return _Replica(self, partition)

    def begin(
        self, partition: Partition, standby: Standby[GroupTable], reading: "asyncio.Task[None] | None"
    ) -> ShardRuntime[GroupTable, GroupShard]:
        """This broker leads `partition` for sure: read what it holds beyond `standby`, when `reading` has ended."""
        self._upkeep.start()
        shard = self.shards[partition.index] = ShardRuntime(
            self.host, partition, standby, self._make_shard, self.rewrite
        )
        self.host.spawn(self._load(shard, reading))
        return shard

    def _make_shard(self, runtime: ShardRuntime[GroupTable, GroupShard]) -> GroupShard:
        return GroupShard(runtime, self.group_config, self.room, self.tell_group)

    def end(self, shard: ShardRuntime[GroupTable, GroupShard]) -> None:
        """This broker does not lead it any more."""
        if self.shards.get(shard.partition.index) is shard:
            del self.shards[shard.partition.index]
        if shard.state is ShardState.ACTIVE:
            self.host.tell("coordinator unloaded", str(shard), f"{shard.shard.unloaded_summary} (term {shard.term})")
        shard.end(ErrorCode.NOT_COORDINATOR)

    async def _load(self, shard: ShardRuntime[GroupTable, GroupShard], reading: "asyncio.Task[None] | None") -> None:
        begun_ms = self.host.now_ms()
        if reading is not None:
            await asyncio.wait([reading])
        try:
            count = await shard.load()
        except (StorageFailedError, CorruptBatchError, MalformedMessageError) as error:
            # It stays loading for its clients: to answer from half of the records would take offsets back.
            if shard.state is not ShardState.ENDED:
                self.host.tell("coordinator cannot load", str(shard), str(error))
            return
        self.fire_changed()
        if shard.state is ShardState.ACTIVE:
            took_ms = self.host.now_ms() - begun_ms
            text = f"{shard.shard.loaded_summary} from {count} records in {took_ms} ms (term {shard.term})"
            self.host.tell("coordinator loaded", str(shard), text)

    def rewrite(self, shard: ShardRuntime[GroupTable, GroupShard]) -> None:
        """Write again what `shard` knows, and drop what was before."""
        self.host.spawn(rewrite(shard))

    def on_image(self, old: Image, new: Image) -> None:
        """Forget the offsets of deleted topics. Subscribed to the metadata service."""
        deleted = topic_changes(old, new).deleted
        if deleted:
            self._upkeep.forget_topics([(topic.name, topic.topic_id) for topic in deleted])

    # The end, and what others ask.

    def status(self) -> dict[str, Any]:
        """Return what an operator may ask, as plain values."""
        states: Counter[str] = Counter()
        for shard in self.shards.values():
            states.update(hosted.group.state.value for hosted in shard.shard.groups.values())
        return {
            "groups": sum(states.values()),
            "members": sum(
                len(hosted.group.members) for shard in self.shards.values() for hosted in shard.shard.groups.values()
            ),
            "states": dict(states),
            "offsets": sum(len(shard.shard.offsets) for shard in self.shards.values()),
            "held_bytes": self.room.held_bytes,
            "held_bytes_max": self.room.limit_bytes,
            "partitions": {index: shard.state.value for index, shard in sorted(self.shards.items())},
        }

    async def close(self) -> None:
        """Serve nothing any more, and end every task."""
        self.is_closed = True
        self._upkeep.close()
        await self.host.close()


class _Replica:
    """What a replica of the offsets topic tells (PartitionObserver): a shard comes and goes with each leadership.

    In between, what is committed is read as it comes (`standby`).
    """

    __slots__ = ("_coordinator", "_partition", "_reading", "_shard", "_standby")

    def __init__(self, coordinator: Coordinator, partition: Partition) -> None:
        self._coordinator, self._partition = coordinator, partition
        self._shard: ShardRuntime[GroupTable, GroupShard] | None = None
        self._standby = Standby(GroupTable)
        self._reading: asyncio.Task[None] | None = None

    def on_leadership(self, term: int, *, is_leader: bool, confirmed: bool) -> None:
        if self._shard is not None and (not is_leader or term != self._shard.term):
            self.on_ended()
        if is_leader and confirmed and self._shard is None and not self._coordinator.is_closed:
            self._shard = self._coordinator.begin(self._partition, self._standby, self._reading)
        self._coordinator.fire_changed()

    def on_committed(self, commit_index: int) -> None:
        if self._shard is not None:
            self._shard.on_committed(commit_index)
        elif self._reading is None and commit_index - self._standby.applied_index > STANDBY_ENTRIES:
            self._reading = self._coordinator.host.start_task(self._read_on())

    def on_ended(self) -> None:
        if self._shard is not None:
            shard, self._shard = self._shard, None
            # A shard that is still being read may be reading when this replica does again: to each its own.
            self._standby = shard.hand_back() if shard.state is ShardState.ACTIVE else Standby(GroupTable)
            self._coordinator.end(shard)
            self._coordinator.fire_changed()

    async def _read_on(self) -> None:
        standby = self._standby
        partition = self._partition
        try:
            while self._shard is None and partition.producers.commit_index - standby.applied_index > STANDBY_ENTRIES:
                begin = standby.applied_index
                await standby.advance(partition.log, partition.producers.commit_index, lambda: self._shard is None)
                if standby.applied_index == begin:
                    break  # What is committed is not here yet; the next commit looks again.
        except (StorageFailedError, CorruptBatchError, MalformedMessageError) as error:
            # Whoever leads finds the same and says so. Until then, once is enough.
            logger.warning("%s cannot be read ahead: %s", partition, error)
            return
        self._reading = None
