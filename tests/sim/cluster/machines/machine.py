"""A machine with a broker: the real `Node` on a virtual loop, disk and network.

It boots, stalls, is killed, loses power. It does a supervisor's work: a process that ends by itself because its storage
failed is started again after a pause. And an operator's: a broker does not start with a metadata log that could not be
synced, so it gets an empty disk (docs/operations/trouble.md). Any other failure of a node is a bug, and ends the run.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from barnabas_broker.config.broker import BrokerConfig
from barnabas_broker.environment import NodeEnvironment
from barnabas_broker.node import Node
from barnabas_broker.status.events import EventHistory
from barnabas_metadata_quorum.image.image import Image
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.journal.kernel_sync import Syncer
from barnabas_raftlog.log.machine.worker import Worker
from sim.cluster.world import SECOND, WALL_MS, World

from .disk import PowerLostError, VirtualDisk, VirtualFiles
from .loop import Clock, VirtualLoop
from .network import Network
from .worker import VirtualSyncer, VirtualWorker

__all__ = ["Machine"]

TOLD = {  # events of brokers that belong into a run's story
    "catch-up finished",
    "features not finalized",
    "log truncated",
    "member lost",
    "members changing",
    "partition moved",
    "replica failed",
    "replica suspended",
    "segment damaged",
    "segment repaired",
    "storage failed",
    "storage recovered",
    "acknowledged records may be missing",
    "metadata snapshot installed",
    "follower may have forgotten",
    "waiting for controllers",
    "members waiting",
    "metadata log reset",
}
RESTART_US = 2 * SECOND
WAYS = {"KIP-848": "groups gone over", "are left": "groups gone back"}
"""How an event that a group has been converted ends, and what it counts as."""
METADATA_CONDEMNED = "metadata: [Errno 5] Input/output error"


class _Told(EventHistory):
    """A broker's memory of events, which the world counts."""

    def __init__(self, world: World, name: str, wall_clock: Callable[[], int]) -> None:
        super().__init__(wall_clock)
        self._world = world
        self._name = name

    def add(self, kind: str, subject: str, cause: str) -> None:
        self._world.counts[f"event {kind}"] += 1
        if kind == "group converted":
            way = next(way for end, way in WAYS.items() if cause.endswith(end))
            self._world.counts[way] += 1
            self._world.note(self._name, f"{subject}: {kind}: {cause}")
        if kind == "message refused":
            self._world.violate(f"{self._name}: {cause}, and all of them are honest")
        if kind in TOLD:
            self._world.note(self._name, f"{subject}: {kind}: {cause}")
        super().add(kind, subject, cause)


