"""A storage worker whose thread is virtual: a crash may cut its jobs off.

Jobs of one worker run in order, and take time. A job is carried out at one moment and reported at a later one, so a
crash finds it not begun, done and unreported, or (through the disk's ambushes) stopped between any two of its calls. A
job here cannot run at the very same time as the loop or as another worker's job: races inside Python are not what this
simulates.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from barnabas_raftlog.raft.messages import Buffer

from .disk import SECTOR_BYTES, VirtualFiles
from .loop import VirtualLoop

__all__ = ["VirtualSyncer", "VirtualWorker"]

T = TypeVar("T")


class VirtualWorker:
    """One thread of one process (`barnabas_raftlog.log.machine.worker.Worker`)."""

    def __init__(self, loop: VirtualLoop, files: VirtualFiles, name: str) -> None:
        self._loop = loop
        self._files = files
        self._name = name
        self._rng = loop.world.chance(f"{loop.host} {name}")
        self._jobs = deque[tuple[Callable[[], Any], Callable[[Any], None]]]()
        self._is_busy = False

    def submit(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        self._jobs.append((job, done))
        if not self._is_busy:
            self._start()

    def stop(self) -> None:
        """Finish all submitted jobs. Nothing can be waited for here, so it happens at once."""
        while self._jobs:
            job, done = self._jobs.popleft()
            done(job())

    def _start(self) -> None:
        self._is_busy = True
        self._loop.world.after(self._files.disk.begin_us(self._rng), self._carry_out)

    def _carry_out(self) -> None:
        loop = self._loop
        disk = self._files.disk
        if loop.is_dead or not self._jobs:
            return
        if disk.stuck_until_us > loop.world.now_us:
            loop.world.at(disk.stuck_until_us, self._carry_out)
            return
        job, done = self._jobs.popleft()
        self._files.spent_us = 0
        self._files.in_worker = True
        try:
            result = job()
        except BaseException as error:  # noqa: BLE001 - raised again on the loop, as the real worker does
            done = _raise
            result = error
        finally:
            self._files.in_worker = False
        if self._files.lost is not None:
            disk.on_power_lost(self._files.lost)
            return
        loop.world.after(self._files.spent_us, partial(self._report, done, result))

    def _report(self, done: Callable[[Any], None], result: Any) -> None:
        if self._loop.is_dead:
            return
        self._loop.arrive(done, result)
        self._is_busy = False
        if self._jobs:
            self._start()


class VirtualSyncer:
    """Syncs of the kernel for the loop (`kernel_sync.Syncer` of the journal): a worker that nobody sees."""

    def __init__(self, loop: VirtualLoop, files: VirtualFiles) -> None:
        self._files = files
        self._worker = VirtualWorker(loop, files, "kernel")

    def begin(self, fd: int, done: Callable[[OSError | None], None]) -> bool:
        self._worker.submit(partial(self._outcome, partial(self._files.sync, fd)), done)
        return True

    def begin_write(
        self, fd: int, buffers: Sequence[Buffer], position: int, done: Callable[[OSError | None], None]
    ) -> bool:
        data = b"".join(buffers)
        data += bytes(-len(data) % SECTOR_BYTES)
        self._worker.submit(partial(self._outcome, partial(self._files.write_and_sync, fd, data, position)), done)
        return True

    def close(self) -> None:
        """Nothing is held."""

    def _outcome(self, request: Callable[[], None]) -> OSError | None:
        try:
            request()
        except OSError as error:
            return error
        return None


def _raise(error: BaseException) -> None:
    raise error
