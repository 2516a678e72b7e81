"""What the machine itself does to everybody: how late an idle process is woken, and when all of it stood still."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import NamedTuple, Self

from .processes import Told

__all__ = ["Kept", "Machine"]


class Kept(NamedTuple):
    """`idle_ms`: how late an idle process was at most. `still_ms`: how long no process ran, by ten seconds."""

    idle_ms: float
    still_ms: Mapping[int, float]


class Machine:
    """The processes that watch it: one that is like any other, and one before all others on each processor."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._idle = stack.enter_context(Told("idle"))
            processors = sorted(os.sched_getaffinity(0))
            self._first = [stack.enter_context(Told("standstill", processor)) for processor in processors]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def take(self) -> Kept:
        """Return what has been since the last time; of `still_ms`, what there was in the last minutes."""
        still_ms: dict[int, float] = {}
        for watch in self._first:
            for slot, late_ms in watch.ask().items():
                still_ms[int(slot)] = max(still_ms.get(int(slot), 0.0), late_ms)
        return Kept(self._idle.ask()["stall_s"] * 1000, still_ms)
