"""Client connections: bytes in, whole requests out, answers back in order.

A connection is one small object and no task. Requests are frames of `u32 size | bytes`; each becomes an `Exchange`,
which `serve` answers at once or later; answers leave in the order of the requests, so a later one that is ready
waits for an earlier one that is not. Whatever `serve` does before it returns happens in the order of the requests.

*Memory moves once.* All connections read into one shared scratch buffer: asyncio asks for the buffer and hands the
bytes over within one callback, so nobody else can be using it. A small request is copied out into memory of its
own; a large one gets that memory as soon as its size is known, and the rest is received straight into it. Either
way the request owns a writable `bytearray`, and what is inside (record batches) is used in place.

Answers of one loop iteration leave each connection together: a commit that answers fifty pipelined requests costs one
system call (uvloop would make fifty, and 35 µs each were measured).

*Every queue here has a limit, and reaching it means that reading stops*; TCP then holds the client back:

- requests held in memory over the whole node: `bytes_max`. One request may overshoot it, none starts above it;
- unanswered requests of one connection: `exchanges_max`;
- answers that the client does not take: the transport's buffer or answers waiting behind an unanswered request
  above `WRITE_HIGH_BYTES`;
- one parked request that may answer with much (a fetch), or that must act before those behind it (a commit whose
  coordinator is not certain yet), holds them back: `Exchange.hold`;
- connections: `connections_max`, one more is closed with a logged reason;
- a frame of impossible size (negative, or above `frame_bytes_max`) closes its connection, with a logged reason;
- log lines about misbehaving clients: `REASONS_PER_SWEEP`; the rest is counted.

Time enters through one sweep for all connections, which closes those that were silent for too many sweeps. It also
closes those that began a large request and stall while others wait for memory. Reading goes on while nothing is
held back, also behind a parked request: a client that leaves is noticed.

Not here: what the bytes mean (`dispatch`), TLS, quotas.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.memory import unfilled
from barnabas_raftlog.raft.messages import Buffer

from .turns import Turns

__all__ = ["Connection", "Exchange", "Limits", "Listener"]

logger = logging.getLogger(__name__)

SCRATCH_BYTES = 256 * 1024  # measured best for 16 KiB requests on uvloop
STARVED_READ_BYTES = 4 * 1024  # what a connection may still read to find out that there is no memory
DIRECT_BYTES = 64 * 1024  # a request larger than this is received into its own memory
WRITE_HIGH_BYTES = 1 << 20
REASONS_PER_SWEEP = 20
SWEEP_MS = 5_000
SWEEPS_STALLED = 6
_SIZE = struct.Struct(">i")
_SIZE_BYTES = 4
_REQUEST_BYTES_MIN = 8  # api key, version, correlation id


class Limits:
    """The limits that an operator sets; the others are constants of this module."""

    __slots__ = ("backlog", "bytes_max", "connections_max", "exchanges_max", "frame_bytes_max", "idle_ms")

    def __init__(
        self,
        *,
        bytes_max: int = 256 << 20,
        connections_max: int = 20_000,
        backlog: int = 1_024,
        exchanges_max: int = 100,
        frame_bytes_max: int = 100 << 20,
        idle_ms: int = 600_000,
    ) -> None:
        self.bytes_max, self.connections_max, self.exchanges_max = bytes_max, connections_max, exchanges_max
        self.backlog = backlog
        self.frame_bytes_max, self.idle_ms = frame_bytes_max, idle_ms


class Exchange:
    """One request and, in time, its answer. The owner of `frame` is whoever keeps a view of it.

    `abandon` is called, once, if the connection ends before the answer: whoever parks an exchange sets it.
    """

    __slots__ = (
        "abandon",
        "api_key",
        "buffers",
        "client_id",
        "connection",
        "correlation_id",
        "frame",
        "holds",
        "is_answered",
        "size_bytes",
        "version",
    )

    def __init__(self, connection: "Connection", frame: bytearray) -> None:
        self.connection = connection
        self.frame: bytearray | None = frame
        self.size_bytes = len(frame)
        self.is_answered = False
        self.holds = 0
        self.buffers: Sequence[Buffer] = ()
        self.abandon: Callable[[], None] | None = None
        # What the header says; the dispatcher reads it.
        self.api_key = self.version = -1
        self.correlation_id = 0
        self.client_id: str | None = None

    def answer(self, buffers: Sequence[Buffer]) -> None:
        """Give the answer, size prefix included; empty for a request that is not answered (acks=0).

        The buffers must not change any more. After the connection ended, this has no effect.
        """
        assert not self.is_answered
        self.is_answered = True
        self.buffers = buffers
        self.frame = self.abandon = None
        self.connection._answered(self)

    def hold(self) -> None:
        """Serve nothing more from this connection until this exchange is answered, or `release` called as often."""
        if self.is_answered:
            return
        if not self.holds:
            self.connection._holding += 1
        self.holds += 1

    def release(self) -> None:
        """Serve what is behind this exchange again, though it may not be answered yet."""
        if self.holds:
            self.holds -= 1
            if not self.holds:
                self.connection._holding -= 1
                self.connection._unblock()

    @property
    def is_gone(self) -> bool:
        """Nobody is there any more who could be answered."""
        return self.connection.is_closed

    @property
    def turns(self) -> Turns:
        return self.connection._listener.turns

    @property
    def meter(self) -> LoopMeter:
        return self.connection._listener.meter


class Connection(asyncio.BufferedProtocol):
    """One client. Invariant: `_held` is what was received and not yet served; it starts at a size prefix."""

    __slots__ = (
        "_exchanges",
        "_filled",
        "_frame",
        "_held",
        "_holding",
        "_is_parsing",
        "_is_reading_paused",
        "_is_writing_paused",
        "_listener",
        "_output",
        "_queued_bytes",
        "_transport",
        "is_closed",
        "last_sweep",
        "peer",
        "software",
    )

    def __init__(self, listener: "Listener") -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._exchanges: deque[Exchange] = deque()
        self._frame: bytearray | None = None
        self._filled = 0
        self._held = b""
        self._output: list[Buffer] = []
        self._holding = self._queued_bytes = 0
        self._is_parsing = self._is_reading_paused = self._is_writing_paused = False
        self.is_closed = False
        self.last_sweep = listener.sweep_count
        self.peer = "?"
        self.software = ""

    def __repr__(self) -> str:
        return f"{self.peer}{f' ({self.software})' if self.software else ''}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not isinstance: uvloop's transports are no subclass.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "local"
        self._listener._connected(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self._transport = None
        listener = self._listener
        if self._frame is not None:
            listener._release(len(self._frame))
        self._frame, self._held = None, b""
        exchanges = list(self._exchanges)
        self._exchanges.clear()
        for exchange in exchanges:
            listener._release(exchange.size_bytes)
        try:
            call_each(exchanges, _abandon)
        finally:
            listener._disconnected(self)

    def eof_received(self) -> bool:
        return False

    def close(self, reason: str) -> None:
        """Close after what is already written; `reason` goes to the log."""
        if not self.is_closed:
            self._listener._log_reason(self, reason)
            self._close()

    def _close(self) -> None:
        self.is_closed = True
        if self._transport is not None:
            self._send()
            self._transport.close()

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._unblock()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        scratch, start = self._listener._scratch, len(self._held)
        if start:
            scratch[:start] = self._held
        if self._listener.bytes_in_use >= self._listener.limits.bytes_max:
            return scratch[start : start + STARVED_READ_BYTES]
        return scratch[start:]

    def buffer_updated(self, count: int) -> None:
        self._listener.meter.run("read from a client", self._received, count)

    def _received(self, count: int) -> None:
        self.last_sweep = self._listener.sweep_count
        frame = self._frame
        if frame is None:
            end = len(self._held) + count
            self._held = b""
            self._parse(self._listener._scratch[:end])
            return
        self._filled += count
        if self._filled == len(frame) and not self.is_closed:
            self._frame = None
            self._is_parsing = True
            self._begin(frame)
            self._is_parsing = False
            self._pause_if_blocked()

    @property
    def is_idle(self) -> bool:
        """No request is being served. One that is half received and goes no further counts as silence."""
        return not self._exchanges

    @property
    def is_stalled_midway(self) -> bool:
        """A large request has begun to arrive."""
        return self._frame is not None

    def _parse(self, data: memoryview) -> None:
        """Serve every whole request in `data`, which is only valid during this call, and keep the rest."""
        position, end = 0, len(data)
        frame_bytes_max = self._listener.limits.frame_bytes_max
        self._is_parsing = True
        while end - position >= _SIZE_BYTES and not self.is_closed:
            size: int = _SIZE.unpack_from(data, position)[0]
            if not _REQUEST_BYTES_MIN <= size <= frame_bytes_max:
                self.close(f"a request of {size} bytes; from {_REQUEST_BYTES_MIN} to {frame_bytes_max} are accepted")
                break
            if self._is_blocked():
                break
            start = position + _SIZE_BYTES
            if start + size <= end:
                position = start + size
                frame = bytearray(data[start:position])
                self._listener.bytes_in_use += size
                self._begin(frame)
            elif size > DIRECT_BYTES:
                frame = unfilled(size)
                self._listener.bytes_in_use += size
                self._filled = end - start
                frame[: self._filled] = data[start:end]
                self._frame = frame
                position = end
            else:
                break
        self._is_parsing = False
        if self.is_closed:
            return
        if position < end:
            self._held = bytes(data[position:end])
        self._pause_if_blocked()

    def _begin(self, frame: bytearray) -> None:
        exchange = Exchange(self, frame)
        self._exchanges.append(exchange)
        self._listener.serve(exchange)

    def _is_blocked(self) -> bool:
        listener = self._listener
        return (
            len(self._exchanges) >= listener.limits.exchanges_max
            or self._is_writing_paused
            or self._holding > 0
            or self._queued_bytes >= WRITE_HIGH_BYTES
            or listener.bytes_in_use >= listener.limits.bytes_max
        )

    def _pause_if_blocked(self) -> None:
        # In the middle of a large request nothing is held, and reading goes on: its memory is taken already.
        if not self._held or self._is_reading_paused or self._transport is None or not self._is_blocked():
            return
        self._is_reading_paused = True
        self._transport.pause_reading()
        if self._listener.bytes_in_use >= self._listener.limits.bytes_max:
            self._listener._starved[self] = None

    def _unblock(self) -> None:
        """Take up reading where it stopped, if what stopped it is over."""
        if not self._is_reading_paused or self._is_parsing or self.is_closed:
            return
        if self._is_blocked():
            if self._listener.bytes_in_use >= self._listener.limits.bytes_max:
                self._listener._starved[self] = None
            return
        self._is_reading_paused = False
        held, self._held = self._held, b""
        if held:
            self._parse(memoryview(held))
        if not self._is_reading_paused and self._transport is not None and not self.is_closed:
            self._transport.resume_reading()

    def _answered(self, exchange: Exchange) -> None:
        if exchange.holds:
            exchange.holds = 0
            self._holding -= 1
        exchanges = self._exchanges
        if not exchanges:
            return  # The connection has ended, and nothing is kept.
        for buffer in exchange.buffers:
            self._queued_bytes += len(buffer)
        # It may be that somebody before it is not ready.
        while exchanges and exchanges[0].is_answered:
            first = exchanges.popleft()
            self._output += first.buffers
            self._listener._release(first.size_bytes)
        if self._output:
            self._listener._send_soon(self)
        if self._is_reading_paused:
            self._unblock()

    def _break(self, error: Exception) -> None:
        """What was to be done for several connections has failed for this one."""
        self._listener._log_reason(self, f"{type(error).__name__}: {error}")
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def _send(self) -> None:
        """Hand the answers of one loop iteration to the transport: one system call for all of them."""
        output, self._output = self._output, []
        for buffer in output:
            self._queued_bytes -= len(buffer)
        if output and self._transport is not None:
            self._transport.writelines(output)
        if self._is_reading_paused:
            self._unblock()


class Listener:
    """The listening socket and all its connections.

    Invariant: `bytes_in_use` is the sum of the sizes of all requests that were begun and not yet answered.
    `serve` gets each exchange, synchronously and in order; it must not raise for anything a client can cause.
    """

    def __init__(self, limits: Limits, serve: Callable[[Exchange], None], meter: LoopMeter | None = None) -> None:
        self.limits = limits
        self.serve = serve
        self.meter = meter or LoopMeter()
        self.turns = Turns(meter=self.meter)
        self.bytes_in_use = 0
        self.sweep_count = 0
        self.accepted_count = self.refused_count = 0
        self.port = 0
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._connections: dict[Connection, None] = {}  # in the order of their beginning
        self._starved: dict[Connection, None] = {}
        self._sending: dict[Connection, None] = {}
        self._feeding: asyncio.Handle | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._reasons = 0
        self._all_closed: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._connections)

    async def bind(self, host: str, port: int) -> None:
        """Take the address without accepting anybody yet. Port 0 takes a free one, which `port` then tells.

        Raises:
            OSError: the address cannot be had; most often another process listens there.
        """
        loop = asyncio.get_running_loop()
        backlog = self.limits.backlog
        self._server = await loop.create_server(
            lambda: Connection(self), host, port, backlog=backlog, start_serving=False
        )
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def accept(self) -> None:
        """Let clients in."""
        assert self._server is not None, "bind() first"
        await self._server.start_serving()
        self._sweep()

    def stop_accepting(self) -> None:
        """Close the listening socket; open connections go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self, timeout_s: float = 1.0) -> None:
        """Close every connection after what is written to it; abort those that do not take it in time."""
        self.stop_accepting()
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._all_closed = asyncio.Event()
        for connection in list(self._connections):
            connection._close()
        if self._connections:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._all_closed.wait()
            except TimeoutError:
                for connection in list(self._connections):
                    if connection._transport is not None:
                        connection._transport.abort()

    def _connected(self, connection: Connection) -> None:
        self._connections[connection] = None
        self.accepted_count += 1
        if len(self._connections) > self.limits.connections_max:
            self.refused_count += 1
            connection.close(f"{self.limits.connections_max} connections are open already, the limit of this broker")

    def _disconnected(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._starved.pop(connection, None)
        if self._all_closed is not None and not self._connections:
            self._all_closed.set()

    def _release(self, size_bytes: int) -> None:
        self.bytes_in_use -= size_bytes
        assert self.bytes_in_use >= 0
        if self._starved and self._feeding is None and self.bytes_in_use < self.limits.bytes_max:
            # Later, not here: whoever is fed may release memory again, and this must not nest.
            self._feeding = asyncio.get_running_loop().call_soon(self._feed_starved)

    def _send_soon(self, connection: Connection) -> None:
        if not self._sending:
            asyncio.get_running_loop().call_soon(self.meter.run, "answers", self._send_all)
        self._sending[connection] = None

    def _send_all(self) -> None:
        sending, self._sending = self._sending, {}
        call_each(sending, Connection._send, Connection._break)

    def _feed_starved(self) -> None:
        self._feeding = None
        starved, self._starved = self._starved, {}
        call_each(starved, Connection._unblock, Connection._break)

    def _sweep(self) -> None:
        self.sweep_count += 1
        self._reasons = 0
        delay_ms = min(SWEEP_MS, self.limits.idle_ms // 10)
        self._sweeping = asyncio.get_running_loop().call_later(delay_ms / 1000, self._sweep)
        idle_since = self.sweep_count - self.limits.idle_ms // delay_ms
        stalled_since = max(idle_since, self.sweep_count - SWEEPS_STALLED)
        for connection in [one for one in self._connections if one.last_sweep < stalled_since and not one.is_closed]:
            if connection.is_stalled_midway and self._starved:
                connection.close("a large request has stalled, and others wait for the memory it holds")
            elif connection.is_idle and connection.last_sweep < idle_since:
                connection.close(f"nothing was received for {self.limits.idle_ms} ms (connections.max.idle.ms)")

    def _log_reason(self, connection: Connection, reason: str) -> None:
        self._reasons += 1
        if self._reasons <= REASONS_PER_SWEEP:
            logger.warning("closing the connection from %s: %s", connection, reason)
        elif self._reasons == REASONS_PER_SWEEP + 1:
            logger.warning("more connections are being closed; their reasons are left out for a while")


def _abandon(exchange: Exchange) -> None:
    if exchange.abandon is not None:
        exchange.abandon()
