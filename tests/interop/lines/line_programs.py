"""Runs programs that are no Python, and are told by lines what to do: one line each, and one line for its answer."""

import shutil
import subprocess
from pathlib import Path

from interop import runtimes
from machines import java

__all__ = ["JAVA", "LineProgram", "java_command"]

JAVA = (*java.JAVA, "-Xmx256m")
LINES = Path(__file__).with_name("Lines.java")


class LineProgram:
    """A running program."""

    def __init__(self, *command: object) -> None:
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def line_for(self, *words: object) -> str:
        """Tell it these words, and return its answer without the end of the line."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"it has ended over {words}"
        return line.rstrip("\n")

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def java_command(source: Path, *arguments: object) -> list[object]:
    """Return the command that runs one file of Java with Kafka's jars and `Lines`; leave the test out without a JDK."""
    jars = runtimes.kafka_jars()
    if shutil.which("javac") is None:
        runtimes.leave_out("a JDK, 17 or newer: no javac on the PATH")
    return [*JAVA, "-cp", java.class_path(source, jars, LINES), source.stem, *arguments]
