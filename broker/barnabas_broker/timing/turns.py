"""Does long work on requests in slices, one in each turn of the loop.

A request may name a hundred thousand things. Its handling is then a generator that yields between small pieces; it runs
at once for `SLICE_S`, and if that is not enough, again for as long in a later turn of the loop, when it is the one
whose client has had the fewest slices lately, and among those the one that has waited longest. So a client that asks
for little waits for one slice at most, however much others ask for, and that not often (`patience`).

While a request waits for its next turn its connection serves nothing behind it (`Exchange.hold`): requests take effect
in their order, and a connection has one such work at most. If the client goes, the work ends where it is, and all that
it held is freed in the same way. A produce goes on: a batch sent without asking for an answer is stored, though the
producer has left.

After each slice, in a turn of its own, young objects become old for the garbage collector (`collector`).

Limits: one work a connection; `ACTIVE_MAX` works at a time, `LARGE_MAX` of them of large requests, because a decoded
request takes many times its bytes. The others wait untouched, those of small requests before those of large ones.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from typing import Protocol, TypeAlias

from barnabas_raftlog.callbacks import call_each
from barnabas_raftlog.loop_meter import LoopMeter

from .collector import put_by
from .patience import Crowd, Patience
from .pieces import abandoned

__all__ = ["Turns", "Work"]

SLICE_S = 0.002
ACTIVE_MAX = 16
LARGE_MAX = 4

Steps: TypeAlias = Generator[None, None, None]


class Held(Protocol):
    """The part of an `Exchange` that its work needs."""

    holds: int

    @property
    def slices(self) -> int: ...

    def note_slice(self) -> None: ...

    @property
    def is_gone(self) -> bool: ...

    @property
    def is_small(self) -> bool: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def forget_frame(self) -> None: ...


class Work:
    """Steps to take for one request. `failed` is told what they raise, failed assertions excepted.

    Events about long callbacks call the work `name`. One of a produce (`is_produce`) outlives its client, lets nobody
    go first, and its slices do not count: it takes long by its bytes, and those have bounds of their own.
    `is_given_up`: its steps only free what it held.
    """

    __slots__ = ("exchange", "failed", "is_given_up", "is_large", "is_produce", "name", "steps")

    def __init__(
        self,
        exchange: Held,
        steps: Steps,
        failed: Callable[[Exception], None],
        *,
        is_produce: bool = False,
        name: str = "",
    ) -> None:
        self.exchange = exchange
        self.steps = steps
        self.failed = failed
        self.is_produce = is_produce
        self.name = name
        self.is_large = not exchange.is_small
        self.is_given_up = False


class Turns:
    """All works of one node. `slices` counts how often one was interrupted.

    The clock is that of the loop, unless another one is given (seconds).
    """

    def __init__(
        self, clock: Callable[[], float] | None = None, meter: LoopMeter | None = None, crowd: Crowd | None = None
    ) -> None:
        self._clock = clock
        self._meter = meter or LoopMeter()
        self._patience = Patience(crowd or Crowd(), self._meter, "turn", self._turn)
        self._active: deque[Work] = deque()
        self._small: deque[Work] = deque()
        self._large: deque[Work] = deque()
        self._large_count = 0  # among those that are active
        self._is_putting_by = False
        self.slices = 0

    def __len__(self) -> int:
        return len(self._active) + len(self._small) + len(self._large)

    def begin(self, work: Work) -> None:
        """Take the first steps now, the others in later turns; the first ones, too, if others have begun enough.

        Raises:
            Exception: from the first steps.
        """
        exchange = work.exchange
        is_first = not exchange.holds  # Else it is the rest of a work that has begun.
        if is_first and not self._has_place(work):
            exchange.hold()
            (self._large if work.is_large else self._small).append(work)
        elif not self._advance(work):
            exchange.hold()
            self._activate(work)

    def _has_place(self, work: Work) -> bool:
        return len(self._active) < ACTIVE_MAX and not (work.is_large and self._large_count >= LARGE_MAX)

    def _activate(self, work: Work) -> None:
        self._active.append(work)
        self._large_count += work.is_large
        self._patience.ask(_slices(work))

    def _turn(self) -> None:
        work = min(self._active, key=_slices)
        self._active.remove(work)
        self._meter.what = work.name
        if self._active:
            self._patience.ask(min(map(_slices, self._active)))
        self._large_count -= work.is_large
        call_each((work,), self._take_turn, self._fail)
        for fresh in (self._small, self._large):
            if fresh and self._has_place(fresh[0]):
                self._activate(fresh.popleft())

    def _take_turn(self, work: Work) -> None:
        if work.exchange.is_gone and not work.is_produce and not work.is_given_up:
            # All that it holds by now takes as long to free as an answer does.
            work.steps = _given_up(work.exchange, work.steps)
            work.is_given_up = True
        if self._advance(work):
            work.exchange.release()
        else:
            self._activate(work)

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
                if not work.is_produce:
                    work.exchange.note_slice()
                self._put_by_soon()
                return False
        return True

    def _put_by_soon(self) -> None:
        if not self._is_putting_by:
            self._is_putting_by = True
            asyncio.get_running_loop().call_soon(self._meter.run, "collector", self._put_by)

    def _put_by(self) -> None:
        self._is_putting_by = False
        put_by()


def _given_up(exchange: Held, steps: Steps) -> Steps:
    """Free all that a work holds if its client has gone; last the received bytes, in pieces of their own."""
    yield from abandoned(steps)
    exchange.forget_frame()


def _slices(work: Work) -> int:
    return 0 if work.is_produce else work.exchange.slices
