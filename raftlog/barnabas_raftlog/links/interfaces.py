"""Declares the links as other parts of a node see them.

`Links` has all of it; tests and the simulator bring their own. `FrameSender` is narrow because an outbox needs no more.
"""

from collections.abc import Callable, Container, Sequence
from typing import Protocol

from barnabas_raftlog.raft.messages import Fact
from barnabas_raftlog.raft.state import RoundTrip

from .framing import Buffer
from .raft_frames import Heard
from .rpc import Handler

__all__ = ["FrameSender", "NodeLinks", "RaftLinks"]


class PeerStates(Protocol):
    """How other nodes are: live or silent, busy, near or far."""

    on_peer: list[Callable[[int, bool], None]]
    round_trip: RoundTrip

    @property
    def live_peers(self) -> list[int]: ...

    @property
    def busy_peers(self) -> Container[int]: ...


class NodeLinks(PeerStates, Protocol):
    """Questions and posts to other nodes, and which of them are live."""

    def is_live(self, node_id: int) -> bool: ...

    def serve(self, method: str, handler: Handler) -> None: ...

    async def call(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes: ...

    def post(self, node_id: int, method: str, body: bytes) -> None: ...


class FrameSender(Protocol):
    """Frames to other nodes."""

    def is_connected(self, node_id: int) -> bool: ...

    def buffered_bytes(self, node_id: int) -> int: ...

    def send_frames(self, node_id: int, frames: Sequence[list[Buffer]]) -> bool: ...


class RaftLinks(FrameSender, PeerStates, Protocol):
    """Raft's messages between nodes, and the liveness that its groups trust."""

    on_messages: Callable[[int, Sequence[Heard]], None] | None
    on_fact: Callable[[Fact], None] | None

    def silence_ms(self, node_id: int) -> int: ...

    def refuse(self, node_id: int, text: str) -> None: ...
