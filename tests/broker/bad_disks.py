"""Brokers in this process whose disks fail on command, for several tests."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from barnabas_broker.environment import NodeEnvironment
from barnabas_broker.node import Node
from barnabas_broker.testing import Cluster
from barnabas_clients import Consumer
from barnabas_raftlog.log.journal.kernel_sync import KernelSync
from barnabas_raftlog.log.machine.files import OsFiles
from barnabas_raftlog.raft.messages import Buffer

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
        self._may_fail("open", path)
        fd = super().open(path, create=create)
        self._paths[fd] = path
        return fd

    def open_direct(self, path: str, unit_bytes: int) -> int | None:
        fd = super().open_direct(path, unit_bytes)
        if fd is not None:
            self._paths[fd] = path
        return fd

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> None:
        self.may_write(fd)
        super().write(fd, buffers, position)

    def may_write(self, fd: int) -> None:
        self._may_fail("write", self._paths[fd])

    def may_sync(self, fd: int) -> None:
        self._may_fail("sync", self._paths[fd])

    def sync(self, fd: int) -> None:
        self.may_sync(fd)
        super().sync(fd)

    def preallocate(self, fd: int, position: int, size_bytes: int) -> None:
        self._may_fail("preallocate", self._paths[fd])
        super().preallocate(fd, position, size_bytes)


class BadSync(KernelSync):
    """The kernel's syncs of files on a bad disk."""

    def __init__(self, loop: asyncio.AbstractEventLoop, disk: BadDisk) -> None:
        super().__init__(loop)
        self._disk = disk

    def begin(self, fd: int, done: Callable[[OSError | None], None]) -> bool:
        return self._fails(done, fd, self._disk.may_sync) or super().begin(fd, done)

    def begin_write(
        self, fd: int, buffers: Sequence[Buffer], position: int, done: Callable[[OSError | None], None]
    ) -> bool:
        is_over = self._fails(done, fd, self._disk.may_write, self._disk.may_sync)
        return is_over or super().begin_write(fd, buffers, position, done)

    def _fails(self, done: Callable[[OSError | None], None], fd: int, *steps: Callable[[int], None]) -> bool:
        try:
            for step in steps:
                step(fd)
        except OSError as error:
            self._loop.call_soon(done, error)
            return True
        return False


class BadDisks(Cluster):
    """A cluster whose brokers have one `BadDisk` each."""

    def __init__(self, brokers: int, directory: Path) -> None:
        super().__init__(brokers, directory=directory)
        self.disks = {node_id: BadDisk() for node_id in self.configs}

    async def start(self, node_id: int) -> Node:
        disk = self.disks[node_id]
        environment = NodeEnvironment(files=disk, new_syncer=lambda loop: BadSync(loop, disk))
        node = Node(self.configs[node_id], environment)
        await node.start()
        self.nodes[node_id] = node
        return node


async def until(claim: Callable[[], bool], node: Node) -> None:
    """Wait until the claim holds: look again when a leadership has changed, and every 50 ms."""
    async with asyncio.timeout(DEADLINE_S):
        while not claim():
            assert not node.failure.done(), node.failure
            changed = node.partitions.known_leaders.leaders_changed()
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
