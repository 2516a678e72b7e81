"""Scenes at the ports that brokers have for each other: garbage, strangers, forgeries.

A scene that needs more than a stranger has is played as far as it goes: if the cluster has a secret, the handshake ends
it, and the scene says so.
"""

import os
import socket
import struct
from collections import Counter
from typing import Any

import msgpack

from barnabas_clients.protocol.metadata import MetadataRequest
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.links.framing import FrameKind, encode_frame, frame_of, read_header
from barnabas_raftlog.links.handshake import ADMIN, Dialler, Identity
from barnabas_raftlog.links.liveness import Datagram, cluster_mark, encode_datagram
from barnabas_raftlog.links.raft_frames import METADATA_GROUP, encode_messages
from barnabas_raftlog.raft.messages import VoteRequest
from hostile.frames import Address, Wire, connect, send_some, take_some

from .scene import Attack, counted, scene

METHODS = (
    "status",
    "controller",
    "metadata",
    "ping",
    "lost voter",
    "leaders",
    "metadata.formation",
    "replica failed",
    "catch-up-manifest",
    "catch-up-read",
    "catch-up-entries",
    "catch-up-damaged",
    "none of them",
)
ODD_VALUES: tuple[Any, ...] = (0, -1, 1 << 62, "x", b"y", None, (), {}, 1.5, True, "a\n\x1b[2J")
PATIENCE_S = 0.05


class Intruder:
    """One connection to a peer port, after the handshake.

    Raises:
        BarnabasError: the handshake was refused.
    """

    def __init__(self, address: Address, cluster_id: str, node_id: int, target: int) -> None:
        self.socket = connect(address, timeout_s=2.0)
        me = Identity(cluster_id, node_id, int.from_bytes(os.urandom(6), "big"))
        dialler = Dialler(me, target, None, os.urandom(16))
        try:
            self.send(dialler.first())
            while not dialler.done:
                answer = dialler.receive(self.receive())
                if answer is not None:
                    self.send(answer)
        except BaseException:
            self.socket.close()
            raise
        assert dialler.peer is not None
        self.peer = dialler.peer
        self.socket.settimeout(PATIENCE_S)

    def send(self, header: Any, body: bytes = b"") -> None:
        self.socket.sendall(b"".join(encode_frame(header, [body], len(body))))

    def receive(self) -> Any:
        body = self._exactly(int.from_bytes(self._exactly(4), "big"))
        return read_header(frame_of(memoryview(body), owned=True).header)

    def hears_nothing(self) -> bool:
        """Return whether the connection is over."""
        try:
            return not self.socket.recv(1 << 16)
        except TimeoutError:
            return False
        except OSError:
            return True

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            if not part:
                raise ConnectionError("closed")
            found += part
        return found


def _cluster_id(attack: Attack) -> str:
    with Wire(attack.brokers[0]) as wire:
        return str(wire.ask(MetadataRequest(topics=[]), 12).cluster_id)


def _odd(attack: Attack, depth: int = 0) -> Any:
    chance = attack.chance
    if depth < 3 and chance.random() < 0.3:
        return [_odd(attack, depth + 1) for _ in range(chance.randrange(6))]
    return chance.choice(ODD_VALUES)


@scene("What held")
def peer_garbage(attack: Attack) -> str:
    """Bytes of every kind at the peer ports: random, frames that lie about their length, headers of odd values."""
    chance = attack.chance
    count = 0
    for turn in attack.turns():
        kind = turn % 5
        if kind == 0:
            data = chance.randbytes(chance.randrange(1, 5_000))
        elif kind == 1:
            body = chance.randbytes(chance.randrange(1, 100))
            data = struct.pack(">II", 4 + len(body), chance.choice((len(body) + 1, 0, (1 << 32) - 1))) + body
        elif kind == 2:
            header = [chance.choice((1, 2, 6, 7, 10, 0, 99)), *[_odd(attack) for _ in range(chance.randrange(8))]]
            data = b"".join(encode_frame(header))
        elif kind == 3:
            data = struct.pack(">I", chance.choice((0, 3, 4, 4_096, 4_097, 1 << 31, (1 << 32) - 1))) + bytes(20)
        else:
            data = b"GET / HTTP/1.1\r\n\r\n" if turn % 2 else bytes.fromhex("1603010200")
        with connect(attack.peers[turn % len(attack.peers)], timeout_s=0.01) as one:
            send_some(one, data)
            take_some(one, 100)
        count += 1
    return f"{count} connections of garbage"


@scene("What held")
def peer_strangers(attack: Attack) -> str:
    """Connections to the peer ports that never say a word, 500 at a time and without end."""
    held: list[socket.socket] = []
    count = 0
    for turn in attack.turns():
        try:
            held.append(connect(attack.peers[turn % len(attack.peers)], timeout_s=0.2))
        except OSError:
            continue
        count += 1
        if len(held) > attack.many(500):
            held.pop(0).close()
    for one in held:
        one.close()
    return f"{count} strangers"


