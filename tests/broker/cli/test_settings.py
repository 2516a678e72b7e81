"""`barnabas broker settings`: the table, for people and for programs."""

import json

import pytest

from barnabas_broker.cli.commands.settings import show
from barnabas_broker.cli.errors import CommandError
from barnabas_broker.config.broker import settings


def test_every_setting_is_shown_with_its_default_range_and_variable(capsys: pytest.CaptureFixture[str]) -> None:
    assert show([], as_json=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("  ")[0] for line in lines if line and not line.startswith(" ")] == [
        one.name for one in settings()
    ]
    assert "num.partitions  (integer, default 1, from 1 to 10000)" in lines
    assert "node.id  (integer, required, from 0)" in lines
    assert "flush.mode  (string, default fsync, one of fsync, page-cache)" in lines
    assert "    BARNABAS_LOG_SEGMENT_BYTES" in lines


def test_a_name_means_itself_and_a_part_means_all_that_have_it(capsys: pytest.CaptureFixture[str]) -> None:
    show(["max.connections"], as_json=True)
    show(["connections.per", "node.id"], as_json=True)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["name"] for one in found] == ["max.connections", "node.id", "max.connections.per.ip"]
    assert found[1] == {
        "name": "node.id",
        "type": "integer",
        "default": None,
        "required": True,
        "minimum": 0,
        "maximum": 2**31 - 1,
        "choices": [],
        "environment": "BARNABAS_NODE_ID",
        "doc": "This node's id, unique in the cluster.",
    }


def test_an_unknown_name_is_told_its_nearest() -> None:
    with pytest.raises(CommandError, match=r"unknown setting: num.partitons \(did you mean num.partitions\?\)"):
        show(["num.partitons"], as_json=False)
