"""The socket of the liveness datagrams: UDP on the number of the TCP port.

The library (asyncio-dgram) has an unbounded receive queue, so the one reader takes all that is in it before the loop
goes on (`recv` does not suspend while the queue has something), and the kernel's buffer is the only queue that can
fill. The socket is bound by us and handed over (`from_socket`), which is the way to set its receive buffer: 1 MiB holds
the datagrams of a stalled second from more peers than a cluster has.
"""

import socket
from collections.abc import Callable
from typing import Protocol

import asyncio_dgram
from asyncio_dgram.aio import DatagramServer

__all__ = ["DatagramSocket", "Datagrams"]

RECEIVE_BUFFER_BYTES = 1 << 20


class Datagrams(Protocol):
    """Datagrams as the links use them; the simulator brings its own."""

    on_datagram: Callable[[bytes, object], None]

    async def open(self, family: int, address: tuple[object, ...]) -> None: ...
    async def send(self, data: bytes, address: tuple[object, ...]) -> None: ...
    async def run(self) -> None: ...
    def close(self) -> None: ...


class DatagramSocket:
    """Sends and receives datagrams. `run` reads until the socket is closed."""

    def __init__(self, on_datagram: Callable[[bytes, object], None]) -> None:
        self.on_datagram = on_datagram
        self._stream: DatagramServer | None = None
        self.errors = 0

    async def open(self, family: int, address: tuple[object, ...]) -> None:
        """Bind. Raises OSError when the port is taken."""
        sock = socket.socket(family, socket.SOCK_DGRAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
            sock.bind(address)
            stream = await asyncio_dgram.from_socket(sock)
            assert isinstance(stream, DatagramServer)
            self._stream = stream
        except BaseException:
            sock.close()
            raise

    async def send(self, data: bytes, address: tuple[object, ...]) -> None:
        """Send, or lose it: a network that is down now may be up at the next interval."""
        if self._stream is None:
            return
        try:
            await self._stream.send(data, address)
        except OSError:
            self.errors += 1
        except asyncio_dgram.TransportClosed:
            self._stream = None

    async def run(self) -> None:
        """Hand over every datagram until the socket closes. Cancellation: only queued datagrams are lost."""
        while self._stream is not None:
            try:
                data, address = await self._stream.recv()
            except OSError:
                self.errors += 1
                continue
            except asyncio_dgram.TransportClosed:
                return
            if isinstance(data, bytes):
                self.on_datagram(data, address)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
