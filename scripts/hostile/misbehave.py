"""The hostile of a crowd: connections that misbehave in all ways, by a seed.

The traffic hangs on the clock and on chance alone, never on an answer: a sink (`sink`) gets the same as brokers. Each
connection has one way to misbehave, acts when it is its turn, and comes again when it was closed:

    half        announces 100 MiB, sends 70 KB, and then a byte a second
    bytes       a whole request, a byte at a time
    unread      three fetches of 50 MiB every five seconds, and reads nothing
    pipeline    500 requests in one write, every two seconds
    names       Metadata of 30,000 unknown topics, every 30 seconds
    polls       a fetch more that waits for 2 GiB, every second
    garbage     TLS, HTTP, lengths that none may have, random bytes, twice a second
    restless    connects and closes, five times a second
    ids         a hundred producer ids a second
    groups      joins a new group with 50 KB, every two seconds
    commits     commits for a new group with a note of 4 KB, every second
    lies        batches that cannot be true, every second
    looks       ListOffsets of 5,000 partitions, every ten seconds
    silent      nothing at all
"""

import heapq
import json
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from barnabas_clients.protocol.api_versions import ApiVersionsRequest
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_clients.protocol.init_producer_id import InitProducerIdRequest
from barnabas_clients.protocol.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas_clients.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from hostile.scenes.connections import FOREIGN
from hostile.scenes.scene import produce

from .frames import Address, batch, bomb, frame_of

PENDING_BYTES_MAX = 1 << 20  # of a connection that does not take its bytes: then a turn is left out
MIB = 1 << 20
INT32_MAX = (1 << 31) - 1

Say = Callable[[random.Random, int], bytes]


class Way(NamedTuple):
    """One way to misbehave: its words in each turn, its interval, and whether it reads answers and stays."""

    name: str
    interval_s: float
    say: Say
    reads: bool = True
    stays: bool = True


def ways(topic: str) -> list[Way]:
    """Return all of them; bytes that are always the same are made once."""
    half = struct.pack(">i", 100 * MIB) + bytes(70_000)
    spelled = frame_of(MetadataRequest(topics=None), 12)
    parts = [FetchPartition(partition=k, partition_max_bytes=50 * MIB) for k in range(6)]
    fetch = FetchRequest(max_bytes=50 * MIB, topics=[FetchTopic(topic=topic, partitions=parts)])
    unread = frame_of(fetch, 11) * 3
    poll = FetchRequest(max_wait_ms=60_000, min_bytes=INT32_MAX, topics=[FetchTopic(topic=topic, partitions=parts)])
    polls = frame_of(poll, 11)
    pipeline = frame_of(ApiVersionsRequest(), 0) * 500
    unknown = [MetadataRequestTopic(name=f"nowhere-{k}") for k in range(30_000)]
    names = frame_of(MetadataRequest(topics=unknown, allow_auto_topic_creation=False), 8)
    ids = frame_of(InitProducerIdRequest(transaction_timeout_ms=1_000), 2) * 100
    listed = [ListOffsetsPartition(partition_index=k % 9, timestamp=k - 3) for k in range(5_000)]
    looks = frame_of(ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=listed)]), 7)
    lies = [batch(5, body=bytes(20)), batch(attributes=4, body=bomb(100 * MIB)), batch(crc=1), batch(length=INT32_MAX)]

    def spell(_: random.Random, turn: int) -> bytes:
        return spelled[turn % len(spelled) :][:1]

    def garble(chance: random.Random, _: int) -> bytes:
        return chance.choice([*FOREIGN.values(), chance.randbytes(2_000)])

    def lie(chance: random.Random, _: int) -> bytes:
        return frame_of(produce(topic, chance.choice(lies), chance.randrange(9)), 9)

    return [
        Way("half", 1.0, lambda _, turn: half if turn == 0 else b"\0", reads=False),
        Way("bytes", 0.2, spell),
        Way("unread", 5.0, lambda _, __: unread, reads=False),
        Way("pipeline", 2.0, lambda _, __: pipeline),
        Way("names", 30.0, lambda _, __: names),
        Way("polls", 1.0, lambda _, __: polls),
        Way("garbage", 0.5, garble, stays=False),
        Way("restless", 0.2, lambda _, __: b"", stays=False),
        Way("ids", 1.0, lambda _, __: ids),
        Way("groups", 2.0, join),
        Way("commits", 1.0, commit),
        Way("lies", 1.0, lie),
        Way("looks", 10.0, lambda _, __: looks),
        Way("silent", 5.0, lambda _, __: b""),
    ]


