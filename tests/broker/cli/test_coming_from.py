"""Every command that docs/coming-from.md names in our column does what the page says, in the page's order."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from machines.cluster_handle import BARNABAS, free_port

from barnabas_broker.cli import entry as cli
from barnabas_broker.testing import RunningCluster

PAGE = Path(__file__).parents[3] / "docs" / "coming-from.md"
COLUMNS = ["to", "kcat", "rpk", "Kafka's tools", "barnabas", "prints"]


class Row(NamedTuple):
    """One line of a table: what we are asked, and what must be a part of the answer."""

    command: str
    status: int
    prints: str


def cells_of(line: str) -> list[str]:
    """Return the cells of a row; a bar behind a backslash is a part of its cell."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def rows(*, of_processes: bool) -> Iterator[Row]:
    """Yield the rows of the tables: those for the brokers' own machine, or all others."""
    before, heading, behind = PAGE.read_text().partition("\n## Brokers\n")
    assert heading
    section, end, rest = behind.partition("\n## ")
    for line in (section if of_processes else before + end + rest).splitlines():
        if not line.startswith("| ") or cells_of(line)[0] == "to":
            continue
        *_, command, prints = cells_of(line)
        assert len(cells_of(line)) == len(COLUMNS), line
        found = re.fullmatch(r"(?:status (\d): )?(?:`(.*)`)?", prints)
        assert found, prints
        yield Row(command[1:-1], int(found[1] or 0), found[2] or "")


def run(command: str, typed: bytes) -> int:
    """Run one command of a pipeline with something typed into it; it prints where this process prints."""
    arguments = shlex.split(command)
    assert arguments[0] == "barnabas"
    reading, writing = os.pipe()
    os.write(writing, typed)
    os.close(writing)
    keyboard = os.dup(0)
    os.dup2(reading, 0)
    try:
        return cli.main(arguments[1:])
    finally:
        os.dup2(keyboard, 0)
        for fd in (keyboard, reading):
            os.close(fd)


def as_typed(word: str) -> bytes:
    """Return what a shell makes of the word behind `<<<`."""
    if word.startswith("$'"):
        return word[2:-1].replace("\\n", "\n").encode() + b"\n"
    return shlex.split(word)[0].encode() + b"\n"


@pytest.mark.slow
def test_our_column_does_what_the_page_says(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with RunningCluster(brokers=3) as cluster:
        monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", cluster.bootstrap)
        monkeypatch.setenv("BARNABAS_CONFIG", str(tmp_path / "profiles.toml"))
        for row in rows(of_processes=False):
            line, _, file = row.command.partition(" > ")
            line, _, typed = line.partition(" <<< ")
            out, err = as_typed(typed) if typed else b"", b""
            for command in line.split(" | "):
                status = run(command, out)
                out, err = capfdbinary.readouterr()
                assert status == row.status, f"{command}: {err.decode()}"
            if file:
                (tmp_path / file).write_bytes(out)
            assert row.prints in (out + err).decode(), row.command
            if not row.prints and not file and "reassign" not in row.command and "delete" not in row.command:
                assert out == b"", row.command


@pytest.mark.process
@pytest.mark.slow
def test_our_commands_for_the_brokers_machine_do_what_the_page_says(tmp_path: Path) -> None:
    port = free_port(3)
    environment = os.environ | {"BARNABAS_BOOTSTRAP_SERVER": f"127.0.0.1:{port}"}

    def typed(command: str) -> subprocess.CompletedProcess[str]:
        words = [str(BARNABAS), *shlex.split(command)[1:]]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    try:
        for row in rows(of_processes=True):
            command = row.command.replace("/var/lib/barnabas", str(tmp_path / "cluster"))
            if not (tmp_path / "cluster").exists():
                command += f" --port {port}"
            done = typed(command)
            assert done.returncode == row.status, f"{command}: {done.stderr}"
            assert row.prints in done.stdout + done.stderr, row.command
    finally:
        typed(f"barnabas cluster stop --data {tmp_path / 'cluster'}")


def test_the_page_has_sixty_commands_beside_those_of_the_others() -> None:
    assert len([*rows(of_processes=False), *rows(of_processes=True)]) >= 60
    headings = [line for line in PAGE.read_text().splitlines() if line.startswith("| to |")]
    assert {tuple(cells_of(line)) for line in headings} == {tuple(COLUMNS)}
