"""Gives memory back to the kernel when a broker is quiet, or took very much.

Every `INTERVAL_S` it looks how much free memory the process holds. If that is `WORTHWHILE_BYTES` more than after the
last time, and the process took less than `QUIET` of a processor since the last look, it goes back to the kernel
(`barnabas_raftlog.memory.give_back`). The first time needs no such difference: a start leaves megabytes behind.
The size of the process does not count: if memory was given back while most was in use, that size would have to be
exceeded before the rest could follow.

Under load it is left alone, because it would be asked for again at once, but not beyond `VERY_MUCH_BYTES`: clients that
send large requests of all kinds leave holes of all sizes, and a broker that was never quiet took 657 MiB.

One timer for the process; the work is a thread's.
"""

import asyncio
import time
from collections.abc import Callable

from barnabas_raftlog.memory import give_back, spare_bytes

__all__ = ["HeapUpkeep"]

INTERVAL_S = 2.0
WORTHWHILE_BYTES = 8 << 20  # to give so much back takes a millisecond
VERY_MUCH_BYTES = 96 << 20  # to give so much back takes 12 ms
QUIET = 0.5


class HeapUpkeep:
    """See the module. `size_bytes` returns None where that cannot be known; then nothing is done."""

    def __init__(
        self,
        size_bytes: Callable[[], int | None] = spare_bytes,
        processor_s: Callable[[], float] = time.process_time,
        release: Callable[[], bool] = give_back,
    ) -> None:
        self._size_bytes = size_bytes
        self._processor_s = processor_s
        self._release = release
        self._used_s = processor_s()
        self._after_bytes = 0  # What the start has left behind goes back with the first quiet look.
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_looking(self) -> bool:
        """False before `start`, after `close`, and where there is no way to do anything."""
        return self._timer is not None

    def start(self) -> None:
        """Begin to look, on the loop that runs."""
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self.look)

    def close(self) -> None:
        """Look no more. The work of a thread ends by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Look now, and again after `INTERVAL_S`."""
        used_s = self._processor_s()
        size = self._size_bytes()
        is_quiet = used_s - self._used_s < QUIET * INTERVAL_S
        self._used_s = used_s
        if size is None:
            self.close()
            return
        self._after_bytes = min(self._after_bytes, size)
        if size >= self._after_bytes + (WORTHWHILE_BYTES if is_quiet else VERY_MUCH_BYTES):
            work = asyncio.get_running_loop().run_in_executor(None, self._release)
            work.add_done_callback(self._on_done)
        else:
            self.start()

    def _on_done(self, work: "asyncio.Future[bool]") -> None:
        if not work.result():
            self.close()
        elif self.is_looking:
            self._after_bytes = self._size_bytes() or 0
            self.start()