class Machine:
    """One node of the cluster. `node` is None while its process is down."""

    def __init__(
        self, world: World, network: Network, config: BrokerConfig, clock: Clock, *, sync_us_max: int, is_excused: bool
    ) -> None:
        self.world = world
        self.network = network
        self.config = config
        self.clock = clock
        self.node_id = config.node_id
        self.name = f"n{config.node_id}"
        self.disk = VirtualDisk(world, self.name, sync_us_max)
        self.disk.replace()
        self.disk.on_power_lost = self._on_ambush
        self.node: Node | None = None
        self.loop: VirtualLoop | None = None
        self.wall_offset_ms = 0
        self.life = 0
        self.power_cuts = 0
        self.started_us = 0
        self.slow_us = (0, 0)  # as of its loops
        self.on_image: Callable[[int, int, Image], None] = _nobody_looks
        self.on_death: Callable[[Machine], None] = _nobody_mourns  # just before
        self.is_excused = is_excused  # Storage may fail: its disk has faults.
        self.is_asked_to_stop = False

    @property
    def is_up(self) -> bool:
        return self.loop is not None

    def boot(self) -> None:
        """Switch the machine on if it is off, and start the broker if it is down."""
        if self.name in self.network.down:
            self.network.down.discard(self.name)
            self.network.retransmit()
        if self.loop is not None:
            return
        self.life += 1
        self.started_us = self.world.now_us
        # A failure in recovery fails that replica for good, which an operator must mend: see the README.
        self.disk.sync_errors = 0
        self.world.note(self.name, f"starts, life {self.life}")
        loop = self.loop = VirtualLoop(self.world, self.network, self.name, self.clock, self._on_bug)
        loop.slow_us = self.slow_us
        chance = self.world.chance(f"{self.name} life {self.life}")
        # Not every file system can be written past the page cache, nor does every kernel sync for its processes.
        has_direct = chance.random() < 0.7
        has_syncer = chance.random() < 0.7
        files = VirtualFiles(self.disk, loop, has_direct=has_direct)

        def new_worker(_loop: asyncio.AbstractEventLoop, name: str) -> Worker:
            return VirtualWorker(loop, files, name)

        def new_syncer(_loop: asyncio.AbstractEventLoop) -> Syncer | None:
            return VirtualSyncer(loop, files) if has_syncer else None

        environment = NodeEnvironment(
            monotonic_ms=self.clock.monotonic_ms,
            wall_ms=lambda: WALL_MS + self.wall_offset_ms + self.world.now_us // 1_000,
            precise_ns=lambda: self.world.now_us * 1_000,
            processor_ns=lambda: 0,
            random_bytes=chance.randbytes,
            files=files,
            descriptors=lambda: 20_000,
            boot_id=lambda: f"boot {self.power_cuts}",
            new_worker=new_worker,
            new_syncer=new_syncer,
            new_datagrams=lambda on_datagram: self.network.datagrams(loop, on_datagram),
        )
        loop.arrive(lambda: loop.create_task(self._run(loop, environment)).add_done_callback(self._on_end))

    def kill(self) -> None:
        """Kill the process; the machine and its page cache go on."""
        self._end(silently=False)

    def restart(self, down_us: int) -> None:
        """Ask the broker to stop in good order, and start it again when it has."""
        node = self.node
        loop = self.loop
        if node is None or loop is None or node.state == "stopping":
            return
        self.world.note(self.name, "is asked to stop")
        self.is_asked_to_stop = True

        def on_stopped(task: "asyncio.Task[None]") -> None:
            if task.cancelled() or task.exception() is not None:
                self.world.fail(task.exception() or AssertionError("the stop was cancelled"))
                return
            self.world.note(self.name, "has stopped")
            self.world.counts["clean stops"] += 1
            self._leave(silently=False)
            self.world.after(down_us, self.boot)

        loop.arrive(lambda: loop.create_task(node.stop()).add_done_callback(on_stopped))

    def cut_power(self) -> None:
        if self.name in self.network.down:
            return
        self._end(silently=True)
        self.power_cuts += 1
        self.network.down.add(self.name)
        self.disk.lose_power()

    def replace_disk(self) -> None:
        """Kill the process, and put an empty disk in the place of the one that it had."""
        self._end(silently=False)
        self.disk.replace()
        self.world.note(self.name, "has an empty disk")
        self.world.counts["disks replaced"] += 1

    def resume(self) -> None:
        """End a stall before its time."""
        if self.loop is not None:
            self.loop.resume()

    def stall(self, duration_us: int) -> None:
        if self.loop is not None:
            self.world.note(self.name, f"stalls for {duration_us} us")
            self.loop.stall(self.world.now_us + duration_us)

    def _end(self, *, silently: bool) -> None:
        if self.loop is None:
            return
        self.world.note(self.name, "loses its power" if silently else "is killed")
        self.world.counts["crashes"] += 1
        self.on_death(self)
        self._leave(silently=silently)

    def _leave(self, *, silently: bool) -> None:
        loop = self.loop
        self.loop = None
        self.node = None
        self.is_asked_to_stop = False
        assert loop is not None
        loop.kill()
        self.network.close_process(loop, silently=silently)

    async def _run(self, loop: VirtualLoop, environment: NodeEnvironment) -> None:
        node = Node(self.config, environment)
        node.events = _Told(self.world, self.name, environment.wall_ms)
        await node.start()
        node.broker.coordinator.group_events = _Told(self.world, self.name, environment.wall_ms)
        life = self.life
        self.on_image(self.node_id, life, node.metadata.image)
        node.metadata.subscribe(lambda _old, new: self.on_image(self.node_id, life, new))
        assert loop is self.loop
        self.node = node
        self.world.counts["recoveries"] += not node.storage.was_clean
        await node.failure

    def _on_end(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        self.world.note(self.name, f"ends: {error}")
        if isinstance(error, StorageFailedError) and self.is_excused:
            self.world.counts["storage failures"] += 1
            self.kill()
            if str(error) == METADATA_CONDEMNED:
                self.replace_disk()
            self.world.after(RESTART_US, self.boot)
        else:
            self.world.fail(error or AssertionError(f"{self.name} ended without a reason"))

    def _on_ambush(self, lost: PowerLostError) -> None:
        self.world.counts["ambushes"] += 1
        if lost.is_power:
            self.cut_power()
        else:
            self.kill()
        self.world.after(self.world.chance("ambush").randrange(10_000, 2 * SECOND), self.boot)

    def _on_bug(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.world.note(self.name, f"bug: {context.get('message')}: {error!r}")
        self.world.fail(error if isinstance(error, BaseException) else AssertionError(context.get("message")))


def _nobody_looks(_node_id: int, _life: int, _image: Image) -> None:
    """Ignore it; a judge that wants to see images sets something better."""


def _nobody_mourns(_machine: Machine) -> None:
    """Ignore it; work that wants to know who dies sets something better."""
