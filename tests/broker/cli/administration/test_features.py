"""`barnabas features` against real brokers: what is shown, raised, lowered and refused."""

import json
from collections.abc import Iterator

import pytest
from broker.cli.conftest import Run

from barnabas_broker.cli import entry as cli
from barnabas_broker.server import dispatch
from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.update_features import UpdateFeaturesRequest

NONE = "the brokers have no features; they are from before features\n"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with RunningCluster(1) as running:
        yield running.bootstrap


@pytest.fixture
def features(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object, status: int = 0) -> str:
        assert cli.main(["features", *map(str, words), "-b", bootstrap]) == status
        out, err = capsys.readouterr()
        return str(err if status else out)

    return run


def test_levels_are_shown_lowered_and_raised(features: Run) -> None:
    shown = [line.split() for line in features("describe").splitlines()[1:]]
    assert shown.pop(0) == ["group.version", "1", "0", "to", "1"]
    assert shown == [["metadata.version", "33", "7", "to", "33"], ["transaction.version", "2", "0", "to", "2"]]
    assert features("downgrade", "transaction.version=1", "--dry-run") == "transaction.version could be at level 1\n"
    assert json.loads(features("describe", "--json"))["features"][2]["level"] == 2
    assert features("downgrade", "transaction.version=1") == "transaction.version is at level 1\n"
    found = json.loads(features("describe", "--json"))
    assert found["features"] == [
        {"name": "group.version", "level": 1, "known": [0, 1]},
        {"name": "metadata.version", "level": 33, "known": [7, 33]},
        {"name": "transaction.version", "level": 1, "known": [0, 2]},
    ]
    assert features("upgrade", "transaction.version=2") == "transaction.version is at level 2\n"
    assert json.loads(features("describe", "--json"))["epoch"] > found["epoch"]


def test_what_is_refused_says_why(features: Run) -> None:
    assert features("upgrade", "transaction.version=1", status=1) == (
        "barnabas: transaction.version is at level 2; ask for a downgrade to get to 1 [INVALID_UPDATE_VERSION]\n"
    )
    assert "has the levels 0 to 2, not 3" in features("upgrade", "transaction.version=3", status=1)
    assert "metadata was added at level 33" in features("downgrade", "metadata.version=32", "--unsafe", status=1)
    assert "there is no feature 'x'" in features("downgrade", "x=0", "--unsafe", status=1)


@pytest.mark.parametrize("words", [["x"], ["x="], ["=1"], ["x=-1"], ["x=1.0"], ["x=99999"], ["x=1", "x=2"]])
def test_what_is_no_level_is_no_command(features: Run, words: list[str]) -> None:
    assert features("upgrade", *words, status=2)


def test_brokers_without_features_are_said_to_have_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "FEATURES", {})
    monkeypatch.delitem(dispatch.ROUTES, UpdateFeaturesRequest.api_key)
    with RunningCluster(1) as running:
        assert cli.main(["features", "describe", "-b", running.bootstrap]) == 0
        assert capsys.readouterr().out == NONE
        assert cli.main(["features", "upgrade", "transaction.version=2", "-b", running.bootstrap]) == 1
        assert capsys.readouterr().err == f"barnabas: {NONE}"
