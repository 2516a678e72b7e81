"""Makes clean environments without a network: wheels are installed, what they need is lent by this environment.

Each distribution that a wheel asks for, and what that asks for, is linked from the environment that runs the tests,
and nothing else of it: a requirement that is not declared is missing here as it would be on a user's machine.
"""

import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from importlib.metadata import PathDistribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

__all__ = ["Environment", "metadata_of", "needed", "new_environment"]


@dataclass(frozen=True)
class Environment:
    """One environment, in `folder`; `needed` names the distributions that are lent to it."""

    folder: Path
    needed: tuple[str, ...]

    @property
    def packages(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of its `bin` away from the repository and return what it printed; fail if it fails."""
        command = [str(self.folder / "bin" / program), *arguments]
        done = subprocess.run(
            command, env=_plain_environment(), cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def python(self, code: str, *arguments: str) -> str:
        return self.run("python", "-W", "error", "-c", code, *arguments)

    def pip(self, *arguments: str) -> str:
        """Run this environment's pip over it."""
        command = [sys.executable, "-m", "pip", "--python", str(self.folder / "bin" / "python"), *arguments]
        done = subprocess.run(
            command, env=_plain_environment(), cwd=self.folder, capture_output=True, text=True, check=True
        )
        return done.stdout


def _plain_environment() -> dict[str, str]:
    """Return the variables of this process without those that would lend more than is linked."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BARNABAS"))}


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


def new_environment(folder: Path, wheels: list[Path]) -> Environment:
    """Make an environment in the empty `folder`, with `wheels` and what they need."""
    described = [metadata_of(wheel) for wheel in wheels]
    here = {str(one["Name"]) for one in described}
    lent = {name for one in described for name in needed(one.get_all("Requires-Dist", []), passing_over=here)}
    venv.create(folder, symlinks=True, with_pip=False)
    environment = Environment(folder, tuple(sorted(lent)))
    for name in lent:
        for source in _top_level(name):
            (environment.packages / source.name).symlink_to(source)
    environment.pip("install", "--quiet", "--no-index", "--no-deps", "--no-compile", *map(str, wheels))
    return environment


def needed(requirements: Iterable[str], passing_over: Iterable[str]) -> set[str]:
    """Return the names of all distributions that `requirements` lead to, without extras and those passed over."""
    found: set[str] = set()
    waiting = list(requirements)
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.name in {*found, *passing_over} or not _holds(requirement):
            continue
        found.add(requirement.name)
        waiting += distribution(requirement.name).requires or []
    return found


def _holds(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def _top_level(name: str) -> Iterator[Path]:
    """Yield the files and folders of a distribution that lie in site-packages."""
    found = distribution(name)
    assert isinstance(found, PathDistribution)
    assert found.files is not None
    tops = {file.parts[0] for file in found.files} - {"..", "__pycache__"}
    yield from (Path(str(found.locate_file(top))) for top in sorted(tops))
