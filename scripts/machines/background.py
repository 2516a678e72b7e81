"""Work on threads of its own, whose failure is kept and raised on the thread that asks for it."""

import asyncio
import contextlib
import threading
from collections.abc import Callable

__all__ = ["Background", "LoopInBackground"]


class Background(threading.Thread):
    """A thread that does `work`. Whatever ends that by an exception is its `failure`, and nobody else's yet."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001 - told by `check`, on the thread that asks
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError

    def check(self) -> None:
        """Raise RuntimeError if it has failed."""
        if self.failure is not None:
            raise RuntimeError(f"{self.name} failed: {self.failure!r}") from self.failure

    def check_alive(self) -> None:
        """Raise RuntimeError if it has failed, or has ended."""
        self.check()
        if not self.is_alive():
            raise RuntimeError(f"{self.name} ended before its time")


class LoopInBackground(Background):
    """A thread with an event loop that does `live`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._loop = asyncio.new_event_loop()

    def work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self.live())
        finally:
            self._loop.close()

    async def live(self) -> None:
        raise NotImplementedError

    def call(self, *deeds: Callable[[], object]) -> None:
        """Have the loop do these, one after the other; nothing if it has ended. Any thread may call."""
        with contextlib.suppress(RuntimeError):
            for deed in deeds:
                self._loop.call_soon_threadsafe(deed)
