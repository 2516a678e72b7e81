"""Standard input and output beside an event loop, signals to end, and progress.

A pipe blocks: its reader may be `less`, its writer a person. Calls that block run in a thread of their own
(`BlockingThread`), so that the loop goes on answering brokers: a consumer whose output nobody reads for a minute stays
in its group. One call is under way at a time and holds one block or one batch, and that is all the memory there is
between a pipe and a client. The threads are daemons, because nothing can wake one that reads from a terminal.

The first wish to end (Ctrl-C, SIGTERM, SIGHUP) sets an event, and the command ends in good order; a second one ends the
process on the spot.
"""

import asyncio
import os
import queue
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from .formats import FormatReader
from .lines import LineError, LineRecord

__all__ = [
    "BlockingThread",
    "EndSignals",
    "Progress",
    "blocks_of_lines",
    "blocks_of_records",
    "run",
    "typed_bytes",
    "write_all",
]

T = TypeVar("T")

READ_BYTES = 256 * 1024
WISHES_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
SHOW_EVERY_S = 0.5
# On a terminal the line is drawn over itself; in a log file every one stays.
SHOW_EVERY_IN_A_FILE_S = 5.0


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine on the fastest loop there is."""
    try:
        from uvloop import new_event_loop  # noqa: PLC0415 - there is none for every platform
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def typed_bytes(text: str) -> bytes:
    r"""Return what somebody typed on the command line, byte for byte, but for `\t`, which is hard to type."""
    return os.fsencode(text.replace("\\t", "\t"))


class BlockingThread:
    """A thread for calls that block for as long as they like, one after the other."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="aside", daemon=True).start()

    async def run(self, call: Callable[[], T]) -> T:
        """Return what `call` returns, or raise what it raises. Cancelled, the call goes on and nobody hears of it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def settle(error: BaseException | None, result: Any) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(result)
            else:
                answer.set_exception(error)

        def work() -> None:
            try:
                result = call()
                error = None
            except (OSError, LineError) as failure:
                result = None
                error = failure
            try:
                loop.call_soon_threadsafe(settle, error, result)
            except RuntimeError:
                return  # The loop has been closed: the command is over.

        self._calls.put(work)
        return await answer

    def _work(self) -> None:
        while True:
            self._calls.get()()


def blocks_of_lines(fd: int, line_bytes_max: int) -> Iterator[list[bytes]]:
    """Yield the lines of a file as they come, without their newlines, as many at a time as one read gave.

    Raises:
        LineError: a line is longer than `line_bytes_max`.
    """
    pieces: list[bytes] = []
    pending_bytes = 0
    number = 0
    while data := os.read(fd, READ_BYTES):
        first, newline, rest = data.partition(b"\n")
        pieces.append(first)
        pending_bytes += len(first)
        if pending_bytes > line_bytes_max:
            raise LineError(f"line {number + 1} is longer than {line_bytes_max} bytes")
        if not newline:
            continue
        *lines, last = rest.split(b"\n")
        lines.insert(0, b"".join(pieces))
        number += len(lines)
        pieces = [last]
        pending_bytes = len(last)
        yield lines
    if pending_bytes:
        yield [b"".join(pieces)]


def blocks_of_records(fd: int, reader: FormatReader) -> Iterator[list[LineRecord]]:
    """Yield the records of a file as they come, as many at a time as one read completed; perhaps none.

    Raises:
        LineError: the input does not match the format. What came before has been yielded.
    """
    while reader.failure is None and (data := os.read(fd, READ_BYTES)):
        yield reader.feed(data)
    yield reader.finish()
    if reader.failure is not None:
        raise reader.failure


def write_all(fd: int, data: bytes) -> None:
    """Write everything, however long the reader takes."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            # Somebody who shares this terminal with us has made it non-blocking.
            select.select([], [fd], [])


class EndSignals:
    """While entered, `end` is set when the command shall end: at a signal, or when nobody reads its output any more."""

    def __init__(self, output_fd: int | None = None) -> None:
        self.end = asyncio.Event()
        self.signal: signal.Signals | None = None
        self._output_fd = output_fd if output_fd is not None and _is_pipe(output_fd) else None

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in WISHES_TO_END:
            loop.add_signal_handler(number, self._on_signal, number)
        if self._output_fd is not None:
            # Nothing is ever read from there: the loop wakes when the pipe's other end is closed.
            loop.add_reader(self._output_fd, self._on_hang_up)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in WISHES_TO_END:
            loop.remove_signal_handler(number)
        if self._output_fd is not None:
            loop.remove_reader(self._output_fd)

    async def unless(self, what: Awaitable[T]) -> T | None:
        """Return the result of `what`; None, with `what` cancelled, if the command shall end before that."""
        work = asyncio.ensure_future(what)
        wish = asyncio.ensure_future(self.end.wait())
        try:
            await asyncio.wait({work, wish}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            for task in (work, wish):
                task.cancel()
            await asyncio.wait({work, wish})

    def _on_signal(self, number: signal.Signals) -> None:
        if self.end.is_set():
            # Not asked for twice lightly. Threads and buffers are not waited for: one of them may be what hangs.
            os._exit(INTERRUPTED)
        self.signal = number
        self.end.set()

    def _on_hang_up(self) -> None:
        assert self._output_fd is not None
        asyncio.get_running_loop().remove_reader(self._output_fd)
        self._output_fd = None
        self.end.set()


class Progress:
    """Counts records, and says on stderr how far the work is; `shown` False only counts."""

    def __init__(self, verb: str, *, shown: bool, total_bytes: int | None = None) -> None:
        self.records = 0
        self.bytes = 0
        self._verb = verb
        self._shown = shown
        self._total_bytes = total_bytes
        self._on_terminal = sys.stderr.isatty()
        self._every_s = SHOW_EVERY_S if self._on_terminal else SHOW_EVERY_IN_A_FILE_S
        self._began_s = self._shown_at_s = time.monotonic()

    @staticmethod
    def wanted(asked: bool | None, *, output_is_busy: bool = False) -> bool:
        """Say whether to show it: as asked, else when stderr is a terminal on which nothing else is written."""
        return asked if asked is not None else sys.stderr.isatty() and not output_is_busy

    def add(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.bytes += size_bytes
        if self._shown and (now_s := time.monotonic()) - self._shown_at_s >= self._every_s:
            self._shown_at_s = now_s
            self._say(f"{self}{self._share()}", "\r" if self._on_terminal else "\n")

    def close(self) -> None:
        """Say how much it was in all."""
        if self._shown:
            self._say(str(self), "\n")

    def __str__(self) -> str:
        took_s = max(time.monotonic() - self._began_s, 0.001)
        rate = f"{self.records / took_s:,.0f} records/s"
        return f"{self._verb} {self.records:,} records, {_size(self.bytes)}, {took_s:,.1f} s, {rate}"

    def _share(self) -> str:
        return f", {self.bytes * 100 // self._total_bytes} %" if self._total_bytes else ""

    def _say(self, text: str, end: str) -> None:
        # The rest of a longer line of before is wiped out.
        sys.stderr.write(f"\x1b[2K{text}{end}" if self._on_terminal else f"{text}{end}")
        sys.stderr.flush()


def _size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024:
            return f"{size_bytes:,.0f} {unit}" if unit == "B" else f"{size_bytes:,.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:,.1f} TiB"


def _is_pipe(fd: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False
