"""A wire between client and broker that a test can cut without telling either.

Bytes go in then and nothing comes out. Unlike a broker that was suspended, which is one process, a cut wire harms one
direction of one client's view; and unlike a killed broker it never answers with a reset. New connections are taken
while it is cut, and lead nowhere.

Bytes can also vanish in one direction of the connections that there are (`lose`), as if a firewall had forgotten them:
the other direction and new connections work.

Limit: chunks that were read before the cut are delivered, at most one each way and connection.
"""

import asyncio
import contextlib
from typing import Literal, Self

import servers

__all__ = ["Proxy", "Way"]

CHUNK_BYTES = 65_536
Way = Literal["onwards", "back"]  # to the target, to the client


class Proxy:
    """Listens on `port` of loopback and forwards to `target_port`, which may be set later. Use it as `async with`."""

    def __init__(self, port: int = 0, target_port: int = 0) -> None:
        self.port = port
        self.target_port = target_port
        self._whole = asyncio.Event()
        self._whole.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._lost: dict[asyncio.Task[None], set[Way]] = {}  # by the connection that a task serves
        self._is_closed = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await servers.end(self._server)
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cut(self) -> None:
        """Let nothing through any more."""
        self._whole.clear()

    def mend(self) -> None:
        """Let everything through, also the bytes that were held back."""
        self._whole.set()

    def lose(self, way: Way) -> None:
        """Let all bytes vanish that go this way on the connections that are open now; nobody is told."""
        for lost in self._lost.values():
            lost.add(way)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closed:
            # It was accepted in the moment of the close, when nobody knew of it yet.
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        lost = set[Way]()
        self._lost[task] = lost
        task.add_done_callback(self._forget)
        with contextlib.suppress(OSError, asyncio.CancelledError), contextlib.closing(writer):
            await self._whole.wait()
            upstream, sink = await asyncio.open_connection("127.0.0.1", self.target_port)
            with contextlib.closing(sink):
                ways = (
                    self._forward(reader, sink, lost, "onwards"),
                    self._forward(upstream, writer, lost, "back"),
                )
                both = [asyncio.ensure_future(way) for way in ways]
                try:
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in both:
                        way.cancel()
                    await asyncio.wait(both)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        del self._lost[task]

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: set[Way], way: Way
    ) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                await self._whole.wait()
                if way not in lost:
                    writer.write(chunk)
                    await writer.drain()
