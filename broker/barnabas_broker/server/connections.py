"""Client connections: bytes in, whole requests out, answers back in order.

A connection is one small object and no task. Requests are frames of `u32 size | bytes`; each becomes an `Exchange`,
which `serve` answers at once or later; answers leave in the order of the requests, so a later one that is ready waits
for an earlier one that is not. All that `serve` does before it returns happens in the order of the requests.

*Memory moves once.* All connections read into one shared scratch buffer: asyncio asks for the buffer and hands the
bytes over within one callback, so no other connection can be using it. A small request is copied out into memory of its
own; a large one gets that memory as soon as its size is known, and the rest is received straight into it. Either way
the request owns a writable `bytearray`, and the record batches inside are used in place. If they are the lesser part,
they are copied once more: else a few bytes in the cache of a log would keep 100 MiB.

Answers of one loop iteration leave each connection together: a commit that answers fifty pipelined requests costs one
system call (uvloop would make fifty, and 35 µs each were measured). A short answer (`PROMPT_BYTES`) that nothing else
of its connection waits behind leaves at once: in a later turn it would come behind everything that is read until then.
`PROMPT_AT_ONCE` such answers may leave in each `PROMPT_S`, because others wait for the callback that answers. An answer
longer than `SENT_AT_ONCE_BYTES` leaves in several turns, in pieces no larger than the transport takes: bytes beyond
that would go to the kernel at once.

*Nobody has the loop for long*, however much has arrived: of one connection `SERVED_AT_ONCE` requests are served in one
turn of the loop, or as many as take `SLICE_S`; of all those that have more, as many in one turn as take that time, and
of all that have answers to send as many as take `SENDING_S`. A connection that waits for its next turn is not read from
meanwhile. Where there are many clients, those that have had many such turns lately let those go first that ask for
little (`patience`).

*Every queue here has a limit, and reaching it means that reading stops*; TCP then holds the client back:

- bytes that all clients make the node hold, requests that have arrived and answers that were not taken: `bytes_max`,
  and an eighth of that for those that hold little (`transient_bytes` says who waits);
- unanswered requests of one connection: `exchanges_max`;
- answers that the client does not take: the transport's buffer or answers waiting behind an unanswered request
  above `WRITE_HIGH_BYTES`;
- one parked request that may answer with much (a fetch), or that must act before those behind it (a commit whose
  coordinator is not certain yet), holds them back: `Exchange.hold`;
- connections: `connections_max`, and `per_host_max` from one address; one more is closed with a logged reason;
- a frame of impossible size (negative, or above `frame_bytes_max`) closes its connection, with a logged reason, which
  names TLS and HTTP if that is what it was;
- log lines about misbehaving clients: `REASONS_PER_SWEEP`; the rest is counted.

Time enters through one sweep for all connections, which closes those that were silent for too many sweeps. It also
closes those that have sent a part of a request, or have an answer to take, and for `SWEEPS_STALLED` times `SWEEP_MS`,
however frequent the sweeps are, make less progress than `RATE_BYTES_MIN` a second. Reading goes on while nothing is
held back, also behind a parked request: a client that leaves is noticed.

Not here: what the bytes mean (`dispatch`), TLS, quotas.
"""

import asyncio
import fcntl
import logging
import struct
import sys
import termios
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count, islice
from typing import cast

from barnabas_broker.access.client_proof import Challenge
from barnabas_broker.config.listeners import DEFAULT_NAME
from barnabas_broker.timing.patience import LITTLE, Crowd, Patience
from barnabas_broker.timing.turns import SLICE_S, Turns
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.foreign_protocols import complaint_about
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.memory import unfilled
from barnabas_raftlog.raft.messages import Buffer

from .cold_window import ColdWindow
from .transient_bytes import SMALL_BYTES, TransientBytes

__all__ = ["Connection", "Exchange", "Leftover", "Limits", "Listener"]

logger = logging.getLogger(__name__)

