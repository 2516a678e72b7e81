"""Asks for several chunks of a remote file at a time, and yields them in order.

A reader that asks for the next chunk when the last one is there has one of them under way in a round trip: 10 MiB a
second of the 64 that the throttle allows, between nodes that are 50 ms from each other.

Limit: `ahead_max` chunks are asked for, or there and not taken yet. A task exists for each of them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

__all__ = ["read_ahead"]

Read = Callable[[int, int], Coroutine[Any, Any, memoryview]]


async def read_ahead(
    read: Read, start: int, stop: int, chunk_bytes: int, ahead_max: int
) -> AsyncGenerator[tuple[int, memoryview], None]:
    """Yield (position, bytes) from `start` to `stop`. `read(position, size_bytes)` may give fewer bytes, not none.

    Its exceptions are raised here, when their turn has come. Ended early, the reads under way are cancelled: use
    `aclosing`.
    """
    asked: deque[tuple[int, asyncio.Task[memoryview]]] = deque()
    wanted = start  # the position of the next to ask for
    taken = start  # and of the next to give
    loop = asyncio.get_running_loop()
    try:
        while taken < stop:
            while wanted < stop and len(asked) < ahead_max:
                size_bytes = min(chunk_bytes, stop - wanted)
                asked.append((size_bytes, loop.create_task(read(wanted, size_bytes))))
                wanted += size_bytes
            size_bytes, task = asked.popleft()
            try:
                data = await task
            finally:
                task.cancel()  # If it is this which was cancelled.
            yield taken, data
            taken += len(data)
            if len(data) < size_bytes:
                # The chunks that were asked for behind it do not follow.
                await _cancel(asked)
                wanted = taken
    finally:
        await _cancel(asked)


async def _cancel(asked: deque[tuple[int, "asyncio.Task[memoryview]"]]) -> None:
    tasks = [task for _, task in asked]
    asked.clear()
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.gather(*tasks, return_exceptions=True)
