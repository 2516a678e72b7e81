"""Brokers whose disks fail stay up, say why, and are whole again with the disk."""

import asyncio
import errno
from pathlib import Path
from typing import cast

import pytest
from broker.bad_disks import BadDisks, consumed, kinds, storage_status, until

from barnabas_broker.partition.partition import Partition
from barnabas_clients import Admin, Producer
from barnabas_raftlog.log.replica.replica_log import ReplicaLog


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
            # All may have been committed before it failed, by the other two: that says nothing of this node.
            await until(lambda: "storage recovered" in kinds(node), node)
            await until(lambda: partition.high_watermark == 6, node)
            await until(lambda: node.is_ready, node)
            assert storage_status(node)["refusing"] == ""
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
            cast("ReplicaLog", partition.log).tail.drop_before(partition.log.last_index)
            values = await consumed(cluster.bootstrap, 40)
            assert [value[:4] for value in values] == [b"%04d" % number for number in range(40)]
            assert damage.is_mended()
            # A reader finds the file as soon as a thread has put it there, which the loop hears of later.
            await until(lambda: {"segment damaged", "segment repaired"} <= kinds(node), node)
            assert storage_status(node)["scrub"]["damaged"] == []

    asyncio.run(main())


def test_a_lone_broker_refuses_producers_while_its_disk_is_bad_and_then_takes_them_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with BadDisks(1, tmp_path) as cluster, Producer(cluster.bootstrap) as producer:
            node = cluster.nodes[1]
            disk = cluster.disks[1]
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


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM])
def test_a_cluster_that_can_open_no_file_for_a_while_gives_up_no_replica(code: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with BadDisks(3, tmp_path) as cluster, Producer(cluster.bootstrap, linger_s=0.0) as producer:
            async with Admin(cluster.bootstrap) as admin:
                await admin.create_topic("t", partitions=1, configs={"segment.bytes": str(1 << 20)})
            for number in range(5):
                await producer.send_and_wait("t", b"%04d" % number + bytes(400_000), partition=0)
            for disk in cluster.disks.values():
                disk.errors = lambda call, path: code if call == "open" and "/replicas/" in path else 0
            for number in range(5, 20):  # Segments become full meanwhile, and have nowhere to go.
                await producer.send_and_wait("t", b"%04d" % number + bytes(400_000), partition=0)
            for node in cluster.nodes.values():
                await until(lambda node=node: "storage hampered" in kinds(node), node)  # type: ignore[misc]
                assert "on purpose" in storage_status(node)["hampered"]
            for disk in cluster.disks.values():
                disk.errors = lambda call, path: 0
            for node in cluster.nodes.values():
                await until(lambda node=node: storage_status(node)["hampered"] == "", node)  # type: ignore[misc]
                assert "replica failed" not in kinds(node)
                assert storage_status(node)["failed_replicas"] == {}
            values = await consumed(cluster.bootstrap, 20)
            assert [value[:4] for value in values] == [b"%04d" % number for number in range(20)]

    asyncio.run(main())
