"""Calls something again and again, at an interval."""

from collections.abc import Callable, Coroutine
from typing import Any

from .deadlines import Deadline
from .timers import Timers

__all__ = ["Rounds"]


class Rounds:
    """See the module. One round at a time: the interval begins when the one before has ended.

    Args:
        spawn: Runs a round beside all else; who ends the tasks of this ends a round under way.
        look: One round. If it raises, there is no other.
        first_ms: The first round begins so long after the start; as long as all others if None.
    """

    def __init__(
        self,
        timers: Timers,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        interval_ms: int,
        look: Callable[[], Coroutine[Any, Any, None]],
        first_ms: int | None = None,
    ) -> None:
        self._timers = timers
        self._spawn = spawn
        self.interval_ms = interval_ms  # may be changed: from the next pause on it counts
        self._look = look
        self._first_ms = interval_ms if first_ms is None else first_ms
        self._deadline: Deadline[Callable[[], None]] | None = None

    def start(self) -> None:
        """Begin to look, unless that has been done."""
        if self._deadline is None:
            self._schedule(self._first_ms)

    def close(self) -> None:
        """Begin no more rounds, unless one is under way."""
        if self._deadline is not None:
            self._timers.cancel(self._deadline)

    def _schedule(self, delay_ms: int) -> None:
        self._deadline = self._timers.add(delay_ms, self._begin)

    def _begin(self) -> None:
        self._spawn(self._run())

    async def _run(self) -> None:
        await self._look()
        self._schedule(self.interval_ms)
