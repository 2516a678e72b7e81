"""A notebook: a Python process that keeps what a page's programs define, and the Spark session that they start."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, Protocol, Self

__all__ = ["Notebook", "NotebookProcess"]

STOP_TIMEOUT_S = 30


class Notebook(Protocol):
    """Runs the programs of a page, which see what those before them have defined."""

    def begin(self) -> None:
        """Begin a page: nothing is defined."""
        ...

    def run(self, language: str, source: str) -> str:
        """Run a program; return what it prints."""
        ...

    def job(self, command: str, environment: dict[str, str]) -> str | None:
        """Run a command line in the notebook's own session; return what it prints. None: a shell is to run it."""
        ...


class NotebookProcess:
    """A notebook with a Spark session of its own; unless it `runs_jobs`, jobs are for a shell, with theirs.

    What Spark says on standard error is kept out of the pages, and is shown if the process dies.
    """

    def __init__(self, environment: Mapping[str, str], directory: str, *, runs_jobs: bool = False) -> None:
        self._runs_jobs = runs_jobs
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "documents.cells"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=dict(environment),
            cwd=directory,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The end of its input ends it, and with it Spark's JVM, which waits for the end of its own.
        self._process.communicate(timeout=STOP_TIMEOUT_S)
        self._log.close()

    def begin(self) -> None:
        self._ask(None)

    def run(self, language: str, source: str) -> str:
        printed: str = self._ask([language, source])
        return printed

    def job(self, command: str, environment: dict[str, str]) -> str | None:
        return self._ask(["job", command, environment]) if self._runs_jobs else None

    def _ask(self, request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._log.seek(0)
            raise RuntimeError(f"the notebook ended: {self._log.read().decode(errors='replace')}")
        return json.loads(answer)
