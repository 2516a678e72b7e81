"""Owns background tasks: keeps them alive, tells of those that fail, and ends them together.

asyncio forgets a task to which nobody refers, and says nothing of one that has failed until it is collected. So each
part of a node or a client that starts tasks has one `Tasks`, and closes it when it ends itself.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

__all__ = ["Tasks", "failure_of", "report"]

T = TypeVar("T")


class Tasks:
    """The tasks of one owner. `len` is how many have not ended. Belongs to one event loop.

    Limit: none of its own; whoever starts tasks bounds them.
    """

    __slots__ = ("_on_failed", "_running")

    def __init__(self, on_failed: Callable[[BaseException], None]) -> None:
        self._on_failed = on_failed
        self._running: dict[asyncio.Task[Any], None] = {}  # in the order in which they were started

    def __len__(self) -> int:
        return len(self._running)

    def spawn(
        self, coroutine: Coroutine[Any, Any, T], on_ended: Callable[["asyncio.Task[T]"], None] | None = None
    ) -> None:
        """As `start`, for a task that nobody awaits."""
        _ = self.start(coroutine, on_ended)

    def start(
        self, coroutine: Coroutine[Any, Any, T], on_ended: Callable[["asyncio.Task[T]"], None] | None = None
    ) -> "asyncio.Task[T]":
        """Run `coroutine`; if it fails, `on_failed` hears of it. A task that was cancelled has not failed.

        `on_ended` is called with the task however it ends, and then it alone judges whether it has failed.
        """
        task = asyncio.get_running_loop().create_task(coroutine)
        self._running[task] = None
        task.add_done_callback(self._judge if on_ended is None else partial(self._tell, on_ended))
        return task

    async def close(self) -> None:
        """Cancel every task and return when all have ended; but for the calling one, which may be closing its owner.

        May be called again. Cancelled, it leaves the tasks cancelled, and does not wait for them.
        """
        tasks = [task for task in self._running if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _tell(self, on_ended: Callable[["asyncio.Task[T]"], None], task: "asyncio.Task[T]") -> None:
        del self._running[task]
        on_ended(task)

    def _judge(self, task: "asyncio.Task[Any]") -> None:
        del self._running[task]
        if (error := failure_of(task)) is not None:
            self._on_failed(error)


def failure_of(task: "asyncio.Future[Any]") -> BaseException | None:
    """Return what a task that is done has failed with; None if it returned or was cancelled."""
    return None if task.cancelled() else task.exception()


def report(error: BaseException) -> None:
    """Hand a failure that nobody expects to the exception handler of the running loop: `on_failed` of those tasks."""
    context = {"message": "a background task failed", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)
