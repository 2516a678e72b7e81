"""Compiles the record walker of barnabas_raftlog: `python clients/compile_walker.py` does so in place.

The build hook and `scripts/fuzz --walker` run it with other folders. Needs Cython, setuptools, a C compiler (`CC`, or
the one that Python was built with) and Python's headers. Arguments that it does not know are flags of the compiler and
the linker.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["COMPILED", "NotCompiledError", "compile_walker"]

COMPILED = "barnabas_raftlog/records/walker/compiled"
"""The folder of the modules that are compiled, below that of the package."""
TIMEOUT_S = 900
REASON_MAX = 200  # characters
FLAGS = ("-g0", "-fwrapv", "-Wno-unused-function")
OPTIMIZED = "-O3"  # unless the variable CFLAGS says how much; a test that only wants it to be there saves half a minute


class NotCompiledError(Exception):
    """Something that is needed is missing, or the compiler has failed. The message is one line."""


def compile_walker(root: Path, target: Path, flags: tuple[str, ...] = ()) -> list[Path]:
    """Compile every module of `COMPILED` below `root` into the same place below `target`; return the files made.

    Another process does it, whose output goes nowhere. What an earlier run has put there for this Python is removed
    first: all of it comes from the same sources, or there is none.

    Args:
        root: The folder in which the package is.
        target: Where to put what is made; `root` itself is right for an editable installation.
        flags: More flags for the compiler and the linker, such as those of a sanitizer.

    Raises:
        NotCompiledError: it cannot be compiled here.
    """
    folder = target / COMPILED
    for old in folder.glob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"):
        old.unlink()
    with tempfile.TemporaryDirectory() as made:
        command = [sys.executable, str(Path(__file__).resolve()), "--child", made, *flags]
        try:
            done = subprocess.run(  # noqa: S603 - this file
                command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotCompiledError(str(error)) from error
        if done.returncode:
            raise NotCompiledError(_reason(done.stderr.decode(errors="replace")))
        folder.mkdir(parents=True, exist_ok=True)
        # Moved when all are there, since a walker with a part missing would not load.
        return [Path(shutil.move(file, folder / file.name)) for file in sorted(Path(made, COMPILED).iterdir())]


def _reason(said: str) -> str:
    """Return the line that tells most: the compiler's first error, else the end of Python's traceback."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["the reason is unknown"]
    line = next((line for line in lines if re.search(r"\berror: ", line)), lines[-1])
    line = re.sub(r"^[\w.]*Error: ", "", line)
    line = re.sub(r"^Command '?\['([^']+)'.*\](?:' returned|' failed)", r"\1 returned", line)
    return line if len(line) <= REASON_MAX else f"{line[:REASON_MAX]}..."


def _compile_here(target: str, flags: list[str]) -> None:
    """Compile the sources below the working directory: paths are relative, so what comes out names no folder.

    Raises:
        Exception: of many kinds.
    """
    from Cython.Build import cythonize  # noqa: PLC0415 - not there in an installation that compiles nothing
    from setuptools import Extension  # noqa: PLC0415

    name = COMPILED.replace("/", ".")
    sources = sorted(Path(COMPILED).glob("*.pyx"))
    # A symbol for each function of C would be half of the file.
    strip = ["-Wl,--strip-all"] if sys.platform == "linux" and not flags else []
    optimized = [] if "-O" in os.environ.get("CFLAGS", "") else [OPTIMIZED]
    extensions = [
        Extension(
            f"{name}.{source.stem}",
            [str(source)],
            extra_compile_args=[*optimized, *FLAGS, *flags],
            extra_link_args=[*strip, *flags],
        )
        for source in sources
    ]
    with tempfile.TemporaryDirectory() as folder:
        # Cython takes seconds; whether there is a compiler, and Python's headers, a small file tells at once.
        trial = Path(folder, "trial.c")
        trial.write_text("#include <Python.h>\n")
        _build([Extension("trial", [str(trial)], extra_compile_args=flags, extra_link_args=flags)], folder, folder)
        made = cythonize(  # type: ignore[no-untyped-call]
            extensions, include_path=["."], build_dir=folder, quiet=True, language_level=3, nthreads=2
        )
        _build(made, target, folder)


def _build(extensions: list[Any], target: str, folder: str) -> None:
    """Compile and link extensions of setuptools into `target`, by way of `folder`.

    Raises:
        Exception: of many kinds.
    """
    from setuptools import Distribution  # noqa: PLC0415

    command = Distribution({"name": "walker", "ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib = target
    command.build_temp = folder
    command.force = 1
    command.parallel = 2
    command.ensure_finalized()
    command.run()


def main(arguments: list[str]) -> int:
    """Compile it, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="compile_walker.py", description=__doc__.partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).resolve().parent.parent / "raftlog", help="has the package"
    )
    parser.add_argument("--target", type=Path, help="where what is made belongs; else beside its source")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options, flags = parser.parse_known_args(arguments)
    if options.child is not None:
        _compile_here(options.child, flags)
        return 0
    try:
        compile_walker(options.root, options.target or options.root, tuple(flags))
    except NotCompiledError as error:
        print(f"the record walker is not compiled, and its twin in Python will be used: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
