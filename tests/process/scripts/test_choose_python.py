"""The interpreter of `.venv` is the quickest of several of one version (`scripts/deploy/choose_python.py`)."""

import subprocess
import sys
from pathlib import Path

import pytest
from deploy import choose_python

SCRIPT = Path(choose_python.__file__)


@pytest.mark.parametrize(
    ("best_s", "chosen"),
    [
        ({}, "default"),
        ({"default": 1.0}, "default"),
        ({"default": 1.0, "other": 0.8}, "other"),
        ({"default": 1.0, "other": 0.95}, "default"),  # two runs differ by as much
        ({"default": 1.0, "other": 0.9, "third": 0.8}, "third"),
        ({"other": 3.0}, "other"),  # the default cannot make an environment
    ],
)
def test_another_interpreter_must_be_worth_it(best_s: dict[str, float], chosen: str) -> None:
    assert choose_python.choose("default", best_s) == chosen


def test_what_is_no_interpreter_or_another_version_is_passed_over(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    other = tmp_path / "other"
    broken.write_text("#!/bin/sh\necho so many words\n")
    other.write_text("#!/bin/sh\necho 3 8 0.0\n")
    for path in (broken, other):
        path.chmod(0o755)
    command: list[str | Path] = [sys.executable, SCRIPT, sys.executable, broken, other, tmp_path / "none"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{sys.executable}\n", "")


def test_it_says_what_it_chose_and_why(tmp_path: Path) -> None:
    quick = tmp_path / "quick"
    quick.write_text(f"#!/bin/sh\necho {sys.version_info[0]} {sys.version_info[1]} 0.000001\n")
    quick.chmod(0o755)
    done = subprocess.run([sys.executable, SCRIPT, sys.executable, quick], capture_output=True, text=True, check=True)
    assert done.stdout == f"{quick}\n"
    assert f"times as fast as {sys.executable}" in done.stderr
