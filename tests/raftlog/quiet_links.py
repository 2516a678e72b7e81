"""Links to nobody: a test that is about some of `NodeLinks` inherits the rest."""

from collections.abc import Callable

from barnabas_raftlog.links.rpc import Handler, LinkDownError
from barnabas_raftlog.raft.state import RoundTrip

__all__ = ["QuietLinks"]


class QuietLinks:
    """No node is live, nothing that is posted arrives, and every question fails."""

    def __init__(self) -> None:
        self.on_peer: list[Callable[[int, bool], None]] = []
        self.round_trip = RoundTrip()
        self.live_peers: list[int] = []
        self.busy_peers = set[int]()

    def is_live(self, node_id: int) -> bool:
        return node_id in self.live_peers

    def serve(self, method: str, handler: Handler) -> None: ...

    async def call(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes:
        raise LinkDownError(f"node {node_id} is not there")

    def post(self, node_id: int, method: str, body: bytes) -> None: ...
