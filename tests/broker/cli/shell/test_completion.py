"""Tab in a shell: commands, options, and names that only the cluster knows."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from barnabas_broker.cli import entry as cli
from barnabas_broker.cli import profiles

DEAD = "-b 127.0.0.1:1"


class Shell:
    """A bash whose user types a line and presses Tab."""

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capfd = capfd
        self._monkeypatch = monkeypatch

    def tab(self, line: str) -> set[str]:
        """Return what bash offers after `line`; the word under completion is empty if a space is its end."""
        words = shlex.split(f"barnabas {line}")
        self._monkeypatch.setenv("_BARNABAS_COMPLETE", "complete_bash")
        self._monkeypatch.setenv("COMP_WORDS", f"barnabas {line}")
        self._monkeypatch.setenv("COMP_CWORD", str(len(words) - (not line.endswith(" "))))
        self._capfd.readouterr()
        assert cli.main([]) == 0
        self._monkeypatch.delenv("_BARNABAS_COMPLETE")
        out, err = self._capfd.readouterr()
        assert err == ""
        return set(out.split())


@pytest.fixture
def shell(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(capfd, monkeypatch)


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("top", {"topic"}),
        ("topic de", {"describe", "delete", "delete-records"}),
        ("topic list --time", {"--timeout"}),
        ("topic create x --config retention.", {"retention.ms=", "retention.bytes="}),
        ("topic alter x --delete-config retention.m", {"retention.ms"}),
        ("cluster start --set num.part", {"num.partitions="}),
        ("completion ", {"bash", "zsh", "fish"}),
        ("topic describe --nonsense ", set()),
        (f"topic describe {DEAD} ", set()),
        ("topic describe -b a:b:c ", set()),
    ],
)
def test_what_needs_no_cluster_is_offered_and_nothing_is_complained_about(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, line: str, offered: set[str]
) -> None:
    monkeypatch.setattr("barnabas_broker.cli.parser.completion.LIMIT_S", 0.1)
    assert shell.tab(line) == offered


def test_profiles_are_offered_and_a_broken_file_of_them_is_silence(shell: Shell) -> None:
    for name in ("prod", "preview", "local"):
        assert cli.main(["profile", "set", name, "-b", "127.0.0.1:1"]) == 0
    assert shell.tab("profile use pr") == {"prod", "preview"}
    profiles.file_path().write_text("?")
    assert shell.tab("profile use pr") == set()
    assert shell.tab("topic describe ") == set()


@pytest.mark.slow
def test_the_cluster_is_asked_for_names(shell: Shell, topic: str, bootstrap: str) -> None:
    assert topic in shell.tab(f"topic describe -b {bootstrap} cli-")
    assert topic in shell.tab(f"produce -b {bootstrap} ")
    assert topic in shell.tab("consume ")  # the address is in the environment
    assert topic in shell.tab("snapshot create month-end ")
    assert cli.main(["snapshot", "create", f"of-{topic}", topic]) == 0
    assert shell.tab("snapshot show of-") == shell.tab("snapshot delete of-") == {f"of-{topic}"}
    assert cli.main(["snapshot", "delete", f"of-{topic}"]) == 0


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_one_that_it_can_read(
    name: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["completion", name]) == 0
    script = capfd.readouterr().out
    assert f"_BARNABAS_COMPLETE=complete_{name}" in script
    if shell := shutil.which(name):
        (tmp_path / "script").write_text(script)
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


def test_another_shell_is_refused_by_name(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "tcsh"]) == 2
    assert capfd.readouterr().err == "barnabas: Invalid value for 'SHELL': 'tcsh' is not one of 'bash', 'zsh', 'fish'\n"
