"""Waiting until something is so that others make so: told at every change, whoever waits looks again."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Changes"]


class Changes:
    """One future for all who wait for the next change; nothing at all while nobody does."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def fire(self) -> None:
        """Wake whoever waits, in the next iteration of the loop."""
        if self._next is not None:
            self._next.set_result(None)
            self._next = None

    async def next(self) -> None:
        """Return at the next change. Cancelled, it has no effect."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)

    async def wait_while(self, is_undecided: Callable[[], bool], timeout_s: float) -> None:
        """Return when this is no longer so, asked at once and at every change, or when the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while is_undecided():
                    await self.next()
