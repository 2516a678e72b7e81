"""The history that many processes write, in the order of their writes.

All of them append to one file, a line with each write, so the kernel gives the lines an order: what is written before
a deed stands before all that anybody has seen of it. A process that is killed in the middle of a write leaves a part of
a line; each line begins with a newline, so that it is nobody else's. Such a part is left out: what it was about to
tell was not done yet, or is told by nobody.

`Reading` follows the file, judges it with the checker of `barnabas check`, and leaves the whole lines in another file.
"""

import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import BinaryIO

from machines.background import Background

from barnabas_broker.history import Checker, Event, decode, encode
from barnabas_broker.history import events as e

from .ends import Ends, worker_of

__all__ = ["Appending", "Reading"]

CHUNK_BYTES = 1 << 20
PAUSE_S = 0.02


class Appending:
    """Appends events to the common file. Any thread may call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.began_ms = time.time_ns() // 1_000_000
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    def tell(self, event: Event) -> None:
        os.write(self._file, b"\n" + encode(event))

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 - self.began_ms

    def fault(self, kind: str, target: str) -> None:
        self.tell(e.FaultBegun(kind=kind, target=target, at_ms=self.now_ms()))

    def fault_ended(self, kind: str, target: str) -> None:
        self.tell(e.FaultEnded(kind=kind, target=target, at_ms=self.now_ms()))

    def close(self) -> None:
        os.close(self._file)


class Reading(Background):
    """Judges the lines as they come. `whole` is the file that gets all but the torn ones."""

    def __init__(self, path: Path, whole: Path) -> None:
        super().__init__("history")
        self.checker = Checker()
        self.ends = Ends()
        self.torn = 0
        self.lines = 0
        self.committed: Counter[str] = Counter()  # transactions, by worker
        self._path = path
        self.whole = whole
        self._over = threading.Event()
        self._moved = threading.Condition()
        self._under_way: dict[str, None] = {}

    def work(self) -> None:
        with self._path.open("rb") as file, self.whole.open("wb") as whole:
            rest = b""
            while True:
                is_last = self._over.is_set()
                if chunk := file.read(CHUNK_BYTES):
                    *lines, rest = (rest + chunk).split(b"\n")
                    self._take(lines, whole)
                elif is_last:
                    return
                else:
                    self._over.wait(PAUSE_S)

    def _take(self, lines: list[bytes], whole: BinaryIO) -> None:
        for line in lines:
            if not line:
                continue
            if not line.endswith(b"}"):
                self.torn += 1
                continue
            self.lines += 1
            event = decode(line, self.lines)
            self.checker.feed(event)
            self.ends.feed(event)
            whole.write(line + b"\n")
            match event:
                case e.Ending(transaction=name):
                    with self._moved:
                        self._under_way[name] = None
                        self._moved.notify_all()
                case e.Ended(transaction=name, outcome=outcome):
                    self.committed[worker_of(name)] += outcome == "committed"
                    with self._moved:
                        self._under_way.pop(name, None)
                case _:
                    pass

    def wait_for_end(self, limit_s: float) -> str | None:
        """Wait until somebody asks for a transaction's end; return its name, None if nobody has asked."""
        with self._moved:
            self._under_way.clear()  # of those who were killed
            self._moved.wait(limit_s)
            return next(reversed(self._under_way), None)

    def finish(self, limit_s: float = 120.0) -> None:
        """Read to the end; nobody writes any more. Raise RuntimeError if the history makes no sense."""
        self._over.set()
        self.join(limit_s)
        if self.is_alive():
            raise RuntimeError("the history was not read to its end")
        self.check()
