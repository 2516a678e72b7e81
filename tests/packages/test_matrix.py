"""The parts of `scripts/deploy/matrix`: which Python is taken, which tests are its share, and what it prints."""

import os
import sys
from pathlib import Path

import pytest
from deploy import matrix
from deploy.matrix import Outcome

from .sources import ROOT

HERE = "{}.{}".format(*sys.version_info)


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_newest_of_pyenv_is_taken_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for patch in ("9", "10"):
        program(tmp_path / "versions" / f"3.12.{patch}" / "bin", "python3.12", f"echo 3.12 3.12.{patch}")
    program(tmp_path / "path", "python3.12", "echo 3.12 3.12.1")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert matrix.find("3.12") == (str(tmp_path / "versions" / "3.12.10" / "bin" / "python3.12"), "3.12.10")


def test_what_fails_or_is_another_version_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "a", "python3.12", "exit 1")
    program(tmp_path / "b", "python3.12", "echo 3.11 3.11.2")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "a"), str(tmp_path / "b")]))
    assert matrix.find("3.12") is None


def test_the_share_of_the_tests_exists_and_nothing_else_is_left_out() -> None:
    assert [path for path in (*matrix.SHARE, *matrix.WITHOUT) if not (ROOT / path).exists()] == []
    assert [path for path in matrix.WITHOUT if not path.startswith(matrix.SHARE)] == []


def test_a_version_that_is_not_here_is_listed_as_not_run() -> None:
    outcomes = [Outcome("3.13", "3.13.0", "smoke, 12 tests", "", 31.4), Outcome("3.14")]
    assert matrix.table(outcomes).splitlines() == [
        "version  python     seconds  result",
        "3.13     3.13.0          31  passed: smoke, 12 tests",
        "3.14     -                -  not run: not installed here",
    ]


@pytest.mark.parametrize(
    ("outcome", "status"), [(Outcome(HERE, HERE), 0), (Outcome(HERE, HERE, "", "smoke"), 1), (Outcome(HERE), 1)]
)
def test_the_exit_status_tells_whether_all_passed(
    outcome: Outcome, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matrix, "tried", lambda *_: outcome)
    monkeypatch.setattr(matrix, "build", lambda _, target, kind: target / kind)
    assert matrix.main(["--only", "3.11"]) == status
    assert ("FAILED: smoke" in capsys.readouterr().out) == bool(outcome.failed)


def test_a_step_that_fails_is_named_and_ends_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "find", lambda _: (sys.executable, "3.99.0"))
    monkeypatch.setattr(
        matrix,
        "steps",
        lambda *_: [("smoke", lambda: "fine"), ("tests", lambda: matrix.run(["false"])), ("more", lambda: "fine")],
    )
    outcome = matrix.tried("3.99", [], matrix.Choice())
    assert (outcome.python, outcome.passed, outcome.failed) == ("3.99.0", "smoke", "tests")


def test_another_version_of_spark_takes_the_place_of_the_usual_one() -> None:
    tools = matrix.tools_with("4.3.0")
    assert [tool for tool in tools if tool.startswith("pyspark")] == ["pyspark==4.3.0"]
    assert {tool.partition(">")[0] for tool in tools} > {"pytest", "confluent-kafka", "moto[server]"}
    wheels = ["/x/barnabas_clients-0.1.0.tar.gz", "/x/barnabas-0.1.0-py3-none-any.whl"]
    assert matrix.wheels_with_lake(wheels) == [wheels[0], f"{wheels[1]}[lake]"]
