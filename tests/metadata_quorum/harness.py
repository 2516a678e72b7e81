"""Runs whole metadata quorums in one process: real links, real MultiRaft, logs in memory.

A `Disk` outlives its node, so a node can be stopped or killed and started again on it. Everything is waited for by
event; nothing here sleeps.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from raftlog.multiraft.fakes import MemoryLog, MemoryStorage

from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_metadata_quorum.controller.commands import CreatedTopic, NewTopic
from barnabas_metadata_quorum.controller.controller import ControllerConfig
from barnabas_metadata_quorum.image.image import Image
from barnabas_metadata_quorum.image.records import RECORD_LEVEL
from barnabas_metadata_quorum.leaders.announcer import LeaderAnnouncer
from barnabas_metadata_quorum.registration import BrokerIdentity
from barnabas_metadata_quorum.service import Membership, MetadataLog, MetadataService, open_log
from barnabas_metadata_quorum.snapshot_store import SnapshotStore
from barnabas_raftlog.links.links import Links, NodeAddress, monotonic_ms
from barnabas_raftlog.log.machine.files import OsFiles
from barnabas_raftlog.log.machine.worker import ThreadWorker, Worker
from barnabas_raftlog.log.storage import Storage, StorageConfig
from barnabas_raftlog.multiraft.interfaces import GroupStorage
from barnabas_raftlog.multiraft.multiraft import MultiRaft
from barnabas_raftlog.raft.core import Timing
from barnabas_raftlog.raft.messages import Entry, Fact

T = TypeVar("T")
CLUSTER = "cluster-1"
TIMEOUT_S = 20.0
PATIENCE_S = 10.0


class InlineWorker:
    """Carries out each job at once; with `held`, at `release`."""

    def __init__(self) -> None:
        self.held = False
        self.jobs: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        self.jobs.append(lambda: done(job()))
        if not self.held:
            self.release()

    def release(self) -> None:
        jobs = self.jobs
        self.jobs = []
        for job in jobs:
            job()

    def stop(self) -> None:
        self.release()


class ReplayedLog(MemoryLog):
    """A log in memory that a node can read again when it starts."""

    async def replay(self, from_index: int) -> AsyncIterator[Entry]:
        for entry in self.items[from_index - self.first_index :]:
            yield entry


class Disk:
    """The part of a node that survives it. `open` comes before the node is made, `close` when it has ended."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = str(directory)
        storage = MemoryStorage()
        storage.directory_id = uuid.uuid4().bytes
        self.log = ReplayedLog()
        self.storage: GroupStorage = storage
        self.worker: Worker = InlineWorker()

    async def open(self, on_durable: Callable[[], None]) -> MetadataLog:
        return self.log

    async def close(self) -> None:
        """Memory needs no closing."""


class RealDisk(Disk):
    """The real storage, with its threads, journal and segment files."""

    async def open(self, on_durable: Callable[[], None]) -> MetadataLog:
        loop = asyncio.get_running_loop()
        self.sync_worker = ThreadWorker(loop, "sync")
        self.worker = ThreadWorker(loop, "write")
        config = StorageConfig(journal_file_bytes=1 << 20)
        self.opened = await Storage.open(
            OsFiles(),
            self.directory,
            config,
            sync_worker=self.sync_worker,
            write_worker=self.worker,
            on_durable=on_durable,
            cluster_id=CLUSTER,
        )
        self.storage = self.opened
        return open_log(self.opened)

    async def close(self) -> None:
        await self.opened.close()
        self.sync_worker.stop()
        self.worker.stop()


