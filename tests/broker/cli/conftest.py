"""The command against real brokers: this project's, or those that BARNABAS_TEST_BOOTSTRAP names."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas_broker.cli import entry as cli

Run = Callable[..., str]


@pytest.fixture(autouse=True)
def no_settings_of_mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the profiles and variables of whoever runs the tests out of them."""
    for name in ("BARNABAS_PROFILE", "BARNABAS_BOOTSTRAP_SERVER"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config").mkdir()
    monkeypatch.setenv("BARNABAS_CONFIG", str(tmp_path / "config" / "profiles.toml"))


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Where the brokers are."""
    given = os.environ.get("BARNABAS_TEST_BOOTSTRAP")
    return given or str(request.getfixturevalue("cluster").bootstrap)


@pytest.fixture
def barnabas(bootstrap: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process and return what it printed, of a failure what it complained about.

    `status` is what it must end with; `progress` says that a success may say something on stderr, and returns that.
    """
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", bootstrap)

    def run(*arguments: object, status: int = 0, progress: bool = False) -> str:
        ended = cli.main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        assert ended == status, err
        if status == 0 and not progress:
            assert err == ""
            return out
        assert out == ""
        return err

    return run


@pytest.fixture
def topic(barnabas: Run) -> Iterator[str]:
    """Return the name of a new topic of two partitions, which goes with the test."""
    name = f"cli-{uuid.uuid4().hex[:12]}"
    barnabas("topic", "create", name, "--partitions", 2)
    yield name
    barnabas("topic", "delete", name)


@pytest.fixture
def group() -> str:
    """Return the name of a group that nobody else uses."""
    return f"cli-{uuid.uuid4().hex[:12]}"
