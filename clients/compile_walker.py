"""Compiles the record walker of barnabas_raftlog: `python clients/compile_walker.py` does so in place.

Used by the build hook, which takes what comes out into a wheel. Needs Cython, setuptools and a C compiler.
"""

import sys
import tempfile
from pathlib import Path

__all__ = ["COMPILED", "compile_walker"]

PACKAGE = "barnabas_raftlog"
COMPILED = f"{PACKAGE}/records/walker/compiled"
"""The folder of the modules that are compiled, below that of the package."""


def compile_walker(root: Path, target: Path, flags: tuple[str, ...] = ()) -> list[Path]:
    """Compile every module of `COMPILED` below `root` into the same place below `target`; return the files made.

    Args:
        root: The folder in which the package is.
        target: Where to put what is made; `root` itself is right for an editable installation.
        flags: More flags for the compiler and the linker, such as those of a sanitizer.

    Raises:
        Exception: of many kinds, if anything that is needed is missing, or the compiler fails.
    """
    from Cython.Build import cythonize  # noqa: PLC0415 - not there in an installation that compiles nothing
    from setuptools import Distribution, Extension  # noqa: PLC0415

    sources = sorted((root / COMPILED).glob("*.pyx"))
    name = COMPILED.replace("/", ".")
    extensions = [
        Extension(
            f"{name}.{source.stem}",
            [str(source)],
            extra_compile_args=["-O3", "-g0", "-fwrapv", "-Wno-unused-function", *flags],
            extra_link_args=list(flags),
        )
        for source in sources
    ]
    with tempfile.TemporaryDirectory() as folder:
        made = cythonize(  # type: ignore[no-untyped-call]
            extensions, include_path=[str(root)], build_dir=folder, quiet=True, language_level=3, nthreads=2
        )
        distribution = Distribution({"name": "walker", "ext_modules": made})
        command = distribution.get_command_obj("build_ext")
        command.build_lib = str(target)
        command.build_temp = folder
        command.force = 1
        command.parallel = 2
        command.ensure_finalized()
        command.run()
        return [Path(file) for file in command.get_outputs()]


if __name__ == "__main__":
    raftlog = Path(__file__).resolve().parent.parent / "raftlog"
    for _file in compile_walker(raftlog, raftlog, tuple(sys.argv[1:])):
        pass
