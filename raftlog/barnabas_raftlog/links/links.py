"""Links one node to all others: dials, listens, judges which are alive.

Each node dials each peer, so there are two TCP connections between any two nodes. Raft's messages from A to B go over
the one that A dialled, the answers over the one that B dialled; an RPC answer comes back on the connection of its
question. Beside them, datagrams on the same port number say whether the peer still breathes (`liveness`).

A peer is *live* when both connections stand, lead to the same incarnation, and its datagrams echo ours. A connection
lost in either direction makes it silent at once, and closes the other one; a new incarnation is silent first and live
afterwards. Both connections are made anew after a silence, when one of them swallows bytes (`byte_counts`), and when no
datagram can have followed the last one for a timeout (`liveness`). `docs/links.md` ("Live and silent") has the reasons.

*Strangers.* Anybody can connect to the port. Unauthenticated connections are counted, and the oldest is closed when
there are too many; a handshake that takes longer than `HANDSHAKE_MS` is swept away by the one tick of this object. A
wrong cluster is refused in words on both sides, retried once a second, and stays in `status()` until it ends.

One task dials each peer, one reads datagrams, one ticks, one per call is serving. All of them end in `close`; a bug in
any of them ends `wait`, which a node runs beside everything else. Limits: `STRANGERS_MAX` and `ADMINS_MAX` connections,
those that `connection` and `rpc` state for each, and `CONGESTED_BYTES` of unsent data per peer, beyond which posts are
dropped and calls refused.
"""

import asyncio
import logging
import os
import random
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.errors import MalformedMessageError
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.raft.messages import Fact, Rng
from barnabas_raftlog.raft.state import RoundTrip
from barnabas_raftlog.tasks import Tasks

from .busy_peers import BusyPeers
from .connection import Connection
from .datagrams import Datagrams, DatagramSocket
from .framing import FRAME_BYTES_MAX, SCRATCH_BYTES, Buffer, Frame, FrameKind, encode_frame
from .handshake import ADMIN, NONCE_BYTES, Acceptor, Dialler, Identity, KeyOf
from .link_delay import DelayedNetwork, LinkDelay
from .liveness import INTERVAL_MS, PeerLiveness, cluster_mark, decode_datagram, encode_datagram
from .notices import Notices
from .peers import HANDSHAKE_MS, LinkStats, NodeAddress, Peer, PeerStatus
from .raft_frames import Heard, decode_frame
from .rpc import Handler, LinkDownError, RemoteError, Services

__all__ = ["LinkDownError", "LinkStats", "Links", "NodeAddress", "PeerStatus", "RemoteError", "monotonic_ms"]

STRANGERS_MAX = 128
ADMINS_MAX = 64
CONGESTED_BYTES = 48 << 20
BACKOFF_MS_MIN = 20
BACKOFF_MS_MAX = 1_000
REFUSED_RETRY_MS = 1_000
LISTEN_BACKLOG = 256
STALL_MS = 500

logger = logging.getLogger(__name__)


def monotonic_ms() -> int:
    """Return the clock that every deadline of a node is measured with."""
    return time.monotonic_ns() // 1_000_000


