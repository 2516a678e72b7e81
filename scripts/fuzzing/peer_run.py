"""Sends frames and datagrams to the node ports of brokers in a fourth node's name.

An owner of the cluster's secret may be a member of a group, and Raft believes its members: their terms depose leaders.
So a topic of the run's own has that fourth node, which is gone, among its replicas; the frames are about this topic's
groups and about groups that there are not. The neighbour's topic has no replica there, and must notice nothing. Without
the secret no more is possible than to knock: the same kinds of frames, and no handshake that comes to an end.

A frame that is sent with the key counts only if the node has shown that it took it: it answered the question behind it,
or hung up.

Every port gets its share: the brokers in turn.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic
from machines.cluster_handle import BROKER_PORT_SPACING, ClusterHandle

from barnabas_clients import Admin
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.links.framing import FrameKind, encode_frame, frame_of, read_header
from barnabas_raftlog.links.handshake import NONCE_BYTES, Dialler, Identity
from barnabas_raftlog.links.liveness import cluster_mark, encode_datagram
from barnabas_raftlog.raft.messages import GroupId

from .mutations import mutated, with_size
from .neighbour import TOPIC, Noticed, neighbour
from .peer_frames import HANDSHAKE_KINDS, KINDS, PeerLies
from .watch import GROWTH_BYTES_MAX, SETTINGS, LogWatch, resident_bytes

__all__ = ["BROKERS", "SECRET", "PeerOutcome", "run", "settings"]

BROKERS = 4
GONE = 4
SECRET = "known to four, and to nobody else"  # noqa: S105 - of clusters that live for a minute
FUZZED = "fuzzed-by-peers"
ROUNDS = 10
WARM_ROUNDS = 3
LANES = 4
PATIENCE_S = 1.0
AT_ONCE = 16
DATAGRAM_KINDS = ("signed", "signed, mutated", "of another secret", "unsigned")
DATAGRAMS_AT_ONCE = 50
PING_ID = 7_777


class PeerOutcome(NamedTuple):
    """The outcome of a run; `problems` is empty if nothing was wrong."""

    sent: Counter[str]
    connections: int
    noticed: Noticed
    resident: list[dict[int, int]]
    problems: list[str]


def settings() -> dict[str, str]:
    """Return the settings of such a cluster: the fourth broker keeps no metadata."""
    return SETTINGS | {"cluster.secret": SECRET, "controller.quorum.voters": "1,2,3"}


def run(seed: int, of_each: int, cluster: ClusterHandle, kinds: Collection[str] = tuple(KINDS)) -> PeerOutcome:
    """Send `of_each` of every kind to a cluster of four that nobody else uses; the fourth broker is killed first.

    `kinds` are those of frames with the key; all are sent without it, and all datagrams.
    """
    return asyncio.run(_run(seed, of_each, cluster, kinds))


async def _run(seed: int, of_each: int, cluster: ClusterHandle, kinds: Collection[str]) -> PeerOutcome:
    _make_topics(cluster)
    async with Admin(cluster.bootstrap) as admin:
        (topic,) = await admin.describe_topics([FUZZED])
    assert topic.topic_id is not None
    groups = [GroupId(topic.topic_id + number.to_bytes(4, "big")) for number in topic.partitions]
    cluster.kill(GONE)
    pids = cluster.pids()
    log = LogWatch(cluster)
    work = [*((kind, True) for kind in kinds), *((kind, False) for kind in HANDSHAKE_KINDS)]
    strangers = _Strangers(cluster.status()["cluster_id"], cluster.port + BROKER_PORT_SPACING, groups, work)
    resident: list[dict[int, int]] = []
    problems: list[str] = []
    with neighbour(cluster.bootstrap, pids[min(pids)]) as beside:
        try:
            for number in range(ROUNDS):
                await strangers.round(f"{seed}/{number}", -(-of_each // ROUNDS))
                resident.append(resident_bytes(pids))
        except (OSError, ExceptionGroup) as error:
            problems.append(f"a broker cannot be reached any more: {error!r}")
        noticed = await asyncio.to_thread(beside.finish)
    problems += [f"in the log: {text}" for text, _ in log.trouble()] + noticed.trouble
    problems += [f"broker {node_id} has ended" for node_id in pids if node_id not in cluster.pids()]
    for node_id, last in resident[-1].items() if len(resident) == ROUNDS else ():
        if (grown := last - max(found[node_id] for found in resident[:WARM_ROUNDS])) > GROWTH_BYTES_MAX:
            problems.append(f"broker {node_id} has grown by {grown >> 20} MiB, {GROWTH_BYTES_MAX >> 20} are allowed")
    return PeerOutcome(
        sent=strangers.sent, connections=strangers.connections, noticed=noticed, resident=resident, problems=problems
    )


def _make_topics(cluster: ClusterHandle) -> None:
    """Create the neighbour's topic on the three that stay, and the run's own on all pairs of those and the fourth."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    places = [[1, 2, GONE], [2, 3, GONE], [3, 1, GONE], [1, 2, 3]]
    own = NewTopic(FUZZED, len(places), replica_assignment=places)
    for future in admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2, 3]]), own]).values():
        future.result(60)


