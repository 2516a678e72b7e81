"""TCP and UDP between loops: delays, loss, cuts in one or both directions, resets, refusals.

TCP is a byte stream that the kernel keeps whole: a cut holds bytes back and they arrive after it, as retransmission
would have it, unless `TCP_USER_TIMEOUT` ends the connection first (node links set it). A process that dies has its
sockets closed or reset by its kernel; a machine without power says nothing at all, and answers with a reset when it is
back. UDP loses, doubles and reorders datagrams. `cut` names (source, target) pairs; TCP and UDP are cut apart.

The two ends of a connection are in `stream`.
"""

import asyncio
import errno
import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sim.cluster.world import MS, SECOND, World

from .loop import VirtualLoop
from .stream import Address, Stream

__all__ = ["Address", "Conditions", "Network", "Server"]

SYN_RETRY_US = SECOND
SYN_RETRIES = 7
RETRANSMIT_US_MAX = 400 * MS
DATAGRAMS_QUEUED_MAX = 1_000


class Conditions(NamedTuple):
    """The state of the network; times in microseconds, rates from 0 to 1. Datagrams alone are lost or doubled.

    Each pair of hosts is as far apart, one way, as is drawn for it between `distance_us_min` and `distance_us_max`, in
    the manner of distances: as often between 1 and 10 ms as between 10 and 100 ms. Each packet takes between
    `delay_us_min` and `delay_us_max` longer than that.
    """

    delay_us_min: int = 50
    delay_us_max: int = 400
    loss_rate: float = 0.0
    duplicate_rate: float = 0.0
    in_pieces: bool = False
    distance_us_min: int = 0
    distance_us_max: int = 0

    @property
    def round_trip_us_max(self) -> int:
        """The longest way there and back that two packets can take."""
        return 2 * (self.distance_us_max + self.delay_us_max)