class Links:
    """All connections of one node. Its user sets `on_messages`, `on_peer` and `on_fact` before `start`."""

    __slots__ = (  # CPython keeps 30 attributes of an instance in place; of more, each costs a look-up
        "_addresses",
        "_admins",
        "_all_closed",
        "_broken",
        "_clock",
        "_closing",
        "_connections",
        "_datagrams",
        "_delayed",
        "_mark",
        "_me",
        "_meter",
        "_notices",
        "_peers",
        "_random_bytes",
        "_rng",
        "_scratch",
        "_secret",
        "_server",
        "_services",
        "_strangers",
        "_tasks",
        "_timeout_ms",
        "address",
        "busy_peers",
        "delay",
        "is_busy",
        "key_of",
        "node_id",
        "on_fact",
        "on_messages",
        "on_peer",
        "round_trip",
        "stats",
    )

    def __init__(  # noqa: PLR0913 - the machine is brought by the caller
        self,
        cluster_id: str,
        node_id: int,
        incarnation: int,
        bind: NodeAddress,
        peers: dict[int, NodeAddress],
        *,
        secret: bytes | None = None,
        clock: Callable[[], int] = monotonic_ms,
        rng: Rng | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        new_datagrams: Callable[[Callable[[bytes, object], None]], Datagrams] = DatagramSocket,
        liveness_timeout_ms: int = 1_000,
        delay: LinkDelay | None = None,
        meter: LoopMeter | None = None,
    ) -> None:
        assert 0 <= node_id < 1 << 31
        self.node_id = node_id
        self.address = bind
        self.stats = LinkStats()
        self.on_peer: list[Callable[[int, bool], None]] = []
        self.on_messages: Callable[[int, Sequence[Heard]], None] | None = None
        self.key_of: KeyOf = lambda _: None  # of the tokens by which newcomers are known
        self.on_fact: Callable[[Fact], None] | None = None
        self.is_busy: Callable[[], bool] = lambda: False  # whether this node must not be sent entries now
        self.busy_peers = BusyPeers(self._say)
        self.round_trip = RoundTrip()  # Of the farthest live peer; changed in place, ten times a second.
        self._meter = meter or LoopMeter()
        self._me = Identity(cluster_id, node_id, incarnation)
        self._mark = cluster_mark(cluster_id)
        self._secret = secret
        self._clock = clock
        self._random_bytes = random_bytes
        self._rng: Rng = rng if rng is not None else random.Random()
        self._timeout_ms = liveness_timeout_ms
        self._peers: dict[int, Peer] = {}
        self._addresses = {peer: address for peer, address in peers.items() if peer != node_id}
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._notices = Notices(clock, f"node {node_id}")
        self._services = Services(self._on_bug)
        self._datagrams = new_datagrams(self._on_datagram)
        self.delay = delay
        self._delayed = None if delay is None else DelayedNetwork(delay, self._rng)
        if self._delayed is not None:
            self._datagrams = self._delayed.datagrams(self._datagrams, self._node_at)
        self._strangers: dict[Connection, int] = {}  # accepted, not authenticated: deadline, oldest first
        self._admins: dict[Connection, None] = {}
        self._connections: dict[Connection, None] = {}  # in the order of their beginning
        self._all_closed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks = Tasks(self._on_bug)
        self._broken: asyncio.Future[None] | None = None
        self._closing = False

    # For users of the links.

    async def start(self) -> None:
        """Listen and begin to dial. Raises OSError when the address is taken. `address` has the real port then."""
        loop = asyncio.get_running_loop()
        self._broken = loop.create_future()
        # Known before anybody can knock: a member that is refused as a stranger stays away for a second.
        for node_id, address in sorted(self._addresses.items()):
            self._peers[node_id] = Peer(node_id, address, PeerLiveness(self._timeout_ms, self._clock()))
        await self._listen(loop)
        for peer in list(self._peers.values()):
            self._tasks.spawn(self._dial(peer))
        self._tasks.spawn(self._tick())
        self._tasks.spawn(self._datagrams.run())

    def add_peer(self, node_id: int, address: NodeAddress) -> None:
        """Get to know one more node, and dial it from now on."""
        assert node_id != self.node_id
        assert node_id not in self._peers
        self._addresses[node_id] = address
        peer = Peer(node_id, address, PeerLiveness(self._timeout_ms, self._clock()))
        self._peers[node_id] = peer
        self._tasks.spawn(self._dial(peer))

    async def wait(self) -> None:
        """Return when the links are closed; raise the bug that broke them, if one did."""
        assert self._broken is not None, "start() first"
        await asyncio.shield(self._broken)

    async def close(self) -> None:
        """Close every connection and end every task. Peers notice at once. Idempotent."""
        self._closing = True
        if self._server is not None:
            self._server.close()
        self._datagrams.close()
        await self._services.close()
        await self._tasks.close()
        for connection in list(self._connections):
            connection.abort("this node is closing")
        if self._connections:
            await self._all_closed.wait()
        if self._delayed is not None:
            self._delayed.close()
        if self._broken is not None and not self._broken.done():
            self._broken.set_result(None)

    def serve(self, method: str, handler: Handler) -> None:
        """Answer calls and posts of `method` that other nodes send; the source is their id."""
        self._services.add(method, handler)

    def serve_admins(self, method: str, handler: Handler) -> None:
        """As `serve`, and answer admins, too, which are no nodes: their source is -1."""
        self._services.add(method, handler, for_admins=True)

    def serve_newcomers(self, method: str, handler: Handler) -> None:
        """Answer newcomers, which have a token, and nobody else: their source is its number."""
        self._services.add(method, handler, for_newcomers=True)

    async def call(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes:
        """Ask another node and return its answer.

        Raises:
            LinkDownError: not connected, connection lost while waiting, or congested.
            RemoteError: the other side answered with an error.
            TimeoutError: no answer in time; it may have been carried out all the same.
        """
        peer = self._peers.get(node_id)
        if peer is None or peer.outgoing is None:
            raise LinkDownError(f"node {node_id} is not connected: {peer.why_not() if peer else 'it is unknown'}")
        if peer.outgoing.buffered_bytes > CONGESTED_BYTES:
            raise LinkDownError(f"node {node_id} does not read fast enough")
        if len(body) > FRAME_BYTES_MAX - 4096:
            raise LinkDownError(f"a body of {len(body)} bytes fits in no frame")
        self.stats.frames_out += 1
        self.stats.bytes_out += len(body)
        return await peer.calls.ask(peer.outgoing, method, body, timeout_s)

    def post(self, node_id: int, method: str, body: bytes) -> None:
        """Tell another node something. Dropped, and counted, when the link is down or congested."""
        if not self.send_frames(node_id, [encode_frame((FrameKind.POST, method), [body], len(body))]):
            self.stats.posts_dropped += 1

    def is_live(self, node_id: int) -> bool:
        peer = self._peers.get(node_id)
        return peer is not None and peer.live

    def silence_ms(self, node_id: int) -> int:
        """Return how long ago the newest datagram was sent of which a peer said that it came; 0 for a stranger."""
        peer = self._peers.get(node_id)
        return 0 if peer is None else max(0, self._clock() - peer.liveness.fresh_at_ms)

    def refuse(self, node_id: int, text: str) -> None:
        """Close the link with a node whose message is impossible, and say so; it may connect again."""
        peer = self._peers.get(node_id)
        if peer is not None and peer.incoming is not None:
            peer.incoming.abort("it broke the protocol")
        told = f"refused a message of node {node_id}, {text}"
        if self._notices.warn(f"refused a message {node_id}", told):
            self._say(Fact("message refused", 0, told))

    def is_connected(self, node_id: int) -> bool:
        """True if we can send; `is_live` says whether anybody answers."""
        peer = self._peers.get(node_id)
        return peer is not None and peer.outgoing is not None

    def buffered_bytes(self, node_id: int) -> int:
        """Return how many bytes for that node wait in this process; 0 when it is not connected."""
        peer = self._peers.get(node_id)
        return 0 if peer is None or peer.outgoing is None else peer.outgoing.buffered_bytes

    def send_frames(self, node_id: int, frames: Sequence[list[Buffer]]) -> bool:
        """Send whole frames over the connection we dialled; False if there is none, or too much is waiting in it."""
        peer = self._peers.get(node_id)
        if peer is None or peer.outgoing is None:
            return False
        connection = peer.outgoing
        stats = self.stats
        for frame in frames:
            if connection.buffered_bytes > CONGESTED_BYTES:
                return False
            before = connection.bytes_out
            connection.send(frame)
            stats.frames_out += 1
            stats.bytes_out += connection.bytes_out - before
        return True

    def status(self) -> list[PeerStatus]:
        return [peer.status() for _, peer in sorted(self._peers.items())]

    @property
    def live_peers(self) -> list[int]:
        return [node_id for node_id, peer in sorted(self._peers.items()) if peer.live]

    # Listening and dialling.

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        host, port = self.address
        info = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))[0]
        # Port 0 is for tests: the number that TCP gets may be taken for UDP, and then another one is tried.
        for attempts_left in range(0 if port else 20, -1, -1):
            self._server = await loop.create_server(
                self._accept, family=info[0], host=host, port=port, backlog=LISTEN_BACKLOG
            )
            bound = self._server.sockets[0].getsockname()
            try:
                await self._datagrams.open(info[0], bound)
            except OSError:
                self._server.close()
                if not attempts_left:
                    raise
            else:
                self.address = NodeAddress(host, bound[1])
                return

    def _accept(self) -> Connection:
        return Connection(
            self,
            Acceptor(self._me, frozenset(self._peers), self._secret, self._random_bytes(NONCE_BYTES), self.key_of),
            self._scratch,
            self._delayed,
            self._meter,
        )

    async def _dial(self, peer: Peer) -> None:
        backoff_ms = BACKOFF_MS_MIN
        while True:
            peer.wake.clear()
            connection = await self._dial_once(peer)
            if connection is not None:
                await connection.finished
                if connection.is_authenticated:
                    backoff_ms = BACKOFF_MS_MIN
                if connection.refused:
                    # Not woken early: a node that refuses us is up, and says so with every datagram.
                    await asyncio.sleep((REFUSED_RETRY_MS + self._rng.randrange(0, 200)) / 1000)
                    continue
            try:
                async with asyncio.timeout(self._rng.randrange(backoff_ms // 2, backoff_ms + 1) / 1000):
                    await peer.wake.wait()
                backoff_ms = BACKOFF_MS_MIN
            except TimeoutError:
                backoff_ms = min(2 * backoff_ms, BACKOFF_MS_MAX)

    async def _dial_once(self, peer: Peer) -> Connection | None:
        """Connect and shake hands. None if no connection came to be; one that is returned may be closed already."""
        loop = asyncio.get_running_loop()
        dialler = Dialler(self._me, peer.node_id, self._secret, self._random_bytes(NONCE_BYTES))
        connection = Connection(self, dialler, self._scratch, self._delayed, self._meter)
        try:
            async with peer.attempt():
                if self._delayed is not None:
                    await self._delayed.connecting(peer.node_id)
                await loop.create_connection(lambda: connection, peer.address.host, peer.address.port)
                await connection.authenticated
        except (OSError, TimeoutError) as error:
            connection.abandon("the handshake took too long")
            peer.trouble = f"cannot connect: {str(error) or 'timeout'}"
            return None
        except asyncio.CancelledError:
            connection.abandon("this node is closing")
            raise
        return connection

    # Told by connections (ConnectionOwner).

    def on_connected(self, connection: Connection) -> None:
        self._connections[connection] = None
        if self._closing:
            connection.abort("this node is closing")
        elif not connection.is_outgoing:
            self.stats.connections_accepted += 1
            self._strangers[connection] = self._clock() + HANDSHAKE_MS
            if len(self._strangers) > STRANGERS_MAX:
                self.stats.strangers_evicted += 1
                self._drop_stranger(next(iter(self._strangers)), f"more than {STRANGERS_MAX} without a handshake")

    def _drop_stranger(self, connection: Connection, reason: str) -> None:
        del self._strangers[connection]
        connection.abort(reason)

    def on_authenticated(self, connection: Connection) -> None:
        self._strangers.pop(connection, None)
        identity = connection.peer
        if identity.node_id <= ADMIN:
            self._admins[connection] = None
            if len(self._admins) > ADMINS_MAX:
                next(iter(self._admins)).abort(f"more than {ADMINS_MAX} admin connections")
            return
        peer = self._peers[identity.node_id]
        if connection.is_outgoing:
            self._replace(peer.incoming, identity, f"node {peer.node_id} has been restarted")
            peer.outgoing = connection
            peer.trouble = ""
            peer.datagram_address = connection.remote_address
            self._notices.forget(f"refused {peer.node_id}")
        else:
            self._replace(peer.incoming, None, f"node {peer.node_id} has connected again")
            self._replace(peer.outgoing, identity, f"node {peer.node_id} has been restarted")
            peer.incoming = connection
            peer.on_heard()
        if peer.outgoing is not None and peer.incoming is not None:
            peer.liveness.connected(identity.incarnation, self._clock(), peer.outgoing.counts.mark)
        self._judge(peer)

    def _replace(self, old: Connection | None, identity: Identity | None, reason: str) -> None:
        """Drop `old` unless it leads to the same life as `identity`; the peer is silent before it is live again."""
        if old is not None and (identity is None or old.peer.incarnation != identity.incarnation):
            self._forget(old, reason)
            old.abort(reason)

    def on_frame(self, connection: Connection, header: tuple[Any, ...], frame: Frame) -> None:
        self.stats.frames_in += 1
        size_bytes = len(frame.header) + len(frame.payload) + 8
        self.stats.bytes_in += size_bytes
        kind = header[0]
        source = connection.peer.node_id
        if size_bytes > FRAME_BYTES_MAX + 4 and kind != FrameKind.RAFT:
            raise MalformedMessageError(f"frame of kind {kind} and {size_bytes} bytes")
        if kind == FrameKind.REPLY and connection.is_outgoing:
            if source in self._peers:
                self._peers[source].calls.on_reply(header, frame.payload)
        elif connection.is_outgoing:
            raise MalformedMessageError(f"frame of kind {kind} on a connection that we dialled")
        elif kind == FrameKind.CALL:
            self._services.on_call(source, connection, header, frame.payload)
        elif kind in {FrameKind.RAFT, FrameKind.DIGEST} and source > ADMIN:
            messages = decode_frame(header, frame.payload, source, self.node_id, owned=frame.owned)
            if self.on_messages is not None:
                self.on_messages(source, messages)
        elif kind == FrameKind.POST and source > ADMIN:
            self._services.on_post(source, connection, header, frame.payload)
        else:
            raise MalformedMessageError(f"frame of kind {kind} is not allowed here")

    def on_closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._strangers.pop(connection, None)
        self._admins.pop(connection, None)
        reason = connection.reason
        assert reason is not None
        if connection.refused:
            self._on_refused(connection, reason)
        elif reason.startswith("malformed") or not (connection.is_authenticated or connection.is_outgoing):
            self.stats.connections_refused += 1
            self._notices.warn(f"dropped {reason[:20]}", f"connection with {connection.remote} closed: {reason}")
        other = self._other_of(connection)
        self._forget(connection, reason)
        if other is not None:
            other.abort("the connection in the other direction is lost")
        if self._closing and not self._connections:
            self._all_closed.set()

    def _other_of(self, connection: Connection) -> Connection | None:
        """Return the other one of a peer's two connections, if `connection` is one."""
        peer = self._peers.get(connection.peer.node_id) if connection.is_authenticated else None
        if peer is None or connection not in (peer.outgoing, peer.incoming):
            return None
        return peer.incoming if connection is peer.outgoing else peer.outgoing

    def _forget(self, connection: Connection, reason: str) -> None:
        peer = self._peers.get(connection.peer.node_id) if connection.is_authenticated else None
        if peer is None:
            return
        if peer.outgoing is connection:
            peer.outgoing = None
            peer.trouble = reason
            peer.calls.fail(f"connection to node {peer.node_id} {reason}")
        elif peer.incoming is connection:
            peer.incoming = None
        self._judge(peer, reason)

    def _on_refused(self, connection: Connection, reason: str) -> None:
        self.stats.connections_refused += 1
        if connection.is_outgoing:
            node_id = connection.target
            self._peers[node_id].trouble = reason
            text = f"no link to node {node_id} at {connection.remote}, {reason}"
        else:
            node_id = -1
            text = f"connection from {connection.remote} {reason}"
        if self._notices.warn(f"refused {node_id} {reason}", text):
            self._say(Fact("handshake refused", 0, text))

    # Liveness.

    def _judge(self, peer: Peer, reason: str = "") -> None:
        """Compare the link's state with the one that was told last; tell everybody on a change."""
        live = peer.is_fit(self._clock())
        if live == peer.live or self._closing:
            return
        peer.live = live
        self.busy_peers.discard(peer.node_id)
        cause = f"node {peer.node_id}: {'both directions work' if live else reason or peer.why_not()}"
        self._say(Fact("peer live" if live else "peer silent", 0, cause))
        try:
            call_each(self.on_peer, lambda callback: callback(peer.node_id, live))
        except Exception as error:  # noqa: BLE001 - the caller, a transport perhaps, would close and go on
            self._on_bug(error)

    def _on_datagram(self, data: bytes, address: object) -> None:
        del address
        self.stats.datagrams_in += 1
        datagram = decode_datagram(data, self.node_id, self._mark, self._secret)
        peer = self._peers.get(datagram.node_id) if datagram is not None else None
        if datagram is None or peer is None:
            self.stats.datagrams_ignored += 1
            return
        counted = peer.liveness.on_datagram(datagram, self._me.incarnation, self._clock())
        self.stats.datagrams_ignored += not counted
        if counted:
            self.busy_peers.on_notice(peer.node_id, is_busy=datagram.is_busy)
        if peer.outgoing is None:
            peer.on_heard()
        elif peer.is_not_understood(self._clock()):
            self._reconnect(peer, "its datagrams do not count")
        elif counted and peer.is_swallowed(datagram, self._clock()):
            self.stats.links_swallowing += 1
            self._reconnect(peer, "swallows bytes")
        elif peer.has_outlasted_a_silence(self._clock()):
            # Not judged, also not by the next datagram, before the old ones are gone: both sides must fall silent once,
            # not twice.
            self._reconnect(peer, "made anew after a silence")

    def _reconnect(self, peer: Peer, reason: str) -> None:
        for connection in (peer.outgoing, peer.incoming):
            if connection is not None:
                connection.abort(reason)

    async def _tick(self) -> None:
        last_ms = self._clock()
        while True:
            await asyncio.sleep(INTERVAL_MS / 1000)
            now_ms = self._clock()
            if now_ms - last_ms > STALL_MS:
                self._notices.warn("stall", f"did not run for {now_ms - last_ms} ms; peers are judged after a grace")
                for peer in self._peers.values():
                    if peer.live:
                        peer.liveness.forgive(now_ms)
            last_ms = now_ms
            await self._send_datagrams(now_ms)
            for peer in self._peers.values():
                if peer.live:
                    self._judge(peer)
            self.round_trip.ms = max([round(p.liveness.rtt_ms) for p in self._peers.values() if p.live], default=0)
            while self._strangers:
                oldest, deadline_ms = next(iter(self._strangers.items()))
                if deadline_ms > now_ms:
                    break
                self._drop_stranger(oldest, f"no handshake within {HANDSHAKE_MS} ms")

    async def _send_datagrams(self, now_ms: int) -> None:
        is_busy = self.is_busy()
        for peer in list(self._peers.values()):
            if peer.datagram_address is None:
                continue
            datagram = peer.liveness.next(self.node_id, self._me.incarnation, now_ms, *peer.counts, is_busy=is_busy)
            data = encode_datagram(datagram, peer.node_id, self._mark, self._secret)
            self.stats.datagrams_out += 1
            await self._datagrams.send(data, peer.datagram_address)

    def _node_at(self, address: object) -> int:
        """Return the node to which datagrams go by way of `address`."""
        return next(peer.node_id for peer in self._peers.values() if peer.datagram_address == address)

    # Housekeeping.

    def _say(self, fact: Fact) -> None:
        if self.on_fact is not None:
            self.on_fact(fact)

    def _on_bug(self, error: BaseException) -> None:
        logger.critical("node %d: the links are broken", self.node_id, exc_info=error)
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)
