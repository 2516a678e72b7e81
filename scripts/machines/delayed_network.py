"""Makes a network that takes time between machines on this computer.

Each machine is a network namespace, joined by a cable to the harness's own, which is the router. Packets from one
machine to another are routed through a TUN device on their way. There a forwarder (`delayed_network.c`) reads them, one
at a time, and writes each back when its time has come, in their order: TCP and UDP alike, connects and resets included.
The programs on a machine know nothing of it, so Apache Kafka gets the same delays as Barnabas. Clients run on the
router, and reach every machine at once.

The forwarder is of the real-time class, because a network does not wait for the brokers' turn at a processor, and in C,
because it should leave them the processor: in Python it took a quarter to two fifths of a core at 1,000 records a
second. Cables and device take packets of 64 KiB, as loopback does: a stream gets 200 MB/s through 50 ms, and 580
through 1 ms, on two busy cores. Up to `WAITING_BYTES_MAX` are on their way at once; packets beyond are lost. The kernel
limits a connection's window: with its defaults (6 MiB) to 60 MB/s at 50 ms one way, for everybody. Root is needed, gcc,
and /dev/net/tun.

    delayed_network.py --test [MS]      measures a stream, echoes and datagrams, and their delays
"""

import argparse
import contextlib
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

__all__ = [
    "DelayedNetwork",
    "MissingError",
    "address_of",
    "command",
    "enter_namespaces",
    "lay_cable",
    "namespace_of",
    "network_lacks",
    "tool",
]

INSIDE = "TORTURE_INSIDE"
TUN = Path("/dev/net/tun")
FORWARDER = Path(__file__).with_suffix(".c")
SET_INTERFACE = 0x400454CA
A_TUN = 0x0001
WITHOUT_HEADERS = 0x1000
DEVICE = "slow0"
TABLE = 77
PACKET_BYTES_MAX = 65_535
WAITING_BYTES_MAX = 256 << 20
# Rules are asked in this order: cut links (100 and up), the delay, local addresses.
DELAY_PREFERENCE = 500
LOCAL_PREFERENCE = 1_000


class MissingError(RuntimeError):
    """This computer cannot do what was asked for; the text says what is missing."""


def tool(name: str) -> str | None:
    # Tools of root lie outside of many a user's path.
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))


def network_lacks() -> str:
    """Return what this computer lacks for networks that take time; empty when nothing."""
    if absent := [name for name in ("ip", "unshare", "gcc") if tool(name) is None]:
        return f"{', '.join(absent)} not found"
    if os.geteuid() != 0:
        return "network namespaces need root"
    return "" if TUN.exists() else f"no {TUN} here"


def command(*words: object) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise MissingError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


