"""Watches the machine itself: late wakings of an idle process, and standstills."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple, Self, TypeAlias

from .processes import Told

__all__ = ["Kept", "Machine", "Still", "Stills", "still_ms"]


class Still(NamedTuple):
    """One standstill of a processor, in milliseconds of the monotonic clock."""

    ended_ms: float
    lasted_ms: float


Stills: TypeAlias = Sequence[Sequence[Still]]
"""Of each processor, in the order of time."""


class Kept(NamedTuple):
    """`idle_ms`: the latest waking of an idle process. `stills`: times in which nobody ran."""

    idle_ms: float
    stills: Stills


def still_ms(stills: Stills, ended_ms: float, lasted_ms: float) -> float:
    """Return the standstill within this time, of the processor with the longest."""
    began_ms = ended_ms - lasted_ms

    def shared_ms(one: Still) -> float:
        return max(0.0, min(one.ended_ms, ended_ms) - max(one.ended_ms - one.lasted_ms, began_ms))

    return max((sum(map(shared_ms, processor)) for processor in stills), default=0.0)


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
        """Return the latest waking since the last time, and the standstills since the beginning."""
        stills = [[Still(*late) for late in watch.ask()["late"]] for watch in self._first]
        return Kept(self._idle.ask()["stall_s"] * 1000, stills)
