"""Sends metrics on to a collector, by OTLP over HTTP: what a client pushed is what such a request carries.

One push after the other, on a connection of its own. A collector that is slow, refuses or is not there holds nobody
back: what waits is bounded, and what has no room is dropped and counted. One line in `COMPLAIN_S` says so.

Limits: `WAITING_BYTES_MAX` that wait; `TIMEOUT_S` for one request; `ANSWER_BYTES_MAX` of an answer are read.

Not here: TLS (a collector stands beside the broker, or behind something that speaks it), and repetition: metrics of a
moment are worth little in the next.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from barnabas_broker.config.collector import Collector
from barnabas_raftlog.printable import printable

__all__ = ["WAITING_BYTES_MAX", "Exporter"]

logger = logging.getLogger(__name__)

WAITING_BYTES_MAX = 8 << 20
TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 64 << 10
COMPLAIN_S = 60.0
CONTENT_TYPE = "application/x-protobuf"


class _RefusedError(Exception):
    pass


class Exporter:
    """Owned by the loop. `spawn` runs the one task that sends, which lives while something waits."""

    def __init__(self, collector: Collector, spawn: Callable[..., None]) -> None:
        self._collector = collector
        self._spawn = spawn
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._is_sending = False
        self._complained_s = float("-inf")
        self.sent = self.dropped = 0

    def send_soon(self, data: bytes) -> None:
        """Let metrics leave; those that have no room are dropped."""
        if self._waiting_bytes + len(data) > WAITING_BYTES_MAX:
            self._drop(f"{self._waiting_bytes} bytes wait already")
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if not self._is_sending:
            self._is_sending = True
            self._spawn(self._send())

    async def _send(self) -> None:
        try:
            while self._waiting:
                data = self._waiting.popleft()
                try:
                    async with asyncio.timeout(TIMEOUT_S):
                        await self._post(data)
                except TimeoutError:
                    self._drop(f"no answer within {TIMEOUT_S:g} s")
                except (OSError, ValueError, _RefusedError) as error:  # no such host, nobody there, no HTTP
                    self._drop(str(error))
                else:
                    self.sent += 1
                finally:
                    self._waiting_bytes -= len(data)
        finally:
            self._is_sending = False

    async def _post(self, data: bytes) -> None:
        host, port, path = self._collector
        reader, writer = await asyncio.open_connection(host, port, limit=ANSWER_BYTES_MAX)
        try:
            named = f"[{host}]" if ":" in host else host
            head = (
                f"POST {path} HTTP/1.1\r\nHost: {named}:{port}\r\nContent-Type: {CONTENT_TYPE}\r\n"
                f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode("ascii"))
            writer.write(data)
            await writer.drain()
            words = (await reader.readline()).split(None, 2)
            if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].startswith(b"2"):
                raise _RefusedError(f"it says {printable(b' '.join(words).decode('latin-1'), 200)!r}")
        finally:
            writer.close()

    def _drop(self, reason: str) -> None:
        self.dropped += 1
        now_s = asyncio.get_running_loop().time()
        if now_s - self._complained_s >= COMPLAIN_S:
            self._complained_s = now_s
            host, port, _ = self._collector
            logger.warning("clients' metrics for %s:%s are dropped, %s so far: %s", host, port, self.dropped, reason)
