"""How large the volume is that a directory is on, and how much of it is left.

The operating system is asked in a thread, because a sick disk may keep the answer back; one question at a time, and
none while the last answer is younger than `FRESH_S`, however many want to know.
"""

import asyncio
import os
from typing import NamedTuple

__all__ = ["UNKNOWN", "Volume", "VolumeBytes"]

FRESH_S = 1.0
PATIENCE_S = 2.0  # a healthy disk needs microseconds


class VolumeBytes(NamedTuple):
    """All bytes of a volume, and those that this process may still write; -1: unknown."""

    total: int
    usable: int


UNKNOWN = VolumeBytes(-1, -1)


class Volume:
    """The volume of one directory. Owned by the loop."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._asking: asyncio.Future[VolumeBytes] | None = None
        self._told = UNKNOWN
        self._until_s = float("-inf")

    async def bytes(self) -> VolumeBytes:
        """Return what is known within `PATIENCE_S`. Cancelled, it has no effect."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._until_s:
            return self._told
        if self._asking is None:
            self._asking = loop.run_in_executor(None, _ask, self._directory)
            self._asking.add_done_callback(self._on_told)
        await asyncio.wait([self._asking], timeout=PATIENCE_S)
        return self._told

    def _on_told(self, asking: asyncio.Future[VolumeBytes]) -> None:
        self._asking = None
        self._until_s = asking.get_loop().time() + FRESH_S
        self._told = UNKNOWN if asking.cancelled() else asking.result()


def _ask(directory: str) -> VolumeBytes:
    try:
        found = os.statvfs(directory)
    except OSError:
        return UNKNOWN
    return VolumeBytes(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
