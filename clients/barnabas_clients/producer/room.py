"""Lets senders wait for room in a producer's buffer, first come, first served."""

import asyncio
from collections import deque

from barnabas_clients.errors import DeadlineExceededError

from .accumulator import Accumulator

__all__ = ["BufferRoom"]


class BufferRoom:
    """The queue before a full buffer. Only its head is ever woken, and wakes the next when it leaves."""

    def __init__(self, accumulator: Accumulator) -> None:
        self._accumulator = accumulator
        self._waiting: deque[asyncio.Event] = deque()
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def wait(self, record_bytes: int, deadline: float) -> None:
        """Wait until a batch for a record of this size can be opened, or the producer is closed.

        Raises:
            DeadlineExceededError: at `deadline`, a time of the loop.
        """
        turn = asyncio.Event()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(deadline):
                while not self._is_closed and (
                    self._waiting[0] is not turn or not self._accumulator.has_room(record_bytes)
                ):
                    await turn.wait()
                    turn.clear()
        except TimeoutError as error:
            raise DeadlineExceededError(
                f"no room for a record of {record_bytes} bytes in time: "
                f"{self._accumulator.used_bytes} bytes are not acknowledged yet"
            ) from error
        finally:
            self._waiting.remove(turn)
            self.on_room()

    def on_room(self) -> None:
        """Wake the head of the queue: memory was given back, or the old head has gone."""
        if self._waiting:
            self._waiting[0].set()

    def close(self) -> None:
        """End every wait."""
        self._is_closed = True
        for turn in self._waiting:
            turn.set()
