"""Processes of Kafka Connect: started, asked over HTTP, killed, ended."""

import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from machines.cache import fetch, kept, sum_of

__all__ = ["JSON", "LIMIT_S", "Worker", "WorkerEndedError", "compile_connectors", "until"]

JAVA = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m")
CONNECTORS = Path(__file__).with_name("Connectors.java")
SUNK = re.compile(r'\{"sunk": (\d+)\}')
LIMIT_S = 180.0
POLL_S = 0.2
LINES_SHOWN = 30
JSON = {"Content-Type": "application/json"}


def compile_connectors(jars: Path) -> Path:
    """Return the folder with the connectors' classes, compiled once for their source and Connect's jars.

    Raises:
        NotInstalledError: there is no javac.
    """

    def compiled(classes: Path) -> None:
        fetch("javac", "-proc:none", "-cp", f"{jars}/*", "-d", classes, CONNECTORS)

    return kept(f"connectors-{jars.name}-{sum_of(CONNECTORS)}", compiled)


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


class Worker:
    """One process with the main class `main`, and the files of settings that it is given, in this order."""

    def __init__(self, jars: Path, folder: Path, main: str, *files: Mapping[str, object], port: int = 0) -> None:
        folder.mkdir(parents=True)
        self._log = folder / "worker.log"
        self.port = port
        words = [
            *JAVA,
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-cp",
            f"{jars}/*:{compile_connectors(jars)}",
            main,
        ]
        for number, settings in enumerate(files):
            file = folder / f"{number}.properties"
            file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
            words.append(str(file))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

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

    def sunk(self) -> list[int]:
        """Return the numbers that its sink has printed; what is logged stands between them."""
        return [int(number) for number in SUNK.findall(self._log.read_text(errors="replace"))]

    def check(self) -> None:
        if (status := self._process.poll()) is not None:
            raise WorkerEndedError(f"it has ended with status {status}:\n{self.last_words()}")

    def last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-LINES_SHOWN:])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
