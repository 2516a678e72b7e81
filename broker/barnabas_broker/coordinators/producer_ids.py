"""Gives ids to idempotent producers, out of blocks of the controller's.

One block is asked for at a time. However many requests find the block at hand used up, one question goes to the
controller. Its answer serves those that have waited longest, and if it is a refusal, all of them. A block that this
broker has begun is lost when it stops, which costs nothing of 2^63.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from barnabas_metadata_quorum.controller.commands import ProducerIdBlock, Refused

__all__ = ["ProducerIds"]

TIMEOUT_S = 5.0
TOLD_AT_ONCE = 500  # of those that wait


class ProducerIds:
    """The ids that are left of a block, and the requests that wait for the next one. Owned by the loop.

    `ask` brings a block within so many seconds, or raises `Refused`; `spawn` runs the coroutine that asks.
    """

    def __init__(
        self, ask: Callable[[float], Awaitable[ProducerIdBlock]], spawn: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self._ask = ask
        self._spawn = spawn
        self._left = iter(range(0))
        self._waiting: deque[asyncio.Future[int | Refused]] = deque()
        self._is_asking = False

    def take_now(self) -> int | None:
        """Return an id that nobody else gets; None: there is none at hand, or others have waited for it longer."""
        return None if self._waiting else next(self._left, None)

    async def take(self) -> int:
        """Return an id that nobody else gets.

        Raises:
            Refused: the controller gives none.
        """
        producer_id = self.take_now()
        if producer_id is not None:
            return producer_id
        waiting: asyncio.Future[int | Refused] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        if not self._is_asking:
            self._is_asking = True
            self._spawn(self._ask_on())
        found = await waiting
        if isinstance(found, Refused):
            raise Refused(found.reason, found.message)
        return found

    async def _ask_on(self) -> None:
        """Ask as often as it takes until nobody waits."""
        try:
            while self._waiting:
                refused: Refused | None = None
                try:
                    block = await self._ask(TIMEOUT_S)
                    self._left = iter(range(block.first, block.first + block.count))
                except Refused as error:
                    refused = error
                await self._tell(refused)
        finally:
            self._is_asking = False

    async def _tell(self, refused: Refused | None) -> None:
        """Give ids to those that wait, while there are any, or the refusal to all."""
        told = 0
        while self._waiting:
            waiting = self._waiting[0]
            if not waiting.done():  # Else it was cancelled.
                found = refused or next(self._left, None)
                if found is None:
                    return
                waiting.set_result(found)
            del self._waiting[0]
            told += 1
            if not told % TOLD_AT_ONCE:
                await asyncio.sleep(0)
