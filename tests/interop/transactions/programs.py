"""Transactional clients that are no Python: programs in Java and Go, told by lines what to do.

Each is one process for all tests of a module, because a JVM takes a second to start. franz-go is built once for its
sources, into the cache of `machines/cache.py`.
"""

from pathlib import Path

from interop import runtimes
from interop.lines.line_programs import LineProgram, java_command
from machines.cache import NotInstalledError, go_program

__all__ = ["FencedError", "Program", "franz_go", "java"]

HERE = Path(__file__).resolve().parent


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
    try:
        # Not optimized: it is built in less time, and has little to do.
        program = go_program("franz-go", HERE / "franz_go", "-gcflags=all=-N -l", "-ldflags=-s -w")
    except NotInstalledError as error:
        runtimes.leave_out(f"franz-go, which Go 1.26 or newer builds: {error}")
    return Program(program, bootstrap)