@scene("What held")
def random_datagrams(attack: Attack) -> str:
    """Datagrams of garbage, of the right length and of others."""
    count = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(1.0)
        for turn in attack.turns():
            data = attack.chance.randbytes(attack.chance.choice((0, 1, 99, 100, 101, 116, 1_400, 9_000)))
            for _ in range(20):
                try:
                    sender.sendto(data, attack.peers[turn % len(attack.peers)])
                    count += 1
                except OSError:
                    pass
    return f"{count} datagrams"


@scene("A11")
def forged_datagrams(attack: Attack) -> str:
    """Datagrams in another node's name whose sequence lies far ahead, and whose numbers are extreme."""
    cluster_id = _cluster_id(attack)
    mark = cluster_mark(cluster_id)
    count = 0
    incarnations = {}
    for index, address in enumerate(attack.peers):
        try:
            one = Intruder(address, "", ADMIN, ADMIN)
            incarnations[index + 1] = one.peer.incarnation
            one.socket.close()
        except (BarnabasError, OSError):
            incarnations[index + 1] = 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for source, incarnation in incarnations.items():
            for target, address in enumerate(attack.peers, 1):
                for sequence in (1 << 63, (1 << 64) - 1, 0) if source != target else ():
                    forged = Datagram(
                        node_id=source,
                        incarnation=incarnation,
                        sequence=sequence,
                        echo_incarnation=0,
                        echo_sequence=0,
                        echo_delay_ms=0,
                    )
                    sender.sendto(encode_datagram(forged, target, mark, None), address)
                    count += 1
    attack.wait()
    return f"{count} datagrams in the names of others"


@scene("A12")
def peer_administrators(attack: Attack) -> str:
    """Questions that an administrator may ask at a peer port, and others, with bodies of every kind."""
    ends: Counter[str] = Counter()
    for turn in attack.turns():
        try:
            one = Intruder(attack.peers[turn % len(attack.peers)], "", ADMIN, ADMIN)
        except (BarnabasError, OSError) as error:
            ends[f"handshake: {type(error).__name__}"] += 1
            continue
        with one.socket:
            for k in range(10):
                method = attack.chance.choice(METHODS)
                body = attack.chance.choice((b"", b"\xc1", msgpack.packb(_odd(attack)), b"\x91" * 2_000))
                try:
                    one.send((int(FrameKind.CALL), k, method), body)
                except OSError:
                    break
                if one.hears_nothing():
                    ends["closed"] += 1
                    break
                ends["answered or not"] += 1
    return counted(ends)


@scene("A12")
def members_of_garbage(attack: Attack) -> str:
    """Connections in another node's name that send Raft messages, digests and calls of odd values."""
    cluster_id = _cluster_id(attack)
    ends = Counter[str]()
    for turn in attack.turns():
        target = turn % len(attack.peers) + 1
        try:
            one = Intruder(attack.peers[target - 1], cluster_id, target % len(attack.peers) + 1, target)
        except (BarnabasError, OSError) as error:
            ends[f"handshake: {type(error).__name__}"] += 1
            continue
        with one.socket:
            for _ in range(20):
                kind = attack.chance.choice((6, 6, 6, 8, 9, 10, 99))
                odd = [[attack.chance.randrange(10), bytes(20), *[_odd(attack) for _ in range(6)]] for _ in range(3)]
                try:
                    one.send((kind, odd if kind == 6 else _odd(attack), os.urandom(16)))
                except OSError:
                    break
            ends["closed" if one.hears_nothing() else "open"] += 1
    return counted(ends)


@scene("A2")
def forged_terms(attack: Attack) -> str:
    """Vote requests in another node's name, of terms that no cluster has reached."""
    cluster_id = _cluster_id(attack)
    ends = Counter[str]()
    for target, address in enumerate(attack.peers, 1):
        source = target % len(attack.peers) + 1
        for term in (1 << 40, 1 << 31, (1 << 63) - 1, (1 << 31) - 1):
            try:
                one = Intruder(address, cluster_id, source, target)
            except (BarnabasError, OSError) as error:
                ends[f"handshake: {type(error).__name__}"] += 1
                continue
            with one.socket:
                request = VoteRequest(
                    term=term,
                    source=source,
                    target=target,
                    last_index=1 << 40,
                    last_term=term,
                    pre=False,
                    transfer=True,
                )
                for frame in encode_messages([(METADATA_GROUP, request)], os.urandom(16))[0]:
                    send_some(one.socket, b"".join(bytes(part) for part in frame))
                ends["closed" if one.hears_nothing() else "open"] += 1
    attack.wait()
    return f"forged terms: {counted(ends)}"


@scene("What held")
def hijacked_links(attack: Attack) -> str:
    """Connections in the name of each node to each other one, again and again."""
    cluster_id = _cluster_id(attack)
    ends = Counter[str]()
    nodes = len(attack.peers)
    for turn in attack.turns():
        target = turn % nodes + 1
        try:
            Intruder(
                attack.peers[target - 1], cluster_id, (target + turn // nodes % 2) % nodes + 1, target
            ).socket.close()
            ends["taken"] += 1
        except (BarnabasError, OSError) as error:
            ends[type(error).__name__] += 1
    return counted(ends)
