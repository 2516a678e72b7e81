"""Keeps the worker processes alive: a supervisor that starts each one again, whatever it died of."""

import contextlib
import json
import os
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from machines.background import Background
from machines.modules import Program

__all__ = ["WORKERS", "Workers"]

WORKERS = ("w1", "w2", "w3")
PAUSE_S = 0.05
AFTER_FAILURE_S = 0.5


class _Worker:
    """One of them, through all its lives."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lives = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.starts_at = 0.0
        self.was_killed = False


class Workers(Background):
    """The processes. A job is a line of JSON on standard input, which stays open as long as this process lives.

    Args:
        program: The client.
        job: What all workers are told beside their `name`, which is their transactional id, and their `life`.
        folder: Standard error of a life goes to a file there.
    """

    def __init__(self, program: Program, job: dict[str, Any], folder: Path) -> None:
        super().__init__("workers")
        self.deaths: Counter[str] = Counter()
        self.killed = 0
        self._program = program
        self._job = job
        self._folder = folder
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._workers = {name: _Worker(name) for name in WORKERS}

    def work(self) -> None:
        while not self._over.is_set():
            with self._lock:
                for worker in self._workers.values():
                    self._look_after(worker)
            self._over.wait(PAUSE_S)

    def _look_after(self, worker: _Worker) -> None:
        now = time.monotonic()
        process = worker.process
        if process is not None and process.poll() is not None:
            worker.process = None
            if not worker.was_killed:
                self.deaths[f"status {process.returncode}: {self._last_words(worker)}"] += 1
                worker.starts_at = now + AFTER_FAILURE_S
            worker.was_killed = False
        if worker.process is None and now >= worker.starts_at:
            self._start(worker)

    def _start(self, worker: _Worker) -> None:
        worker.lives += 1
        job = self._job | {"name": worker.name, "life": f"{worker.name}.{worker.lives}"}
        with self._errors(worker).open("wb") as errors:
            process = subprocess.Popen(
                self._program.command,
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                env=os.environ | self._program.environment,
            )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died already: seen in the next round
            process.stdin.write(json.dumps(job).encode() + b"\n")
            process.stdin.flush()
        worker.process = process

    def _errors(self, worker: _Worker) -> Path:
        return self._folder / f"{worker.name}.{worker.lives}.log"

    def _last_words(self, worker: _Worker) -> str:
        lines = self._errors(worker).read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "without a word"

    def kill(self, name: str, away_s: float) -> bool:
        """SIGKILL one; it starts again after so long. False: it was not alive."""
        with self._lock:
            worker = self._workers[name]
            process = worker.process
            if process is None or process.poll() is not None:
                return False
            process.kill()
            process.wait(30)
            worker.was_killed = True
            worker.starts_at = time.monotonic() + away_s
            self.killed += 1
            return True

    @property
    def lives(self) -> int:
        return sum(worker.lives for worker in self._workers.values())

    def finish(self, limit_s: float = 30.0) -> None:
        """End them in good order: the end of standard input tells them to."""
        self._over.set()
        if self.ident is not None:
            self.join(limit_s)
        alive = [worker.process for worker in self._workers.values() if worker.process is not None]
        for process in alive:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in alive:
            try:
                process.wait(limit_s)
            except subprocess.TimeoutExpired:
                self.deaths["did not end when it was told to"] += 1
                process.kill()
                process.wait(30)
