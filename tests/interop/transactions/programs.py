"""Transactional clients that are no Python: programs in Java and Go, told by lines what to do.

Each is one process for all tests of a module, because a JVM takes a second to start. franz-go is built once for its
sources, into the benchmarks' cache.
"""

import hashlib
import shutil
from pathlib import Path

from bench import systems
from interop import runtimes
from interop.line_programs import LineProgram, java_command

__all__ = ["FencedError", "Program", "franz_go", "java"]

HERE = Path(__file__).resolve().parent
FRANZ_GO = HERE / "franz_go"


class FencedError(Exception):
    """The client says that another one has taken its transactional id over."""


class Program(LineProgram):
    """A running client; each method is a line to it, and its answer."""

    def _ask(self, *words: object) -> str:
        kind, _, answer = self.line_for(*words).partition(" ")
        if kind == "fenced":
            raise FencedError(answer)
        assert kind == "ok", f"{words}: {answer}"
        return answer

    def open(self, name: str, transactional_id: str) -> None:
        self._ask("open", name, transactional_id)

    def begin(self, name: str) -> None:
        self._ask("begin", name)

    def send(self, name: str, topic: str, value: str) -> None:
        self._ask("send", name, topic, value)

    def commit(self, name: str) -> None:
        self._ask("commit", name)

    def abort(self, name: str) -> None:
        self._ask("abort", name)

    def close(self, name: str) -> None:
        self._ask("close", name)

    def copy(self, transactional_id: str, group: str, source: str, target: str, count: int) -> None:
        self._ask("copy", transactional_id, group, source, target, count)

    def read(self, topic: str, count: int) -> list[str]:
        return self._ask("read", topic, count).split()


def java(bootstrap: str) -> Program:
    """Start Apache Kafka's client."""
    return Program(*java_command(HERE / "TransactionalClient.java", bootstrap))


def franz_go(bootstrap: str) -> Program:
    """Start franz-go, building it first if nobody has."""
    return Program(_built(), bootstrap)


def _built() -> Path:
    sources = b"".join((FRANZ_GO / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))
    program = systems.CACHE / f"franz-go-{hashlib.sha256(sources).hexdigest()[:12]}"
    if program.exists():
        return program
    if shutil.which("go") is None:
        runtimes.leave_out("Go 1.26 or newer: no go on the PATH")
    try:
        # Without cgo, and not optimized: it is built in less time, and has little to do.
        words = ("go", "build", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", program, ".")
        systems.fetch(*words, cwd=FRANZ_GO, env={"CGO_ENABLED": "0"})
    except systems.NotInstalledError as error:
        runtimes.leave_out(f"franz-go, which Go could not build: {error}")
    return program
