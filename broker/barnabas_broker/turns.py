"""Work on requests that takes longer than others should wait: a slice of it in each turn of the loop.

A request may name a hundred thousand things. What is to be done about it is then a generator that yields between small
pieces; it runs at once for `SLICE_S`, and if that is not enough, again for as long in a later turn of the loop, when it
is the one that has waited longest. So whoever asks for little waits for one slice at most, however much others ask for.

While a request waits for its next turn its connection serves nothing behind it (`Exchange.hold`): requests take effect
in their order, and a connection has one such work at most. If the client goes, the work ends where it is, unless it was
begun with `outlives`: what a producer sent without asking for an answer is stored though it has left.

Limit: one work a connection; what it holds are its request and answer, which count as theirs (`connections`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Protocol, TypeAlias

from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.loop_meter import LoopMeter

__all__ = ["Turns", "Work"]

SLICE_S = 0.002

Steps: TypeAlias = Generator[None, None, None]


class Held(Protocol):
    """The part of an `Exchange` that its work needs."""

    @property
    def is_gone(self) -> bool: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...


class Work:
    """Steps to take for one request. `failed` is told what they raise, failed assertions excepted.

    `name` is what the work is called where it is told what took long.
    """

    __slots__ = ("exchange", "failed", "name", "outlives", "steps")

    def __init__(
        self,
        exchange: Held,
        steps: Steps,
        failed: Callable[[Exception], None],
        *,
        outlives: bool = False,
        name: str = "",
    ) -> None:
        self.exchange, self.steps, self.failed = exchange, steps, failed
        self.outlives, self.name = outlives, name


class Turns:
    """All works of one node. `slices` counts how often one was interrupted.

    The clock is that of the loop, unless another one is given (seconds).
    """

    def __init__(self, clock: Callable[[], float] | None = None, meter: LoopMeter | None = None) -> None:
        self._clock, self._meter = clock, meter or LoopMeter()
        self._waiting: deque[Work] = deque()
        self.slices = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, work: Work) -> None:
        """Take the first steps now, the others in later turns.

        Raises:
            Exception: from the first steps.
        """
        if not self._advance(work):
            work.exchange.hold()
            self._wait(work)

    def _wait(self, work: Work) -> None:
        if not self._waiting:
            self._turn_soon()
        self._waiting.append(work)

    def _turn_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._meter.run, "turn", self._turn)

    def _turn(self) -> None:
        work = self._waiting.popleft()
        self._meter.what = work.name
        if self._waiting:
            self._turn_soon()
        call_each((work,), self._take_turn, self._fail)

    def _take_turn(self, work: Work) -> None:
        if work.exchange.is_gone and not work.outlives:
            work.steps.close()
        elif self._advance(work):
            work.exchange.release()
        else:
            self._wait(work)

    def _fail(self, work: Work, error: Exception) -> None:
        try:
            work.failed(error)
        finally:
            work.exchange.release()

    def _advance(self, work: Work) -> bool:
        """Take steps for the time of a slice; tell whether they are at their end."""
        clock = self._clock or asyncio.get_running_loop().time
        until_s = clock() + SLICE_S
        for _ in work.steps:
            if clock() >= until_s:
                self.slices += 1
                return False
        return True
