"""Gives a broker's shards their clocks, deadlines and tasks, and a place for events."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas_broker.timing.timers import Timers
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_raftlog.loop_meter import LoopMeter

__all__ = ["ShardHost"]


class ShardHost:
    """See the module. Owns the tasks that it starts; `close` ends them.

    `tell` remembers an event of this broker: kind, subject, cause. `fail` is for a bug: it stops the process.
    """

    def __init__(
        self,
        timers: Timers,
        clocks: Clocks,
        tell: Callable[[str, str, str], None],
        fail: Callable[[BaseException], None],
        meter: LoopMeter,
    ) -> None:
        self.timers = timers
        self.now_ms = clocks.monotonic_ms
        self.wall_ms = clocks.wall_ms
        self.tell = tell
        self.fail = fail
        self._meter = meter
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order of their beginning

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something beside the requests; a bug in it stops the process."""
        _ = self.start_task(coroutine)

    def start_task(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Do the same, and return the task."""
        task = asyncio.get_running_loop().create_task(self._meter.measured(coroutine))
        self._tasks[task] = None
        task.add_done_callback(self._on_done)
        return task

    async def close(self) -> None:
        """End every task."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)
