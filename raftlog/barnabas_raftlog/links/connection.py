"""One TCP connection between nodes, from the handshake to the reason it closed.

A connection knows nothing of peers or Raft. It runs its side of the handshake, then hands every frame to its owner, in
the callback in which the bytes arrived: no task and no timer per connection. One read may bring six frames of a
thousand heartbeats each, so a callback begins with no other frame after `BYTES_AT_ONCE` that are not entries: the
frames left have callbacks of their own, and the bytes behind them stay in the kernel until then. Every mistake of a
peer ends here: the connection closes with a reason, and nobody else notices.

Limit on memory: a frame in construction (`FRAME_BYTES_MAX`, before the handshake 4 KiB; if another node sends entries,
`ENTRY_FRAME_BYTES_MAX`), frames of one read, and a write buffer of `WRITE_BYTES_MAX`, or of a larger frame and half of
that; a peer that does not read beyond that loses the connection. Senders that can wait look at `buffered_bytes` first.
"""

import asyncio
import socket
from collections import deque
from typing import Any, Protocol, cast

from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.memory import unfilled

from .byte_counts import ByteCounts, ByteWatch
from .framing import (
    ENTRY_FRAME_BYTES_MAX,
    FRAME_BYTES_MAX,
    Buffer,
    Frame,
    FrameKind,
    FrameSplitter,
    encode_frame,
    read_header,
)
from .handshake import ADMIN, Acceptor, Dialler, HandshakeRefusedError, Identity
from .link_delay import DelayedNetwork

__all__ = ["BYTES_AT_ONCE", "WRITE_BYTES_MAX", "Connection", "ConnectionOwner"]

WRITE_BYTES_MAX = 128 << 20  # Twice the largest frame: one being written, one queued behind it.
BYTES_AT_ONCE = 20 << 10  # A thousand heartbeats are 40 KB, 500 leaders 25 KB; either is dealt with in 3 ms.
USER_TIMEOUT_MS = 10_000  # Linux: unacknowledged bytes this old end the connection (a peer lost its power).


class ConnectionOwner(Protocol):
    """The owner of a connection, which is told of its events, on the loop.

    Of the calls that a peer can cause, only `on_frame` may raise, and only `MalformedMessageError`.
    """

    def on_connected(self, connection: "Connection") -> None: ...

    def on_authenticated(self, connection: "Connection") -> None: ...

    def on_frame(self, connection: "Connection", header: tuple[Any, ...], frame: Frame) -> None: ...

    def on_closed(self, connection: "Connection") -> None: ...


