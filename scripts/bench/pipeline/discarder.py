"""Asks `discarding.py`, a process of its own, to fetch a topic once more."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from machines.modules import module_command, module_environment

__all__ = ["Discarder", "discarder"]


class Discarder:
    """Begins a fetch of the whole topic, and waits for its end."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """Return its `seconds` and `bytes`.

        Raises:
            RuntimeError: it has failed.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that discards has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def discarder(bootstrap: str, topic: str, end_offsets: list[int]) -> Iterator[Discarder]:
    """Run the process; it is gone at the end."""
    words = module_command("bench.pipeline.discarding", bootstrap, topic, json.dumps(end_offsets))
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=module_environment()
    ) as process:
        try:
            yield Discarder(process)
        finally:
            process.kill()