class Network:
    """All links. Hosts are names; a host is `down` while its machine has no power."""

    def __init__(self, world: World, conditions: Conditions) -> None:
        self.world = world
        self.conditions = conditions
        self.rng = world.chance("network")
        self.tcp_cut = set[tuple[str, str]]()
        self.udp_cut = set[tuple[str, str]]()
        self.down = set[str]()
        self._servers = dict[Address, Server]()
        self._datagrams = dict[Address, VirtualDatagrams]()
        self._streams = dict[VirtualLoop, dict[Stream, None]]()
        self._stuck = dict[Stream, None]()
        self._ports = 40_000
        self._distances = dict[tuple[str, str], int]()

    # Faults.

    def cut(self, source: str, target: str, *, tcp: bool = True, udp: bool = True) -> None:
        """Let nothing through from `source` to `target`."""
        if tcp:
            self.tcp_cut.add((source, target))
        if udp:
            self.udp_cut.add((source, target))

    def mend(self) -> None:
        """Let everything through again."""
        self.tcp_cut.clear()
        self.udp_cut.clear()
        self.retransmit()

    def retransmit(self) -> None:
        for stream in list(self._stuck):
            self.world.after(self.rng.randrange(MS, RETRANSMIT_US_MAX), stream.retransmit)

    def reset_streams(self, source: str, target: str) -> None:
        """Break every connection between two hosts, as a firewall that forgets them does."""
        for loop, streams in list(self._streams.items()):
            if loop.host == source:
                for stream in [stream for stream in streams if stream.remote[0] == target]:
                    stream.break_off(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def close_process(self, loop: VirtualLoop, *, silently: bool) -> None:
        """A process has ended; `silently`: its machine has lost its power, and nobody is told."""
        for address in [address for address, server in self._servers.items() if server.loop is loop]:
            del self._servers[address]
        for address in [address for address, socket in self._datagrams.items() if socket.loop is loop]:
            del self._datagrams[address]
        for stream in self._streams.pop(loop, {}):
            stream.orphan(silently=silently)

    def delay_us(self, source: str, target: str) -> int:
        if source == target:
            return 20
        conditions = self.conditions
        extra_us = self.rng.randrange(conditions.delay_us_min, conditions.delay_us_max + 1)
        return extra_us + self.distance_us(source, target) if conditions.distance_us_max else extra_us

    def distance_us(self, source: str, target: str) -> int:
        """Return how far apart two hosts are, one way: always the same."""
        pair = (source, target) if source < target else (target, source)
        distance_us = self._distances.get(pair)
        if distance_us is None:
            least = max(1, self.conditions.distance_us_min)
            most = max(1, self.conditions.distance_us_max)
            place = self.world.chance(f"distance {pair[0]} {pair[1]}").random()
            distance_us = self._distances[pair] = int(least * (most / least) ** place)
        return distance_us

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self.tcp_cut or target in self.down or source in self.down

    # TCP.

    def bind(self, loop: VirtualLoop, factory: Callable[[], asyncio.BaseProtocol], address: Address) -> "Server":
        if address in self._servers:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        server = self._servers[address] = Server(self, loop, factory, address)
        return server

    def unbind(self, server: "Server") -> None:
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    def connect(self, loop: VirtualLoop, target: Address, connected: "asyncio.Future[Stream]") -> None:
        """Settle `connected` with a stream, or with the error that the kernel would give."""
        self._ports += 1
        self._send_syn(loop, (loop.host, self._ports), target, connected, SYN_RETRIES)

    def _send_syn(
        self, loop: VirtualLoop, source: Address, target: Address, connected: "asyncio.Future[Stream]", left: int
    ) -> None:
        if loop.is_dead or connected.done():
            return
        if self.is_cut(source[0], target[0]) or self.is_cut(target[0], source[0]):
            if left:
                again = partial(self._send_syn, loop, source, target, connected, left - 1)
                self.world.after(SYN_RETRY_US << (SYN_RETRIES - left), again)
            else:
                loop.arrive(_refuse, connected, errno.ETIMEDOUT)
            return
        self.world.after(self.delay_us(source[0], target[0]), partial(self._on_syn, loop, source, target, connected))

    def _on_syn(self, loop: VirtualLoop, source: Address, target: Address, connected: "asyncio.Future[Stream]") -> None:
        if loop.is_dead:
            return
        server = self._servers.get(target)
        back_us = self.delay_us(target[0], source[0])
        if server is None or not server.is_listening or target[0] in self.down:
            self.world.after(back_us, partial(loop.arrive, _refuse, connected, errno.ECONNREFUSED))
            return
        ours = Stream(self, loop, source, target)
        theirs = Stream(self, server.loop, target, source)
        ours.peer = theirs
        theirs.peer = ours
        for stream in (ours, theirs):
            self._streams.setdefault(stream.loop, {})[stream] = None
        server.loop.arrive(server.accept, theirs)
        self.world.after(back_us, partial(loop.arrive, _connected, connected, ours))

    def forget(self, stream: "Stream") -> None:
        self._stuck.pop(stream, None)
        streams = self._streams.get(stream.loop)
        if streams is not None:
            streams.pop(stream, None)

    def hold_up(self, stream: "Stream") -> None:
        self._stuck[stream] = None

    def let_go(self, stream: "Stream") -> None:
        self._stuck.pop(stream, None)

    # UDP.

    def datagrams(self, loop: VirtualLoop, on_datagram: Callable[[bytes, object], None]) -> "VirtualDatagrams":
        return VirtualDatagrams(self, loop, on_datagram)

    def open_datagrams(self, socket: "VirtualDatagrams", address: Address) -> None:
        self._datagrams[address] = socket

    def close_datagrams(self, socket: "VirtualDatagrams", address: Address) -> None:
        if self._datagrams.get(address) is socket:
            del self._datagrams[address]

    def send_datagram(self, source: Address, target: Address, data: bytes) -> None:
        link = (source[0], target[0])
        conditions = self.conditions
        rng = self.rng
        if link in self.udp_cut or target[0] in self.down:
            return
        if conditions.loss_rate and rng.random() < conditions.loss_rate:
            return
        copies = 2 if conditions.duplicate_rate and rng.random() < conditions.duplicate_rate else 1
        for _ in range(copies):
            self.world.after(self.delay_us(*link), partial(self._on_datagram, source, target, data))

    def _on_datagram(self, source: Address, target: Address, data: bytes) -> None:
        socket = self._datagrams.get(target)
        if socket is not None:
            socket.receive(data, source)


def _connected(connected: "asyncio.Future[Stream]", stream: "Stream") -> None:
    if connected.done():
        stream.abort()
    else:
        connected.set_result(stream)


def _refuse(connected: "asyncio.Future[Stream]", code: int) -> None:
    if not connected.done():
        connected.set_exception(OSError(code, os.strerror(code)))


class Server(asyncio.AbstractServer):
    """A listening socket."""

    def __init__(
        self, network: Network, loop: VirtualLoop, factory: Callable[[], asyncio.BaseProtocol], address: Address
    ) -> None:
        self.network = network
        self.loop = loop
        self.address = address
        self.is_listening = False
        self._factory = factory

    def listen(self) -> None:
        self.is_listening = True

    def accept(self, stream: "Stream") -> None:
        if not self.is_listening:
            stream.abort()
        elif not stream.is_lost:
            stream.attach(self._factory())

    @property
    def sockets(self) -> "tuple[Server, ...]":
        return (self,)

    def getsockname(self) -> Address:
        return self.address

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop

    async def serve_forever(self) -> None:
        await self.start_serving()

    async def start_serving(self) -> None:
        self.listen()

    def close(self) -> None:
        self.is_listening = False
        self.network.unbind(self)

    async def wait_closed(self) -> None:
        return

    def is_serving(self) -> bool:
        return self.is_listening


class VirtualDatagrams:
    """A UDP socket, as the links want it (`Datagrams`)."""

    def __init__(self, network: Network, loop: VirtualLoop, on_datagram: Callable[[bytes, object], None]) -> None:
        self.network = network
        self.loop = loop
        self.on_datagram = on_datagram
        self._address: Address | None = None
        self._closed = loop.create_future()
        self._queued = 0

    async def open(self, family: int, address: tuple[object, ...]) -> None:
        del family
        host, port = address
        assert isinstance(host, str)
        assert isinstance(port, int)
        self._address = (host, port)
        self.network.open_datagrams(self, self._address)

    async def send(self, data: bytes, address: tuple[object, ...]) -> None:
        host, port = address
        if self._address is not None and not self.loop.is_dead:
            assert isinstance(host, str)
            assert isinstance(port, int)
            self.network.send_datagram(self._address, (host, port), bytes(data))

    async def run(self) -> None:
        await self._closed

    def close(self) -> None:
        if self._address is not None:
            self.network.close_datagrams(self, self._address)
            self._address = None
        if not self._closed.done():
            self._closed.set_result(None)

    def receive(self, data: bytes, source: Address) -> None:
        if self._queued < DATAGRAMS_QUEUED_MAX:
            self._queued += 1
            self.loop.arrive(self._deliver, data, source)

    def _deliver(self, data: bytes, source: Address) -> None:
        self._queued -= 1
        if self._address is not None:
            self.on_datagram(data, source)
