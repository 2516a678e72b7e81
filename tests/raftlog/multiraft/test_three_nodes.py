"""Core, log, driver and links together: three nodes with real files, sockets and time."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
from raftlog.conftest import LOOPBACK, Runner

from barnabas_raftlog.links.links import Links, NodeAddress, monotonic_ms
from barnabas_raftlog.log.machine.files import OsFiles
from barnabas_raftlog.log.machine.worker import ThreadWorker
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.storage import Storage, StorageConfig
from barnabas_raftlog.multiraft.multiraft import MultiRaft, RaftGroup
from barnabas_raftlog.raft.core import Timing
from barnabas_raftlog.raft.membership import configuration_of
from barnabas_raftlog.raft.messages import Fact, GroupId

from .fakes import Listener, data_frame, group_id

VOTERS = frozenset({1, 2, 3})
CONFIG = StorageConfig(journal_file_bytes=4 << 20, journal_step_bytes=1 << 20, tail_cache_bytes=256 << 10)
SEGMENT_BYTES = 1 << 20
Mode = Literal["fsync", "page-cache"]


class RealNode:
    """One node; `life` is its links, which can end and begin again while its groups stay."""

    def __init__(self, node_id: int, directory: Path, mode: Mode) -> None:
        self.node_id = node_id
        self.directory = directory
        self.mode = mode
        self.facts: list[tuple[GroupId, Fact]] = []
        self.listeners: dict[int, Listener] = {}
        self.groups: dict[int, RaftGroup] = {}
        self.logs: dict[int, ReplicaLog] = {}

    def on_durable(self) -> None:
        self.raft.on_durable()  # The storage is opened before there is anybody to tell.

    async def start(self, address: NodeAddress, incarnation: int) -> None:
        loop = asyncio.get_running_loop()
        self.workers = [ThreadWorker(loop, f"{name}-{self.node_id}") for name in ("sync", "write")]
        self.storage = await Storage.open(
            OsFiles(),
            str(self.directory),
            CONFIG,
            sync_worker=self.workers[0],
            write_worker=self.workers[1],
            on_durable=self.on_durable,
        )
        self.links = Links("c", self.node_id, incarnation, address, {})
        rng = random.Random(self.node_id)
        self.raft = MultiRaft(
            self.node_id, self.storage, self.links, Timing(), monotonic_ms, rng, lambda *fact: self.facts.append(fact)
        )
        await self.links.start()
        self.running = asyncio.create_task(self.raft.run())

    def add(self, number: int, preferred: int) -> None:
        log = self.storage.open_log(group_id(number), f"t-{number}", self.mode, segment_bytes=SEGMENT_BYTES)
        self.logs[number] = log
        listener = Listener()
        self.listeners[number] = listener
        self.groups[number] = self.raft.add_group(
            group_id(number), log, configuration_of(VOTERS), listener, preferred=preferred == self.node_id
        )

    async def until_committed(self, number: int, high_watermark: int) -> None:
        group = self.groups[number]
        await self.listeners[number].until(lambda: group.high_watermark >= high_watermark)

    async def until_leading(self, number: int) -> None:
        await self.listeners[number].until(lambda: self.groups[number].confirmed)

    async def entries(self, number: int) -> list[tuple[int, int, bytes]]:
        return [(entry.index, entry.term, bytes(entry.frame)) async for entry in self.logs[number].replay(1)]

    async def stop(self) -> None:
        await self.links.close()
        await self.raft.close()
        await self.running
        await self.storage.close()
        for worker in self.workers:
            worker.stop()


@contextlib.asynccontextmanager
async def three(directory: Path, mode: Mode, groups: int) -> AsyncIterator[dict[int, RealNode]]:
    nodes = {node_id: RealNode(node_id, directory / str(node_id), mode) for node_id in VOTERS}
    for node in nodes.values():
        node.directory.mkdir()
        await node.start(LOOPBACK, 1)
    introduce(nodes)
    for number in range(1, groups + 1):
        for node in nodes.values():
            node.add(number, preferred=1)
    try:
        yield nodes
    finally:
        for node in nodes.values():
            await node.stop()


def introduce(nodes: dict[int, RealNode]) -> None:
    for here in nodes.values():
        for there in nodes.values():
            if here is not there:
                here.links.add_peer(there.node_id, there.links.address)


async def first_leader(nodes: dict[int, RealNode], number: int) -> RealNode:
    """Return the node that first leads group `number` with certainty."""
    waiting = {asyncio.ensure_future(node.until_leading(number)): node for node in nodes.values()}
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return waiting[done.pop()]


@pytest.mark.parametrize("mode", ["fsync", "page-cache"])
def test_a_thousand_frames_survive_the_loss_of_their_leader(run: Runner, tmp_path: Path, mode: Mode) -> None:
    async def main() -> None:
        async with three(tmp_path, mode, groups=1) as nodes:
            old = await first_leader(nodes, 1)
            for number in range(1_000):
                old.groups[1].propose(data_frame(b"%d" % number))
                if number % 50 == 0:
                    await asyncio.sleep(0)
            await old.until_committed(1, 1_000)
            await old.links.close()  # The process would be dead; its files and its group stay for later.
            rest = {node_id: node for node_id, node in nodes.items() if node is not old}
            new = await first_leader(rest, 1)
            assert new.groups[1].core.term > 1
            for number in range(10):
                new.groups[1].propose(data_frame(b"later %d" % number))
            for node in rest.values():
                await node.until_committed(1, 1_010)
            # The old leader comes back as another life of the node, with what it had on disk.
            address = old.links.address
            await old.raft.close()
            await old.running
            await old.storage.close()
            for worker in old.workers:
                worker.stop()
            await old.start(address, 2)
            for node in rest.values():
                old.links.add_peer(node.node_id, node.links.address)
            old.add(1, preferred=0)
            await old.until_committed(1, 1_010)
            shown = [await node.entries(1) for node in nodes.values()]
            assert shown[0] == shown[1] == shown[2]
            assert sum(b"later" in frame for _, _, frame in shown[0]) == 10

    run(main())


def test_many_groups_elect_and_commit_together(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        async with three(tmp_path, "page-cache", groups=40) as nodes:
            leaders = [await first_leader(nodes, number) for number in range(1, 41)]
            for number, leader in enumerate(leaders, 1):
                leader.groups[number].propose(data_frame(b"%d" % number))
            for number in range(1, 41):
                for node in nodes.values():
                    await node.until_committed(number, 1)
            frames = sum(node.links.stats.frames_out for node in nodes.values())
            messages = sum(node.raft.status()["messages_out"] for node in nodes.values())
            assert messages > 3 * frames, "groups share frames"

    run(main())


def test_a_replica_that_starts_with_nothing_is_filled_from_segment_files(run: Runner, tmp_path: Path) -> None:
    async def main() -> None:
        async with three(tmp_path, "page-cache", groups=0) as nodes:
            for node in (nodes[1], nodes[2]):
                node.add(1, preferred=1)
            leader = await first_leader({1: nodes[1], 2: nodes[2]}, 1)
            for number in range(400):
                leader.groups[1].propose(data_frame(bytes(10_000) + b"%d" % number))
                if number % 20 == 0:
                    await leader.until_committed(1, number)
            await leader.until_committed(1, 400)
            nodes[3].add(1, preferred=1)
            await nodes[3].until_committed(1, 400)
            assert await nodes[3].entries(1) == await leader.entries(1)

    run(main())
