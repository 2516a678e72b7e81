"""Carries out each kind of fault of a plan, and undoes all of them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from sim.cluster.judges.history import Partition
from sim.cluster.swarm import Fault
from sim.cluster.world import World

from .machine import Machine
from .network import Network

__all__ = ["Faults"]

CLOCK_OFFSET_MS_MAX = 3_300_000
"""Of a broker whose clock is an hour behind clients' are an hour ahead: it refuses their records, as it must."""
CONTROLLERS_MIN = 3  # of which one may lose its disk: fewer would lose acknowledged records with it


class Faults:
    """Carries out a plan. After `stop` nothing new happens, and everything is mended.

    `partitions`: those whose leaders are struck where a fault names no node.
    """

    def __init__(
        self, world: World, network: Network, machines: dict[int, Machine], partitions: Sequence[Partition]
    ) -> None:
        self._world = world
        self._network = network
        self._machines = machines
        self._partitions = partitions
        self.is_over = False
        self.on_strike: Callable[[str, str], None] = _nobody_looks

    def schedule(self, faults: Iterable[Fault]) -> None:
        for fault in faults:
            if fault.at_us >= self._world.now_us:
                self._world.at(fault.at_us, partial(self._strike, fault))

    def stop(self) -> None:
        self.is_over = True
        self._network.mend()
        for machine in self._machines.values():
            machine.disk.mend()
            machine.resume()
            machine.boot()

    def _strike(self, fault: Fault) -> None:
        if self.is_over:
            return
        self._world.note("world", f"{fault.kind} {fault.nodes} for {fault.duration_us} us")
        self._world.counts[f"fault {fault.kind}"] += 1
        self.on_strike(fault.kind, str(fault.nodes))
        getattr(self, f"_{fault.kind}")(fault)

    def _target(self, fault: Fault) -> Machine:
        """Return the first node named; 0 is the leader of a partition that counts, or else the second node named."""
        first = fault.nodes[0]
        second = fault.nodes[-1]
        return self._machines[first or self._leader(fault.detail) or second]

    def _leader(self, number: int) -> int:
        topic, index = self._partitions[number % len(self._partitions)]
        for node_id, machine in self._machines.items():
            hosted = machine.node.partitions.topics.get(topic) if machine.node is not None else None
            partition = hosted.partitions.get(index) if hosted is not None else None
            if partition is not None and partition.group.is_leader:
                return node_id
        return 0

    def _crash(self, fault: Fault) -> None:
        machine = self._target(fault)
        machine.kill()
        self._world.after(fault.duration_us, machine.boot)

    def _restart(self, fault: Fault) -> None:
        self._target(fault).restart(fault.duration_us)

    def _crash_all(self, fault: Fault) -> None:
        for place, machine in enumerate(self._machines.values()):
            machine.kill()
            self._world.after(fault.duration_us + fault.detail * place, machine.boot)

    def _ambush(self, fault: Fault) -> None:
        self._target(fault).disk.ambush = (fault.detail % 7, False)

    def _power(self, fault: Fault) -> None:
        machine = self._target(fault)
        machine.cut_power()
        self._world.after(fault.duration_us, machine.boot)

    def _power_all(self, fault: Fault) -> None:
        for place, machine in enumerate(self._machines.values()):
            machine.cut_power()
            self._world.after(fault.duration_us + fault.detail * place, machine.boot)

    def _ambush_power(self, fault: Fault) -> None:
        self._target(fault).disk.ambush = (fault.detail % 7, True)

    def _failed_sync(self, fault: Fault) -> None:
        machine = self._target(fault)
        if machine.node is not None:
            machine.disk.sync_errors = 1 + (not fault.detail % 5)

    def _rot(self, fault: Fault) -> None:
        """A bit of a segment flips, synced long ago, while the broker is down, so that nobody has it in memory."""
        machine = self._target(fault)
        machine.kill()
        self._world.after(fault.duration_us, machine.boot)
        files = [(path, inode) for path, inode in machine.disk.files_below("/data/replicas") if path.endswith(".log")]
        # A broker that cannot read its metadata does not start until it has another disk (docs/operations/trouble.md).
        files = [(path, inode) for path, inode in files if not path.startswith("/data/replicas/metadata/")]
        synced = [(path, inode) for path, inode in files if inode.synced]
        if synced:
            path, inode = synced[fault.detail % len(synced)]
            if machine.disk.flip_bit(inode, fault.detail * 7919 % len(inode.synced)):
                self._world.note(machine.name, f"a bit of {path} flips")
                self._world.counts["flipped bits"] += 1

    def _new_disk(self, fault: Fault) -> None:
        """The machine comes back with an empty disk: also a controller's, unless too few are left."""
        machine = self._target(fault)
        if machine.node_id in machine.config.voters:
            if len(machine.config.voters) < CONTROLLERS_MIN:
                return
            self._world.counts["controllers' disks replaced"] += 1
        machine.replace_disk()
        self._world.after(fault.duration_us, machine.boot)

    def _full_disk(self, fault: Fault) -> None:
        self._target(fault).disk.full_until_us = self._world.now_us + fault.duration_us

    def _stall(self, fault: Fault) -> None:
        self._target(fault).stall(fault.duration_us)

    def _clock_jump(self, fault: Fault) -> None:
        machine = self._target(fault)
        offset_ms = machine.wall_offset_ms + (fault.detail - (1 << 15)) * 100
        machine.wall_offset_ms = max(-CLOCK_OFFSET_MS_MAX, min(offset_ms, CLOCK_OFFSET_MS_MAX))

    def _stuck_disk(self, fault: Fault) -> None:
        self._target(fault).disk.stuck_until_us = self._world.now_us + fault.duration_us

    def _reset(self, fault: Fault) -> None:
        machine = self._target(fault)
        other = self._machines[fault.nodes[-1]]
        self._network.reset_streams(machine.name, other.name)

    def _cut(self, fault: Fault, *, tcp: bool = True, udp: bool = True) -> None:
        """Cut the nodes named off from all others; clients are on either side."""
        side = {f"n{node_id}" for node_id in fault.nodes}
        rest = {machine.name for machine in self._machines.values()} - side
        for here in sorted(side):
            for there in sorted(rest):
                self._network.cut(here, there, tcp=tcp, udp=udp)
                self._network.cut(there, here, tcp=tcp, udp=udp)
        self._world.after(fault.duration_us, self._network.mend)

    def _cut_tcp(self, fault: Fault) -> None:
        self._cut(fault, udp=False)

    def _cut_udp(self, fault: Fault) -> None:
        self._cut(fault, tcp=False)

    def _cut_one_way(self, fault: Fault) -> None:
        """Let one node hear all others, or be heard, and not both."""
        machine = self._target(fault)
        for other in self._machines.values():
            if other is not machine:
                link = (machine.name, other.name) if fault.detail % 2 else (other.name, machine.name)
                self._network.cut(*link)
        self._world.after(fault.duration_us, self._network.mend)


def _nobody_looks(_kind: str, _target: str) -> None:
    """Ignore it; a judge that wants to hear of faults sets something better."""
