"""Tries what users install on each version of Python that is here, and prints a table.

For each version: a fresh environment, the clients from their sdist, which is compiled for that version if there is a
C compiler, the other wheel, what both need, `pip check`, `deploy.smoke` (a cluster whose
leader is killed), and the share of the tests that `SHARE` names, over what was installed and not over the sources. A
version that is not here is listed as not run. What pip installs beside the wheels comes from its package index.

With `--spark` it is the tests of the Spark source instead, with that version of PySpark and all that they use. The
tests that compare with Spark's own connector are left out: it is not on Maven for every version.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .wheels import PROJECTS, build

__all__ = ["SHARE", "VERSIONS", "WITHOUT", "Choice", "Outcome", "find", "main", "table"]

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
TOOLS = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout")
SHARE = ("tests/raftlog", "tests/clients", "tests/broker/test_testing.py", "tests/packages/test_import_barnabas.py")
# They share brokers that `tests/clients/live` starts, or compare with other people's packages.
WITHOUT = (
    "tests/clients/live",
    "tests/clients/groups/test_consumer_protocol.py",
    "tests/clients/producer/test_partitioner.py",
    "tests/clients/protocol/test_errors.py",
    "tests/clients/protocol/test_kio_equality.py",
    "tests/clients/protocol/test_registry.py",
    "tests/raftlog/records/test_oracles.py",
)
SPARK_SHARE = ("tests/spark", "--ignore=tests/spark/differential")
STEP_TIMEOUT_S = 1800.0
# Whether an environment can be made with it, too: some systems ship Python without the means.
PROBE = "import ensurepip, sys, venv; print('%d.%d %d.%d.%d' % (*sys.version_info[:2], *sys.version_info[:3]))"


class StepFailedError(RuntimeError):
    """A step ended with an error; the message has the end of what it printed."""


class Choice(NamedTuple):
    """What to run: without the unit tests, or the tests of the Spark source with this version of PySpark."""

    smoke_only: bool = False
    spark: str = ""


class Outcome(NamedTuple):
    """One row of the table. `python` is the full version, empty if there is none; `failed` names the step."""

    version: str
    python: str = ""
    passed: str = ""
    failed: str = ""
    seconds: float = 0.0


def find(version: str) -> tuple[str, str] | None:
    """Return the path and the full version of a Python with which an environment can be made, or None."""
    for path in candidates(version):
        try:
            done = subprocess.run([path, "-c", PROBE], capture_output=True, text=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0 and done.stdout.split()[:1] == [version]:
            return path, done.stdout.split()[1]
    return None


def candidates(version: str) -> Iterator[str]:
    """Yield where `version` may be: in pyenv's folder, the newest first, then on the `PATH`."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for folder in sorted(pyenv.glob(f"{version}.*"), key=numbers_in, reverse=True):
        yield str(folder / "bin" / f"python{version}")
    for folder in map(Path, os.get_exec_path()):
        if (path := folder / f"python{version}").exists():
            yield str(path)


def numbers_in(folder: Path) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", folder.name)]


