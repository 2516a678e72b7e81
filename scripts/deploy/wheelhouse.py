"""Builds what is handed to others: sdists, the broker's wheel, compiled wheels of the clients, and a pure one.

Each compiled wheel is built from the sdist by the Python that it is for, in pip's isolation. Its tag promises to be
content with the C library `GLIBC`, and the wheel is looked into whether that is true. For arm64 the compiler is
zig's, which has the headers and stubs of that library; Python's own headers are the same for both processors. With
`--run` such a wheel is tried: the command is a Python of arm64, and compares both twins of the record walker on
damaged batches.

Exit status: 0 all was built, 1 something failed.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from .matrix import VERSIONS, find
from .wheels import PROJECTS, build

__all__ = ["GLIBC", "broken_promises", "main"]

SCRIPTS = Path(__file__).resolve().parents[1]
GLIBC = (2, 17)
LIBRARIES = {b"libc.so.6", b"libpthread.so.0", b"libm.so.6"}
OF_ARM64 = ("manylinux_2_17_aarch64", "manylinux2014_aarch64", "manylinux_2_28_aarch64")
BATCHES = 20_000
TIMEOUT_S = 3600


def platform_of(processor: str) -> str:
    """Return the platform in the tag of a wheel: `processor` is x86_64 or aarch64."""
    return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{processor}"


def variables_for(processor: str, version: str) -> dict[str, str]:
    """Return what the build is told: that it must compile, for what, and with which compiler."""
    told = {"BARNABAS_WALKER": "compiled", "BARNABAS_WALKER_PLATFORM": platform_of(processor)}
    if processor != os.uname().machine:
        target = f"{processor}-linux-gnu"
        told["CC"] = f"{sys.executable} -m ziglang cc -target {target}.{GLIBC[0]}.{GLIBC[1]}"
        told["SETUPTOOLS_EXT_SUFFIX"] = f".cpython-{version.replace('.', '')}-{target}.so"
    return told


def broken_promises(wheel: Path) -> list[str]:
    """Return what the compiled modules of a wheel need beyond the C library that its tag promises."""
    found: list[str] = []
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".so")]
        for name in modules:
            data = archive.read(name)
            versions = {(int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", data)}
            found += [f"{name} needs glibc {major}.{minor}" for major, minor in versions if (major, minor) > GLIBC]
            libraries = set(re.findall(rb"\0(lib[\w+-]+\.so[.\d]*)(?=\0)", data)) - LIBRARIES
            found += [f"{name} needs {library.decode()}" for library in libraries]
    return found or ([] if modules else ["nothing in it is compiled"])


def compiled_wheel(python: str, version: str, processor: str, sdist: Path, target: Path) -> Path:
    """Build the wheel for one Python and processor, and return it.

    Raises:
        subprocess.CalledProcessError: the build has failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [
            python,
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
            "wheel",
            "--no-deps",
            "--no-cache-dir",
        ]
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        variables |= variables_for(processor, version)
        subprocess.run([*command, f"--wheel-dir={folder}", sdist], env=variables, timeout=TIMEOUT_S, check=True)
        (made,) = Path(folder).iterdir()
        return _moved(made, target)


def tried(wheel: Path, version: str, command: str) -> int:
    """Install a wheel for arm64 with what it needs, and compare the twins there; return the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        install = [
            sys.executable,
            "-m",
            "pip",
            "--quiet",
            "--disable-pip-version-check",
            "install",
            f"--target={folder}",
        ]
        install += ["--only-binary=:all:", f"--python-version={version}", *(f"--platform={one}" for one in OF_ARM64)]
        subprocess.run([*install, wheel], timeout=TIMEOUT_S, check=True)
        words = [*shlex.split(command), "-m", "fuzzing.walker.comparing", "--count", str(BATCHES)]
        path = os.pathsep.join([folder, str(SCRIPTS)])
        return subprocess.run(words, env=os.environ | {"PYTHONPATH": path}, timeout=TIMEOUT_S, check=False).returncode


def main(arguments: list[str] | None = None) -> int:
    """Build all of it, and return the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/deploy/wheelhouse", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the files belong; made if it is not there")
    parser.add_argument("--only", action="append", choices=VERSIONS, help="this version; may be repeated")
    parser.add_argument("--arm64", action="store_true", help="also for arm64, cross-compiled")
    parser.add_argument("--run", metavar="COMMAND", help="a Python of arm64, of the first version that is built")
    options = parser.parse_args(arguments)
    target: Path = options.folder
    target.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for project, source in PROJECTS.items():
            for kind in ("sdist", "wheel"):
                made = build(source, folder / project / kind, kind, {"BARNABAS_WALKER": "pure"})
                _moved(made, target)
    (sdist,) = target.glob("barnabas_clients-*.tar.gz")
    for version in options.only or VERSIONS:
        python = find(version)
        if python is None:
            print(f"{version}: not built, since it is not installed here")
            continue
        for processor in (os.uname().machine, *(("aarch64",) if options.arm64 else ())):
            wheel = compiled_wheel(python[0], version, processor, sdist, target)
            found = broken_promises(wheel)
            if processor == "aarch64" and options.run and not found and tried(wheel, version, options.run):
                found = ["the twins do not agree there"]
            options.run = options.run if processor != "aarch64" else None
            print(f"{wheel.name}: {', '.join(found) or 'built'}", flush=True)
            wrong += found
    return 1 if wrong else 0


def _moved(file: Path, target: Path) -> Path:
    return Path(shutil.move(file, target / file.name))


if __name__ == "__main__":
    sys.exit(main())
