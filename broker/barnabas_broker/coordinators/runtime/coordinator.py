"""Holds a shard for each partition of an internal topic that this broker leads.

A broker has a shard (`shard`) for each partition of the topic that it leads, from the moment its leadership is
confirmed to the moment it ends. Clients ask the leader of a partition; any other broker answers NOT_COORDINATOR, and
the leader COORDINATOR_LOAD_IN_PROGRESS while it is still reading.

The topic is made when it is first asked for (`ensure_topic`), by the controller, whichever broker is asked. Callers at
the same time share one creation.

Limits: one task for each shard that is being loaded or rewritten, one for each replica that reads ahead, one for the
creation, one for upkeep, which goes shard by shard.

Not here: the partition that something belongs to, and the requests that a shard serves. Both are the coordinator's own.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from barnabas_broker.partition.partition import Partition
from barnabas_broker.replicas.partitions import Partitions
from barnabas_broker.timing.rounds import Rounds
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_metadata_quorum.controller.commands import NewTopic, RefusalReason, Refused
from barnabas_metadata_quorum.service import MetadataService
from barnabas_raftlog.errors import CorruptBatchError, MalformedMessageError, StorageFailedError

from .contracts import CoordinatorShard, Table
from .rewriting import rewrite
from .shard import ShardRuntime, ShardState
from .shard_host import ShardHost
from .standby import STANDBY_ENTRIES, Standby

__all__ = ["CoordinatorRuntime", "Replica"]

logger = logging.getLogger(__name__)

CREATION_S = 5.0
LOAD_S = 0.5

T = TypeVar("T", bound=Table[Any])
S = TypeVar("S", bound=CoordinatorShard[Any])


class CoordinatorRuntime(Generic[T, S]):
    """See the module. `topic` is what the controller should make; `shards` has those of this broker by partition.

    `attach` makes an observer for each replica of the topic.
    """

    def __init__(
        self,
        host: ShardHost,
        metadata: MetadataService,
        partitions: Partitions,
        topic: NewTopic,
        *,
        make_table: Callable[[], T],
        make_shard: Callable[[ShardRuntime[T, S]], S],
        upkeep: Rounds,
    ) -> None:
        self.host = host
        self.topic = topic
        self.make_table = make_table
        self.shards: dict[int, ShardRuntime[T, S]] = {}
        self.load_s = LOAD_S
        self.is_closed = False
        self._metadata = metadata
        self._partitions = partitions
        self._make_shard = make_shard
        self._upkeep = upkeep
        self._creation: asyncio.Task[None] | None = None
        self._changed: asyncio.Future[None] | None = None
        partitions.observers[topic.name] = self.attach

    # The way to a shard.

    def shard_at(self, index: int) -> S | ErrorCode:
        """Return the shard of a partition of the topic, or why this broker does not answer for it now."""
        if self.is_closed:
            return ErrorCode.NOT_COORDINATOR
        runtime = self.shards.get(index)
        partition = self._partitions.topics[self.topic.name].partitions.get(index)
        # One of a topic that was deleted ends in its turn.
        if runtime is not None and runtime.partition is not partition:
            return ErrorCode.NOT_COORDINATOR
        if runtime is not None and runtime.state is ShardState.ACTIVE:
            return runtime.shard
        if runtime is not None or (partition is not None and partition.is_leader):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NOT_COORDINATOR

    async def wait_loaded(self, look: Callable[[], S | ErrorCode]) -> S | ErrorCode:
        """Return what `look` returns; while that says that a shard is being read, wait, at most `load_s` seconds.

        Most are read within milliseconds. A client that is sent away meanwhile pauses for a hundred times as long.
        """
        found = look()
        try:
            async with asyncio.timeout(self.load_s):
                while found is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    if self._changed is None:
                        self._changed = asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._changed)
                    found = look()
        except TimeoutError:
            pass
        return found

    def fire_changed(self) -> None:
        """Let everybody who waits for a shard look again."""
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def active_shards(self) -> list[S]:
        """Return the shards that serve, by partition."""
        return [runtime.shard for _, runtime in sorted(self.shards.items()) if runtime.state is ShardState.ACTIVE]

    @property
    def is_loading(self) -> bool:
        """True while a partition that this broker leads is being read."""
        return any(runtime.state is ShardState.LOADING for runtime in self.shards.values())

    # The topic.

    async def ensure_topic(self) -> bool:
        """Have the topic made if there is none; return whether it is there, with leaders.

        Takes at most `CREATION_S`. Cancelled, the creation goes on.
        """
        if self.topic.name in self._partitions.topics:
            return True
        creation = self._creation
        if creation is None:
            creation = self._creation = self.host.start_task(self._create())
        await asyncio.wait([creation])
        return self.topic.name in self._partitions.topics

    async def _create(self) -> None:
        wanted = self.topic
        try:
            async with asyncio.timeout(CREATION_S):
                # While a cluster starts, its brokers come one by one.
                await self._metadata.wait_until(
                    lambda image: len(image.brokers) >= wanted.replication_factor, CREATION_S
                )
                (made,) = await self._metadata.create_topics([wanted], CREATION_S)
                if made.error not in {None, RefusalReason.TOPIC_ALREADY_EXISTS}:
                    logger.warning("%s is not made: %s", wanted.name, made.message)
                    return
                image = await self._metadata.wait_until(
                    lambda image: image.topic_named(wanted.name) is not None, CREATION_S
                )
                topic = image.topic_named(wanted.name)
                assert topic is not None
                await self._partitions.known_leaders.wait_for_leaders([topic.topic_id], CREATION_S)
        except (Refused, TimeoutError) as error:
            logger.warning("%s is not made: %s", wanted.name, error)
        finally:
            self._creation = None

    # Replicas come, lead, and go.

    def attach(self, partition: Partition) -> "Replica[T, S]":
        """Watch a replica of the topic. Called by `Partitions` before the replica takes part."""
        return Replica(self, partition)

    def begin(
        self, partition: Partition, standby: Standby[T], reading: "asyncio.Task[None] | None"
    ) -> ShardRuntime[T, S]:
        """This broker leads `partition` for sure: read what it holds beyond `standby`, when `reading` has ended."""
        self._upkeep.start()
        runtime = ShardRuntime(self.host, partition, standby, self._make_shard, self.rewrite)
        self.shards[partition.index] = runtime
        self.host.spawn(self._load(runtime, reading))
        return runtime

    def end(self, runtime: ShardRuntime[T, S]) -> None:
        """This broker does not lead it any more."""
        if self.shards.get(runtime.partition.index) is runtime:
            del self.shards[runtime.partition.index]
        if runtime.state is ShardState.ACTIVE:
            text = f"{runtime.shard.unloaded_summary} (term {runtime.term})"
            self.host.tell("coordinator unloaded", str(runtime), text)
        runtime.end(ErrorCode.NOT_COORDINATOR)

    async def _load(self, runtime: ShardRuntime[T, S], reading: "asyncio.Task[None] | None") -> None:
        begun_ms = self.host.now_ms()
        if reading is not None:
            await asyncio.wait([reading])
        try:
            count = await runtime.load()
        except (StorageFailedError, CorruptBatchError, MalformedMessageError) as error:
            # It stays loading for its clients: an answer from half of the records would take back what was promised.
            if runtime.state is not ShardState.ENDED:
                self.host.tell("coordinator cannot load", str(runtime), str(error))
            return
        self.fire_changed()
        if runtime.state is ShardState.ACTIVE:
            took_ms = self.host.now_ms() - begun_ms
            text = f"{runtime.shard.loaded_summary} from {count} records in {took_ms} ms (term {runtime.term})"
            self.host.tell("coordinator loaded", str(runtime), text)

    def rewrite(self, runtime: ShardRuntime[T, S]) -> None:
        """Write everything again that a shard knows, and drop the log before that."""
        self.host.spawn(rewrite(runtime))

    def close(self) -> None:
        """Serve nothing any more; tasks that run end with the host."""
        self.is_closed = True
        self._upkeep.close()


class Replica(Generic[T, S]):
    """The observer of one replica of the topic (PartitionObserver): a shard comes and goes with each leadership.

    In between, committed entries are read as they come (`standby`).
    """

    __slots__ = ("_coordinator", "_partition", "_reading", "_shard", "_standby")

    def __init__(self, coordinator: CoordinatorRuntime[T, S], partition: Partition) -> None:
        self._coordinator = coordinator
        self._partition = partition
        self._shard: ShardRuntime[T, S] | None = None
        self._standby = Standby(coordinator.make_table)
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
            shard = self._shard
            self._shard = None
            # A shard that is still being read may be reading when this replica does again: to each its own.
            is_whole = shard.state is ShardState.ACTIVE
            self._standby = shard.hand_back() if is_whole else Standby(self._coordinator.make_table)
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
                    break  # The committed entries are not here yet; the next commit looks again.
        except (StorageFailedError, CorruptBatchError, MalformedMessageError) as error:
            # The next leader finds the same and says so. Until then, once is enough.
            logger.warning("%s cannot be read ahead: %s", partition, error)
            return
        self._reading = None