SCRATCH_BYTES = 256 * 1024  # measured best for 16 KiB requests on uvloop
STARVED_READ_BYTES = 4 * 1024  # what a connection may still read to find out that there is no memory
DIRECT_BYTES = 64 * 1024  # a request larger than this is received into its own memory
WRITE_HIGH_BYTES = 1 << 20
REASONS_PER_SWEEP = 20
SWEEP_MS = 5_000
SWEEPS_STALLED = 6
RATE_BYTES_MIN = 4 * 1024
FED_AT_ONCE = 500  # connections
SWEPT_AT_ONCE = 1_000  # likewise
SENDING_S = 0.003  # of a turn of the loop for answers: one commit makes hundreds, 30 µs each, and they are waited for
PROMPT_AT_ONCE = 8
PROMPT_S = 0.001
PROMPT_BYTES = 16 << 10
SENT_AT_ONCE_BYTES = 512 << 10  # of one connection; the system call copies them, at up to 10 ms a megabyte
FREED_ALONE_BYTES = 4 << 20  # of a request; to give 100 MiB back to the kernel takes 5 to 10 ms
SERVED_AT_ONCE = 64  # requests of one connection; few of them take more than 50 µs
ROOMLESS_AT_ONCE = 50  # fetches that look again
_SIZE = struct.Struct(">i")
_SIZE_BYTES = 4
_REQUEST_BYTES_MIN = 8  # api key, version, correlation id


