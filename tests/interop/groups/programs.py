"""Consumers that are no Python: of Apache Kafka and of franz-go, many in one process each, told by lines what to do."""

import json
import threading
from collections.abc import Collection
from itertools import count
from pathlib import Path
from typing import Any

from interop import runtimes
from interop.lines.line_programs import LineProgram, java_command
from interop.workload import Place, Received, Sample
from machines.cache import NotInstalledError, go_program

__all__ = ["Consumer", "Program", "franz_go", "java"]

HERE = Path(__file__).resolve().parent


class Program(LineProgram):
    """A running program. Threads may share it: it does one thing after the other."""

    def __init__(self, *command: object) -> None:
        super().__init__(*command)
        self._lock = threading.Lock()
        self._names = count()

    def ask(self, *words: object) -> Any:
        with self._lock:
            kind, _, answer = self.line_for(*words).partition(" ")
        assert kind == "ok", f"{words}: {answer}"
        return json.loads(answer)

    def name(self) -> str:
        return f"consumer-{next(self._names)}"


class Consumer:
    """One of its consumers, as a member of a group (GroupClient)."""

    def __init__(self, program: Program, protocol: str, group: str, topics: Collection[str], pattern: str = "") -> None:
        self._program = program
        self._name = program.name()
        what = ("pattern", pattern) if pattern else ("names", ",".join(topics))
        program.ask("open", self._name, group, protocol, *what)

    def poll(self, timeout_s: float) -> list[Received]:
        rows = self._program.ask("poll", self._name, int(timeout_s * 1000))
        return [
            Received((topic, partition), offset, timestamp, Sample(None, value.encode()))
            for topic, partition, offset, timestamp, value in rows
        ]

    def assignment(self) -> frozenset[Place]:
        return frozenset((topic, partition) for topic, partition in self._program.ask("assignment", self._name))

    def commit(self) -> None:
        self._program.ask("commit", self._name)

    def close(self) -> None:
        self._program.ask("close", self._name)


def java(bootstrap: str) -> Program:
    """Start Apache Kafka's client."""
    return Program(*java_command(HERE / "GroupConsumers.java", bootstrap))


def franz_go(bootstrap: str) -> Program:
    """Start franz-go, building it first if nobody has."""
    try:
        # Not optimized: it is built in less time, and has little to do.
        program = go_program("franz-go-groups", HERE / "franz_go", "-gcflags=all=-N -l", "-ldflags=-s -w")
    except NotInstalledError as error:
        runtimes.leave_out(f"franz-go, which Go 1.26 or newer builds: {error}")
    return Program(program, bootstrap)
