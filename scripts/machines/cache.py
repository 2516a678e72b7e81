"""What scripts and tests fetch or build once, and keep in a cache outside the checkout.

`BARNABAS_BENCH_CACHE` moves the cache. What cannot be had raises `NotInstalledError`; a benchmark then prints "not
measured", a trial ends with the reason, and a test is left out, or fails where `CI` is set.

Programs in Go are built from a folder with `go.mod` and `go.sum`, which pin all that goes into them: the checksums are
compared, and none is added.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["CACHE", "NotInstalledError", "fetch", "go_install", "go_program", "kept", "pip_packages", "sum_of"]

CACHE = Path(os.environ.get("BARNABAS_BENCH_CACHE", Path.home() / ".cache" / "barnabas-bench"))
LIMIT_S = 600.0


class NotInstalledError(RuntimeError):
    """Something cannot be had on this machine; the message says why."""


def fetch(*command: object, env: dict[str, str] | None = None, cwd: Path | None = None) -> None:
    """Run a command that fetches or builds something into the cache; a failure is `NotInstalledError`."""
    CACHE.mkdir(parents=True, exist_ok=True)
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, env=os.environ | (env or {}), cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(str(error)) from error
    if done.returncode:
        raise NotInstalledError((done.stderr or done.stdout).strip().splitlines()[-1])


def kept(name: str, make: Callable[[Path], object]) -> Path:
    """Return the file or folder of this name in the cache; `make` makes it first, if it is missing.

    `make` gets the path of what it is to make. It comes to its own name when it is whole, so that nobody meets with a
    half of it.
    """
    target = CACHE / name
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            made = Path(folder, name)
            make(made)
            if not target.exists():  # another run may have been quicker: the same files
                made.rename(target)
    return target


def sum_of(*files: Path) -> str:
    """Return a short sum of what stands in files: other sources get another name in the cache."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def go_program(name: str, source: Path, *flags: str) -> Path:
    """Return the program that `go build` makes of a folder, by its sources. `flags` are for `go build`.

    It is built without cgo, and so without a compiler of C.

    Raises:
        NotInstalledError: there is no Go, or it can't build the program.
    """

    def build(program: Path) -> None:
        words = ("go", "build", "-mod=readonly", *flags, "-o", program, ".")
        fetch(*words, cwd=source, env={"CGO_ENABLED": "0"})

    return kept(f"{name}-{sum_of(*sorted(source.iterdir()))}", build)


def go_install(module: str, version: str) -> Path:
    """Return the program that `go install` makes of a module of the world.

    Raises:
        NotInstalledError: there is no Go, or it can't fetch or build the program.
    """
    program = next(part for part in reversed(module.split("/")) if not part.removeprefix("v").isdecimal())

    def install(folder: Path) -> None:
        fetch("go", "install", f"{module}@{version}", env={"GOBIN": str(folder)})

    return kept(f"{program}-{version}", install) / program


def pip_packages(name: str, version: str) -> Path:
    """Return a folder with a Python package and all that it needs, for a `PYTHONPATH` of its own.

    Raises:
        NotInstalledError: pip can't fetch it.
    """
    install = (sys.executable, "-m", "pip", "install", "-q", "--target")
    return kept(f"{name}-{version}", lambda to: fetch(*install, to, f"{name}=={version}"))
