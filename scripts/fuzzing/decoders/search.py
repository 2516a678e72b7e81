"""Searches inputs that break a target, with atheris in processes of its own."""

import subprocess
import tempfile
import time
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

from machines.modules import module_command, module_environment

from . import corpus
from .seeds import seeds
from .targets import TARGETS

__all__ = ["Found", "search"]


class Found(NamedTuple):
    """`broke`: inputs that broke the target; `said`: by the search; `inputs`: those that are worth keeping."""

    broke: list[bytes]
    said: list[str]
    inputs: list[bytes]

    @property
    def executed(self) -> int:
        """The number of inputs that were tried, as far as the search has said."""
        return sum(int(line.split()[-1]) for line in self.said if "number_of_executed_units" in line)


def search(target: str, seconds: int, seed: int) -> Found:
    """Search for so long, in one process after the other. Nothing is left behind."""
    until_s = time.monotonic() + seconds
    said = list[str]()
    with tempfile.TemporaryDirectory(prefix="barnabas-fuzz-") as name:
        folder = Path(name)
        (folder / "inputs").mkdir()
        for data in (*corpus.kept(target), *seeds(target, seed)):
            (folder / "inputs" / sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
        broke = list[bytes]()
        status = 0
        while not broke and not status and (left_s := round(until_s - time.monotonic())) > 0:
            command = module_command("fuzzing.decoders.one_target", target, left_s, name)
            environment = module_environment()
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, errors="replace", check=False
            )
            broke = [path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()]
            said += done.stderr.splitlines() + done.stdout.splitlines()
            status = done.returncode
        inputs = [path.read_bytes() for path in sorted((folder / "inputs").iterdir())]
    if status and not broke:
        broke = [b""]  # It ended in a way that leaves no input.
    return Found(broke, said, corpus.minimised(TARGETS[target], inputs) if not broke else inputs)
