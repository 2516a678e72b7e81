"""Carries questions and answers between nodes, on the connections of Raft.

A caller's frame is ``[CALL, call id, method] body``; the answer comes back on the same connection as
``[REPLY, call id, error kind | nil, error text] body``. ``[POST, method] body`` expects no answer. Bodies are opaque
bytes. A handler that raises a `BarnabasError` (or `OSError`, `TimeoutError`) answers with its class name and text,
and the caller sees `RemoteError`. Anything else is a bug in the handler: the caller is told so, the loop's exception
handler gets the traceback, and an `AssertionError` ends the node.

Nodes may call every method. An admin may call only the methods that were added for admins, and is refused
("NotAllowed") the others, which hand out records, or change the state that others rely on. A newcomer may call only the
methods for newcomers, and nobody else may.

Limits: `CALLS_MAX` unanswered calls per connection on either side; the caller beyond it gets `LinkDownError`, the
server answers "Overloaded". A reply that no frame holds is answered "ReplyTooLarge".
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from barnabas_raftlog.errors import BarnabasError, MalformedMessageError
from barnabas_raftlog.tasks import Tasks, failure_of

from .framing import FRAME_BYTES_MAX, Buffer, FrameKind, encode_frame
from .handshake import ADMIN

__all__ = ["CALLS_MAX", "Calls", "Handler", "LinkDownError", "RemoteError", "Services"]

CALLS_MAX = 1024
TEXT_CHARACTERS_MAX = 4096

Handler = Callable[[int, bytes], Awaitable[bytes]]


class LinkDownError(BarnabasError):
    """There is no usable connection to that node; the question may or may not have arrived."""


class RemoteError(BarnabasError):
    """The other node refused or failed: `kind` is the name of the error class there, `text` its message."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind
        self.text = text


class Wire(Protocol):
    """A connection to write an answer to."""

    def send(self, buffers: list[Buffer]) -> None: ...

    @property
    def is_closed(self) -> bool: ...


class Calls:
    """The unanswered questions of one outgoing connection."""

    __slots__ = ("_next_id", "_waiting")

    def __init__(self) -> None:
        self._next_id = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def ask(self, wire: Wire, method: str, body: bytes, timeout_s: float) -> bytes:
        """Send one question and wait. Cancelled or timed out, the answer is ignored when it comes."""
        if len(self._waiting) >= CALLS_MAX:
            raise LinkDownError(f"{CALLS_MAX} calls are unanswered")
        call_id = self._next_id
        self._next_id += 1
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[call_id] = answer
        try:
            wire.send(encode_frame((FrameKind.CALL, call_id, method), [body], len(body)))
            async with asyncio.timeout(timeout_s):
                return await answer
        finally:
            self._waiting.pop(call_id, None)

    def on_reply(self, header: tuple[Any, ...], payload: memoryview) -> None:
        if len(header) != 4 or type(header[1]) is not int:
            raise MalformedMessageError("reply is not [kind, call id, error, text]")
        answer = self._waiting.get(header[1])
        if answer is None or answer.done():
            return
        if header[2] is None:
            answer.set_result(bytes(payload))
        else:
            answer.set_exception(
                RemoteError(str(header[2])[:TEXT_CHARACTERS_MAX], str(header[3])[:TEXT_CHARACTERS_MAX])
            )

    def fail(self, reason: str) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(LinkDownError(reason))


class Services:
    """The methods that this node serves, and the tasks that are serving. `on_bug` gets a failed invariant."""

    def __init__(self, on_bug: Callable[[BaseException], None]) -> None:
        self._handlers: dict[str, Handler] = {}
        self._for_admins = set[str]()
        self._for_newcomers = set[str]()
        self._tasks = Tasks(on_bug)
        self._running: dict[int, int] = {}  # id of a connection: its calls in progress
        self._on_bug = on_bug
        self._is_closing = False

    def add(self, method: str, handler: Handler, *, for_admins: bool = False, for_newcomers: bool = False) -> None:
        assert method not in self._handlers, f"{method} is served twice"
        self._handlers[method] = handler
        if for_admins:
            self._for_admins.add(method)
        if for_newcomers:
            self._for_newcomers.add(method)

    def on_call(self, source: int, wire: Wire, header: tuple[Any, ...], payload: memoryview) -> None:
        if len(header) != 3 or type(header[1]) is not int or type(header[2]) is not str:
            raise MalformedMessageError("call is not [kind, call id, method]")
        self._start(source, wire, header[1], header[2], bytes(payload))

    def on_post(self, source: int, wire: Wire, header: tuple[Any, ...], payload: memoryview) -> None:
        if len(header) != 2 or type(header[1]) is not str:
            raise MalformedMessageError("post is not [kind, method]")
        self._start(source, wire, None, header[1], bytes(payload))

    def _start(self, source: int, wire: Wire, call_id: int | None, method: str, body: bytes) -> None:
        if self._is_closing:
            return  # Nobody would end it; the caller hears that the connection has ended.
        handler = self._handlers.get(method)
        running = self._running.get(id(wire), 0)
        if handler is None:
            self._reply(wire, call_id, "UnknownMethod", f"nobody serves {method[:100]!r} here")
        elif not self._may_call(source, method):
            self._reply(wire, call_id, "NotAllowed", f"{method!r} is for nodes of the cluster only")
        elif running >= CALLS_MAX:
            self._reply(wire, call_id, "Overloaded", f"{running} calls of this connection are being served")
        else:
            self._running[id(wire)] = running + 1
            serving = self._serve(handler, source, wire, call_id, body)
            self._tasks.spawn(serving, lambda task: self._on_done(task, wire, call_id))

    def _may_call(self, source: int, method: str) -> bool:
        if (source < ADMIN) != (method in self._for_newcomers):
            return False
        return source != ADMIN or method in self._for_admins

    async def _serve(self, handler: Handler, source: int, wire: Wire, call_id: int | None, body: bytes) -> None:
        try:
            answer = await handler(source, body)
        except (BarnabasError, OSError, TimeoutError) as error:
            self._reply(wire, call_id, type(error).__name__, str(error))
        else:
            self._reply(wire, call_id, None, "", answer)

    def _reply(self, wire: Wire, call_id: int | None, error: str | None, text: str, body: bytes = b"") -> None:
        if call_id is None or wire.is_closed:
            return
        if len(body) > FRAME_BYTES_MAX - 4096:
            error = "ReplyTooLarge"
            text = f"{len(body)} bytes"
            body = b""
        wire.send(encode_frame((FrameKind.REPLY, call_id, error, text[:TEXT_CHARACTERS_MAX]), [body], len(body)))

    def _on_done(self, task: asyncio.Task[None], wire: Wire, call_id: int | None) -> None:
        running = self._running.pop(id(wire)) - 1
        if running:
            self._running[id(wire)] = running
        error = failure_of(task)
        if error is None:
            return
        self._reply(wire, call_id, "InternalError", type(error).__name__)
        if isinstance(error, AssertionError):
            self._on_bug(error)
        else:
            context = {"message": "a handler of a call between nodes failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    async def close(self) -> None:
        """Serve nothing more; cancel all calls in progress but the caller's, which may stop the node, and wait."""
        self._is_closing = True
        await self._tasks.close()
