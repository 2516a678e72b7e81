"""Virtual time: one heap of events for everybody, one seed for all chance.

Time is an integer number of microseconds since the beginning of the run. Events of one instant happen in the order in
which they were scheduled. Chance is divided into *streams*, one for each purpose (`world.chance("network")`), so that a
fault that is left out while a failure is being shrunk does not change everything that comes after it.

`note` writes the run's story: a failure prints it, and its checksum is the digest by which two runs of one seed are
compared. `fail` ends the run at the next event with the first thing that went wrong.
"""

import asyncio
import heapq
import warnings
import zlib
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from random import Random
from typing import Any

__all__ = ["MS", "SECOND", "WALL_MS", "InvariantError", "World"]

MS = 1_000
SECOND = 1_000_000
WALL_MS = 1_800_000_000_000  # since 1970, when a world begins
NOTES_KEPT = 400
LOOK_EVERY = 50
CLOSED_AT_MOST = 50  # times one coroutine


class InvariantError(AssertionError):
    """Something has happened that must never happen."""


class World:
    """Same seed, same run. Nothing in a run reads the machine's clock or an unseeded generator."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_us = 0
        self.counts = Counter[str]()
        self.notes = deque[tuple[int, str, str]](maxlen=NOTES_KEPT)
        self.digest = 0
        self.failure: BaseException | None = None
        self.dead = list[asyncio.Task[Any]]()  # of killed processes
        self.waiting = dict[Coroutine[Any, Any, Any], None]()  # work that has not begun
        self._queue = list[tuple[int, int, Callable[[], object]]]()
        self._sequence = 0
        self._streams = dict[str, Random]()

    def chance(self, purpose: str) -> Random:
        """Return the generator for `purpose`; the same one every time."""
        stream = self._streams.get(purpose)
        if stream is None:
            # Text seeds are hashed with SHA-512, so they do not depend on PYTHONHASHSEED.
            stream = self._streams[purpose] = Random(f"{self.seed}/{purpose}")
        return stream

    def at(self, time_us: int, action: Callable[[], object]) -> None:
        """Let `action` happen at a time that is not in the past."""
        assert time_us >= self.now_us, (time_us, self.now_us)
        self._sequence += 1
        heapq.heappush(self._queue, (time_us, self._sequence, action))

    def after(self, delay_us: int, action: Callable[[], object]) -> None:
        self.at(self.now_us + delay_us, action)

    def note(self, who: str, what: str) -> None:
        """Add to the story. Texts must not hold addresses of objects or anything else that differs between runs."""
        self.notes.append((self.now_us, who, what))
        self.digest = zlib.crc32(f"{self.now_us} {who} {what}".encode(), self.digest)

    def fail(self, error: BaseException) -> None:
        """End the run; the first error counts."""
        if self.failure is None:
            self.failure = error

    def bury(self) -> None:
        """Take the leftovers of killed processes apart, so that they do not come apart at a moment of their own."""
        asyncio.set_event_loop(None)  # Otherwise asyncio makes one for the caller, and leaves it and its tasks behind.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # Some had not begun.
            warnings.simplefilter("ignore", ResourceWarning)  # Others had something open.
            for task in self.dead:
                _close(task.get_coro())
            for work in self.waiting:
                work.close()
            self.dead.clear()
            self.waiting.clear()

    def violate(self, claim: str) -> None:
        self.fail(InvariantError(claim))

    def run_until(self, time_us: int, is_done: Callable[[], bool] | None = None) -> bool:
        """Let everything happen up to `time_us`, or until `is_done`; return whether it is.

        That is asked every `LOOK_EVERY` events, because it may look at everything.

        Raises:
            InvariantError: an invariant was broken, or a node failed in a way that no fault excuses.
        """
        queue = self._queue
        pop = heapq.heappop
        events = self.counts["events"]
        try:
            while queue and queue[0][0] <= time_us:
                self.now_us, _, action = pop(queue)
                events += 1
                action()
                if self.failure is not None:
                    raise self.failure
                if is_done is not None and not events % LOOK_EVERY and is_done():
                    return True
        finally:
            self.counts["events"] = events
        self.now_us = time_us
        return False


def _close(coroutine: Generator[Any, Any, Any] | Coroutine[Any, Any, Any]) -> None:
    """End a coroutine. Its `finally` clauses find no loop, which is theirs to complain about and nobody's to hear.

    Of those that wait for something all the same, each takes one more attempt.
    """
    for _ in range(CLOSED_AT_MOST):
        with suppress(Exception):
            coroutine.close()
            return