class Limits:
    """The limits that an operator sets; the others are constants of this module."""

    __slots__ = (
        "backlog",
        "bytes_max",
        "connections_max",
        "exchanges_max",
        "frame_bytes_max",
        "idle_ms",
        "per_host_max",
    )

    def __init__(
        self,
        *,
        bytes_max: int = 128 << 20,
        connections_max: int = 20_000,
        per_host_max: int = 2**31 - 1,
        backlog: int = 1_024,
        exchanges_max: int = 100,
        frame_bytes_max: int = 100 << 20,
        idle_ms: int = 600_000,
    ) -> None:
        self.bytes_max = bytes_max
        self.connections_max = connections_max
        self.exchanges_max = exchanges_max
        self.backlog = backlog
        self.per_host_max = per_host_max
        self.frame_bytes_max = frame_bytes_max
        self.idle_ms = idle_ms

    @property
    def sweep_ms(self) -> int:
        """How often all connections are looked at: at least ten times in `idle_ms`."""
        return min(SWEEP_MS, self.idle_ms // 10)


class Exchange:
    """One request and, in time, its answer. The owner of `frame` is the code that keeps a view of it.

    `size_bytes` is what it makes the node hold until it is answered: at first the request. `abandon` is called, once,
    if the connection ends before the answer: code that parks an exchange sets it.
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
        # The dispatcher reads these from the header.
        self.api_key = self.version = -1
        self.correlation_id = 0
        self.client_id: str | None = None

    def answer(self, buffers: Sequence[Buffer], *, keeps_frame: bool = False) -> None:
        """Give the answer, size prefix included; empty for a request that is not answered (acks=0).

        The buffers must not change any more. After the connection ended, this has no effect. With `keeps_frame` there
        are views of the request yet, and `forget_frame` is called when there are none.
        """
        assert not self.is_answered
        self.is_answered = True
        self.buffers = buffers
        self.abandon = None
        if not keeps_frame:
            self.forget_frame()
        self.connection._answered(self)

    def forget_frame(self) -> None:
        """Let go of the received bytes; views of them keep them."""
        if self.frame is not None:
            self.connection._listener._free_later(self.frame)
            self.frame = None

    def give_up(self, reason: str) -> None:
        """Close the connection, because that is all that can be said; `reason` goes to the log."""
        self.connection.close(reason)
        if not self.is_answered:
            self.answer(())

    def grow(self, count: int) -> None:
        """Note that `count` bytes more are held for this exchange until it is answered."""
        if not self.is_answered and not self.connection.is_closed:
            self.size_bytes += count
            self.connection._listener.account.add(self.connection, count)

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

    def cold_window(self) -> ColdWindow:
        """Return what tells how much of its answer may be read from disk."""
        connection = self.connection
        if connection._cold_window is None:
            connection._cold_window = ColdWindow()
        return connection._cold_window

    def untaken_bytes(self) -> tuple[int, int]:
        """Return how much of earlier answers this process still holds, and how much the kernel."""
        connection = self.connection
        connection._count_answers()
        return connection._answer_bytes, _unacknowledged_bytes(connection._transport)

    def await_room(self, call: Callable[[], None]) -> None:
        """Let `call` be called when there is room for more answers, if there is too little now: once, and not soon."""
        listener = self.connection._listener
        if listener.account.is_scarce and not self.connection.is_closed:
            listener._roomless[self] = call

    def forget_room(self) -> None:
        """Take back what `await_room` has asked for."""
        self.connection._listener._roomless.pop(self, None)

    @property
    def slices(self) -> int:
        """How many slices of the loop's time its client has had lately; nobody waits for what is only let go."""
        return 0 if self.connection.is_closed else self.connection.slices

    def note_slice(self) -> None:
        self.connection.slices += 1

    @property
    def is_small(self) -> bool:
        return self.size_bytes <= SMALL_BYTES

    @property
    def room_bytes(self) -> int:
        """How many bytes its answer should have at most; -1: none, there is no room. One batch may be larger."""
        account = self.connection._listener.account
        return -1 if account.must_wait(self.connection) else account.room_for_answer()

    @property
    def listener_name(self) -> str:
        """The listener that its client came in on, whose addresses it is to be told."""
        return self.connection.listener_name

    @property
    def is_gone(self) -> bool:
        """True once there is no client any more to answer."""
        return self.connection.is_closed

    @property
    def turns(self) -> Turns:
        return self.connection._listener.turns

    @property
    def meter(self) -> LoopMeter:
        return self.connection._listener.meter


class Leftover:
    """A request whose bytes are needed yet, though it was answered, or its client has gone.

    Until `end` they count, and nothing more is served from the connection.
    """

    __slots__ = ("_connection", "held_bytes", "host")

    def __init__(self, exchange: Exchange) -> None:
        self._connection = connection = exchange.connection
        self.host = connection.host
        self.held_bytes = 0
        connection._listener.account.add(self, exchange.size_bytes)
        connection._holding += 1

    def end(self) -> None:
        """Nothing of them is needed any more."""
        connection = self._connection
        connection._listener.account.forget(self)
        connection._listener._freed()
        connection._holding -= 1
        connection._unblock()


class Connection(asyncio.BufferedProtocol):
    """One client. Invariant: `_held` is what was received and not yet served; it starts at a size prefix."""

    __slots__ = (
        "_answer_bytes",
        "_answered_bytes",
        "_cold_window",
        "_exchanges",
        "_filled",
        "_frame",
        "_held",
        "_holding",
        "_is_parsing",
        "_is_queued",
        "_is_reading_paused",
        "_is_sending",
        "_is_writing_paused",
        "_listener",
        "_marks",
        "_output",
        "_queued_bytes",
        "_strikes",
        "_transport",
        "challenge",
        "held_bytes",
        "host",
        "is_closed",
        "last_sweep",
        "listener_name",
        "peer",
        "received_bytes",
        "slices",
        "software",
    )

    def __init__(self, listener: "Listener", listener_name: str = DEFAULT_NAME) -> None:
        self._listener = listener
        self.listener_name = listener_name  # the one that the client came in on
        self._transport: asyncio.Transport | None = None
        self._exchanges: deque[Exchange] = deque()
        self._frame: bytearray | None = None
        self._filled = 0
        self._held = b""
        self._output: list[Buffer] | deque[Buffer] = []
        self._holding = self._queued_bytes = 0
        # Bytes held in the account, bytes received and answered in all, and both as of the last sweep.
        self.held_bytes = self.received_bytes = self._answered_bytes = self._answer_bytes = self._strikes = 0
        self._marks = 0, 0
        self._cold_window: ColdWindow | None = None
        self.host = ""
        self._is_parsing = self._is_reading_paused = self._is_writing_paused = False
        self._is_queued = self._is_sending = False  # in the queues of the listener
        self.is_closed = False
        self.slices = 0  # beyond the first one of a turn of the loop; of those of earlier sweeps, a part
        self.last_sweep = listener.sweep_count
        self.peer = "?"
        self.software = ""
        self.challenge: Challenge | None = None  # that the next proof on it must answer

    def __repr__(self) -> str:
        return f"{self.peer}{f' ({self.software})' if self.software else ''}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not isinstance: uvloop's transports are no subclass.
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.host = name[0]
            self.peer = f"{name[0]}:{name[1]}"
        else:
            self.peer = "local"
        self._listener._connected(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self._transport = None
        listener = self._listener
        if self._frame is not None:
            listener._free_later(self._frame)
        self._frame = None
        self._held = b""
        exchanges = list(self._exchanges)
        self._exchanges.clear()
        listener.account.forget(self)
        listener._freed()
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

    def drop(self, reason: str) -> None:
        """Close at once; answers that are written and not taken are lost."""
        self._listener._log_reason(self, reason)
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def _close(self) -> None:
        self.is_closed = True
        if self._transport is not None and not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()
        self._end()

    def _end(self) -> None:
        """Close the transport, once it has all answers."""
        if self._transport is not None and not self._output:
            self._transport.close()

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        if self._output:
            self._listener._send_soon(self)
        self._count_answers()
        self._unblock()

    def get_buffer(self, sizehint: int) -> memoryview:
        count = STARVED_READ_BYTES if self._listener.account.must_wait(self) else SCRATCH_BYTES
        if self._frame is not None:
            # Not all of it at once: the kernel may have megabytes, of many clients.
            return memoryview(self._frame)[self._filled : self._filled + count]
        scratch = self._listener._scratch
        start = len(self._held)
        if start:
            scratch[:start] = self._held
        return scratch[start : start + count]

    def buffer_updated(self, count: int) -> None:
        self._listener.meter.run("read from a client", self._received, count)

    def _received(self, count: int) -> None:
        listener = self._listener
        self.last_sweep = listener.sweep_count
        if self.slices < LITTLE:
            listener.crowd.reads += 1
        self.received_bytes += count
        frame = self._frame
        if frame is None:
            end = len(self._held) + count
            self._keep(b"")
            self._parse(listener._scratch[:end])
            return
        self._filled += count
        listener.account.add(self, count)
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

    def is_stuck(self) -> bool:
        """Tell whether the client has made too little progress since it was last asked about: one question a sweep.

        It owes the rest of a request, or takes an answer too slowly. A client that is not read from owes nothing. An
        answer that waits for the one before it, or leaves in this turn of the loop, is not the client's to take yet.
        """
        self._count_answers()
        taken_bytes = self._answered_bytes - self._answer_bytes
        owes = (self._frame is not None or bool(self._held)) and not self._is_reading_paused
        sweep_ms = self._listener.limits.sweep_ms
        due_bytes = RATE_BYTES_MIN * sweep_ms // 1000
        is_late = owes and self.received_bytes - self._marks[0] < due_bytes
        # The transport's share as of a moment ago: to ask it is a call for each of thousands of connections.
        offered_bytes = 0 if self._transport is None else self._answer_bytes - self._queued_bytes
        is_slow = offered_bytes > 0 and taken_bytes - self._marks[1] < due_bytes
        self._marks = self.received_bytes, taken_bytes
        self._strikes = self._strikes + 1 if is_late or is_slow else 0
        return self._strikes * sweep_ms >= SWEEPS_STALLED * SWEEP_MS

    def _keep(self, data: bytes) -> None:
        """Hold `data` until more has arrived, or it can be served."""
        change = len(data) - len(self._held)
        self._held = data
        if change:
            self._listener.account.add(self, change)

    def _parse(self, data: memoryview) -> None:
        """Serve the whole requests in `data`, which is only valid during this call, and keep the rest.

        If they are many, or take long, the rest is served in a later turn of the loop.
        """
        position = 0
        end = len(data)
        clock = asyncio.get_running_loop().time
        left = SERVED_AT_ONCE
        until_s = clock() + SLICE_S
        is_over = False
        frame_bytes_max = self._listener.limits.frame_bytes_max
        account = self._listener.account
        self._is_parsing = True
        while end - position >= _SIZE_BYTES and not self.is_closed:
            size: int = _SIZE.unpack_from(data, position)[0]
            if not _REQUEST_BYTES_MIN <= size <= frame_bytes_max:
                sizes = f"a request of {size} bytes; from {_REQUEST_BYTES_MIN} to {frame_bytes_max} are accepted"
                self.close(complaint_about(bytes(data[position : position + _SIZE_BYTES])) or sizes)
                break
            if self._is_blocked():
                break
            if is_over:
                self._serve_later()
                break
            start = position + _SIZE_BYTES
            if start + size <= end:
                position = start + size
                frame = bytearray(data[start:position])
                account.add(self, size)
                self._begin(frame)
                left -= 1
                is_over = not left or clock() >= until_s
            elif size > DIRECT_BYTES:
                frame = unfilled(size)
                self._filled = end - start
                account.add(self, self._filled)
                frame[: self._filled] = data[start:end]
                self._frame = frame
                position = end
            else:
                break
        self._is_parsing = False
        if self.is_closed:
            return
        if position < end:
            self._keep(bytes(data[position:end]))
        self._pause_if_blocked()

    def _begin(self, frame: bytearray) -> None:
        exchange = self._listener.new_exchange(self, frame)
        self._exchanges.append(exchange)
        self._listener.serve(exchange)

    def _is_blocked(self) -> bool:
        listener = self._listener
        if self._frame is not None:
            # The limit of requests has let this one begin.
            return listener.account.must_wait(self)
        return (
            len(self._exchanges) >= listener.limits.exchanges_max
            or self._is_writing_paused
            or self._holding > 0
            or self._queued_bytes >= WRITE_HIGH_BYTES
            or listener.account.must_wait(self)
        )

    def _pause_if_blocked(self) -> None:
        has_begun = self._held or self._frame is not None
        if not has_begun or self._is_reading_paused or self._transport is None or not self._is_blocked():
            return
        self._is_reading_paused = True
        self._transport.pause_reading()
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        if self._listener.account.must_wait(self):
            self._listener._starved[self] = None
            self._listener._freed()

    def _serve_later(self) -> None:
        """Serve what is held in a later turn of the loop, and read nothing more until then."""
        if not self._is_reading_paused and self._transport is not None:
            self._is_reading_paused = True
            self._transport.pause_reading()
        self.slices += 1
        self._listener._go_on_later(self)

    def _unblock(self) -> None:
        """Take up reading where it stopped, if what stopped it is over."""
        if not self._is_reading_paused or self._is_parsing or self.is_closed:
            return
        if self._is_blocked():
            self._wait_for_room()
        else:
            self._listener._go_on_soon(self)

    def _go_on(self) -> None:
        """Serve some of what is held, and read again when that is all."""
        self._is_queued = False
        if not self._is_reading_paused or self.is_closed:
            return
        if self._is_blocked():
            self._wait_for_room()
            return
        self._is_reading_paused = False
        held = self._held
        if held:
            self._keep(b"")
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
        count = sum([len(buffer) for buffer in exchange.buffers])
        self._queued_bytes += count
        self._answer_bytes += count
        self._answered_bytes += count
        # It may be that somebody before it is not ready.
        while exchanges and exchanges[0].is_answered:
            first = exchanges.popleft()
            self._output.extend(first.buffers)
            count -= first.size_bytes
        account = self._listener.account
        account.end_privilege(self)
        if count:
            account.add(self, count)
            self._listener._freed()
        if self._output:
            is_last = not exchanges and not self._is_parsing and self._queued_bytes <= PROMPT_BYTES
            if is_last and self._listener._may_send_now():
                call_each((self,), Connection._send, Connection._break)
            else:
                self._listener._send_soon(self)
        if self._is_reading_paused:
            self._unblock()

    def _break(self, error: Exception) -> None:
        """A task for several connections has failed for this one."""
        self.drop(f"{type(error).__name__}: {error}")

    def _send(self) -> None:
        """Hand the answers of one loop iteration to the transport: one system call for all, unless they are long."""
        self._is_sending = False
        if self._is_writing_paused:
            return  # `resume_writing` goes on.
        output, self._output = self._output, []
        size_bytes = 0
        for number, buffer in enumerate(output):
            size_bytes += len(buffer)
            if size_bytes > SENT_AT_ONCE_BYTES:
                output = self._begin_of(output, number, size_bytes - SENT_AT_ONCE_BYTES)
                size_bytes = SENT_AT_ONCE_BYTES
                break
        self._queued_bytes -= size_bytes
        if output and self._transport is not None:
            self._transport.writelines(output)
        self._count_answers()
        if self.is_closed:
            self._end()
        elif self._is_reading_paused:
            self._unblock()

    def _begin_of(self, output: list[Buffer] | deque[Buffer], count: int, left_bytes: int) -> list[Buffer]:
        """Return what is handed over now of much: so many buffers, and the next one but for its last bytes."""
        rest = output if isinstance(output, deque) else deque(output)
        begin = [rest.popleft() for _ in range(count)]
        cut = memoryview(rest.popleft())
        place = len(cut) - left_bytes
        if place:
            begin.append(cut[:place])
        rest.appendleft(cut[place:])
        self._output = rest
        self._listener._send_soon(self)
        return begin

    def _count_answers(self) -> None:
        """Note what the client has taken of its answers, as far as the kernel tells."""
        if self._transport is None:
            return
        left = self._queued_bytes + self._transport.get_write_buffer_size()
        if left != self._answer_bytes:
            self._listener.account.add(self, left - self._answer_bytes)
            self._answer_bytes = left
            self._listener._freed()


class Listener:
    """The listening sockets, one for each name, and all their connections, which share every limit.

    `serve` gets each exchange, synchronously and in order; it must not raise for anything a client can cause.
    """

    def __init__(self, limits: Limits, serve: Callable[[Exchange], None], meter: LoopMeter | None = None) -> None:
        self.limits = limits
        self.serve = serve
        self.meter = meter or LoopMeter()
        self.new_exchange: Callable[[Connection, bytearray], Exchange] = Exchange  # `request_log` has another one
        self.crowd = Crowd()
        self.turns = Turns(meter=self.meter, crowd=self.crowd)
        self.account = TransientBytes(limits.bytes_max, limits.bytes_max // 8)
        self.sweep_count = 0
        self.accepted_count = self.refused_count = 0
        self.ports: dict[str, int] = {}  # that were taken, by the listener's name
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._connections: dict[Connection, None] = {}  # in the order of their beginning
        self._by_host: dict[str, int] = {}  # how many of them there are
        self._starved: dict[Connection, None] = {}
        self._roomless: dict[Exchange, Callable[[], None]] = {}
        self._sending: deque[Connection] = deque()
        self._prompt_until_s = 0.0
        self._prompt_left = 0
        self._leaving: deque[bytearray] = deque()  # large requests that nobody needs any more
        self._going_on: deque[Connection] = deque()
        # Those that had their turn and have more, the ones with the fewest slices first.
        self._patient: list[tuple[int, int, Connection]] = []
        self._patience = Patience(self.crowd, self.meter, "held requests", self._go_on_with_patient)
        self._numbers = count()
        self._feeding: asyncio.Handle | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._servers: list[asyncio.Server] = []
        self._reasons = 0
        self._all_closed: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def port(self) -> int:
        """The port of the first listener; 0 before there is one."""
        return next(iter(self.ports.values()), 0)

    async def bind(self, host: str, port: int, name: str = DEFAULT_NAME) -> None:
        """Take an address without accepting anybody yet. Port 0 takes a free one, which `ports` then tells.

        Raises:
            OSError: the address cannot be had; most often another process listens there.
        """
        assert name not in self.ports
        loop = asyncio.get_running_loop()
        backlog = self.limits.backlog
        server = await loop.create_server(
            lambda: Connection(self, name), host, port, backlog=backlog, start_serving=False
        )
        self._servers.append(server)
        self.ports[name] = int(server.sockets[0].getsockname()[1])

    async def accept(self) -> None:
        """Let clients in."""
        assert self._servers, "bind() first"
        for server in self._servers:
            await server.start_serving()
        self._sweep()

    def stop_accepting(self) -> None:
        """Close the listening sockets; open connections go on."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()

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
        logger.debug("connection from %s on %s", connection, connection.listener_name)
        limits = self.limits
        host = connection.host
        self._by_host[host] = of_host = self._by_host.get(host, 0) + 1
        if len(self._connections) > limits.connections_max:
            self.refused_count += 1
            connection.close(f"{limits.connections_max} connections are open already, the limit of this broker")
        elif of_host > limits.per_host_max:
            self.refused_count += 1
            connection.close(
                f"{limits.per_host_max} connections are open from this address already (max.connections.per.ip)"
            )

    def _disconnected(self, connection: Connection) -> None:
        del self._connections[connection]
        logger.debug("the connection from %s has ended", connection)
        host = connection.host
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        self._starved.pop(connection, None)
        if self._all_closed is not None and not self._connections:
            self._all_closed.set()

    @property
    def bytes_in_use(self) -> int:
        return self.account.total_bytes

    def _freed(self) -> None:
        """Memory may have been given back, or none of the waiting connections goes on."""
        if self._feeding is not None or not (self._starved or self._roomless):
            return
        if not self.account.is_scarce or (self._starved and self.account.privileged is None):
            # Later, not here: a connection that is fed may release memory again, and this must not nest.
            call_soon = asyncio.get_running_loop().call_soon
            self._feeding = call_soon(self.meter.run, "those without room", self._feed_starved)

    def _may_send_now(self) -> bool:
        """Tell whether an answer may leave at once: some in each `PROMPT_S`, if no connection waits to send."""
        if self._sending:
            return False
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._prompt_until_s:
            self._prompt_until_s = now_s + PROMPT_S
            self._prompt_left = PROMPT_AT_ONCE
        self._prompt_left -= 1
        return self._prompt_left >= 0

    def _send_soon(self, connection: Connection) -> None:
        if not connection._is_sending:
            connection._is_sending = True
            if not self._sending:
                self._soon("answers", self._send_some)
            self._sending.append(connection)

    def _go_on_soon(self, connection: Connection) -> None:
        if not connection._is_queued:
            connection._is_queued = True
            if not self._going_on:
                self._soon("held requests", self._go_on_with_some)
            self._going_on.append(connection)

    def _go_on_later(self, connection: Connection) -> None:
        if not connection._is_queued:
            connection._is_queued = True
            heappush(self._patient, (connection.slices, next(self._numbers), connection))
            self._patience.ask(connection.slices)

    def _free_later(self, frame: bytearray) -> None:
        """Give the memory of a request back in later turns of the loop, in pieces, one in each, if it is large."""
        if len(frame) > FREED_ALONE_BYTES:
            if not self._leaving:
                self._soon("large requests", self._free_some)
            self._leaving.append(frame)

    def _free_some(self) -> None:
        frame = self._leaving[0]
        half = len(frame) // 2
        try:
            # By more than half: else a bytearray keeps its memory.
            del frame[half - 1 :]
        except BufferError:
            half = 0  # The last view of it frees it.
        if half <= FREED_ALONE_BYTES:
            self._leaving.popleft()
        if self._leaving:
            self._soon("large requests", self._free_some)

    def _soon(self, name: str, call: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(self.meter.run, name, call)

    def _send_some(self) -> None:
        if not self._call_some(self._sending, Connection._send, SENDING_S):
            self._soon("answers", self._send_some)

    def _go_on_with_some(self) -> None:
        if not self._call_some(self._going_on, Connection._go_on, SLICE_S):
            self._soon("held requests", self._go_on_with_some)

    def _go_on_with_patient(self) -> None:
        """Go on with those that have had the fewest slices, for the time of one."""
        for _ in _in_time(len(self._patient), SLICE_S):
            _, _, connection = heappop(self._patient)
            call_each((connection,), Connection._go_on, Connection._break)
        if self._patient:
            self._patience.ask(self._patient[0][0])

    @staticmethod
    def _call_some(queue: "deque[Connection]", call: Callable[[Connection], None], slice_s: float) -> bool:
        """Call it for the first of a queue, and for more for the time of a slice; tell whether that was all."""
        for _ in _in_time(len(queue), slice_s):
            call_each((queue[0],), call, Connection._break)
            queue.popleft()
        return not queue

    def _feed_starved(self) -> None:
        self._feeding = None
        account = self.account
        count = FED_AT_ONCE
        if account.is_scarce:
            if account.privileged is not None or not self._starved:
                return
            account.privileged = next(iter(self._starved))
            count = 1
        for connection in list(islice(self._starved, count)):
            del self._starved[connection]
            self._go_on_soon(connection)
        if not account.is_scarce:
            roomy = list(islice(self._roomless, ROOMLESS_AT_ONCE))
            call_each([self._roomless.pop(exchange) for exchange in roomy], _call)
        self._freed()

    def _sweep(self) -> None:
        self.sweep_count += 1
        self._reasons = 0
        delay_ms = self.limits.sweep_ms
        self._sweeping = asyncio.get_running_loop().call_later(delay_ms / 1000, self._sweep)
        self._sweep_some(deque(self._connections), self.sweep_count - self.limits.idle_ms // delay_ms)

    def _sweep_some(self, left: "deque[Connection]", idle_since: int) -> None:
        for _ in range(min(len(left), SWEPT_AT_ONCE)):
            connection = left.popleft()
            if connection.is_stuck():
                connection.drop(f"less than {RATE_BYTES_MIN} bytes a second of a request or an answer got through")
            elif connection.is_closed:
                continue
            elif connection.is_idle and connection.last_sweep < idle_since:
                connection.close(f"nothing was received for {self.limits.idle_ms} ms (connections.max.idle.ms)")
            connection.slices >>= 1
        if left:
            asyncio.get_running_loop().call_soon(self._sweep_some, left, idle_since)

    def _log_reason(self, connection: Connection, reason: str) -> None:
        self._reasons += 1
        if self._reasons <= REASONS_PER_SWEEP:
            logger.warning("closing the connection from %s: %s", connection, reason)
        elif self._reasons == REASONS_PER_SWEEP + 1:
            logger.warning("more connections are being closed; their reasons are left out for a while")


def _in_time(count_max: int, slice_s: float) -> Iterator[None]:
    """Yield once at least, and so many times at most; no more when so much time has gone by."""
    clock = asyncio.get_running_loop().time
    until_s = clock() + slice_s
    for _ in range(count_max):
        yield
        if clock() >= until_s:
            return


def _unacknowledged_bytes(transport: asyncio.Transport | None) -> int:
    """Return how much the kernel holds of what was sent; 0 where it does not tell."""
    found = None if transport is None else transport.get_extra_info("socket")
    if found is None:
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(found.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:
        return 0


def _call(call: Callable[[], None]) -> None:
    call()


def _abandon(exchange: Exchange) -> None:
    """Tell those that parked it, and let go of them: they know the exchange too, and no collection would part them."""
    abandon, exchange.abandon = exchange.abandon, None
    if abandon is not None:
        abandon()
        if not exchange.holds:  # Else a work may still have views of it, and forgets it at its end.
            exchange.forget_frame()