def enter_namespaces() -> None:
    """Start this program again inside namespaces of its own, and return there; its network is the router.

    When it ends, in whatever way, all that it started ends with it.
    """
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        words = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        again = [sys.executable, *sys.orig_argv[1:]]  # `argv` has a file's name where the module's was given
        os.execvp("unshare", ["unshare", *words, *again])  # noqa: S606 - no shell is wanted
    # The harness's mounts and unmounts reach the namespaces of its brokers; the world outside sees neither.
    command("mount", "--make-rshared", "/")
    Path("/run/netns").mkdir(parents=True, exist_ok=True)
    command("mount", "-t", "tmpfs", "netns", "/run/netns")
    command("ip", "link", "set", "lo", "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    # Below every rule of ours stands the table of local addresses, so that packets to clients can be dropped as well.
    command("ip", "rule", "add", "preference", LOCAL_PREFERENCE, "lookup", "local")
    command("ip", "rule", "delete", "preference", "0")


def namespace_of(node_id: int) -> str:
    return f"machine-{node_id}"


def cable_of(node_id: int) -> str:
    return f"cable-{node_id}"


def address_of(node_id: int) -> str:
    return f"10.77.{node_id}.2"


def lay_cable(node_id: int) -> None:
    """Make the network of one machine, and join it to the router."""
    namespace = namespace_of(node_id)
    cable = cable_of(node_id)
    inside = ("ip", "-n", namespace)
    command("ip", "netns", "add", namespace)
    command("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
    command("ip", "address", "add", f"10.77.{node_id}.1/24", "dev", cable)
    command("ip", "link", "set", cable, "up")
    command(*inside, "address", "add", f"{address_of(node_id)}/24", "dev", "eth0")
    command(*inside, "link", "set", "eth0", "up")
    command(*inside, "link", "set", "lo", "up")
    command(*inside, "route", "add", "default", "via", f"10.77.{node_id}.1")


class DelayedNetwork:
    """The forwarder between machines that have cables already. A context manager; inside `enter_namespaces`."""

    def __init__(self, node_ids: Sequence[int], delay_ms: float) -> None:
        self._rules: list[tuple[object, ...]] = []
        for node_id in node_ids:
            command("ip", "link", "set", cable_of(node_id), "mtu", PACKET_BYTES_MAX)
            command("ip", "-n", namespace_of(node_id), "link", "set", "eth0", "mtu", PACKET_BYTES_MAX)
        self._forwarder = start_forwarder(DEVICE, round(delay_ms * 1e6))
        for name in ("all", "default", DEVICE, *map(cable_of, node_ids)):
            # A packet that comes back from the device has the address of a machine, which is not there.
            Path(f"/proc/sys/net/ipv4/conf/{name}/rp_filter").write_text("0")
        command("ip", "route", "add", "default", "dev", DEVICE, "table", TABLE)
        for source in node_ids:
            for target in node_ids:
                if source != target:
                    way = ("iif", cable_of(source), "to", f"{address_of(target)}/32", "lookup", TABLE)
                    rule = ("preference", DELAY_PREFERENCE, *way)
                    command("ip", "rule", "add", *rule)
                    self._rules.append(rule)

    def close(self) -> None:
        """Let packets take no time any more; those under way are lost."""
        self._forwarder.kill()
        self._forwarder.wait()
        while self._rules:
            command("ip", "rule", "delete", *self._rules.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_forwarder(device: str, delay_ns: int) -> subprocess.Popen[bytes]:
    """Make the TUN device `device`, whose packets are held back. It goes with the process that is returned.

    Raises:
        MissingError: this computer lets nobody make the device, or run the forwarder.
    """
    fd = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, SET_INTERFACE, struct.pack("16sH22x", device.encode(), A_TUN | WITHOUT_HEADERS))
        command("ip", "link", "set", device, "mtu", PACKET_BYTES_MAX, "txqueuelen", 10_000, "up")
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "forwarder"
            command("gcc", "-O2", "-o", program, FORWARDER)
            forwarder = subprocess.Popen([program, str(fd), str(delay_ns), str(WAITING_BYTES_MAX)], pass_fds=[fd])
    except OSError as error:
        raise MissingError(f"the forwarder does not run: {error}") from error
    finally:
        os.close(fd)
    with contextlib.suppress(PermissionError):  # Root of a container may not; its network is a little late then.
        os.sched_setscheduler(forwarder.pid, os.SCHED_FIFO, os.sched_param(1))
    return forwarder


# The test of itself.

CHUNK_BYTES = 1 << 18
CHUNKS = 1_600
ECHOES = 50
STREAM_BYTES = CHUNKS * CHUNK_BYTES
TEST_PORT = 7_777


def serve_test() -> None:
    """On machine 2: count a stream and answer with its length; send back datagrams, and small pieces."""
    with socket.create_server((address_of(2), TEST_PORT)) as server, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        datagrams.bind((address_of(2), TEST_PORT))
        print("ready", flush=True)
        with server.accept()[0] as stream:
            count = 0
            room = bytearray(CHUNK_BYTES)
            while count < STREAM_BYTES:
                count += stream.recv_into(room)
            stream.sendall(b"%d" % count)
            for _ in range(ECHOES):
                stream.sendall(stream.recv(64))
        for _ in range(ECHOES):
            datagrams.sendto(*datagrams.recvfrom(64))


def call_test() -> None:
    """On machine 1: measure."""
    began = time.perf_counter()
    with socket.create_connection((address_of(2), TEST_PORT)) as stream:
        connected = time.perf_counter()
        print(f"connect: {(connected - began) * 1e3:.2f} ms")
        chunk = bytes(CHUNK_BYTES)
        for _ in range(CHUNKS):
            stream.sendall(chunk)
        stream.recv(64)
        print(f"stream: {STREAM_BYTES / (time.perf_counter() - connected) / 1e6:.0f} MB/s")
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print(f"echo: {_median_ms(lambda: (stream.send(b'x'), stream.recv(64))):.2f} ms")
    with socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        datagrams.connect((address_of(2), TEST_PORT))
        print(f"datagram: {_median_ms(lambda: (datagrams.send(b'x'), datagrams.recv(64))):.2f} ms")


def _median_ms(act: Callable[[], object]) -> float:
    times = []
    for _ in range(ECHOES):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return sorted(times)[ECHOES // 2] * 1e3


def self_test(delay_ms: float) -> int:
    """Measure the network between two machines, with windows that are large enough."""
    if lack := network_lacks():
        print(f"cannot: {lack}", file=sys.stderr)
        return 2
    enter_namespaces()
    for node_id in (1, 2):
        lay_cable(node_id)
        for name in ("tcp_rmem", "tcp_wmem"):
            window = f"net.ipv4.{name}=4096 131072 {64 << 20}"
            command("ip", "netns", "exec", namespace_of(node_id), "sysctl", "-qw", window)
    with DelayedNetwork((1, 2), delay_ms):
        on = [["ip", "netns", "exec", namespace_of(node_id), sys.executable, __file__] for node_id in (1, 2)]
        with subprocess.Popen([*on[1], "--serve"], stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            server.stdout.readline()
            return subprocess.run([*on[0], "--call"], check=False, timeout=120).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--test", type=float, nargs="?", const=50.0, metavar="MS", help="measure the network")
    what.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    what.add_argument("--call", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve_test()
    elif options.call:
        call_test()
    else:
        return self_test(options.test)
    return 0


if __name__ == "__main__":
    sys.exit(main())
