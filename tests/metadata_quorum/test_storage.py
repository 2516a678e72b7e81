"""The metadata quorum over real storage, and over files that were copied in mid-flight."""

import asyncio
import shutil
from pathlib import Path

import pytest

from barnabas_metadata_quorum import replica as replica_module
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.links.raft_frames import METADATA_GROUP

from .harness import Node, Quorum, RealDisk, quorum, run

NAMES = [f"t{number}" for number in range(30)]


def snapshots(directory: Path) -> list[int]:
    """Return how many snapshot files each node has."""
    return [len(list(node.glob("metadata-*.snapshot"))) for node in sorted(directory.iterdir())]


async def copy_of(node: Node, target: Path) -> None:
    """Copy the disk of a running node, between two jobs of the thread that makes and removes files there."""
    copied = asyncio.get_running_loop().create_future()
    node.disk.worker.submit(lambda: shutil.copytree(node.disk.directory, target), copied.set_result)
    await copied


async def until_all_exist(nodes: Quorum) -> None:
    for node in nodes:
        image = await node.until(lambda image: len(image.topics) == len(NAMES))
        assert sorted(topic.name for topic in image.topics.values()) == sorted(NAMES)
        group = node.multiraft.groups[METADATA_GROUP]
        # Offsets and versions are the same numbers: one record, one offset.
        assert image.version <= group.log.offset_after(group.log.last_index)


def test_a_stopped_cluster_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "SNAPSHOT_RECORDS", 20)

    async def main() -> None:
        async with quorum(tmp_path, (1, 2, 3), (4,), disk=RealDisk) as nodes:
            for name in NAMES:
                await nodes.nodes[4].create(name, factor=3)
            await until_all_exist(nodes)
            await nodes.stop(1, 2, 3, 4)
            assert snapshots(tmp_path) == [1, 1, 1, 1]
            await nodes.start(1, 2, 3, 4)
            await nodes.until_up()
            await until_all_exist(nodes)

    run(main())


def test_what_was_answered_survives_the_crash_of_every_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "SNAPSHOT_RECORDS", 20)

    async def main() -> None:
        crashed = tmp_path / "crashed"
        async with quorum(tmp_path / "running", disk=RealDisk) as nodes:
            for name in NAMES:
                await nodes.nodes[1].create(name)
            # The files hold now, at best, what a power cut would leave.
            for node in nodes:
                await copy_of(node, crashed / str(node.node_id))
        async with quorum(crashed, disk=RealDisk) as nodes:
            await until_all_exist(nodes)

    run(main())


def test_a_node_with_an_empty_disk_gets_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_module, "SNAPSHOT_RECORDS", 20)
    monkeypatch.setattr("barnabas_metadata_quorum.service.SEGMENT_BYTES", 4096)

    async def main() -> None:
        async with quorum(tmp_path, (1, 2), (3,), disk=RealDisk, session_timeout_ms=600_000) as nodes:
            await nodes.stop(3)
            for name in NAMES:
                await nodes.nodes[1].create(name)
            shutil.rmtree(tmp_path / "3")
            (tmp_path / "3").mkdir()
            await nodes.start(3)
            await nodes.until_up()
            await until_all_exist(nodes)
            assert len(nodes.nodes[3].saw("metadata snapshot installed")) == 1
            await nodes.stop(3)
            await nodes.start(3)
            await nodes.until_up()
            await until_all_exist(nodes)

    run(main())


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with quorum(tmp_path, (1,), disk=RealDisk):
            pass
        monkeypatch.setattr("tests.metadata_quorum.harness.CLUSTER", "another")
        disk = RealDisk(tmp_path / "1")
        with pytest.raises(StorageFailedError, match="another"):
            await disk.open(lambda: None)
        disk.sync_worker.stop()
        disk.worker.stop()

    run(main())
