"""Calls back at deadlines: one heap for the node, one timer for its head."""

import asyncio
from collections.abc import Callable

from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.loop_meter import LoopMeter

from .deadlines import Deadline, Deadlines

__all__ = ["Timers"]

DUE_MAX = 20  # A group that completes its joins takes 0.3 ms.


class Timers:
    """Calls each callback at its time, at most a millisecond late on an idle loop.

    Limit: one per parked request and one per group of consumers. A callback that raises does not keep the others from
    being called, and ends the process: a callback that can answer its client otherwise does so itself. If many are due
    together, `DUE_MAX` are called in one turn of the loop.
    """

    def __init__(self, clock: Callable[[], int], meter: LoopMeter | None = None) -> None:
        self._clock = clock
        self._meter = meter or LoopMeter()
        self._deadlines: Deadlines[Callable[[], None]] = Deadlines()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0

    def add(self, delay_ms: int, callback: Callable[[], None]) -> Deadline[Callable[[], None]]:
        """Call `callback` in `delay_ms`, unless it is cancelled before."""
        deadline = self._deadlines.add(self._clock() + max(delay_ms, 0), callback)
        if self._timer is None or deadline.at_ms < self._timer_at_ms:
            self._arm()
        return deadline

    def cancel(self, deadline: Deadline[Callable[[], None]]) -> None:
        self._deadlines.cancel(deadline)

    def close(self) -> None:
        """Call nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._deadlines = Deadlines()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at_ms = self._deadlines.next_at_ms
        if at_ms is not None:
            self._timer_at_ms = at_ms
            delay_s = max(0, at_ms - self._clock()) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._meter.run, "timers", self._fire)

    def _fire(self) -> None:
        self._timer = None
        try:
            call_each(self._deadlines.take_due(self._clock(), DUE_MAX), _call)
        finally:
            if self._timer is None:
                self._arm()


def _call(callback: Callable[[], None]) -> None:
    callback()
