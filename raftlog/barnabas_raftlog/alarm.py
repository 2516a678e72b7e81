"""One timer as fine as the kernel's: asyncio's are no finer than a millisecond.

`epoll_wait` and libuv count in whole milliseconds, so a `call_later` of 1 ms takes between 1 and 2, which is too coarse
to imitate a network whose round trip is 2 ms. Linux has timers that are files (`timerfd`), which wake any event loop to
within some 50 µs; Python has them from 3.13 on, so the C library is called here. Elsewhere `call_later` does the work.
"""

import asyncio
import ctypes
import os
import struct
from collections.abc import Callable
from typing import Protocol

__all__ = ["Alarm", "open_alarm"]

CLOCK_MONOTONIC = 1
NONBLOCK_CLOEXEC = 0o4000 | 0o2000000
ABSOLUTE = 1
_SPEC = struct.Struct("@llll")  # interval, then the first time: seconds and nanoseconds each (`struct itimerspec`)
_SECOND_NS = 1_000_000_000


class Alarm(Protocol):
    """Rings once, on the loop, at the time that was set last; a new time replaces the old one."""

    def set(self, due_ns: int) -> None:
        """Ring at `due_ns` of the monotonic clock, at once if that has passed, never from within this call."""

    def close(self) -> None:
        """Ring no more. Idempotent."""


class KernelAlarm:
    """A timerfd. Raises OSError when made where there is none."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        try:
            library = ctypes.CDLL(None, use_errno=True)
            self._settime = library.timerfd_settime
            self._fd: int = library.timerfd_create(CLOCK_MONOTONIC, NONBLOCK_CLOEXEC)
        except AttributeError as error:
            raise OSError("this system has no timerfd") from error
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        loop.add_reader(self._fd, self._on_readable)

    def set(self, due_ns: int) -> None:
        # Zero would switch it off; the first nanosecond since the machine was started has passed.
        spec = _SPEC.pack(0, 0, *divmod(max(1, due_ns), _SECOND_NS))
        if self._settime(self._fd, ABSOLUTE, spec, None):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _on_readable(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # Set anew since the loop was woken: it rings later.
        self._ring()


class LoopAlarm:
    """The loop's own timer, up to a millisecond late."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None], clock_ns: Callable[[], int]) -> None:
        self._loop = loop
        self._ring = ring
        self._clock_ns = clock_ns
        self._handle: asyncio.TimerHandle | None = None

    def set(self, due_ns: int) -> None:
        self.close()
        self._handle = self._loop.call_later(max(0, due_ns - self._clock_ns()) / _SECOND_NS, self._ring)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def open_alarm(loop: asyncio.AbstractEventLoop, ring: Callable[[], None], clock_ns: Callable[[], int]) -> Alarm:
    """Return the finest timer that this system has. `clock_ns` is `time.monotonic_ns`, or a test's own."""
    try:
        return KernelAlarm(loop, ring)
    except (OSError, NotImplementedError):  # A loop that watches no files, as the one of Windows.
        return LoopAlarm(loop, ring, clock_ns)
