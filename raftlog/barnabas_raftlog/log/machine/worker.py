"""A thread with a queue, in which storage does work that may block.

A job is a function without arguments; its result is handed to `done` on the event loop. Jobs of one worker run in the
order in which they were submitted. Completions that are ready together wake the loop once (a hop between a thread and
the loop costs about 27 µs, so one hop per job would cost more than the work).

A job deals with the failures it expects itself and returns them as results. An exception that leaves a job is a bug:
it is raised again on the loop, and `done` is not called. So is one that leaves `done`; the completions after it are
delivered all the same. A coroutine waits for a job by `run_in`: the wait may be cancelled, the job may not.

Limit: the queue is not bounded here. Storage has at most one write job in each worker and a bounded number of others.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

__all__ = ["Submits", "ThreadWorker", "Worker", "run_in"]

T = TypeVar("T")


class Submits(Protocol):
    """Runs jobs in order, in another place."""

    def submit(self, job: Callable[[], T], done: Callable[[T], None]) -> None: ...


class Worker(Submits, Protocol):
    """One of these that can be ended."""

    def stop(self) -> None:
        """Finish the jobs that were submitted; no more may be. May block."""


class ThreadWorker:
    """One daemon thread. Owned by the event loop that it reports to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = SimpleQueue()
        self._completed: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._notified = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        self._jobs.put((job, done))

    def stop(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while self._carry_out(self._jobs.get()):
            pass

    def _carry_out(self, item: tuple[Callable[[], Any], Callable[[Any], None]] | None) -> bool:
        """Do one job; return whether there may be more. While the thread waits it knows nothing of the last one."""
        if item is None:
            return False
        job, done = item
        try:
            result = job()
        except BaseException as error:  # noqa: BLE001 - raised again on the loop, where somebody sees it
            done = _raise
            result = error
        self._completed.append((done, result))
        # The flag is cleared before the loop looks into the queue, so a completion is never left behind.
        if not self._notified:
            self._notified = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                return False  # The loop is closed: nobody waits for this any more.
        return True

    def _deliver(self) -> None:
        self._notified = False
        try:
            while self._completed:
                done, result = self._completed.popleft()
                done(result)
        finally:
            # One that raised must not keep back the others, for which somebody waits.
            if self._completed:
                self._loop.call_soon(self._deliver)


async def run_in(worker: Submits, job: Callable[[], T]) -> T:
    """Run `job`, which must not raise, and return its result.

    Cancellation: the wait ends, the job is carried out, its result is dropped.
    """
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def done(result: T) -> None:
        if not future.cancelled():
            future.set_result(result)

    worker.submit(job, done)
    return await future


def _raise(error: BaseException) -> None:
    raise error
