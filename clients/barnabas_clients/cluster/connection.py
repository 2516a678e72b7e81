"""Holds one connection to one broker, which answers pipelined requests in order.

A Kafka broker answers the requests of a connection in order, so a queue matches the answers with the requests. The
correlation id is only a check: if it is not that of the queue's head, the two sides have lost each other, and the
connection is closed. It is also closed after an impossible length, and after an answer that does not decode.

Every request has a deadline. A request that is cancelled or times out keeps its place in the queue until its answer
arrives, which is thrown away undecoded; nothing else remembers it. So a broker that has stopped answering leaves a
queue of abandoned requests, and a caller who finds nothing but these closes the connection instead of waiting.

Limits: at most `in_flight_max` requests are unanswered. Further callers wait within their own deadlines, also while the
transport reports a full buffer. An answer may have at most `FRAME_BYTES_MAX` bytes. Views of it (record batches) stay
valid as long as someone holds them.

*Order.* `request` may wait for its turn, and requests go out in the order of their turns. A caller who must decide the
order itself (the producer, whose batches are numbered) first waits for `room`. Then it calls `submit` or, for a request
without an answer (produce with acks=0), `post`: both send at once, without an await in between.

Not here: which broker to ask and whether to ask again (cluster.py); TLS and SASL, so a connection is plaintext.
"""

import asyncio
import os
import re
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Self, cast

from barnabas_clients.errors import ConnectionLostError, DeadlineExceededError, UnsupportedVersionError
from barnabas_clients.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.protocol.frames import decode_response, encode_request
from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.version import __version__
from barnabas_raftlog.wire.schema import Message

from .bootstrap import shown_endpoint
from .features import Features
from .framing import FRAME_BYTES_MAX, FrameReader

__all__ = ["CLIENT_SOFTWARE_NAME", "CLIENT_SOFTWARE_VERSION", "CLOSED_AT_ONCE", "IN_FLIGHT_MAX", "Connection"]

CLIENT_SOFTWARE_NAME = "barnabas"
# Sent to brokers (KIP-511). Written out, because reading it from the package's metadata takes longer than connecting.
CLIENT_SOFTWARE_VERSION = __version__
IN_FLIGHT_MAX = 64
CLOSED = "closed by the broker"
CLOSED_AT_ONCE = f"{CLOSED} at once (is that the port between brokers? clients use another one)"
_CORRELATION_ID_MAX = 2**31 - 1
# The first question. Version 5 says whom we mean, which is not done here; to brokers before Kafka 4.4 it costs another.
_ASKED_IN = 4
_CLOSED_HERE = "closed by this client"


class _Pending(NamedTuple):
    """A request on the wire. The future is done if nobody waits for the answer any more."""

    correlation_id: int
    request_type: type[Message]
    version: int
    answer: "asyncio.Future[Any]"


