"""Long work on the loop in short pieces: everything else goes on in between."""

import asyncio

__all__ = ["Slices"]

SLICE_S = 0.005


class Slices:
    """Lets the loop do other things each time that this has run for `SLICE_S`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until_s = self._loop.time() + SLICE_S

    async def breathe(self) -> None:
        if self._loop.time() >= self._until_s:
            await asyncio.sleep(0)
            self._until_s = self._loop.time() + SLICE_S
