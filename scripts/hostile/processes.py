"""Processes that answer questions: the client beside (`beside`), and the idle control (`idle`)."""

import json
import os
import select
import signal
import subprocess
import time
from typing import Any, Self

from machines.modules import module_command, module_environment

__all__ = ["Told", "ToldNothingError", "end_when_told"]


class ToldNothingError(RuntimeError):
    """A process that should have answered did not, or is gone."""


def end_when_told() -> None:
    """Let SIGTERM and SIGINT end this process as an exception does: what it started ends before it."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)


class Told:
    """One module of this folder as a process of its own: lines in, one line of JSON out for each."""

    def __init__(self, module: str, *arguments: object, limit_s: float = 60.0) -> None:
        command = module_command(f"hostile.{module}", *arguments)
        pipe = subprocess.PIPE
        self.module = module
        self._buffer = b""
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=module_environment())
        try:
            self._line(limit_s)
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def ask(self, word: str = "take", limit_s: float = 60.0) -> dict[str, Any]:
        """Say a word and return the answer.

        Raises:
            ToldNothingError: nothing in time, or it has ended.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(word.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise ToldNothingError(f"{self.module} has ended") from error
        answer: dict[str, Any] = json.loads(self._line(limit_s))
        return answer

    def _line(self, limit_s: float) -> bytes:
        assert self.process.stdout is not None
        until = time.monotonic() + limit_s
        poll = select.poll()  # `select` knows no descriptor above 1,023.
        poll.register(self.process.stdout, select.POLLIN)
        while b"\n" not in self._buffer:
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                raise ToldNothingError(f"{self.module} said nothing for {limit_s:.0f} s")
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                raise ToldNothingError(f"{self.module} has ended")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