class Connection(asyncio.BufferedProtocol):
    """One end of one connection. `reason` says why it closed, None while it is open.

    `delayed` is a network that takes time; without one, the kernel's is used as it is.
    """

    def __init__(
        self,
        owner: ConnectionOwner,
        handshake: Dialler | Acceptor,
        scratch: memoryview,
        delayed: DelayedNetwork | None = None,
        meter: LoopMeter | None = None,
    ) -> None:
        self._meter = meter or LoopMeter()
        self._owner = owner
        self._handshake = handshake
        self._delayed = delayed
        self._splitter = FrameSplitter(scratch, allocate=unfilled)
        self._transport: asyncio.Transport | None = None
        self._remote = "?"
        self._remote_address: tuple[object, ...] | None = None
        self.reason: str | None = None
        self.refused = False
        self._is_lost = False
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.authenticated: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.bytes_in = 0
        self.bytes_out = 0
        self._frames: deque[Frame] = deque()  # that have arrived; between callbacks only if reading is paused
        self.watch = ByteWatch()

    @property
    def remote(self) -> str:
        return self._remote

    @property
    def remote_address(self) -> tuple[object, ...] | None:
        return self._remote_address

    @property
    def is_outgoing(self) -> bool:
        return isinstance(self._handshake, Dialler)

    @property
    def is_authenticated(self) -> bool:
        return self._handshake.done

    @property
    def target(self) -> int:
        """The node that we dialled; only for an outgoing connection."""
        assert isinstance(self._handshake, Dialler)
        return self._handshake.target

    @property
    def is_closed(self) -> bool:
        return self.reason is not None

    @property
    def peer(self) -> Identity:
        """The other end; only for an authenticated connection."""
        assert self._handshake.done
        assert self._handshake.peer is not None
        return self._handshake.peer

    @property
    def buffered_bytes(self) -> int:
        """Bytes that were sent and that the kernel has not taken yet."""
        assert self._transport is not None
        return self._transport.get_write_buffer_size()

    @property
    def counts(self) -> ByteCounts:
        return ByteCounts(self._handshake.mark, self.bytes_out, self.bytes_in)

    def send(self, buffers: list[Buffer]) -> None:
        """Queue one frame; the buffers must not change until it is written. Nothing happens on a closed one."""
        if self.reason is None and self._transport is not None:
            self._transport.writelines(buffers)
            size_bytes = sum([len(buffer) for buffer in buffers])
            self.bytes_out += size_bytes
            if self._transport.get_write_buffer_size() > max(WRITE_BYTES_MAX, WRITE_BYTES_MAX // 2 + size_bytes):
                self.abort("it does not read what we send")

    def abort(self, reason: str) -> None:
        """Close at once; the buffered bytes are lost. The first reason given stays."""
        if self.reason is None:
            self.reason = reason
        if self._transport is not None:
            self._transport.abort()

    def abandon(self, reason: str) -> None:
        """Abort a connection that its dialler has given up, and take it for lost at once.

        Nobody else may say so: if the making of a connection was cancelled when it had just been made, uvloop closes
        the transport without a word to the protocol.
        """
        self.abort(reason)
        if self._transport is not None:
            self.connection_lost(None)

    # asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._delayed is not None:
            self._transport = self._delayed.carry(self._transport, self, self._other_end)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self._remote = f"{name[0]}:{name[1]}"
            self._remote_address = name
        user_timeout = getattr(socket, "TCP_USER_TIMEOUT", None)
        if user_timeout is not None:
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, user_timeout, USER_TIMEOUT_MS)
        self._owner.on_connected(self)
        if isinstance(self._handshake, Dialler):
            self.send(encode_frame(self._handshake.first()))

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._splitter.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._meter.run("read from a broker", self._received, nbytes)

    def _received(self, nbytes: int) -> None:
        self.bytes_in += nbytes
        if self.reason is not None:
            self._frames.clear()
            return  # Closing: bytes that still arrive, and frames that wait, are nobody's.
        try:
            if nbytes:
                self._frames += self._splitter.received(nbytes)
            self._take_some()
        except MalformedMessageError as error:
            self.abort(f"malformed: {error}")
        except HandshakeRefusedError as error:
            self._refuse(error)

    def _take_some(self) -> None:
        """Deal with frames in their order, at least one, and with no more than a callback should."""
        frames = self._frames
        taken_bytes = 0
        while frames and self.reason is None:
            frame = frames.popleft()
            header = read_header(frame.header)
            if self._handshake.done:
                self._owner.on_frame(self, header, frame)
            else:
                self._shake(header)
            # Entries are taken in as they are; the items of a header, and other payloads, are read one at a time.
            taken_bytes += len(frame.header) + (0 if header[0] == FrameKind.RAFT else len(frame.payload))
            if taken_bytes >= BYTES_AT_ONCE and frames and self.reason is None:
                self._go_on_later()
                return

    def _go_on_later(self) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        self._frames = deque(frame.kept() for frame in self._frames)
        asyncio.get_running_loop().call_soon(self._meter.run, "read from a broker", self._go_on)

    def _go_on(self) -> None:
        self._received(0)
        assert self._transport is not None
        if not self._frames and self.reason is None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _other_end(self) -> int | None:
        """Return which node is at the other end; None while that is not known, and for an admin."""
        if isinstance(self._handshake, Dialler):
            node_id = self._handshake.target
        else:
            node_id = ADMIN if self._handshake.peer is None else self._handshake.peer.node_id
        return None if node_id <= ADMIN else node_id

    def _shake(self, header: tuple[Any, ...]) -> None:
        answer = self._handshake.receive(header)
        if answer is not None:
            self.send(encode_frame(answer))
        if self._handshake.done:
            takes_entries = not self.is_outgoing and self.peer.node_id > ADMIN
            self._splitter.bytes_max = ENTRY_FRAME_BYTES_MAX if takes_entries else FRAME_BYTES_MAX
            self._owner.on_authenticated(self)
            if not self.authenticated.done():
                self.authenticated.set_result(None)

    def _refuse(self, error: HandshakeRefusedError) -> None:
        assert self._transport is not None
        if not error.by_peer:
            self.send(encode_frame((FrameKind.REFUSED, str(error))))
        self.refused = True
        self.reason = f"refused by it: {error}" if error.by_peer else f"refused: {error}"
        # Not abort: the refusal should arrive. A peer that does not read it is swept away like a silent one.
        self._transport.close()

    def eof_received(self) -> None:
        if self.reason is None:
            self.reason = "closed by it"

    def connection_lost(self, exc: Exception | None) -> None:
        if self._is_lost:
            return  # It was abandoned.
        self._is_lost = True
        if self.reason is None:
            self.reason = f"lost: {exc}" if exc else "closed"
        self._owner.on_closed(self)
        # Both futures end here, so that nobody waits for a dead connection.
        for future in (self.authenticated, self.finished):
            if not future.done():
                future.set_result(None)
