"""Waits for "something may have changed" without looking again and again.

Nothing is remembered: a waiter learns of the first pulse after its call of `wait`, also if it awaits the result later.
So the rule of use is: look, find that it is not so yet, and call `wait`, with no `await` between.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Pulse"]


class Pulse:
    """Wakes all waiters. Holds one future for all of them."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def fire(self) -> None:
        if self._next is not None:
            self._next.set_result(None)
            self._next = None

    def wait(self) -> asyncio.Future[None]:
        """Return a future that is done at the next `fire` from now on. Cancelled, it has no effect on other waiters."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        return asyncio.shield(self._next)

    async def wait_while(self, is_so: Callable[[], bool], timeout_s: float) -> None:
        """Return when this is no longer so, asked at once and at every `fire`, or when the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while is_so():
                    await self.wait()
