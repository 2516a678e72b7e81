"""Cancels a call at each await that it passes, and checks that nothing is left.

`sweep` runs the call again and again: the first time it is cancelled when it suspends for the first time, then at the
second, until a run gets through before its turn to be cancelled comes. It is asyncio's own `Task.cancel`, arriving
while the task waits for exactly that future, as a user's `timeout` or a TaskGroup would deliver it.
"""

import asyncio
import os
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

__all__ = ["open_files", "open_sockets", "sockets_close", "sweep", "tasks_end"]

SETTLE_S = 10.0
TURNS_MAX = 10
"""A closed transport lets go of its socket a turn of the loop later, and one whose opening was cancelled two."""
SUSPENSIONS_MAX = 500
"""A call that suspends more often than this waits in a loop, and a test that sweeps it would never end."""


@types.coroutine
def _cancelled_at(coroutine: Coroutine[Any, Any, Any], number: int) -> Generator[Any, Any, bool]:
    """Drive `coroutine` and cancel the task at its `number`-th suspension; return whether it ended before."""
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    assert task is not None
    suspensions = 0
    step: Callable[[Any], Any] = coroutine.send
    value: Any = None
    while True:
        try:
            waits_for = step(value)
        except StopIteration:
            return suspensions < number
        suspensions += 1
        if suspensions == number:
            loop.call_soon(task.cancel)
        try:
            step = coroutine.send
            value = yield waits_for
        except BaseException as error:  # noqa: BLE001 - all that asyncio throws in belongs to the coroutine
            step = coroutine.throw
            value = error


async def sweep(
    call: Callable[[], Coroutine[Any, Any, Any]],
    usable: Callable[[], Awaitable[Any]],
    *,
    before: Callable[[], Awaitable[Any]] | None = None,
    answers: tuple[type[Exception], ...] = (),
) -> int:
    """Cancel `call()` at every await; after each time `usable()` must succeed. Return the number of awaits.

    Args:
        call: makes a fresh coroutine of the method under test.
        usable: uses the client as if nothing had happened, and checks the answers.
        before: puts things back before each run.
        answers: errors with which the call may end by itself, because a broker says no.
    """
    for number in range(1, SUSPENSIONS_MAX):
        if before is not None:
            await before()
        known = asyncio.all_tasks()
        task = asyncio.ensure_future(_run(call(), number))
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcome, BaseException) and not isinstance(outcome, (asyncio.CancelledError, *answers)):
            raise outcome
        await tasks_end(known)
        await usable()
        if outcome is True or isinstance(outcome, answers):
            return number - 1
    raise AssertionError(f"still going after {SUSPENSIONS_MAX} awaits")


async def _run(coroutine: Coroutine[Any, Any, Any], number: int) -> bool:
    return bool(await _cancelled_at(coroutine, number))


async def tasks_end(known: set["asyncio.Task[Any]"]) -> None:
    """Wait until no task is left but those in `known` and the caller's own; one that stays is a leak."""
    left = asyncio.all_tasks() - known - {asyncio.current_task()}
    if left:
        _, pending = await asyncio.wait(left, timeout=SETTLE_S)
        assert not pending, f"left behind: {pending}"


async def sockets_close(known_count: int) -> None:
    """Let the loop turn until no more sockets are open than `known_count`; one that stays is a leak."""
    for _ in range(TURNS_MAX):
        if open_sockets() <= known_count:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{open_sockets()} sockets are open, {known_count} were before")


def open_files() -> list[str]:
    """Return the targets of this process' descriptors: paths, and such as "socket:[17]"."""
    found = list[str]()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are all that is wanted
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115 - not a path
        except FileNotFoundError:
            continue  # The listing's own descriptor.
    return found


def open_sockets() -> int:
    """Return how many sockets this process has open."""
    return sum(target.startswith("socket:") for target in open_files())
