"""Gives a broker's shards their clocks, deadlines and tasks, and a place for events."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas_broker.timing.timers import Timers
from barnabas_metadata_quorum.active_controller import Clocks
from barnabas_raftlog.loop_meter import LoopMeter
from barnabas_raftlog.tasks import Tasks

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
        self._tasks = Tasks(fail)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something beside the requests; a bug in it stops the process."""
        self._tasks.spawn(self._meter.measured(coroutine))

    def start_task(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Do the same, and return the task."""
        return self._tasks.start(self._meter.measured(coroutine))

    async def close(self) -> None:
        """End every task."""
        await self._tasks.close()