class _Strangers:
    """Connections and datagrams in the fourth node's name, or in nobody's."""

    def __init__(self, cluster_id: str, port: int, groups: list[GroupId], work: list[tuple[str, bool]]) -> None:
        self._cluster_id = cluster_id
        self._port = port
        self._groups = groups
        self._kinds = work
        self.sent: Counter[str] = Counter()
        self.connections = 0

    async def round(self, seed: str, of_each: int) -> None:
        """Send so many of each kind.

        Raises:
            OSError: a broker does not take connections any more.
        """
        chance = random.Random(seed)
        work = chance.sample(self._kinds, len(self._kinds))
        source = iter(work)
        async with asyncio.TaskGroup() as group:
            for _ in range(LANES):
                group.create_task(self._work(source, seed, of_each))
            group.create_task(self._datagrams(random.Random(f"{seed}/datagrams"), of_each))

    async def _work(self, source: Iterator[tuple[str, bool]], seed: str, of_each: int) -> None:
        for kind, is_keyed in source:
            chance = random.Random(f"{seed}/{kind}/{is_keyed}")
            left = of_each
            while left > 0:
                target = chance.randint(1, BROKERS - 1)
                left -= await (self._as_member if is_keyed else self._as_stranger)(kind, target, left, chance)

    async def _as_member(self, kind: str, target: int, count: int, chance: random.Random) -> int:
        """Shake hands and send frames of a kind, half of them mutated, until the node hangs up; return how many."""
        lies = PeerLies(self._groups, GONE, target)
        line = await self._connect(target)
        sent = 0
        try:
            async with asyncio.timeout(PATIENCE_S * 10):
                await line.shake_hands(Identity(self._cluster_id, GONE, chance.randrange(1 << 40)), target)
            while sent < count:
                frames = [lies.frame(kind, chance) for _ in range(min(AT_ONCE, count - sent))]
                if chance.random() < 0.5:
                    body = mutated(frames[0][4:], frames[-1], chance, chance.choice((0, 8)))
                    frames = [with_size(body) if chance.random() < 0.9 else chance.randbytes(4) + body]
                async with asyncio.timeout(PATIENCE_S):
                    await line.exchange(b"".join(frames))
                sent += len(frames)
        except (OSError, EOFError, TimeoutError, BarnabasError):
            sent += 1  # The first that was too much for it, or one of which it waits for the rest.
        finally:
            line.close()
        self.sent[f"{kind}, with the key"] += sent
        return sent

    async def _as_stranger(self, kind: str, target: int, count: int, chance: random.Random) -> int:
        """Send some frames without a handshake; return how many."""
        lies = PeerLies(self._groups, GONE, target)
        line = await self._connect(target)
        frames = [lies.handshake(kind, chance) for _ in range(min(count, chance.choice((1, 1, 2, 3))))]
        if chance.random() < 0.5:
            frames[-1] = with_size(mutated(frames[-1][4:], frames[0], chance))
        self.sent[f"{kind}, without the key"] += len(frames)
        line.send(b"".join(frames))
        try:
            async with asyncio.timeout(PATIENCE_S / 20):  # Most are answered, or refused, at once.
                await line.drain()
        except (OSError, EOFError, TimeoutError):
            pass
        finally:
            line.close()
        return len(frames)

    async def _connect(self, target: int) -> "_Line":
        self.connections += 1
        return _Line(*await asyncio.open_connection("127.0.0.1", self._port + target - 1))

    async def _datagrams(self, chance: random.Random, of_each: int) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, family=2)
        mark = cluster_mark(self._cluster_id)
        for number in range(of_each):
            for kind in DATAGRAM_KINDS:
                target = chance.randint(1, BROKERS - 1)
                datagram = PeerLies(self._groups, GONE, target).datagram(chance)
                secret = {"unsigned": None, "of another secret": b"another"}.get(kind, SECRET.encode())
                data = encode_datagram(datagram, target, mark, secret)
                if kind == "signed, mutated":
                    data = mutated(data, data, chance)
                transport.sendto(data, ("127.0.0.1", self._port + target - 1))
                self.sent[f"datagram, {kind}"] += 1
            if not number % DATAGRAMS_AT_ONCE:
                await asyncio.sleep(0.01)  # Bytes beyond a socket's buffer would reach nobody.
        transport.close()


class _Line:
    """One connection to a node."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def shake_hands(self, me: Identity, target: int) -> None:
        dialler = Dialler(me, target, SECRET.encode(), os.urandom(NONCE_BYTES))
        self.send(b"".join(encode_frame(dialler.first())))
        while not dialler.done:
            if (answer := dialler.receive(await self._header())) is not None:
                self.send(b"".join(encode_frame(answer)))

    async def exchange(self, data: bytes) -> None:
        """Send, and return when the node has answered the question behind it."""
        self.send(data + b"".join(encode_frame((FrameKind.CALL, PING_ID, "ping"))))
        while (await self._header())[:2] != (FrameKind.REPLY, PING_ID):
            pass

    async def drain(self) -> None:
        while await self._reader.read(1 << 16):
            pass

    def close(self) -> None:
        self._writer.close()

    async def _header(self) -> tuple[object, ...]:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return read_header(frame_of(memoryview(await self._reader.readexactly(size)), owned=True).header)
