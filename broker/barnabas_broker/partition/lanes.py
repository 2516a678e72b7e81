"""Keeps the order of a partition's batches while one of them is checked in a thread.

Most batches are checked on the loop, and appended at once. One that may take long is checked in a thread
(`check_threads`), and until that is over all that come for the same partition, from any client, stand behind it, small
ones too: its *lane*. Then each has its turn: it is appended, or refused, by what holds at that moment. Other partitions
go on meanwhile.

A lane exists while something is in it; a partition without one costs nothing. There is no task and no timer. If many
small batches stand in a lane they have their turns in several turns of the loop.

Limits: `CHECKS_MAX` for the threads, which whoever adds to a lane looks at. What is in a lane is part of a request and
counts as such, and a client whose batch needs a thread is not read from meanwhile (`server/handlers/produce`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from barnabas_broker.timing.turns import SLICE_S
from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.loop_meter import LoopMeter

from .check_threads import CheckThreads

__all__ = ["Lanes", "Queued"]

CHECKS_MAX = 1_000  # that wait; a client that goes after each batch leaves one behind

K = TypeVar("K", bound=Hashable)


class Queued(Protocol):
    """One batch in a lane. Of these, `fail` is called if another one raises."""

    def take_turn(self) -> Callable[[bool], Any] | None:
        """Go where it should, now that nothing is before it; or return the check that a thread must make first."""

    def conclude(self, checked: Any, error: BaseException | None) -> None:
        """Go where it should, now that it was checked; None and None if it was given up before."""

    def fail(self, error: Exception) -> None:
        """Tell whoever waits that something went wrong; the traceback has been logged."""

    @property
    def is_given_up(self) -> bool:
        """True if nobody wants it to be checked any more."""


class Lanes(Generic[K]):
    """The lanes of one node, by partition. Owned by the loop."""

    def __init__(self, threads: CheckThreads, meter: LoopMeter | None = None) -> None:
        self._threads = threads
        self._meter = meter or LoopMeter()
        self._lanes: dict[K, deque[Queued]] = {}
        self._is_closed = False

    def __len__(self) -> int:
        """Return how many partitions have a lane."""
        return len(self._lanes)

    def __contains__(self, partition: K) -> bool:
        return partition in self._lanes

    @property
    def are_full(self) -> bool:
        """True while so many wait for a thread that no more should."""
        return len(self._threads) >= CHECKS_MAX

    def add(self, partition: K, queued: Queued) -> None:
        """Let it stand behind what is there; if nothing is, its turn is now."""
        lane = self._lanes.get(partition)
        if lane is not None:
            lane.append(queued)
            return
        self._lanes[partition] = deque((queued,))
        self._go_on(partition)

    def close(self) -> None:
        """Let all go, unchecked; what a thread still finds is told to nobody."""
        self._is_closed = True
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            call_each(lane, _give_up, _fail)

    def _go_on(self, partition: K) -> None:
        """Give those at the head of a lane their turns, until one needs a thread, or the time is over."""
        lane = self._lanes.get(partition)
        if lane is None:
            return
        clock = asyncio.get_running_loop().time
        until_s = clock() + SLICE_S
        checks: list[Callable[[bool], Any]] = []

        def take_turn(queued: Queued) -> None:
            check = queued.take_turn()
            if check is not None:
                checks.append(check)

        while lane:
            queued = lane[0]
            call_each((queued,), take_turn, _fail)
            if checks:
                done = partial(self._on_checked, partition, queued)
                self._threads.submit(checks[0], done, partial(getattr, queued, "is_given_up"))
                return
            lane.popleft()
            if lane and clock() >= until_s:
                asyncio.get_running_loop().call_soon(self._meter.run, "produce", self._go_on, partition)
                return
        del self._lanes[partition]

    def _on_checked(self, partition: K, queued: Queued, checked: Any, error: BaseException | None) -> None:
        if self._is_closed:
            return
        lane = self._lanes[partition]
        assert lane[0] is queued
        try:
            self._meter.run("produce", self._conclude, queued, checked, error)
        finally:
            lane.popleft()
            if lane:  # Not in this turn of the loop, in which one had its turn.
                asyncio.get_running_loop().call_soon(self._meter.run, "produce", self._go_on, partition)
            else:
                del self._lanes[partition]

    @staticmethod
    def _conclude(queued: Queued, checked: Any, error: BaseException | None) -> None:
        call_each((queued,), lambda one: one.conclude(checked, error), _fail)


def _give_up(queued: Queued) -> None:
    queued.conclude(None, None)


def _fail(queued: Queued, error: Exception) -> None:
    queued.fail(error)
