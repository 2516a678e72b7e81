"""Brokers whose disks fail while they run: the process stays up, says why, and is whole again when its disk is."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from barnabas_broker.environment import NodeEnvironment
from barnabas_broker.node import Node
from barnabas_broker.partition import Partition
from barnabas_broker.testing import Cluster
from barnabas_clients import Admin, Consumer, Producer
from barnabas_raftlog.log.files import OsFiles
from barnabas_raftlog.log.segment_log import ReplicaLog

DEADLINE_S = 20.0


class BadDisk(OsFiles):
    """The disk of this machine, until `errors` says otherwise: the errno for (call, path), 0 for none."""

    def __init__(self) -> None:
        self.errors: Callable[[str, str], int] = lambda call, path: 0
        self._paths: dict[int, str] = {}

    def _may_fail(self, call: str, path: str) -> None:
        if code := self.errors(call, path):
            raise OSError(code, f"{call} failed on purpose", path)

    def open(self, path: str, *, create: bool) -> int:
        fd = super().open(path, create=create)
        self._paths[fd] = path
        return fd

    def sync(self, fd: int) -> None:
        self._may_fail("sync", self._paths[fd])
        super().sync(fd)

    def preallocate(self, fd: int, position: int, size_bytes: int) -> None:
        self._may_fail("preallocate", self._paths[fd])
        super().preallocate(fd, position, size_bytes)


class BadDisks(Cluster):
    """A cluster whose brokers have one `BadDisk` each."""

    def __init__(self, brokers: int, directory: Path) -> None:
        super().__init__(brokers, directory=directory)
        self.disks = {node_id: BadDisk() for node_id in self.configs}

    async def start(self, node_id: int) -> Node:
        node = Node(self.configs[node_id], NodeEnvironment(files=self.disks[node_id]))
        await node.start()
        self.nodes[node_id] = node
        return node


class Damage:
    """One flipped bit in the second segment of a replica."""

    def __init__(self, partition: Partition) -> None:
        self._file = sorted(Path(cast("ReplicaLog", partition.log).directory).glob("*.log"))[1]
        self._good = self._file.read_bytes()
        bad = bytearray(self._good)
        bad[250_000] ^= 4
        self._file.write_bytes(bad)

    def is_mended(self) -> bool:
        return self._file.read_bytes() == self._good


async def until(claim: Callable[[], bool], node: Node) -> None:
    """Wait until the claim holds: look again when a leadership has changed, and every 50 ms."""
    async with asyncio.timeout(DEADLINE_S):
        while not claim():
            assert not node.failure.done(), node.failure
            changed = asyncio.ensure_future(node.partitions.leaders_changed())
            await asyncio.wait([changed], timeout=0.05)
            changed.cancel()


def storage_status(node: Node) -> Any:
    return node.status()["storage"]


def kinds(node: Node) -> set[str]:
    return {event["kind"] for event in node.events.to_list()}


async def consumed(bootstrap: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with Consumer(bootstrap, topics=["t"], auto_offset_reset="earliest") as consumer, asyncio.timeout(DEADLINE_S):
        async for record in consumer:
            found.append(record.value or b"")
            if len(found) == count:
                break
    return found


def test_a_broker_whose_journal_fails_hands_its_leaderships_on_and_comes_back_by_itself(tmp_path: Path) -> None:
    async def main() -> None:
        async with BadDisks(3, tmp_path) as cluster, Producer(cluster.bootstrap) as producer:
            async with Admin(cluster.bootstrap) as admin:
                await admin.create_topic("t", partitions=1)
            await producer.send_and_wait("t", b"0", partition=0)
            node = next(
                n for n in cluster.nodes.values() if any(p.is_leader for p in n.partitions if p.topic_name == "t")
            )
            partition = next(p for p in node.partitions if p.topic_name == "t")
            disk = cluster.disks[node.config.node_id]
            disk.errors = lambda call, path: errno.EIO if call == "sync" and path.endswith(".journal") else 0
            for number in range(1, 6):
                await producer.send_and_wait("t", b"%d" % number, partition=0)
            await until(lambda: partition.group.is_suspended, node)
            assert not partition.is_leader
            assert "failed on purpose" in storage_status(node)["refusing"]
            assert "storage failed" in kinds(node)
            disk.errors = lambda call, path: 0
            await until(lambda: partition.high_watermark == 6, node)
            await until(lambda: node.is_ready, node)
            assert storage_status(node)["refusing"] == ""
            assert "storage recovered" in kinds(node)
            assert await consumed(cluster.bootstrap, 6) == [b"%d" % number for number in range(6)]

    asyncio.run(main())


def test_a_flipped_bit_is_repaired_from_another_broker_as_soon_as_a_consumer_meets_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with BadDisks(3, tmp_path) as cluster:
            async with Admin(cluster.bootstrap) as admin:
                await admin.create_topic("t", partitions=1, configs={"segment.bytes": str(1 << 20)})
            async with Producer(cluster.bootstrap, linger_s=0.0) as producer:
                for number in range(40):
                    await producer.send_and_wait("t", b"%04d" % number + bytes(100_000), partition=0)
            partitions = {
                n.config.node_id: p for n in cluster.nodes.values() for p in n.partitions if p.topic_name == "t"
            }
            node_id, partition = next(pair for pair in partitions.items() if pair[1].is_leader)
            node = cluster.nodes[node_id]
            for known in partitions.values():
                await until(lambda known=known: known.high_watermark == 40, node)  # type: ignore[misc]
            damage = Damage(partition)
            # Not from memory: as if the broker had run for a while.
            cast("ReplicaLog", partition.log)._tail.drop_before(partition.log.last_index)
            values = await consumed(cluster.bootstrap, 40)
            assert [value[:4] for value in values] == [b"%04d" % number for number in range(40)]
            assert damage.is_mended()
            assert {"segment damaged", "segment repaired"} <= kinds(node)
            assert storage_status(node)["scrub"]["damaged"] == []

    asyncio.run(main())


def test_a_lone_broker_refuses_producers_while_its_disk_is_bad_and_then_takes_them_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with BadDisks(1, tmp_path) as cluster, Producer(cluster.bootstrap) as producer:
            node, disk = cluster.nodes[1], cluster.disks[1]
            async with Admin(cluster.bootstrap) as admin:
                await admin.create_topic("t", partitions=1)
            await producer.send_and_wait("t", b"0", partition=0)
            disk.errors = lambda call, path: errno.EIO if call == "sync" and path.endswith(".journal") else 0
            waiting = [await producer.send("t", b"1", partition=0)]
            await until(lambda: storage_status(node)["refusing"] != "", node)
            disk.errors = lambda call, path: 0
            await waiting[0]
            await until(lambda: storage_status(node)["refusing"] == "", node)
            assert await consumed(cluster.bootstrap, 2) == [b"0", b"1"]

    asyncio.run(main())
