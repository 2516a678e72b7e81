"""Calls a coordinator's round of upkeep at an interval, from the first leadership on."""

from collections.abc import Callable, Coroutine
from typing import Any

from barnabas_broker.timing.deadlines import Deadline

from .shard_host import ShardHost

__all__ = ["Upkeep"]


class Upkeep:
    """See the module. One round at a time: the interval begins when the one before has ended. `look` is one round."""

    def __init__(self, host: ShardHost, interval_ms: int, look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._host = host
        self._interval_ms = interval_ms
        self._look = look
        self._deadline: Deadline[Callable[[], None]] | None = None
        self._is_started = False

    def start(self) -> None:
        """Begin to look, unless that has been done."""
        if not self._is_started:
            self._is_started = True
            self._schedule()

    def close(self) -> None:
        if self._deadline is not None:
            self._host.timers.cancel(self._deadline)

    def _schedule(self) -> None:
        self._deadline = self._host.timers.add(self._interval_ms, self._begin)

    def _begin(self) -> None:
        self._host.spawn(self._run())

    async def _run(self) -> None:
        await self._look()
        self._schedule()
