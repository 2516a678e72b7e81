"""Profiles: where an address comes from, and the file that keeps it."""

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.cli import entry as cli
from barnabas_broker.cli import profiles
from barnabas_broker.cli.commands.cluster import stop as cluster_stop
from barnabas_broker.cli.commands.group import listing as group_listing
from barnabas_broker.cli.commands.topic import listing as topic_listing

Heard = list[tuple[str, float]]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    """Return the addresses and timeouts that `topic list` was called with."""
    calls: Heard = []

    def hear(bootstrap: str, timeout_s: float, *_: object, **__: object) -> int:
        calls.append((bootstrap, timeout_s))
        return 0

    monkeypatch.setattr(topic_listing, "list_", hear)
    monkeypatch.setattr(group_listing, "list_", hear)
    return calls


def done(line: str) -> None:
    assert cli.main(line.split()) == 0


def test_an_option_wins_over_the_environment_that_over_the_profile_and_that_over_localhost(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    done("topic list")
    done("profile set prod -b profile:1")
    done("topic list")
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", "environment:1")
    done("topic list")
    done("topic list -b option:1")
    assert [address for address, _ in heard] == ["localhost:9092", "profile:1", "environment:1", "option:1"]


def test_a_profile_that_says_one_thing_leaves_the_others_at_their_defaults(heard: Heard) -> None:
    done("profile set prod --timeout 2m")
    done("topic list")
    done("group list --timeout 500ms")
    assert heard == [("localhost:9092", 120.0), ("localhost:9092", 0.5)]


def test_the_variable_chooses_a_profile_for_one_shell(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    done("profile set one -b one:1")
    done("profile set two -b two:1")
    done("topic list")
    monkeypatch.setenv("BARNABAS_PROFILE", "two")
    done("topic list")
    assert [address for address, _ in heard] == ["one:1", "two:1"]
    done("profile use two")
    monkeypatch.delenv("BARNABAS_PROFILE")
    done("topic list")
    assert heard[-1][0] == "two:1"
    done("profile use --none")
    done("topic list")
    assert heard[-1][0] == "localhost:9092"


def test_a_profile_has_the_data_directory_but_not_the_deadline_after_which_brokers_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Path, float]] = []

    def hear(data: Path, _: object, timeout_s: float, **__: object) -> int:
        calls.append((data, timeout_s))
        return 0

    monkeypatch.setattr(cluster_stop, "stop", hear)
    done(f"profile set here --data {tmp_path} --timeout 1s")
    done("cluster stop")
    assert calls == [(tmp_path, 15.0)]


def test_show_says_what_counts_and_who_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done("profile set prod -b prod:1 --timeout 5s")
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", "environment:1")
    capsys.readouterr()
    done("profile show --json")
    shown = json.loads(capsys.readouterr().out)
    assert shown["profile"] == "prod"
    assert shown["bootstrap-server"] == {"value": "environment:1", "from": "BARNABAS_BOOTSTRAP_SERVER"}
    assert shown["timeout"] == {"value": "5s", "from": "profile prod"}
    assert shown["data"] == {"value": None, "from": "not set"}
    done("profile list")
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["NAME", "BOOTSTRAP-SERVER", "TIMEOUT", "DATA"],
        ["*", "prod", "prod:1", "5s", "-"],
    ]


def test_the_file_is_its_owners_alone_and_nothing_else_is_left_beside_it() -> None:
    done("profile set prod -b prod:1")
    done("profile set other -b other:1")
    done("profile delete prod")
    path = profiles.file_path()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert path.read_text() == '[profiles."other"]\nbootstrap-server = "other:1"\n'


def test_a_link_to_the_file_stays_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(tmp_path / "dotfiles.toml")
    monkeypatch.setenv("BARNABAS_CONFIG", str(link))
    done("profile set prod -b prod:1")
    assert link.is_symlink()
    assert "prod:1" in (tmp_path / "dotfiles.toml").read_text()


def test_the_file_stands_where_the_desktop_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BARNABAS_CONFIG")
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/etc/mine")
    assert profiles.file_path() == Path("/etc/mine/barnabas/profiles.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert profiles.file_path() == Path("/home/me/.config/barnabas/profiles.toml")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("current = ", "Invalid value"),
        ("curent = 'x'", "unknown entry 'curent' (did you mean 'current'?)"),
        ("current = 1", "'current' a string"),
        ("current = 'x'", "there is no profile 'x'"),
        ("[profiles.a]\nbootstrap_server = 'x:1'", "(did you mean 'bootstrap-server'?)"),
        ("[profiles.a]\ntimeout = 1", "timeout of profile 'a' must be a string"),
        ("profiles = 1", "'profiles' must be a table"),
        ("[profiles]\na = 1", "profile 'a' must be a table"),
        ("current = 'a'\n[profiles.a]\ntimeout = 'x'", "'x' is not a valid timeout"),
        ("\udcff", "utf-8"),
    ],
)
def test_a_broken_file_is_one_line_that_names_it_and_hurts_nobody_who_needs_no_profile(
    heard: Heard, capsys: pytest.CaptureFixture[str], text: str, complaint: str
) -> None:
    profiles.file_path().write_bytes(text.encode(errors="surrogateescape"))
    assert cli.main(["topic", "list"]) in {1, 2}
    err = capsys.readouterr().err
    assert complaint in err
    assert err.count("\n") == 1
    done("topic list -b option:1 --timeout 1")
    done("topic list --help")
    assert heard == [("option:1", 1.0)]


def test_a_change_that_is_refused_leaves_the_file_alone(capsys: pytest.CaptureFixture[str]) -> None:
    done("profile set prod -b prod:1")
    before = profiles.file_path().read_bytes()
    wrong = ("set prod", "set prod -b a:b", "set a/b -b a:1", "set prod --timeout x", "use prud", "delete prud", "use")
    for line in wrong:
        assert cli.main(["profile", *line.split()]) == 2, line
    assert profiles.file_path().read_bytes() == before
    assert capsys.readouterr().err.count("\n") == len(wrong)


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
PROFILES = st.dictionaries(NAMES, st.dictionaries(st.sampled_from(profiles.SETTINGS), st.text()))


@given(by_name=PROFILES, current=NAMES | st.just(""))
def test_what_is_written_is_what_is_read(
    by_name: dict[str, dict[str, str]], current: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "profiles.toml"
    profiles._write(path, profiles.Profiles(by_name, current))
    found = profiles.load(path)
    assert (found.by_name, found.current) == (by_name, current)
