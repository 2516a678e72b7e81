"""Processes of Java's programs: started with files of settings, asked over HTTP, killed, ended."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from machines.java import JAVA

__all__ = ["LIMIT_S", "Worker", "WorkerEndedError", "properties", "until"]

LOGGING = ("-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS")
LIMIT_S = 180.0
POLL_S = 0.2
LINES_SHOWN = 30
JSON = {"Content-Type": "application/json"}


class WorkerEndedError(RuntimeError):
    """A process ended by itself; the message has its last lines."""


def until(holds: Callable[[], bool], what: str, *workers: "Worker", limit_s: float = LIMIT_S) -> None:
    """Wait until something holds.

    Raises:
        TimeoutError: it does not within `limit_s`.
        WorkerEndedError: one of the workers has ended meanwhile.
    """
    end = time.monotonic() + limit_s
    while not holds():
        for worker in workers:
            worker.check()
        if time.monotonic() > end:
            raise TimeoutError(
                "\n".join([f"waited {limit_s:.0f} s for {what}", *(one.last_words() for one in workers)])
            )
        time.sleep(POLL_S)


def properties(file: Path, settings: Mapping[str, object]) -> Path:
    """Write settings as Java's programs read them."""
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


class Worker:
    """One process with the main class `main` and these words; what it says of itself goes to a file in `folder`."""

    def __init__(
        self, class_path: str, folder: Path, main: str, *words: object, port: int = 0, options: tuple[str, ...] = ()
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / "worker.log"
        self.port = port
        command = [*JAVA, "-Xmx512m", *LOGGING, *options, "-cp", class_path, main, *map(str, words)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def takes(self, path: str, body: object) -> bool:
        """Put something there, and tell whether that was taken."""
        return self.ask("PUT", path, body) is not None

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Ask its REST interface; None if it does not answer, or with an error."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, JSON, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - a worker of ours, on loopback
                return json.loads(answer.read() or b"{}")
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return None

    def check(self) -> None:
        if (status := self._process.poll()) is not None:
            raise WorkerEndedError(f"it has ended with status {status}:\n{self.last_words()}")

    def said(self) -> str:
        """Return all that it has said of itself, and who wrote to the same file before."""
        return self._log.read_text(errors="replace")

    def last_words(self) -> str:
        return "\n".join(self.said().splitlines()[-LINES_SHOWN:])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
