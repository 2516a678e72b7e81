"""Processes of a trial: each with what it printed, in a session of its own, and ended by its id."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["PATHS", "Process", "barnabas_spark", "until"]

PATHS = os.pathsep.join(path for path in sys.path if path)
# How often a trial looks whether something has happened.
_LOOK_S = 0.002


def until(what: str, is_so: Callable[[], object], timeout_s: float = 240.0) -> None:
    """Wait until something is so, or raise `TimeoutError` with its name."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {timeout_s:g} s")
        time.sleep(_LOOK_S)


class Process:
    """A process that leads a session, so that it can be ended with all that it has started."""

    def __init__(self, words: Sequence[str], folder: Path, name: str, environment: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.output = folder / f"{name}.out"
        self.errors = folder / f"{name}.err"
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, start_new_session=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill(with_children=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def said(self) -> str:
        """Return what it has printed on standard error."""
        return self.errors.read_text(errors="replace")

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self, *, with_children: bool) -> None:
        """SIGKILL it, and with it all processes of its session that led no group of their own."""
        if with_children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait(30)

    def wait(self, timeout_s: float = 240.0) -> int:
        """Return its exit status."""
        return self._process.wait(timeout_s)

    def finish(self, timeout_s: float = 240.0) -> None:
        """Wait until it has ended well."""
        status = self.wait(timeout_s)
        assert status == 0, f"{self.name} ended with {status}: {self.said()[-3000:]}"


def barnabas_spark(
    words: Sequence[str], folder: Path, name: str, environment: Mapping[str, str] | None = None
) -> Process:
    """Start the command `barnabas-spark` in the environment of this process."""
    ours = {"PYTHONPATH": PATHS, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "barnabas_spark.jobs", *words]
    return Process(command, folder, name, {**os.environ, **ours, **(environment or {})})
