"""One storage on `MemoryFiles`, with workers that work when `work` is called."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.replica.replica_log import ReplicaLog
from barnabas_raftlog.log.replica.state import Mode
from barnabas_raftlog.log.storage import Storage, StorageConfig
from barnabas_raftlog.raft.messages import GroupId

from .frames import data_frame
from .memory_files import ManualSyncer, ManualWorker, MemoryFiles

T = TypeVar("T")
SMALL = StorageConfig(
    journal_file_bytes=16 << 10, journal_step_bytes=4 << 10, segment_bytes=8 << 10, tail_cache_bytes=4 << 10
)
# For tests in which no file may become full on the way.
ROOMY = StorageConfig(journal_file_bytes=1 << 20, journal_step_bytes=256 << 10, segment_bytes=1 << 20)


def group(number: int) -> GroupId:
    return GroupId(bytes(16) + number.to_bytes(4, "big"))


class Node:
    def __init__(
        self,
        files: MemoryFiles | None = None,
        config: StorageConfig = SMALL,
        cluster_id: str = "one",
        boot_id: str | None = None,
        *,
        has_syncer: bool = False,
    ) -> None:
        self.files = files or MemoryFiles()
        if "data" not in self.files.names:
            self.files.make_directory("data")
        self.failures: list[StorageFailedError] = []
        self.checkpoint_worker = ManualWorker()
        self.sync_worker = ManualWorker()
        self.write_worker = ManualWorker(inline=True, other=self.checkpoint_worker)
        self.syncer = ManualSyncer(self.files, self.sync_worker)
        self.durable_calls = 0
        self.timers: list[Callable[[], None]] = []
        opening = Storage.open(
            self.files,
            "data",
            config,
            sync_worker=self.sync_worker,
            write_worker=self.write_worker,
            checkpoint_worker=self.checkpoint_worker,
            on_durable=self._on_durable,
            cluster_id=cluster_id,
            node_id=1,
            on_failed=self.failures.append,
            read_worker=ManualWorker(inline=True),
            new_id=lambda: str(UUID(int=7)),
            boot_id=boot_id,
            call_later=lambda _, action: self.timers.append(action),
            syncer=self.syncer if has_syncer else None,
        )
        self.storage = self.run(opening)
        self.write_worker.inline = False

    def _on_durable(self) -> None:
        self.durable_calls += 1

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run(coroutine)

    def log(self, number: int = 1, mode: Mode = "fsync") -> ReplicaLog:
        return self.storage.open_log(group(number), f"t-{number}", mode)

    def work(self, rounds: int = 4) -> None:
        for _ in range(rounds):
            self.storage.flush()
            self.sync_worker.run()
            self.write_worker.run()

    def wait(self) -> None:
        """Let so much time pass that every timer is due."""
        timers = self.timers
        self.timers = []
        for action in timers:
            action()
        self.work()

    def close(self) -> None:
        self.sync_worker.inline = self.write_worker.inline = self.checkpoint_worker.inline = True
        self.work()
        self.run(self.storage.close())

    def killed(self) -> "Node":
        """Return the node that starts after this one was killed."""
        self.files.kill()
        return Node(self.files)


def fill(log: ReplicaLog, count: int, body_bytes: int = 500, term: int = 1, timestamp_ms: int = 1000) -> None:
    for number in range(count):
        log.append_batch(term, data_frame(2, body_bytes, timestamp_ms + number))


async def replayed(log: ReplicaLog) -> list[tuple[int, int, bytes]]:
    return [(entry.index, entry.term, bytes(entry.frame)) async for entry in log.replay(1)]
