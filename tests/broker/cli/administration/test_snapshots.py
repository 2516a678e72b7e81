"""`barnabas snapshot` against real brokers: what is made, listed, shown, deleted, and refused."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker.cli.conftest import Run

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def name(barnabas: Run, topic: str, tmp_path: Path) -> Iterator[str]:
    """Return the name of a new snapshot of a topic with 3 records in partition 0, deleted in the end."""
    name = f"snapshot-{uuid.uuid4().hex[:12]}"
    (tmp_path / "lines").write_text("v\n" * 3)
    barnabas("produce", topic, "--partition", 0, "--file", tmp_path / "lines")
    assert barnabas("snapshot", "create", name, topic) == f"created {name}: 1 topic, 2 partitions\n"
    yield name
    assert barnabas("snapshot", "delete", name) == f"deleted {name}\n"


def test_a_snapshot_is_listed_and_shown(barnabas: Run, topic: str, name: str) -> None:
    [row] = [line.split() for line in barnabas("snapshot", "list").splitlines() if name in line]
    assert row[0] == name
    assert row[2:] == [topic, "2", "-"]
    head, columns, first, second = barnabas("snapshot", "show", name).splitlines()
    assert head.startswith(f"{name}  created 20")
    assert head.endswith("1 topic, 2 partitions")
    assert columns.split() == ["topic", "partition", "start", "end", "epoch", "left"]
    assert (first.split()[:4], first.split()[-1]) == ([topic, "0", "0", "3"], "whole")
    assert (second.split()[:4], second.split()[-1]) == ([topic, "1", "0", "0"], "whole")


def test_json_has_it_all(barnabas: Run, topic: str, name: str) -> None:
    rows = [json.loads(line) for line in barnabas("snapshot", "list", "--json").splitlines()]
    [listed] = [row for row in rows if row["name"] == name]
    assert (listed["topics"], listed["partitions_count"], listed["best_effort"]) == ([topic], 2, False)
    shown = json.loads(barnabas("snapshot", "show", name, "--json"))
    assert shown["snapshot_id"] == listed["snapshot_id"]
    [held] = shown["topics"]
    assert (held["name"], held["state"], held["is_compacted"]) == (topic, "there", False)
    assert held["partitions"][0] | {"leader_epoch": 0} == {
        "partition": 0,
        "start_offset": 0,
        "end_offset": 3,
        "leader_epoch": 0,
        "left": "whole",
        "reason": "",
    }


def test_what_is_gone_is_shown(barnabas: Run, topic: str, name: str) -> None:
    barnabas("topic", "delete-records", topic, "--partition", 0, "--before-offset", 2)
    assert "offsets 0 to 2 are gone" in barnabas("snapshot", "show", name)
    barnabas("topic", "delete", topic)
    assert barnabas("snapshot", "show", name).count("the topic was deleted") == 2
    barnabas("topic", "create", topic, "--partitions", 2)
    assert barnabas("snapshot", "show", name).count("the one of that name now was created anew") == 2


def test_a_name_that_is_taken_stays(barnabas: Run, topic: str, name: str) -> None:
    said = barnabas("snapshot", "create", name, topic, status=1)
    assert said == f"barnabas: there is a snapshot '{name}' already, and it stays; take another name\n"


def test_a_mistyped_name_is_told_the_near_one(barnabas: Run, topic: str, name: str) -> None:
    for command in ("show", "delete"):
        said = barnabas("snapshot", command, f"{name}x", status=1)
        assert said == f"barnabas: there is no snapshot '{name}x' (did you mean '{name}'?) [RESOURCE_NOT_FOUND]\n"
    said = barnabas("snapshot", "create", f"{name}-2", f"{topic}x", status=1)
    assert f"there is no topic '{topic}x' (did you mean '{topic}'?)" in said
    assert "cannot be the name of a snapshot" in barnabas("snapshot", "create", "a/b", topic, status=1)


def test_compacted_topics_need_best_effort(barnabas: Run, topic: str) -> None:
    barnabas("topic", "alter", topic, "-c", "cleanup.policy=compact")
    name = f"snapshot-{uuid.uuid4().hex[:12]}"
    said = barnabas("snapshot", "create", name, topic, status=1)
    assert said.startswith(f"barnabas: topic '{topic}' is compacted")
    assert said.endswith("; --best-effort takes it [INVALID_CONFIG]\n")
    made = json.loads(barnabas("snapshot", "create", name, topic, "--best-effort", "--json"))
    assert made["best_effort"]
    assert "best effort" in barnabas("snapshot", "list")
    assert "what compaction has left" in barnabas("snapshot", "show", name)
    assert json.loads(barnabas("snapshot", "delete", name, "--json")) == {"name": name, "deleted": True}