class Connection(asyncio.BufferedProtocol):
    """A negotiated connection; `open` makes one. Owned by one event loop; any number of tasks may use it.

    `features` are those that the broker has named. `_pending` holds at most `in_flight_max` requests, in the order in
    which they were sent. When `lost_because` is set,
    nothing is pending and every request fails.
    """

    def __init__(self, broker: str, client_id: str, in_flight_max: int, frame_bytes_max: int) -> None:
        self.broker = broker
        self.lost_because: str | None = None
        self.features = Features()
        self.on_lost: Callable[[str], None] | None = None
        """Called with the reason if the connection ends although requests wait, and this client does not want it."""
        self._client_id = client_id
        self._in_flight_max = in_flight_max
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(frame_bytes_max)
        self._pending: deque[_Pending] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._writable = True
        self._correlation_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        self._transport: asyncio.Transport | None = None
        self._gone = self._loop.create_future()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        timeout_s: float,
        client_id: str = "barnabas",
        in_flight_max: int = IN_FLIGHT_MAX,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> Self:
        """Connect and agree on versions.

        Raises:
            ConnectionLostError: nobody listens there, or no broker does.
            DeadlineExceededError: no answer within `timeout_s`.

        Cancellation: cancelled, it leaves nothing behind.
        """
        assert in_flight_max > 0
        broker = shown_endpoint((host, port))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                _, protocol = await loop.create_connection(
                    lambda: cls(broker, client_id, in_flight_max, frame_bytes_max), host, port
                )
        except TimeoutError as error:
            raise DeadlineExceededError(f"no connection to {broker} within {timeout_s:g} s") from error
        except OSError as error:
            raise ConnectionLostError(broker, _reason_of(error)) from error
        except ValueError as error:
            # The resolver cannot even be asked for such a name. A broker may have advertised it.
            raise ConnectionLostError(broker, f"no host has that name: {error}") from error
        try:
            await protocol._negotiate(deadline)
        except BaseException as error:
            protocol._lose("versions could not be agreed on")
            if isinstance(error, ConnectionLostError) and error.reason == CLOSED:
                # So does a port between brokers, and a broker that is ending.
                raise ConnectionLostError(broker, CLOSED_AT_ONCE) from error
            raise
        return protocol

    @property
    def is_open(self) -> bool:
        return self.lost_because is None

    @property
    def in_flight(self) -> int:
        """The number of requests that are unanswered, abandoned ones included."""
        return len(self._pending)

    def version_of(self, request_type: type[Message], versions: range | None = None) -> int:
        """Return the newest version of an API that both sides speak; of `versions`, if only these will do.

        Raises:
            UnsupportedVersionError: there is none; the message names the versions of each side.
        """
        ours = request_type.versions
        if versions is not None:
            ours = range(max(ours[0], versions[0]), min(ours[-1], versions[-1]) + 1)
        theirs = self._versions.get(request_type.api_key)
        if theirs is None:
            raise UnsupportedVersionError(f"{self.broker} does not offer {request_type.__name__}")
        version = min(ours[-1], theirs[1])
        if version < max(ours[0], theirs[0]):
            raise UnsupportedVersionError(
                f"{self.broker} offers {request_type.__name__} {theirs[0]} to {theirs[1]}, "
                f"this client speaks {ours[0]} to {ours[-1]}"
            )
        return version

    async def request(self, message: Message, timeout_s: float, versions: range | None = None) -> Any:
        """Send a request and return its answer, an instance of the response class of the same API.

        `versions` are those that say what is meant; None: all do.

        Raises:
            ConnectionLostError: the connection is or was lost; the request may have been carried out.
            DeadlineExceededError: no answer within `timeout_s`; it may have been carried out, or may be later.
            UnsupportedVersionError: the broker does not offer this API.

        Cancellation: the request may have been sent; its answer is discarded.
        """
        deadline = self._loop.time() + timeout_s
        return await self._request(message, self.version_of(type(message), versions), deadline)

    @property
    def has_room(self) -> bool:
        """True if `submit` and `post` would send now, or would fail now because the connection is lost."""
        return self._has_room()

    async def room(self, timeout_s: float) -> None:
        """Wait until `has_room`.

        Raises:
            DeadlineExceededError: the broker did not make room within `timeout_s`.
        """
        deadline = self._loop.time() + timeout_s
        while not self._has_room():
            await self._wait_for_room(deadline)

    def submit(self, message: Message, timeout_s: float, versions: range | None = None) -> "asyncio.Future[Any]":
        """Send a request now; there must be room. The future has its answer, or an error as `request` raises it.

        Cancel the future to discard the answer. Buffers of the message belong to the connection until it is done.

        Raises:
            ConnectionLostError: the connection was lost before; nothing was sent.
            UnsupportedVersionError: the broker does not offer this API.
        """
        version = self.version_of(type(message), versions)
        if self.lost_because is not None:
            raise ConnectionLostError(self.broker, self.lost_because)
        answer, timer = self._send(message, version, self._loop.time() + timeout_s)
        answer.add_done_callback(lambda _: timer.cancel())
        return answer

    def post(self, message: Message) -> None:
        """Send a request that has no answer now; there must be room.

        Raises:
            ConnectionLostError: the connection was lost before; nothing was sent.
            UnsupportedVersionError: the broker does not offer this API.
        """
        version = self.version_of(type(message))
        if self.lost_because is not None:
            raise ConnectionLostError(self.broker, self.lost_because)
        self._write(message, version)

    def abandon(self) -> None:
        """Close the connection without waiting. The socket is closed a turn of the loop later."""
        self._lose(_CLOSED_HERE)

    async def close(self, because: str = "") -> None:
        """Close the connection. All pending requests fail. Returns within two turns of the loop.

        `because` says what is wrong with the broker, if that is why.
        """
        self._lose(because or _CLOSED_HERE)
        await asyncio.shield(self._gone)

    async def wait_closed(self) -> None:
        """Return when the connection has ended, on whichever side."""
        await asyncio.shield(self._gone)

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self.lost_because is not None:
            return
        try:
            for frame in self._reader.received(nbytes):
                self._on_frame(frame)
        except MalformedMessageError as error:
            self._lose(f"closed, because it sent what no broker sends: {error}")

    def eof_received(self) -> bool:
        self._lose(CLOSED)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(_reason_of(exc) if exc else CLOSED)
        if not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._admit_next()

    # Sending.

    async def _request(self, message: Message, version: int, deadline: float) -> Any:
        while not self._has_room():
            await self._wait_for_room(deadline)
        if self.lost_because is not None:
            raise ConnectionLostError(self.broker, self.lost_because)
        if self._loop.time() >= deadline:
            raise DeadlineExceededError(f"the deadline passed before {type(message).__name__} was sent")
        answer, timer = self._send(message, version, deadline)
        if self._waiting and self._has_room():
            self._admit_next()
        try:
            return await answer
        finally:
            timer.cancel()

    def _send(
        self, message: Message, version: int, deadline: float
    ) -> tuple["asyncio.Future[Any]", asyncio.TimerHandle]:
        correlation_id = self._write(message, version)
        answer = self._loop.create_future()
        self._pending.append(_Pending(correlation_id, type(message), version, answer))
        return answer, self._loop.call_at(deadline, self._expire, answer, type(message).__name__)

    def _write(self, message: Message, version: int) -> int:
        assert self._transport is not None
        correlation_id = (self._correlation_id + 1) & _CORRELATION_ID_MAX
        # Encoding comes first: a message that cannot be encoded leaves no trace.
        buffers = encode_request(message, version, correlation_id, self._client_id)
        self._correlation_id = correlation_id
        self._transport.writelines(buffers)
        return correlation_id

    def _expire(self, answer: "asyncio.Future[Any]", name: str) -> None:
        if not answer.done():
            answer.set_exception(
                DeadlineExceededError(f"{self.broker} did not answer {name} in time", may_be_done=True)
            )

    def _has_room(self) -> bool:
        """Say whether a request may be sent now, or will fail now. Gives up a broker that answers nobody."""
        if self.lost_because is not None or (self._writable and len(self._pending) < self._in_flight_max):
            return True
        if self._pending and all(pending.answer.done() for pending in self._pending):
            self._lose(f"closed, because {len(self._pending)} requests went unanswered")
            return True
        return False

    async def _wait_for_room(self, deadline: float) -> None:
        turn = self._loop.create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(deadline):
                await turn
        except TimeoutError as error:
            self._forfeit(turn)
            raise DeadlineExceededError(f"{self.broker} is too far behind to be asked more") from error
        except asyncio.CancelledError:
            self._forfeit(turn)
            raise

    def _forfeit(self, turn: "asyncio.Future[None]") -> None:
        if turn in self._waiting:
            self._waiting.remove(turn)
        else:
            # It was admitted and did not send: its place goes to the next one.
            self._admit_next()

    def _admit_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    # Receiving.

    def _on_frame(self, frame: memoryview) -> None:
        if len(frame) < 4:
            raise MalformedMessageError(f"an answer of {len(frame)} bytes")
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if not self._pending:
            raise MalformedMessageError(f"answer {correlation_id} to no request")
        pending = self._pending[0]
        if pending.correlation_id != correlation_id:
            raise MalformedMessageError(f"answer {correlation_id} where {pending.correlation_id} is due")
        # After a malformed answer its request stays in the queue, and so fails with the others.
        response = None
        if not pending.answer.done():
            response = decode_response(pending.request_type, frame, pending.version)
        self._pending.popleft()
        if not pending.answer.done():
            pending.answer.set_result(response)
        self._admit_next()

    async def _negotiate(self, deadline: float) -> None:
        """Ask for the versions that the broker offers: in our version first, then in its own (KIP-511)."""
        version = _ASKED_IN
        request = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=CLIENT_SOFTWARE_VERSION
        )
        response: ApiVersionsResponse = await self._request(request, version, deadline)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = [row.max_version for row in response.api_keys if row.api_key == ApiVersionsRequest.api_key]
            version = min(version, max(offered, default=0))
            response = await self._request(request, version, deadline)
        if response.error_code != ErrorCode.NONE:
            raise ConnectionLostError(self.broker, f"refused to name its versions (error {response.error_code})")
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
        self.features = Features.of(response)

    def _lose(self, reason: str) -> None:
        """Give the connection up, once; the first reason stays."""
        if self.lost_because is not None:
            return
        self.lost_because = reason
        if self._transport is not None:
            self._transport.abort()
        pending, self._pending = self._pending, deque()
        if pending and self.on_lost is not None and reason != _CLOSED_HERE:
            self.on_lost(reason)
        for request in pending:
            if not request.answer.done():
                request.answer.set_exception(ConnectionLostError(self.broker, reason, may_be_done=True))
        # Callers who wait for room find the connection lost.
        while self._waiting:
            self._admit_next()


def _reason_of(error: Exception) -> str:
    """Say why a connection ended, or could not be opened. asyncio says where instead, and numbers for each address."""
    numbers = [int(number) for number in re.findall(r"\[Errno (\d+)\]", str(error))]
    if isinstance(error, OSError) and error.errno:
        numbers = [error.errno]
    if not numbers or isinstance(error, socket.gaierror):
        return str(getattr(error, "strerror", None) or error)
    reasons = dict.fromkeys(os.strerror(number) for number in numbers)
    return ", ".join(reason[:1].lower() + reason[1:] for reason in reasons)
