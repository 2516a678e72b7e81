"""Starts, kills and watches processes of the application."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from machines.java import JAVA

__all__ = ["SOURCE", "ApplicationError", "Instance"]

SOURCE = Path(__file__).with_name("Application.java")
LOGGER = "-Dorg.slf4j.simpleLogger."
LOGGING = (f"{LOGGER}showDateTime=true", f"{LOGGER}dateTimeFormat=HH:mm:ss.SSS", f"{LOGGER}showShortLogName=true")
ENDED_BY_SIGTERM = 128 + signal.SIGTERM
CLOSE_LIMIT_S = 60.0
LINES_SHOWN = 30


class ApplicationError(RuntimeError):
    """A process of the application ended by itself; the message has its last lines."""


class Instance:
    """One process of the application, and the next one when it was killed: they have a name in common.

    Attributes:
        lives: How many processes there were.
    """

    def __init__(self, number: int, jars: Path, classes: Path, folder: Path, settings: Mapping[str, str]) -> None:
        self.number = number
        self.lives = 0
        self._class_path = f"{jars}/*:{classes}"
        self._folder = folder
        self._state = folder / f"state-{number}"
        self._settings = {"client.id": f"instance-{number}", "state.dir": str(self._state), **settings}
        self._process: subprocess.Popen[bytes] | None = None

    def _output(self, life: int) -> Path:
        return self._folder / f"instance-{self.number}-{life}.log"

    def start(self) -> None:
        assert self._process is None
        self.lives += 1
        words = [*JAVA, "-Xmx384m", *LOGGING, "-cp", self._class_path, "Application"]
        words += [f"{name}={value}" for name, value in self._settings.items()]
        # What it says of itself goes to one file, so that it stands beside what Kafka Streams logged then.
        with self._output(self.lives).open("wb") as out:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    def check(self) -> None:
        """Raise if it ended by itself."""
        if self._process is not None and (status := self._process.poll()) is not None:
            self._process = None
            raise ApplicationError(f"instance {self.number} has ended with status {status}:\n{self.last_words()}")

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def kill(self, *, keeps_name: bool = True) -> None:
        """End it with SIGKILL, if it is there, and take its stores away.

        Kafka Streams wipes stores of which it does not know how far they had come, as here, when it begins. But first
        it opens them, and ends if RocksDB was making files just then ("wal_dir contains existing log file").

        Args:
            keeps_name: Otherwise the next process has other transactional ids, and waits until the coordinator has
                aborted what this one began.
        """
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        gone = [*self._state.glob("*/[0-9]*_[0-9]*")] if keeps_name else [self._state]
        for folder in gone:
            shutil.rmtree(folder, ignore_errors=True)

    async def stop(self) -> None:
        """Let it close, and raise if it doesn't."""
        assert self._process is not None
        self._process.terminate()
        try:
            status = await asyncio.to_thread(self._process.wait, CLOSE_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise ApplicationError(f"instance {self.number} does not close:\n{self.last_words()}") from None
        self._process = None
        if status != ENDED_BY_SIGTERM:
            raise ApplicationError(f"instance {self.number} closed with status {status}:\n{self.last_words()}")

    def restored(self, life: int) -> Counter[str]:
        """Return how many records of changelogs came back in one of its lives, by state store."""
        found = Counter[str]()
        for line in self._output(life).read_text(errors="replace").splitlines():
            if line.startswith("restored "):
                _, store, count = line.split()
                found[store] += int(count)
        return found

    def last_words(self) -> str:
        lines = self._output(self.lives).read_text(errors="replace").splitlines()
        return "\n".join(lines[-LINES_SHOWN:])
