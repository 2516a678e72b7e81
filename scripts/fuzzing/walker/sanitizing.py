"""Runs the compiled walker under an address sanitizer, which sees every access beyond a buffer.

    python -m fuzzing.walker.sanitizing [pytest arguments]     tests; `scripts/test --sanitizer` is this

The compiled modules are made once more for it, in `.venv/walker-sanitized`, and again when their sources have changed.
Python gets its memory from `malloc` meanwhile, since its own allocator would hide what the sanitizer is to see.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from types import ModuleType

from machines.modules import module_command, module_environment

from .sanitized import FOLDER

__all__ = ["SanitizerMissingError", "environment", "sanitized_folder", "sanitized_run"]

ROOT = Path(__file__).resolve().parents[3]
COMPILER = ROOT / "clients" / "compile_walker.py"
SOURCES = ROOT / "raftlog"
MADE = ROOT / ".venv" / "walker-sanitized"
# Not optimized: to optimize what checks itself takes half a minute more than a share of the tests takes by it.
FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g1", "-O0")
TIMEOUT_S = 6 * 3600


class SanitizerMissingError(Exception):
    """The walker cannot be compiled for the sanitizer here."""


def sanitized_folder() -> Path:
    """Return a folder with the compiled modules, made for the sanitizer.

    Raises:
        SanitizerMissingError: they cannot be compiled here.
    """
    compiling = _compiling()
    sources = sorted((SOURCES / compiling.COMPILED).rglob("*.p[xy][xd]"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (COMPILER, *sources)))
    digest.update(f"{FLAGS} {sysconfig.get_config_var('EXT_SUFFIX')}".encode())
    folder = MADE / digest.hexdigest()[:16]
    if not folder.is_dir():
        shutil.rmtree(MADE, ignore_errors=True)
        MADE.mkdir(parents=True)
        with tempfile.TemporaryDirectory(dir=MADE) as made:
            try:
                compiling.compile_walker(SOURCES, Path(made), FLAGS)
            except compiling.NotCompiledError as error:
                raise SanitizerMissingError(f"the walker cannot be compiled with {FLAGS[0]}: {error}") from error
            Path(made, compiling.COMPILED).replace(folder)
    return folder


def _compiling() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compile_walker", COMPILER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _library() -> str:
    """Return the library of the sanitizer, which must be loaded before everything else."""
    compiler = (os.environ.get("CC") or str(sysconfig.get_config_var("CC"))).split()[0]
    said = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    return said.stdout.strip()


def environment() -> dict[str, str]:
    """Return the variables of a process that the sanitizer watches, with its modules where Python looks for them.

    Raises:
        SanitizerMissingError: the walker cannot be compiled for it here.
    """
    return module_environment() | {
        FOLDER: str(sanitized_folder()),
        "LD_PRELOAD": _library(),
        "PYTHONMALLOC": "malloc",
        # What the interpreter never frees would be reported as a leak.
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def sanitized_run(count: int, seed: int, pure_every: int) -> subprocess.CompletedProcess[str]:
    """Run `fuzzing.walker.comparing` under the sanitizer; what it printed is in the result.

    Raises:
        SanitizerMissingError: the walker cannot be compiled for it here.
    """
    variables = environment()
    command = module_command("fuzzing.walker.comparing", "--count", count, "--seed", seed)
    command += ["--pure-every", str(pure_every), "--compiled-in", variables[FOLDER]]
    return subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=TIMEOUT_S, errors="replace", check=False
    )


def main() -> int:
    """Run pytest under the sanitizer, with the arguments of this process; return its exit status."""
    command = module_command("pytest", "-p", "fuzzing.walker.sanitized", *sys.argv[1:])
    try:
        return subprocess.run(command, env=environment(), check=False).returncode
    except SanitizerMissingError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
