"""A large batch on its way through three brokers is never copied.

Every hand-over is watched: what was received from clients and brokers, and what goes to journal, segment files,
other brokers, consumers. Each is a view of some object; a copy would be another object. The journal has nothing of it.
"""

import asyncio
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from broker.bad_disks import BadDisk, BadDisks, consumed, until

from barnabas_broker.server import connections
from barnabas_clients import Admin, Producer
from barnabas_raftlog.links import connection as links
from barnabas_raftlog.links import framing
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.raft.messages import Buffer

MARK = b"this is the one "


class Seen:
    """Where the marked batch was handed over, and the object that it lay in."""

    def __init__(self) -> None:
        self.places: list[tuple[str, object]] = []

    def look(self, place: str, buffers: Iterable[Buffer]) -> None:
        self.places += [(place, memoryview(buffer).obj) for buffer in buffers if MARK in bytes(buffer)]

    def objects(self, *places: str) -> list[object]:
        """Return the different ones that were handed over at these places."""
        return list({id(found): found for place, found in self.places if place in places}.values())


class WatchedDisk(BadDisk):
    def __init__(self, seen: Seen, node_id: int) -> None:
        super().__init__()
        self._seen = seen
        self._node_id = node_id

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> None:
        kind = self._paths[fd].rpartition(".")[2]
        self._seen.look(f"{kind} {self._node_id}", buffers)
        super().write(fd, buffers, position)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    seen = Seen()
    answer = connections.Connection._send
    send = links.Connection.send
    begin = connections.Connection._begin
    received = framing.FrameSplitter.received

    def watched_begin(self: connections.Connection, frame: bytearray) -> None:
        seen.look("request", [frame])
        begin(self, frame)

    def watched_received(self: framing.FrameSplitter, count: int) -> list[framing.Frame]:
        frames = received(self, count)
        seen.look("received", [frame.payload for frame in frames])
        return frames

    def watched_answer(self: connections.Connection) -> None:
        seen.look("consumer", self._output)
        answer(self)

    def watched_send(self: links.Connection, buffers: list[Any]) -> None:
        seen.look("broker", buffers)
        send(self, buffers)

    monkeypatch.setattr(connections.Connection, "_send", watched_answer)
    monkeypatch.setattr(links.Connection, "send", watched_send)
    monkeypatch.setattr(connections.Connection, "_begin", watched_begin)
    monkeypatch.setattr(framing.FrameSplitter, "received", watched_received)
    return seen


def has_written(log: ReplicaLog, index: int) -> bool:
    return log.written.reached >= index


def test_a_batch_is_received_once_and_read_once(tmp_path: Path, seen: Seen) -> None:
    async def main() -> None:
        cluster = BadDisks(3, tmp_path)
        cluster.disks = {node_id: WatchedDisk(seen, node_id) for node_id in cluster.disks}
        async with cluster, Admin(cluster.bootstrap) as admin, Producer(cluster.bootstrap) as producer:
            await admin.create_topic("t", partitions=1)
            await producer.send_and_wait("t", b"the one before", partition=0)
            partitions = [p for node in cluster.nodes.values() for p in node.partitions if p.topic_name == "t"]
            leader = next(partition for partition in partitions if partition.is_leader)
            node = cluster.nodes[leader.host.node_id]
            logs = [cast("ReplicaLog", one.log) for one in partitions]
            for log in logs:
                await until(partial(has_written, log, 2), node)
            value = os.urandom(600_000) + MARK
            await producer.send_and_wait("t", value, partition=0)
            await producer.send_and_wait("t", b"another one", partition=0)
            for log in logs:
                await until(partial(has_written, log, 4), node)
            assert len(await consumed(cluster.bootstrap, 3)) == 3
            own = seen.objects("request")
            assert len(own) == 1
            places = [f"log {node_id}" for node_id in cluster.nodes]
            assert [len(seen.objects(place)) for place in places] == [1, 1, 1]
            assert not seen.objects(*(f"journal {node_id}" for node_id in cluster.nodes)), "it is written once"
            assert len(seen.objects("request", "received", *places)) == 3, "each broker keeps what it has received"
            assert seen.objects("broker") == seen.objects("consumer") == own
            cast("ReplicaLog", leader.log).tail.drop_before(leader.log.last_index)
            assert await consumed(cluster.bootstrap, 3) == [b"the one before", value, b"another one"]
            assert len(seen.objects("consumer")) == 2, "what is not cached is read into one object, which is sent"

    asyncio.run(main())
