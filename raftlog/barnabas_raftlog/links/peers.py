"""Keeps one node's knowledge of each other node: connections, datagrams, whether it is live.

Shell state without I/O of its own; `links.Links` changes it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from .byte_counts import NO_CONNECTION, ByteCounts
from .connection import Connection
from .liveness import Datagram, PeerLiveness
from .rpc import Calls

__all__ = ["HANDSHAKE_MS", "LinkStats", "NodeAddress", "Peer", "PeerStatus"]

HANDSHAKE_MS = 5_000
"""The time in which a connection has to be made and both sides have to know each other."""
ATTEMPT_MS_MIN = 1_000  # Several round trips, and one retransmission of TCP's.

# Liveness timeouts that bytes may be under way without any progress. Longer than the pause between TCP's first
# retransmissions (0.2, 0.6 and 1.4 s): a link that loses a packet now and then is not made anew for it.
PATIENCE_TIMEOUTS = 2


class NodeAddress(NamedTuple):
    """The address at which a node listens for other nodes: TCP and UDP have the same port number."""

    host: str
    port: int


class PeerStatus(NamedTuple):
    """One row for an operator. `trouble` is the last reason why the link failed, empty when it works."""

    node_id: int
    address: str
    live: bool
    outgoing: bool
    incoming: bool
    incarnation: int | None
    rtt_ms: float
    loss: float
    timeout_ms: int
    trouble: str


class LinkStats(msgspec.Struct):
    """Plain counters."""

    frames_in: int = 0
    frames_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    datagrams_in: int = 0
    datagrams_out: int = 0
    datagrams_ignored: int = 0
    connections_accepted: int = 0
    connections_refused: int = 0
    strangers_evicted: int = 0
    posts_dropped: int = 0
    links_swallowing: int = 0


class Peer:
    """Another node. `outgoing` is the connection that we dialled, `incoming` the one that it dialled.

    Invariant: a connection in either field is authenticated and open. `live` follows from both, their equal
    incarnation, and fresh datagrams; it changes only in `Links._judge`, which looks as soon as both connections stand.
    """

    __slots__ = (
        "_attempt",
        "_attempt_ms",
        "address",
        "calls",
        "datagram_address",
        "incoming",
        "live",
        "liveness",
        "node_id",
        "outgoing",
        "trouble",
        "wake",
    )

    def __init__(self, node_id: int, address: NodeAddress, liveness: PeerLiveness) -> None:
        self.node_id = node_id
        self.address = address
        self.liveness = liveness
        self.datagram_address: tuple[object, ...] | None = None
        self.outgoing: Connection | None = None
        self.incoming: Connection | None = None
        self.calls = Calls()
        self.live = False
        self.trouble = "not connected yet"
        self.wake = asyncio.Event()
        self._attempt: asyncio.Timeout | None = None
        self._attempt_ms = ATTEMPT_MS_MIN

    @contextlib.asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """Limit an attempt to connect to `HANDSHAKE_MS`, and once the peer is heard to what it should need.

        A peer that is heard and does not answer has forgotten the attempt: it lost its power meanwhile, or the network
        was cut, and TCP's next retransmission is far away. An attempt that ended so is followed by a longer one: it may
        be a slow machine.

        Raises:
            TimeoutError: the limit is over.
        """
        try:
            async with asyncio.timeout(HANDSHAKE_MS / 1000) as self._attempt:
                yield
        except TimeoutError:
            self._attempt_ms = min(2 * self._attempt_ms, HANDSHAKE_MS)
            raise
        finally:
            self._attempt = None
        self._attempt_ms = ATTEMPT_MS_MIN

    def on_heard(self) -> None:
        """Take note that it is up while we are not connected to it."""
        self.wake.set()  # No need to sit out the backoff.
        attempt = self._attempt
        if attempt is not None and (until := attempt.when()) is not None:
            sooner = asyncio.get_running_loop().time() + self._attempt_ms / 1000
            if sooner < until:
                attempt.reschedule(sooner)

    def is_fit(self, now_ms: int) -> bool:
        """Both connections stand, lead to the same life of the peer, and its datagrams echo ours."""
        if self.outgoing is None or self.incoming is None:
            return False
        same_life = self.outgoing.peer.incarnation == self.incoming.peer.incarnation
        return same_life and self.liveness.is_fresh(now_ms)

    def has_outlasted_a_silence(self, now_ms: int) -> bool:
        """Its datagrams echo ours once more, and both connections are from before they ceased to."""
        return not self.live and self.is_fit(now_ms)

    def is_not_understood(self, now_ms: int) -> bool:
        """Both connections stand, and of the datagrams that have come since for a timeout none counted."""
        return self.outgoing is not None and self.incoming is not None and self.liveness.is_not_understood(now_ms)

    @property
    def counts(self) -> tuple[ByteCounts, ByteCounts]:
        """Our word on the connection that we dialled, and on the one that we accepted."""
        outgoing = self.outgoing
        incoming = self.incoming
        return (
            NO_CONNECTION if outgoing is None else outgoing.counts,
            NO_CONNECTION if incoming is None else incoming.counts,
        )

    def is_swallowed(self, datagram: Datagram, now_ms: int) -> bool:
        """Compare the peer's counts with ours; True if one of the two connections is broken."""
        patience_ms = PATIENCE_TIMEOUTS * self.liveness.timeout_ms
        for connection, theirs in ((self.outgoing, datagram.accepted), (self.incoming, datagram.dialled)):
            if connection and connection.watch.is_broken(connection.counts, theirs, now_ms, patience_ms):
                return True
        return False

    def why_not(self) -> str:
        if self.outgoing is None:
            return self.trouble or "we are not connected to it"
        if self.incoming is None:
            return "it is not connected to us"
        if self.outgoing.peer.incarnation != self.incoming.peer.incarnation:
            return "it has been restarted"
        return f"no fresh datagram for {self.liveness.timeout_ms} ms"

    def status(self) -> PeerStatus:
        liveness = self.liveness
        return PeerStatus(
            node_id=self.node_id,
            address=f"{self.address.host}:{self.address.port}",
            live=self.live,
            outgoing=self.outgoing is not None,
            incoming=self.incoming is not None,
            incarnation=liveness.incarnation,
            rtt_ms=liveness.rtt_ms,
            loss=liveness.loss,
            timeout_ms=liveness.timeout_ms,
            trouble="" if self.live else self.why_not(),
        )
