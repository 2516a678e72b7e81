"""Takes what the clients import of barnabas_raftlog into `barnabas-clients`, and compiles the record walker.

In a checkout those modules lie beside this folder. An sdist has them in it, so nothing is to be taken there; nor is it
for an editable install, which puts the whole folder on the path, and has the walker compiled in its place.

A wheel gets the compiled walker and the tag of this machine. Where it cannot be compiled the wheel is one for every
machine, with the walker's twin in Python alone; the build says so in a line on stderr. The variable `BARNABAS_WALKER`
decides otherwise: with `compiled` such a build fails; with `pure` nothing is compiled. `BARNABAS_WALKER_PLATFORM` gives
the wheel another platform in its tag, such as `manylinux_2_17_x86_64`: whoever sets it knows that it runs there.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "barnabas_raftlog"
CHOICE = "BARNABAS_WALKER"
PLATFORM = "BARNABAS_WALKER_PLATFORM"
SOURCES = {".py", ".pyi", ".pyx", ".pxd", ".typed"}
OF_THE_COMPILER = {".pyx", ".pxd"}
"""Sources that an sdist has, and a wheel has not."""


class RaftlogParts(BuildHookInterface[Any]):
    """The build hook `custom` of `pyproject.toml`; its setting `raftlog` lists the files and folders."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root)
        is_unpacked = (folder / PACKAGE).is_dir()
        source = folder if is_unpacked else folder.parent / "raftlog"
        if version == "editable":
            self._compile(source, source)
            return
        is_wheel = self.target_name == "wheel"
        if not is_unpacked:
            kinds = SOURCES - OF_THE_COMPILER if is_wheel else SOURCES
            for file in self._parts(source / PACKAGE):
                if file.suffix in kinds:
                    build_data["force_include"][str(file)] = str(file.relative_to(source))
        if is_wheel:
            self._take_compiled(source, build_data)

    def _take_compiled(self, source: Path, build_data: dict[str, Any]) -> None:
        # It is there until the hook is gone, which is after the wheel was written.
        self._made = tempfile.TemporaryDirectory()
        target = Path(self._made.name)
        self._compile(source, target)
        made = list(target.rglob("*.*"))
        if not made:
            return
        for file in made:
            build_data["force_include"][str(file)] = str(file.relative_to(target))
        build_data["pure_python"] = False
        if platform := os.environ.get(PLATFORM):
            python = "cp{}{}".format(*sys.version_info)
            build_data["tag"] = f"{python}-{python}-{platform}"
        else:
            build_data["infer_tag"] = True

    def _parts(self, package: Path) -> Iterator[Path]:
        for part in self.config["raftlog"]:
            path = package / part
            yield from sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]

    def _compile(self, source: Path, target: Path) -> None:
        """Compile the walker of `source` into `target`, if it can be.

        Raises:
            RuntimeError: it must be compiled, and cannot be; or the choice makes no sense.
        """
        choice = os.environ.get(CHOICE, "")
        if choice not in {"", "compiled", "pure"}:
            raise RuntimeError(f"{CHOICE} must be 'compiled', 'pure' or empty, and is '{choice}'")
        if choice == "pure":
            return
        # Another process: what setuptools does to the one that loads it does not belong into the build backend.
        command = [sys.executable, str(Path(self.root) / "compile_walker.py"), f"--root={source}", f"--target={target}"]
        done = subprocess.run(command, check=False)  # noqa: S603 - the file beside this one
        if done.returncode and choice == "compiled":
            raise RuntimeError(f"{CHOICE} is 'compiled', and the record walker cannot be compiled here")
