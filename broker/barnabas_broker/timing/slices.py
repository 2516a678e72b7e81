"""Does long work on the loop in short pieces, with everything else in between."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from .collector import put_by

__all__ = ["Slices", "made", "taken"]

SLICE_S = 0.002

PIECE = 20

S = TypeVar("S")
T = TypeVar("T")


class Slices:
    """Lets the loop do other things each time that this has run for `SLICE_S`.

    `is_used`: the callback may have run for as long already.
    """

    def __init__(self, *, is_used: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._until_s = self._loop.time() + (0.0 if is_used else SLICE_S)

    async def yield_if_due(self) -> None:
        if self._loop.time() >= self._until_s:
            await asyncio.sleep(0)
            put_by()
            await asyncio.sleep(0)
            self._until_s = self._loop.time() + SLICE_S


async def taken(steps: Generator[None, None, T]) -> T:
    """Take all steps of a generator that yields between small pieces, and return what it returns."""
    slices = Slices()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await slices.yield_if_due()


async def made(make: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Return what `make` makes of each item; each time takes little, but there may be thousands.

    If there are, the results of the step before have just been let go, which takes as long as a slice.
    """
    slices = Slices(is_used=True)
    results = list[T]()
    for item in items:
        results.append(make(item))
        if not len(results) % PIECE:
            await slices.yield_if_due()
    return results
