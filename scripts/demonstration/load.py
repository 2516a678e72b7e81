"""The producer of the demonstration, and two readers of which one is killed."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from machines.modules import module_command, module_environment

from barnabas_clients import Producer, Receipt

from .source import Source

READERS = 2
WATCH_EVERY = 64  # records: each of these is waited for, to time the pauses of a partition
UNWATCHED_MAX = 2_000


class Load:
    """Streams the source in. `pauses` has the longest time without an acknowledgement, in seconds, by partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.pauses: dict[int, float] = {}
        self.took_s = 0.0

    async def run(self, source: Source, on_record: Callable[[int], Awaitable[None]]) -> None:
        """Send every line, calling `on_record` with the number of each that is watched; raise if one is lost."""
        began = time.perf_counter()
        watched: asyncio.Queue[Awaitable[Receipt] | None] = asyncio.Queue(UNWATCHED_MAX)
        async with asyncio.TaskGroup() as tasks, Producer(self.bootstrap, linger_s=0.01) as producer:
            tasks.create_task(self._watch(watched))
            for number, (key, value) in enumerate(source):
                delivery = await producer.send(self.topic, value, key=key)
                if number % WATCH_EVERY == 0:
                    await watched.put(delivery)
                    await on_record(number)
            await watched.put(None)
            await producer.flush()
        self.took_s = time.perf_counter() - began

    async def _watch(self, watched: "asyncio.Queue[Awaitable[Receipt] | None]") -> None:
        last: dict[int, float] = {}
        while (delivery := await watched.get()) is not None:
            receipt = await delivery
            now = time.perf_counter()
            partition = receipt.partition
            self.pauses[partition] = max(self.pauses.get(partition, 0.0), now - last.get(partition, now))
            last[partition] = now


class Readers:
    """Two processes of one consumer group. `killed_after` is the number of lines counted when one was killed."""

    def __init__(self, bootstrap: str, topic: str, database: Path, total: int) -> None:
        self._command = module_command("demonstration.reader", bootstrap, topic, database)
        self._total = total
        self.counted = 0
        self.killed_after = 0
        self.took_s = 0.0

    async def run(self, on_progress: Callable[[int], None], on_killed: Callable[[int], None]) -> None:
        """Return when all lines are counted and the survivor has left the group.

        Raises:
            RuntimeError: a reader ended by itself.
        """
        began = time.perf_counter()
        processes = [
            await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=module_environment(),
            )
            for _ in range(READERS)
        ]
        try:
            async with asyncio.TaskGroup() as tasks:
                for process in processes:
                    tasks.create_task(self._follow(process, processes, on_progress, on_killed))
            self.took_s = time.perf_counter() - began
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    async def _follow(
        self,
        process: asyncio.subprocess.Process,
        processes: list[asyncio.subprocess.Process],
        on_progress: Callable[[int], None],
        on_killed: Callable[[int], None],
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        async for line in process.stdout:
            self.counted = max(self.counted, int(line))
            on_progress(self.counted)
            if not self.killed_after and self.counted >= self._total // 2:
                self.killed_after = self.counted
                processes[-1].kill()
                on_killed(processes[-1].pid)
            if self.counted >= self._total and not process.stdin.is_closing():
                process.stdin.close()
        status = await process.wait()
        if status != -signal.SIGKILL and (status or self.counted < self._total):
            raise RuntimeError(f"a reader ended with status {status} after {self.counted} of {self._total} lines")