def join(chance: random.Random, _: int) -> bytes:
    offered = [JoinGroupRequestProtocol(name="range", metadata=bytes(50_000))]
    name = f"crowd-{chance.getrandbits(40)}"
    request = JoinGroupRequest(
        group_id=name,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=1_000,
        protocol_type="consumer",
        protocols=offered,
    )
    return frame_of(request, 3)


def commit(chance: random.Random, _: int) -> bytes:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="n" * 4_000)
    topics = [OffsetCommitRequestTopic(name="crowd", partitions=[part])]
    return frame_of(OffsetCommitRequest(group_id=f"crowd-{chance.getrandbits(40)}", topics=topics), 8)


class Hostile:
    """One connection, which is made when it first acts."""

    def __init__(self, way: Way, address: Address, chance: random.Random) -> None:
        self.way = way
        self.address = address
        self.chance = chance
        self.socket: socket.socket | None = None
        self.pending = b""
        self.turn = 0
        self.opened = 0
        self.sent_bytes = 0

    def act(self) -> None:
        """Take one turn. The reaction of the other end is its own affair."""
        try:
            self._act()
        except OSError:
            self.close()

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
        self.socket = None
        self.pending = b""
        self.turn = 0

    def _act(self) -> None:
        if self.socket is None:
            self.socket = socket.socket()
            self.socket.setblocking(False)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16 if self.way.reads else 4096)
            self.socket.connect_ex(self.address)
            self.opened += 1
        if self.way.reads:
            try:
                while len(part := self.socket.recv(1 << 16)) == 1 << 16:
                    pass
                if not part:
                    raise ConnectionError("closed")
            except BlockingIOError:
                pass
        if len(self.pending) < PENDING_BYTES_MAX:
            self.pending += self.way.say(self.chance, self.turn)
            self.turn += 1
        try:
            sent = self.socket.send(self.pending) if self.pending else 0
        except BlockingIOError:
            sent = 0
        self.pending = self.pending[sent:]
        self.sent_bytes = self.sent_bytes + sent
        if not self.way.stays:
            self.close()


def misbehave(all_of_them: list[Hostile], chance: random.Random, until: threading.Event) -> None:
    """Let each act in its interval, from a moment on that chance chooses, until the event is set."""
    now = time.monotonic()
    due = [(now + chance.random() * one.way.interval_s, number) for number, one in enumerate(all_of_them)]
    heapq.heapify(due)
    while not until.is_set():
        at, number = due[0]
        wait_s = at - time.monotonic()
        if wait_s > 0:
            until.wait(min(wait_s, 0.1))
            continue
        one = all_of_them[number]
        one.act()
        heapq.heapreplace(due, (at + one.way.interval_s, number))
    for one in all_of_them:
        one.close()


def main(topic: str, count: int, seed: str, ports: list[int]) -> None:
    chance = random.Random(seed)
    known = ways(topic)
    addresses = [("127.0.0.1", port) for port in ports]
    crowd = [
        Hostile(known[n % len(known)], addresses[n % len(addresses)], random.Random(f"{seed} {n}"))
        for n in range(count)
    ]
    until = threading.Event()
    thread = threading.Thread(target=misbehave, args=(crowd, chance, until))
    used_s = time.process_time()
    began = time.monotonic()
    thread.start()
    print("ready", flush=True)
    sys.stdin.readline()
    until.set()
    thread.join()
    share = (time.process_time() - used_s) / (time.monotonic() - began)
    opened = sum(one.opened for one in crowd)
    sent = sum(one.sent_bytes for one in crowd)
    print(json.dumps({"opened": opened, "sent_bytes": sent, "processor": share}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], [int(port) for port in sys.argv[4:]])
