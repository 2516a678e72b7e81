"""Lets a command wait for Ctrl-C, in place of an exception that strikes anywhere.

An exception raised by a signal handler may strike between starting a process and noting that it runs, or between taking
a lock and the block that would release it; both were seen. Here a handler does nothing, and the byte that the
interpreter writes for each signal wakes the command where it waits, and where stopping is safe.
"""

import signal
import socket
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["Interrupts"]

# SIGINT is in the list because a shell starts background jobs with it ignored.
WISHES_TO_END = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


class Interrupts:
    """While entered, from the main thread: readable when somebody wishes the command to end, or a child has ended."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._before: dict[int, Any] = {}
        self._fd_before = -1

    def __enter__(self) -> Self:
        self._fd_before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in WISHES_TO_END | {signal.SIGCHLD}:
            self._before[number] = signal.signal(number, _nothing)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        return self._reader.fileno()

    def asked(self) -> bool:
        """Forget the signals that have come, and say whether one of them was a wish to end."""
        try:
            return not WISHES_TO_END.isdisjoint(self._reader.recv(4096))
        except BlockingIOError:
            return False


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Stand in for the default action, which would end the process or ignore the signal."""
