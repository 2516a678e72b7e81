"""An event loop of one process that the world runs, without a thread.

It has its own ready queue, timers and clock, and does what asyncio's selector loop does, in the same order: arrivals,
then the timers that are due, then one pass over the ready callbacks. Each iteration takes a little virtual time, so
that nothing happens at the same instant everywhere, and a loop that never rests does not stop the world.

A loop can be *stalled* (SIGSTOP, a kernel that hangs): nothing runs, arrivals wait. It can be *slow* (`slow_us`): after
each iteration its process waits for the processor. It can be *killed*: nothing of it
ever runs again, and nothing that dies with it (a generator's `finally`) reaches the world any more. Its clock has an
offset and a drift.
"""

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar

from sim.cluster.world import World

if TYPE_CHECKING:
    from .network import Network, Server

__all__ = ["Clock", "VirtualLoop"]

T = TypeVar("T")
ITERATION_US = 20
CALLBACK_US = 3
EXECUTOR_US_MAX = 2_000
CANCELLED_TIMERS_MAX = 200
_RESOLUTION_S = 2e-6


class Clock:
    """A machine's monotonic clock: `offset_s` when the world began, running at `rate`. It survives processes."""

    def __init__(self, world: World, offset_s: float = 1_000.0, rate: float = 1.0) -> None:
        self._world = world
        self._offset_s = offset_s
        self._rate = rate

    def seconds(self) -> float:
        return self._offset_s + self._world.now_us * self._rate / 1e6

    def monotonic_ms(self) -> int:
        return int(self.seconds() * 1_000)

    def world_us(self, seconds: float) -> int:
        """Return when this clock will show `seconds`."""
        return ceil((seconds - self._offset_s) * 1e6 / self._rate)


# By way of a variable: half of the class's abstract methods are for pipes, signals and subprocesses, which nobody uses.
_AbstractEventLoop: Any = asyncio.AbstractEventLoop


class VirtualLoop(_AbstractEventLoop):  # type: ignore[misc]
    """One process's loop. `host` names the machine it runs on; `on_bug` is told of exceptions in callbacks."""

    def __init__(
        self, world: World, network: "Network", host: str, clock: Clock, on_bug: Callable[[dict[str, Any]], None]
    ) -> None:
        self.world = world
        self.network = network
        self.host = host
        self.clock = clock
        self.time = clock.seconds
        self.is_dead = False
        self.iterations = 0
        self.slow_us = (0, 0)  # each iteration takes so much longer: at least, and less than
        self._on_bug = on_bug
        self._ready = deque[asyncio.Handle]()
        self._arrived = deque[asyncio.Handle]()
        self._timers = list[tuple[float, int, asyncio.TimerHandle]]()
        self._sequence = 0
        self._cancelled = 0
        self._wake_us: int | None = None
        self._busy_until_us = 0
        self._stalled_until_us = 0
        self._is_running = False

    # Calls of the world.

    def stall(self, until_us: int) -> None:
        self._stalled_until_us = max(self._stalled_until_us, until_us)
        self._wake_us = None
        self._schedule()

    def resume(self) -> None:
        """End a stall before its time."""
        if self.is_stalled:
            self._stalled_until_us = self.world.now_us
            self._wake_us = None
            self._schedule()

    @property
    def is_stalled(self) -> bool:
        return self.world.now_us < self._stalled_until_us

    def kill(self) -> None:
        """End the process. Its tasks stay where they are, for ever."""
        self.is_dead = True
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            self.world.dead.append(task)
        self._ready.clear()
        self._arrived.clear()
        self._timers.clear()

    def arrive(self, callback: Callable[..., object], *args: Any) -> None:
        """Something came from outside: a packet, a finished job. It is seen in the next iteration."""
        if not self.is_dead:
            self._arrived.append(asyncio.Handle(callback, args, self))
            self._schedule()

    def _schedule(self) -> None:
        wake_us = self._wake_us
        busy_us = self._busy_until_us
        if self.is_dead or self._is_running or (wake_us is not None and wake_us <= busy_us):
            return  # It could not be any sooner.
        at_us = self.world.now_us
        if not (self._ready or self._arrived):
            if not self._timers:
                return
            at_us = max(at_us, self.clock.world_us(self._timers[0][0]))
        at_us = max(at_us, busy_us, self._stalled_until_us)
        if wake_us is None or at_us < wake_us:
            self._wake_us = at_us
            self.world.at(at_us, self._wake)

    def _wake(self) -> None:
        now_us = self.world.now_us
        if self.is_dead or self._wake_us != now_us or now_us < self._stalled_until_us:
            return
        self._wake_us = None
        self._iterate()
        self._schedule()

    def _iterate(self) -> None:
        ready = self._ready
        timers = self._timers
        self.iterations += 1
        ready.extend(self._arrived)
        self._arrived.clear()
        now_s = self.time() + _RESOLUTION_S if timers else 0.0
        while timers and timers[0][0] <= now_s:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]  # asyncio has it for loops alone
            if timer.cancelled():
                self._cancelled -= 1
            else:
                ready.append(timer)
        count = len(ready)
        self._is_running = True
        events._set_running_loop(self)
        try:
            for _ in range(count):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                    if self.is_dead:
                        return
        finally:
            events._set_running_loop(None)
            self._is_running = False
        self._busy_until_us = max(self._busy_until_us, self.world.now_us + ITERATION_US + CALLBACK_US * count)
        if self.slow_us[1]:
            self.occupy(self.world.chance(f"{self.host} slow").randrange(*self.slow_us))

    def occupy(self, duration_us: int) -> None:
        """A call on the loop took its time: nothing else runs meanwhile."""
        self._busy_until_us = max(self._busy_until_us, self.world.now_us) + duration_us

    # Calls of asyncio and its users.

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_dead:
            self._ready.append(handle)
            if not self._is_running:
                self._schedule()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.is_dead:
            self._sequence += 1
            handle._scheduled = True  # type: ignore[attr-defined]  # as above
            heapq.heappush(self._timers, (when, self._sequence, handle))
            self._schedule()
        return handle

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        self._cancelled += 1
        if self._cancelled > CANCELLED_TIMERS_MAX and self._cancelled * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> "asyncio.Task[T]":
        return asyncio.Task(coro, loop=self, name=name or "task", context=context)

    def run_in_executor(self, _executor: object, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        """Run it at some moment soon, as if in a thread; its exception goes to the waiter."""
        future: asyncio.Future[T] = self.create_future()

        def job() -> None:
            if self.is_dead:
                return
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - as an executor does
                self.arrive(_set, future, None, error)
            else:
                self.arrive(_set, future, result, None)

        self.world.after(self.world.chance(f"{self.host} executor").randrange(20, EXECUTOR_US_MAX), job)
        return future

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        return [(2, 1, 6, "", (host, port))]

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        server: Server = self.network.bind(self, protocol_factory, (host, port))
        if options.get("start_serving", True):
            server.listen()
        return server

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        connected = self.create_future()
        self.network.connect(self, (host, port), connected)
        stream = await connected
        protocol = protocol_factory()
        stream.attach(protocol)
        return stream, protocol

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # Exceptions that nobody retrieved are reported when the garbage is collected, which is not part of the run.
        if not self.is_dead and "was never retrieved" not in context.get("message", ""):
            self._on_bug(context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self.is_dead


def _set(future: "asyncio.Future[T]", result: T, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def later(loop: VirtualLoop, delay_us: int, callback: Callable[..., object], *args: Any) -> None:
    """Let `loop` run `callback` by the world's time, not by its own clock."""
    loop.world.after(delay_us, partial(loop.arrive, callback, *args))
