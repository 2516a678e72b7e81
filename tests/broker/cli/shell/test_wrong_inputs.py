"""What people type wrong ends in one line that says what is wrong and what to write: a table, wrong_inputs.txt."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from barnabas_broker.cli import entry as cli

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
REAL_PROCESSES = 20
DIGITS = "9" * 5000


class Wrong(NamedTuple):
    """A line of the table."""

    status: int
    words: str
    parts: list[str]


def table() -> list[Wrong]:
    found = []
    for line in Path(__file__).with_name("wrong_inputs.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            status, words, parts = (part.strip() for part in line.split(" | "))
            found.append(Wrong(int(status), words, [part.strip() for part in parts.split("&&")]))
    return found


TABLE = table()


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """Return what the names in braces stand for."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_text("text")
    (tmp_path / "huge.json").write_text(f'{{"partitions": [{DIGITS}]}}')
    (tmp_path / "huge.toml").write_text(f"node.id = {DIGITS}")
    names = ("dir", "file", "nothing", "huge.json", "huge.toml")
    return {name: str(tmp_path / name) for name in names} | {"long": "x" * 300, "digits": DIGITS}


def filled(text: str, places: dict[str, str]) -> str:
    for name, path in places.items():
        text = text.replace(f"{{{name}}}", path)
    return text


def judge(wrong: Wrong, places: dict[str, str], status: int, out: str, err: str) -> None:
    assert (status, out) == (wrong.status, ""), err
    assert err.startswith(("barnabas: ", "barnabas broker: "))
    assert err.endswith("\n")
    assert err.count("\n") == 1, "one line"
    assert "Traceback" not in err
    for part in wrong.parts:
        assert filled(part, places) in err


@pytest.mark.parametrize("wrong", TABLE, ids=lambda wrong: wrong.words)
def test_a_wrong_input_is_one_line(wrong: Wrong, places: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(shlex.split(filled(wrong.words, places)))
    judge(wrong, places, status, *capsys.readouterr())


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong", TABLE[:: -(-len(TABLE) // REAL_PROCESSES)], ids=lambda wrong: f"process {wrong.words}"
)
def test_a_wrong_input_is_one_line_of_a_real_process(wrong: Wrong, places: dict[str, str]) -> None:
    command = [sys.executable, "-m", "barnabas_broker.cli.entry", *shlex.split(filled(wrong.words, places))]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=60)
    judge(wrong, places, done.returncode, done.stdout, done.stderr)


def test_there_are_enough_of_them() -> None:
    assert len(TABLE) >= 470
    assert len({wrong.words for wrong in TABLE}) == len(TABLE)
