"""The two ends of a TCP connection: asyncio's transport here, the kernel's socket behind it.

Bytes travel; a stream delivers them in pieces of any size, at most one piece in an iteration of the loop that
reads. Limit: `WINDOW_BYTES` are on their way in one direction, the rest waits in the transport's buffer, as it does
when a socket is full.
"""

import asyncio
import errno
import io
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from sim.cluster.world import MS

from .loop import VirtualLoop

if TYPE_CHECKING:
    from .network import Network

__all__ = ["Address", "Stream"]

Address = tuple[str, int]
WINDOW_BYTES = 256 << 10
TCP_USER_TIMEOUT = 18
DATA = "data"
FIN = "fin"
RESET = "reset"


class Stream(asyncio.Transport):
    """One end of a TCP connection: asyncio's transport, and the kernel's socket behind it."""

    def __init__(self, network: "Network", loop: VirtualLoop, local: Address, remote: Address) -> None:
        super().__init__()
        self.network = network
        self.loop = loop
        self.local = local
        self.remote = remote
        self.peer: Stream
        self.is_lost = False
        self._is_closing = False
        self._is_paused = False
        self._is_full = False
        self._has_eof = False
        self._protocol: Any = None
        self._is_buffered = False
        self._out = deque[bytes]()  # not yet taken by the kernel
        self._out_bytes = 0
        self._in_flight = 0
        self._held = deque[tuple[str, bytes]]()  # taken, and kept back by a cut
        self._arrival_us = 0
        self._inbox = bytearray()
        self._high = 64 << 10
        self._low = 16 << 10
        self._user_timeout_us = 0
        self._held_since_us = -1

    # The application's side.

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)
        was_lost = self.is_lost
        protocol.connection_made(self)
        if was_lost:
            # It was reset between the handshake and this moment: that is told as any other loss.
            self.loop.arrive(
                protocol.connection_lost, ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            )
        elif self._inbox or self._has_eof:
            self.loop.arrive(self._read)

    def write(self, data: Any) -> None:
        if self.is_lost or self._is_closing or self.loop.is_dead or not data:
            return
        self._out.append(bytes(data))
        self._out_bytes += len(data)
        self._pump()
        if self._out_bytes > self._high and not self._is_full:
            self._is_full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self._out_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 << 10 if high is None else high
        self._low = self._high // 4 if low is None else low

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._inbox or self._has_eof:
            self.loop.arrive(self._read)

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    def is_closing(self) -> bool:
        return self._is_closing or self.is_lost or self.loop.is_dead

    def close(self) -> None:
        if not self._is_closing and not self.is_lost and not self.loop.is_dead:
            self._is_closing = True
            self._pump()

    def abort(self) -> None:
        if not self.is_lost and not self.loop.is_dead:
            self._transmit(RESET, b"")
            self._lose(None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.remote, "sockname": self.local, "socket": self}.get(name, default)

    def fileno(self) -> int:
        """There is none; asking is no bug of the caller."""
        raise io.UnsupportedOperation("fileno")

    def setsockopt(self, _level: int, option: int, value: int) -> None:
        if option == TCP_USER_TIMEOUT:
            self._user_timeout_us = value * MS

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    # The kernel's side.

    def orphan(self, *, silently: bool) -> None:
        """The process is gone. Its kernel closes the connection, unless that is gone too."""
        if self.is_lost:
            return
        self.is_lost = True
        if not silently:
            self._transmit(RESET if self._inbox or self.network.rng.random() < 0.3 else FIN, b"")

    def break_off(self, error: OSError) -> None:
        for end in (self, self.peer):
            if not end.is_lost and not end.loop.is_dead:
                end._lose(error)

    def _lose(self, error: OSError | None) -> None:
        self.is_lost = True
        self._out.clear()
        self._out_bytes = 0
        if not self._held:
            self.network.forget(self)
        if self._protocol is not None:
            self.loop.arrive(self._protocol.connection_lost, error)

    def _pump(self) -> None:
        while self._out and self._in_flight < WINDOW_BYTES:
            data = self._out.popleft()
            self._out_bytes -= len(data)
            self._in_flight += len(data)
            self._transmit(DATA, data)
        if self._is_full and self._out_bytes <= self._low and not self.is_lost:
            self._is_full = False
            self.loop.arrive(self._resume_writing)
        if self._is_closing and not self._out and not self.is_lost:
            self._transmit(FIN, b"")
            self._lose(None)

    def _resume_writing(self) -> None:
        if not self.is_lost and not self._is_full:
            self._protocol.resume_writing()

    def _transmit(self, kind: str, data: bytes) -> None:
        network = self.network
        world = self.network.world
        source = self.local[0]
        target = self.remote[0]
        if self._user_timeout_us and self._held_since_us < 0 and self._is_unanswered():
            self._held_since_us = world.now_us
            world.after(self._user_timeout_us, partial(self._check_timeout, world.now_us))
        if self._held or network.is_cut(source, target):
            self._held.append((kind, data))
            network.hold_up(self)
            return
        self._arrival_us = max(self._arrival_us + 1, world.now_us + network.delay_us(source, target))
        world.at(self._arrival_us, partial(self.peer._receive, kind, data))

    def _is_unanswered(self) -> bool:
        here = self.local[0]
        there = self.remote[0]
        return self.network.is_cut(here, there) or self.network.is_cut(there, here)

    def _check_timeout(self, since_us: int) -> None:
        if self.is_lost or self.loop.is_dead or self._held_since_us != since_us:
            return
        self._held_since_us = -1
        if self._held or self._is_unanswered():
            self._held.clear()
            self._lose(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def retransmit(self) -> None:
        """A cut has been mended, perhaps this one."""
        if self.network.is_cut(self.local[0], self.remote[0]):
            return
        self._held_since_us = -1
        self.network.let_go(self)
        held = self._held
        self._held = deque()
        for kind, data in held:
            self._transmit(kind, data)
        if self.is_lost and not self._held:
            self.network.forget(self)

    def _receive(self, kind: str, data: bytes) -> None:
        if self.local[0] in self.network.down:
            # The piece is lost on the way into a dead machine: the sender's kernel keeps it and tries again.
            self.peer._held.append((kind, data))
            self.network.hold_up(self.peer)
            return
        if self.is_lost:
            if kind == DATA:
                self._transmit(RESET, b"")
            return
        if kind == RESET:
            self._inbox.clear()
            self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
            return
        if kind == FIN:
            self._has_eof = True
        if not self._inbox or kind == FIN:
            self.loop.arrive(self._read)
        self._inbox += data

    def acknowledge(self, count: int) -> None:
        """The other end has read so much."""
        self._in_flight -= count
        if self._out and not self.is_lost:
            self._pump()

    def _read(self) -> None:
        if self.is_lost or self._is_paused or self._is_closing or self._protocol is None:
            return
        inbox = self._inbox
        if inbox:
            wanted = len(inbox)
            if self.network.conditions.in_pieces and wanted > 1 and self.network.rng.random() < 0.2:
                wanted = self.network.rng.randrange(1, wanted + 1)
            if self._is_buffered:
                buffer = self._protocol.get_buffer(-1)
                count = min(wanted, len(buffer))
                buffer[:count] = inbox[:count]
                del inbox[:count]
                self._protocol.buffer_updated(count)
            else:
                count = wanted
                piece = bytes(inbox[:count])
                del inbox[:count]
                self._protocol.data_received(piece)
            self.peer.acknowledge(count)
        if inbox:
            self.loop.arrive(self._read)
        elif self._has_eof and not self.is_closing():
            self._has_eof = False
            if not self._protocol.eof_received():
                self.close()
