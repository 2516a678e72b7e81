"""Keeps a Spark session in a process of its own, and asks it to measure.

So the session of one commit runs beside that of another one, and the JVM is warm from round to round.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from machines.modules import SCRIPTS, module_command

from bench import systems

from .processor_time import processor_s

__all__ = ["AskedInVainError", "SparkProcess", "spark_process"]

STOP_LIMIT_S = 60.0
CODE_FOLDERS = ("raftlog", "clients", "spark")


class AskedInVainError(RuntimeError):
    """A measurement has failed in Spark's process; the message is the last thing that it said."""


class SparkProcess:
    """Asks `bench.pipeline.worker` for one measurement at a time. `name` is for messages."""

    def __init__(self, process: "subprocess.Popen[str]", name: str, said: IO[str]) -> None:
        self._process = process
        self._name = name
        self._said = said

    @property
    def cpu_s(self) -> float:
        """Processor seconds of the session so far: of the JVM and of all its Python workers."""
        return processor_s(self._process.pid)

    def ask(self, call: str, **arguments: Any) -> dict[str, Any]:
        """Return what a function of the worker returns, and as `cpu_s` the processor seconds of the session meanwhile.

        Raises:
            AskedInVainError: it has failed, or the process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        before_s = self.cpu_s
        try:
            self._process.stdin.write(json.dumps({"call": call, "arguments": arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._said.seek(0)
            last = (self._said.read().strip().splitlines() or ["it said nothing"])[-1]
            raise AskedInVainError(f"{self._name}: Spark's process has ended: {last}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise AskedInVainError(f"{self._name}: {call}: {answer['error']}")
        return answer | {"cpu_s": self.cpu_s - before_s}


@contextmanager
def spark_process(jars: list[Path], slots: int = 2, tree: Path | None = None) -> Iterator[SparkProcess]:
    """Run a session with `slots` task slots and the connector's jars; the data source is that of the checkout `tree`.

    Raises:
        AskedInVainError: it did not start.
    """
    root = tree or SCRIPTS.parent
    # They come before the packages that the environment was made of.
    path = [str(SCRIPTS), *(str(root / folder) for folder in CODE_FOLDERS)]
    words = module_command("bench.pipeline.worker", slots, os.pathsep.join(map(str, jars)))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    with (
        tempfile.TemporaryFile("w+") as said,  # what Spark and its workers print; its end is told if they fail
        subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env=environment, text=True
        ) as process,
    ):
        spark = SparkProcess(process, f"the session of {tree.name[:9] if tree else 'this checkout'}", said)
        try:
            spark.ask("versions")
            yield spark
        finally:
            assert process.stdin is not None
            process.stdin.close()  # It ends then, and stops its JVM.
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def connector_jars() -> list[Path]:
    """Return the jars of Spark's Kafka connector.

    Raises:
        NotInstalledError: they cannot be had.
    """
    import pyspark  # noqa: PLC0415 - takes a moment, and only says its version

    return systems.install_spark_kafka(pyspark.__version__)