class Node:
    """One running node of a quorum."""

    def __init__(self, node_id: int, incarnation: int, disk: Disk, ports: dict[int, NodeAddress], plan: "Plan") -> None:
        self.plan = plan
        self.node_id = node_id
        self.incarnation = incarnation
        self.disk = disk
        self.facts = list[Fact]()
        bind = ports.get(node_id, NodeAddress("127.0.0.1", 0))
        self.links = Links(CLUSTER, node_id, incarnation, bind, {})

    async def start(self) -> None:
        node_id = self.node_id
        plan = self.plan
        disk = self.disk
        log = await disk.open(self._on_durable)
        rng = Random(node_id * 1_000 + self.incarnation)
        self.multiraft = MultiRaft(
            node_id,
            disk.storage,
            self.links,
            Timing(),
            monotonic_ms,
            rng,
            lambda _group, fact: self.facts.append(fact),
        )
        self.service = MetadataService(
            Membership(
                node_id=node_id,
                cluster_id=CLUSTER,
                voters=plan.voters,
                learners=plan.learners,
                directory_id=disk.storage.directory_id,
            ),
            self.multiraft,
            self.links,
            log,
            SnapshotStore(OsFiles(), disk.directory, disk.worker),
            broker=BrokerIdentity(
                incarnation=self.incarnation,
                host="127.0.0.1",
                port=9_000 + node_id,
                rack=None,
                directory_id=disk.storage.directory_id,
                record_level=plan.record_levels.get(node_id, plan.record_level),
            ),
            config=plan.config,
            clocks=Clocks(monotonic_ms, lambda: 0),
            on_fact=self.facts.append,
        )
        self.announcer = LeaderAnnouncer(node_id, plan.voters | plan.learners, self.links, self.service)
        await self.links.start()
        self._driving = asyncio.create_task(self.multiraft.run())
        await self.service.start()

    def _on_durable(self) -> None:
        self.multiraft.on_durable()

    async def stop(self) -> None:
        """Close everything; to the others it looks as if the process had died."""
        self.announcer.close()
        await self.service.close()
        await self.multiraft.close()
        await asyncio.wait([self._driving])
        await self.links.close()
        await self.disk.close()

    async def until(self, claim: Callable[[Image], bool]) -> Image:
        return await self.service.wait_until(claim, PATIENCE_S)

    async def create(self, *names: str, partitions: int = 1, factor: int = 1) -> tuple[CreatedTopic, ...]:
        topics = [NewTopic(name, partitions, factor) for name in names]
        return await self.service.create_topics(topics, PATIENCE_S)

    def saw(self, kind: str) -> list[str]:
        return [fact.cause for fact in self.facts if fact.kind == kind]


class Plan:
    """The voters, the learners, the controller's settings; what brokers that start say that they understand."""

    def __init__(
        self, voters: Sequence[int], learners: Sequence[int], config: ControllerConfig, disk: type[Disk] = Disk
    ) -> None:
        self.voters = frozenset(voters)
        self.learners = frozenset(learners)
        self.config = config
        self.disk = disk
        self.record_level = RECORD_LEVEL
        self.record_levels = dict[int, int]()  # of nodes that are not like the others


class Quorum:
    """Nodes by id, with their disks and ports for the next start."""

    def __init__(self, directory: Path, plan: Plan) -> None:
        self.plan = plan
        self.nodes = dict[int, Node]()
        self.disks = {node_id: plan.disk(directory / str(node_id)) for node_id in sorted(plan.voters | plan.learners)}
        self._ports: dict[int, NodeAddress] = {}
        self._incarnations = 100

    async def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self._incarnations += 1
            node = Node(node_id, self._incarnations, self.disks[node_id], self._ports, self.plan)
            await node.start()
            self._ports[node_id] = node.links.address
            for other in self.nodes.values():
                node.links.add_peer(other.node_id, other.links.address)
                # A restarted node is known to the others, under the same port.
                if node_id not in {row.node_id for row in other.links.status()}:
                    other.links.add_peer(node_id, node.links.address)
            self.nodes[node_id] = node

    async def stop(self, *node_ids: int) -> None:
        for node_id in node_ids:
            await self.nodes.pop(node_id).stop()

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self.nodes.values()))

    def up(self, image: Image) -> bool:
        """Claim: exactly the running nodes are available, in their present incarnations."""
        available = {n: broker.incarnation for n, broker in image.brokers.items() if broker.is_available}
        return available == {node.node_id: node.incarnation for node in self}

    async def until_up(self) -> None:
        for node in self:
            await node.until(self.up)

    def leader(self) -> Node:
        """Return the active controller, which a quorum that is up has."""
        [active] = [node for node in self if node.service.is_active]
        return active


@contextlib.asynccontextmanager
async def quorum(
    directory: Path,
    voters: Sequence[int] = (1, 2, 3),
    learners: Sequence[int] = (),
    disk: type[Disk] = Disk,
    record_level: int = RECORD_LEVEL,
    record_levels: Mapping[int, int] | None = None,
    **config: Any,
) -> AsyncIterator[Quorum]:
    """Run a quorum of which all nodes have been started and are up."""
    plan = Plan(voters, learners, ControllerConfig(**config), disk)
    plan.record_level = record_level
    plan.record_levels |= record_levels or {}
    running = Quorum(directory, plan)
    try:
        await running.start(*voters, *learners)
        await running.until_up()
        yield running
    finally:
        await running.stop(*running.nodes)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run one test; a task that is still running when it ends is a leak."""

    async def limited() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await main
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(limited())
