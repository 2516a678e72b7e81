"""Machines for real brokers, whose network, disk and clock can be taken away.

The parts of a machine, and their use:

    network namespace   joined to the others by a router (the harness's own namespace): links are cut one way or both
                        ways by routing rules that drop packets in silence, as a broken switch does
    ext4 on a loop      at a power cut the kernel's own shutdown call (EXT4_IOC_SHUTDOWN) stops the file system at once:
    device              bytes that were not written back are gone, the journal is replayed at the next mount. And it can
                        be filled to the last block
    boot id             a file bound over /proc/sys/kernel/random/boot_id; new after each power cut
    preloaded library   moves the wall clock; makes syncs lie (`shim.c`, compiled here)

All of it lives in namespaces of this process tree (`enter`): the computer's own network, mounts and processes are not
touched, two harnesses do not meet, and when the harness dies, in whatever way, all brokers and mounts die with it.

Limits of the disk: it does not lose or reorder bytes that reached the device and were not flushed from a cache inside
it, does not tear a single page, and does not lie. Bytes that had been written back before the cut stay. The
simulator's disk does these things.

`missing` names the things that this computer lacks, and their cost.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import select
import signal
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from barnabas_broker.config.broker import BrokerConfig

from .delayed_network import (
    DelayedNetwork,
    MissingError,
    address_of,
    command,
    enter_namespaces,
    lay_cable,
    namespace_of,
    tool,
)

__all__ = ["Machine", "Machines", "MissingError", "command", "enter", "missing"]

EXT4_SHUTDOWN = 0x8004587D
WITHOUT_FLUSHING_ITS_JOURNAL = 2
CLIENT_PORT = 9092
PEER_PORT = 10092
SECRET = "torture"  # noqa: S105 - nobody else is on their network
READY_TIMEOUT_S = 180.0  # a few seconds on a quiet computer
FILLER = "filler"
SHIM = Path(__file__).with_name("shim.c")
TOOLS = {"links": ("ip", "unshare"), "disks": ("mkfs.ext4", "mount", "umount"), "clock and syncs": ("gcc",)}
RULE_PREFERENCE = 100


def missing() -> dict[str, str]:
    """Return the things that cannot be done on this computer, each with the reason."""
    lacks = {}
    for what, names in TOOLS.items():
        if absent := [name for name in names if tool(name) is None]:
            lacks[what] = f"{', '.join(absent)} not found"
    if os.geteuid() != 0:
        lacks["disks"] = "mounting needs root"
        lacks["links"] = "network namespaces need root"
    elif "disks" not in lacks and not Path("/dev/loop-control").exists():
        lacks["disks"] = "no loop devices here (/dev/loop-control)"
    return lacks


def enter() -> None:
    """Start this program again inside namespaces of its own, and return there: it may cut links and mount disks.

    Raises:
        MissingError: this computer lacks something that is needed.
    """
    lacks = missing()
    if absent := [f"{what}: {lacks[what]}" for what in TOOLS if what in lacks]:
        raise MissingError("; ".join(absent))
    enter_namespaces()


class Machine:
    """One machine and the broker on it. Node ids count from 1."""

    def __init__(self, node_id: int, folder: Path, library: Path, disk_bytes: int) -> None:
        self.node_id = node_id
        self.folder = folder / f"machine-{node_id}"
        self.namespace = namespace_of(node_id)
        self.address = address_of(node_id)
        self.process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir()
        self.disk = self.folder / "disk"
        self.image = self.folder / "disk.img"
        self.boot_id = self.folder / "boot_id"
        self.log = self.folder / "broker.log"
        self.config = self.folder / "broker.toml"
        self._library = library
        self._ready = -1
        control = self.folder / "control"
        control.write_bytes(bytes(16))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), 16)
        self._new_boot()
        lay_cable(node_id)
        self.disk.mkdir()
        with self.image.open("wb") as file:
            file.truncate(disk_bytes)
        command("mkfs.ext4", "-q", "-F", "-m", "0", self.image)
        self._mount()

    @property
    def data(self) -> Path:
        return self.disk / "data"

    def _mount(self) -> None:
        command("mount", "-o", "loop", self.image, self.disk)
        self.data.mkdir(exist_ok=True)

    def _new_boot(self) -> None:
        self.boot_id.write_text(f"{uuid.uuid4()}\n")

    # The broker.

    def begin_start(self) -> None:
        """Start the broker; `wait_ready` waits for it."""
        assert self.process is None
        self._ready, writer = os.pipe()
        script = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec env LD_PRELOAD="$LIBRARY" "$@"'
        broker = (sys.executable, "-m", "barnabas_broker.main", "--config", self.config, "--ready-fd", writer)
        words = ("ip", "netns", "exec", self.namespace, "sh", "-c", script, self.boot_id, *broker)
        environment = {"TORTURE_CONTROL": str(self.folder / "control"), "LIBRARY": str(self._library)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
                env=os.environ | environment,
            )
        os.close(writer)

    @property
    def ready_fd(self) -> int:
        """The end of a pipe that can be read when the broker has said that it is ready, or has ended; -1: it has."""
        return self._ready

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the broker says that clients find every leader.

        Raises:
            RuntimeError: it ended, or did not say so in time.
        """
        deadline = time.monotonic() + timeout_s
        said = b""
        try:
            while b"\n" not in said:
                ready, _, _ = select.select([self._ready], [], [], max(0.0, deadline - time.monotonic()))
                chunk = os.read(self._ready, 4096) if ready else b""
                if not chunk:
                    raise RuntimeError(f"broker {self.node_id} is not ready {said.decode()!r}: {self.last_words()}")
                said += chunk
        finally:
            os.close(self._ready)
            self._ready = -1
        if said.strip() != b"ready":
            raise RuntimeError(f"broker {self.node_id}: {said.decode().strip()}")

    def last_words(self) -> str:
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-5:])

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL the broker, and return when it has ended; its page cache stays."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)
            self.process = None
        if self._ready != -1:
            os.close(self._ready)
            self._ready = -1

    def stop(self, timeout_s: float = 20.0) -> None:
        """Stop the broker in good order, or else kill it."""
        if self.process is not None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout_s)
            self.kill()

    # The disk.

    def lose_power(self) -> None:
        """Take the disk away, with all unwritten bytes, and end the broker. `restore_power` mounts it again.

        The broker is suspended first, so that no answer leaves after the disk has stopped. The caller cuts its network
        before, so that nobody hears it end.
        """
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        folder = os.open(self.disk, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, EXT4_SHUTDOWN, struct.pack("I", WITHOUT_FLUSHING_ITS_JOURNAL))
        finally:
            os.close(folder)
        self.kill()
        command("umount", self.disk)

    def restore_power(self) -> None:
        self._mount()
        self._new_boot()

    def fill_disk(self) -> None:
        """Take all the room that is left, down to the last block."""
        size_bytes = 1 << 30
        with (self.disk / FILLER).open("wb") as file:
            end = 0
            while size_bytes >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), end, size_bytes)
                    end += size_bytes
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size_bytes //= 2

    def empty_disk(self) -> None:
        """Give the room back, for good: otherwise a loss of power right after it would bring the file back."""
        (self.disk / FILLER).unlink(missing_ok=True)
        fd = os.open(self.disk, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lie_about_syncs(self) -> None:
        """From the next start on, and now, syncs say that they are done and do nothing."""
        self._control[8] = 1

    # The clock.

    def move_clock(self, offset_ms: int) -> None:
        """Let the broker's wall clock differ from everybody else's by so much; its monotonic clock never does."""
        self._control[0:8] = struct.pack("=q", offset_ms * 1_000_000)


class Machines:
    """All machines of a cluster, and the links between them. `wire_delay_ms`: the time of every packet, one way."""

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        settings: Mapping[str, str] | None = None,
        disk_bytes: int = 3 << 30,
        wire_delay_ms: float | None = None,
    ) -> None:
        self.settings = dict(settings or {})
        library = folder / "shim.so"
        command("gcc", "-O1", "-shared", "-fPIC", "-o", library, SHIM, "-ldl")
        self.all = [Machine(node_id, folder, library, disk_bytes) for node_id in range(1, count + 1)]
        self._cuts: dict[tuple[str, str], int] = {}
        ids = [machine.node_id for machine in self.all]
        self._network = None if wire_delay_ms is None else DelayedNetwork(ids, wire_delay_ms)
        for machine in self.all:
            values: dict[str, str | int] = {
                "cluster.secret": SECRET,
                **self.settings,
                "node.id": machine.node_id,
                "cluster.id": "torture",
                "listeners": f"{machine.address}:{CLIENT_PORT}",
                "log.dir": str(machine.data),
                **{f"cluster.nodes.{other.node_id}": f"{other.address}:{PEER_PORT}" for other in self.all},
            }
            machine.config.write_text(BrokerConfig.from_settings(values).to_toml())

    def __getitem__(self, node_id: int) -> Machine:
        return self.all[node_id - 1]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{machine.address}:{CLIENT_PORT}" for machine in self.all)

    def pids(self) -> list[int]:
        """Return the processes of the brokers that were started and not stopped."""
        return [process.pid for machine in self.all if (process := machine.process) is not None]

    def others(self, *node_ids: int) -> list[int]:
        return [machine.node_id for machine in self.all if machine.node_id not in node_ids]

    def start(self, *node_ids: int) -> float:
        """Start these brokers, or all that are down; return the seconds until they were ready.

        Raises:
            RuntimeError: one ended, for which the others may wait, or was not ready in time.
        """
        began = time.monotonic()
        down = [m for m in self.all if m.process is None and (not node_ids or m.node_id in node_ids)]
        for machine in down:
            machine.begin_start()
        waiting = {machine.ready_fd: machine for machine in down}
        while waiting:
            spoken, _, _ = select.select(list(waiting), [], [], max(0.0, began + READY_TIMEOUT_S - time.monotonic()))
            for fd in spoken or list(waiting):
                waiting.pop(fd).wait_ready(READY_TIMEOUT_S if spoken else 0.0)
        return time.monotonic() - began

    def stop(self) -> None:
        """End all brokers and give the disks back."""
        for machine in self.all:
            machine.signal(signal.SIGCONT)
        for machine in self.all:
            machine.stop()
            with contextlib.suppress(MissingError):
                command("umount", machine.disk)
        if self._network is not None:
            self._network.close()

    # Links.

    def cut(self, source: int, target: int) -> None:
        """Drop every packet from one machine to another, in silence."""
        self._drop(self[source].address, self[target].address)

    def cut_off(self, node_id: int) -> None:
        """Let nothing that this machine sends arrive anywhere, clients included, and nothing of other machines here."""
        self._drop(self[node_id].address, "0.0.0.0/0")
        for other in self.others(node_id):
            self.cut(other, node_id)

    def mend_links(self) -> None:
        for preference in self._cuts.values():
            command("ip", "rule", "delete", "preference", preference)
        self._cuts.clear()

    def _drop(self, source: str, target: str) -> None:
        if (source, target) not in self._cuts:
            # A preference of its own: the kernel takes a rule for all targets for the same as one for a single target.
            preference = RULE_PREFERENCE + len(self._cuts)
            command("ip", "rule", "add", "preference", preference, "from", source, "to", target, "blackhole")
            self._cuts[source, target] = preference

    def lose_power(self, *node_ids: int) -> None:
        """Cut the power of these machines at once: first nothing leaves them any more, then they are gone."""
        for node_id in node_ids:
            self.cut_off(node_id)
        for node_id in node_ids:
            self[node_id].signal(signal.SIGSTOP)
        for node_id in node_ids:
            self[node_id].lose_power()

    def restore_power(self, node_ids: Sequence[int]) -> None:
        """Give them power and network again; their brokers are started by the caller."""
        self.mend_links()
        for node_id in node_ids:
            self[node_id].restore_power()