def run(step: list[str], *, python_path: str = "") -> str:
    """Run one step in the repository, free of this environment's own modules; return what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    kept |= {"PYTHONPATH": python_path} if python_path else {}
    done = subprocess.run(step, cwd=ROOT, env=kept, capture_output=True, text=True, timeout=STEP_TIMEOUT_S, check=False)
    if done.returncode:
        raise StepFailedError("\n".join((done.stdout + done.stderr).splitlines()[-30:]))
    return done.stdout


def steps(python: str, folder: Path, wheels: list[str], choice: Choice) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the name of each step and what it does; it returns what it printed."""
    inside = str(folder / "bin" / "python")
    pip = [inside, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    yield "environment", lambda: run([python, "-m", "venv", str(folder)])
    if choice.spark:
        yield "install", lambda: run([*pip, "install", *wheels_with_lake(wheels), *tools_with(choice.spark)])
        yield "tests", lambda: run([inside, *test_arguments(SPARK_SHARE)])
        return
    yield "install", lambda: run([*pip, "install", *wheels])
    yield "pip check", lambda: run([*pip, "check"])
    yield "smoke", lambda: run([inside, "-m", "deploy.smoke"], python_path=str(ROOT / "scripts"))
    if not choice.smoke_only:
        yield "tools", lambda: run([*pip, "install", *TOOLS])
        left_out = [f"--ignore={path}" for path in WITHOUT]
        yield "tests", lambda: run([inside, *test_arguments(["-m", "not slow", *SHARE, *left_out])])


def test_arguments(share: Sequence[str]) -> list[str]:
    """Return the arguments with which Python tests what is installed: the sources are not on the path."""
    return ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "pythonpath=tests scripts", *share]


def wheels_with_lake(wheels: list[str]) -> list[str]:
    """Return the wheels, the one of the project with its extras for Spark and tables."""
    return [f"{wheel}[lake]" if Path(wheel).name.startswith("barnabas-") else wheel for wheel in wheels]


def tools_with(spark: str) -> list[str]:
    """Return what the tests use, with this version of PySpark instead of the usual one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tools = [one for one in project["dependency-groups"]["dev"] if not one.startswith("pyspark")]
    return [*tools, f"pyspark=={spark}"]


def tried(version: str, wheels: list[str], choice: Choice) -> Outcome:
    """Try one version of Python in a folder that goes afterwards."""
    found = find(version)
    if found is None:
        return Outcome(version)
    path, full = found
    begun_s = time.monotonic()
    passed: list[str] = []
    with tempfile.TemporaryDirectory(prefix=f"barnabas-{version}-") as folder:
        for name, carried_out in steps(path, Path(folder) / "environment", wheels, choice):
            try:
                printed = carried_out()
            except (StepFailedError, subprocess.TimeoutExpired) as error:
                print(f"{full}: {name} failed\n{error}", file=sys.stderr, flush=True)
                return Outcome(version, full, ", ".join(passed), name, time.monotonic() - begun_s)
            counted = re.search(r"\d+ passed", printed)
            passed += [f"{counted[0].removesuffix(' passed')} tests"] if counted else []
            passed += [name] if name == "smoke" else []
            print(f"{full}: {name} done", file=sys.stderr, flush=True)
    return Outcome(version, full, ", ".join(passed), "", time.monotonic() - begun_s)


def table(outcomes: list[Outcome]) -> str:
    """Return the outcomes as lines, one a version."""
    lines = [f"{'version':9}{'python':10}{'seconds':>8}  result"]
    for one in outcomes:
        if not one.python:
            lines.append(f"{one.version:9}{'-':10}{'-':>8}  not run: not installed here")
            continue
        result = f"FAILED: {one.failed}" if one.failed else f"passed: {one.passed}"
        lines.append(f"{one.version:9}{one.python:10}{one.seconds:8.0f}  {result}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Try every version and return the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/deploy/matrix", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=VERSIONS, help="this version; may be repeated")
    parser.add_argument("--smoke", action="store_true", help="leave out the unit tests")
    parser.add_argument(
        "--spark", default="", metavar="VERSION", help="the tests of the Spark source, with this PySpark"
    )
    options = parser.parse_args(argv)
    choice = Choice(options.smoke, options.spark)
    with tempfile.TemporaryDirectory(prefix="barnabas-wheels-") as folder:
        kinds = {"barnabas-clients": "sdist"}
        wheels = [
            str(build(project, Path(folder, name), kinds.get(name, "wheel"))) for name, project in PROJECTS.items()
        ]
        outcomes = [tried(version, wheels, choice) for version in options.only or VERSIONS]
    print(table(outcomes))
    return 0 if any(one.python for one in outcomes) and not any(one.failed for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
