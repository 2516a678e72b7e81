"""`barnabas group` and the newer parts of `barnabas topic`, against real brokers."""

import json
import re

import pytest

from .conftest import Run

pytestmark = pytest.mark.process


def test_a_group_from_its_first_position_to_its_end(barnabas: Run, topic: str, group: str) -> None:
    both = ("--topic", topic)
    assert "GROUP_ID_NOT_FOUND" in barnabas("group", "reset-offsets", group, "--to-latest", status=1)
    shown = barnabas("group", "reset-offsets", group, *both, "--to-earliest")
    assert shown.startswith("Nothing has been changed: --execute does it\n")
    assert "GROUP_ID_NOT_FOUND" in barnabas("group", "describe", group, status=1)
    barnabas("group", "reset-offsets", group, *both, "--to-earliest", "--execute", "--dry-run")
    assert "GROUP_ID_NOT_FOUND" in barnabas("group", "describe", group, status=1)

    done = json.loads(barnabas("group", "reset-offsets", group, *both, "--to-earliest", "--execute", "--json"))
    assert done == {
        "executed": True,
        "offsets": [{"topic": topic, "partition": number, "before": None, "after": 0} for number in (0, 1)],
    }
    found = json.loads(barnabas("group", "describe", group, "--json"))
    assert (found["state"], found["members"]) == ("Empty", [])
    assert [(row["partition"], row["committed_offset"], row["lag"]) for row in found["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    described = barnabas("group", "describe", group)
    assert re.match(rf"{group}  Empty  0 members  coordinator \d+  lag 0\n", described)
    assert re.search(rf"^{topic} +1 +0 +0 +0 +- +- *$", described, re.MULTILINE)
    assert re.search(rf"^{group} +Empty ", barnabas("group", "list"), re.MULTILINE)
    assert group in [row["group_id"] for row in json.loads(barnabas("group", "list", "--json", "--state", "Empty"))]
    assert group not in barnabas("group", "list", "--state", "Stable")
    # Where nothing matches there are the columns, so that nobody takes it for an output that was lost.
    assert re.fullmatch(r"group +state +type +protocol +coordinator *\n", barnabas("group", "list", "--state", "dead"))
    assert "--state: there is no state 'foo'; choose from Stable" in barnabas(
        "group", "list", "--state", "foo", status=1
    )

    assert barnabas("group", "delete-offsets", group, "--topic", f"{topic}:1") == (
        f"{group} has no position in {topic}-1 any more\n"
    )
    assert [row["partition"] for row in json.loads(barnabas("group", "describe", group, "--json"))["partitions"]] == [0]
    assert barnabas("group", "delete", group) == f"deleted {group}\n"
    assert f"GROUP_ID_NOT_FOUND: {group}" in barnabas("group", "delete", group, status=1)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "say where to"),
        (("--to-latest", "--to-earliest"), "say where to"),
        (("--to-time", "soon"), "'soon' is not a valid time"),
        (("--by-duration", "1x"), "'1x' is not a valid duration"),
        (("--to-offset", "-1"), "-1 is no offset"),
        (("--to-latest", "--topic", "t:x"), "'t:x' names no partitions"),
        (("--to-latest", "--topic", "cli-nowhere"), "UNKNOWN_TOPIC_OR_PARTITION: cli-nowhere"),
    ],
)
def test_a_reset_that_makes_no_sense(barnabas: Run, words: tuple[str, ...], complaint: str) -> None:
    status = 2 if "valid" in complaint or "names no partitions" in complaint else 1
    assert complaint in barnabas("group", "reset-offsets", "cli-nobody", *words, status=status)


def test_a_topic_grows_and_shows_what_is_configured(barnabas: Run, topic: str) -> None:
    assert barnabas("topic", "alter", topic, "--partitions", 3) == f"{topic}: 3 partitions, before 2\n"
    assert barnabas("topic", "alter", topic, "--partitions", 3) == f"{topic}: 3 partitions, before 3\n"
    assert "can grow and never shrink" in barnabas("topic", "alter", topic, "--partitions", 2, status=1)
    found = json.loads(barnabas("topic", "describe", topic, "--json"))
    assert len(found["partitions"]) == 3
    assert found["configs"]["min.insync.replicas"]["value"] == "1"


def test_a_configuration_that_no_topic_has_is_not_deleted(barnabas: Run, topic: str) -> None:
    alter = ("topic", "alter", topic, "--config", "retention.bytes=5", "--delete-config")
    assert "no configuration 'retention.sm'; did you mean retention.ms?" in barnabas(*alter, "retention.sm", status=1)
    assert "no configuration 'foo'; there are cleanup.policy, " in barnabas(*alter, "foo", status=1)
    found = json.loads(barnabas("topic", "describe", topic, "--json"))
    assert found["configs"]["retention.bytes"]["value"] == "-1"


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "describe", "x" * 300),
        ("topic", "create", "cli-large", "--partitions", 99_999_999_999),
        ("group", "describe", "g" * 9_000),
        ("consume", "x" * 300, "--from-beginning", "--exit-at-end"),
    ],
    ids=lambda words: f"{words[0]}-{words[1]}",
)
def test_what_the_client_refuses_is_told_in_one_line(barnabas: Run, words: tuple[str, ...]) -> None:
    said = barnabas(*words, status=1)
    assert said.startswith("barnabas: ")
    assert said.count("\n") == 1


def test_records_are_deleted(barnabas: Run, topic: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    lines = tmp_path_factory.mktemp("lines") / "lines"
    lines.write_text('{"value":"a","timestamp_ms":1000}\n{"value":"b","timestamp_ms":1700000000000}\n{"value":"c"}\n')
    barnabas("produce", topic, "--partition", 0, "--format", "json", "--file", lines)
    run = ("topic", "delete-records", topic)
    assert "say which records" in barnabas(*run, status=1)
    assert barnabas(*run, "--before-time", "2000-01-01", "--partition", 0) == f"{topic}-0 starts at 1\n"
    assert "OFFSET_OUT_OF_RANGE" in barnabas(*run, "--before-offset", 4, "--partition", 0, status=1)
    assert barnabas(*run, "--before-offset", 2, "--partition", 0) == f"{topic}-0 starts at 2\n"
    assert barnabas(*run, "--all") == f"{topic}-0 starts at 3\n{topic}-1 starts at 0\n"
