"""`barnabas group` and the newer parts of `barnabas topic`, against real brokers."""

import json
import re

import pytest
from broker.cli.conftest import Run

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
        "group_id": group,
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
    rows = map(json.loads, barnabas("group", "list", "--json", "--state", "Empty").splitlines())
    (row,) = [row for row in rows if row["group_id"] == group]
    assert (row["members"], row["lag"], row["known_lag"], row["partitions_without_commit"]) == (0, 0, 0, 0)
    bare = json.loads(barnabas("group", "list", "--json", "--no-lag", "--regex", group))
    assert bare.keys() == row.keys() - {"lag", "known_lag", "partitions_without_commit"}
    assert barnabas("group", "list", "--names-only", "--regex", group) == f"{group}\n"
    assert barnabas("group", "list", "--names-only", "--regex", group[:-1]) == "", "a pattern matches whole names"
    assert f"(did you mean '{group}'?) [GROUP_ID_NOT_FOUND]" in barnabas("group", "describe", f"{group}x", status=1)
    assert group not in barnabas("group", "list", "--state", "Stable")
    # Where nothing matches there are the columns, so that nobody takes it for an output that was lost.
    columns = r"group +state +members +lag +coordinator +type +protocol *\n"
    assert re.fullmatch(columns, barnabas("group", "list", "--state", "dead"))
    assert "--state: there is no state 'foo'; choose from Stable" in barnabas(
        "group", "list", "--state", "foo", status=2
    )

    assert barnabas("group", "delete-offsets", group, "--topic", f"{topic}:1") == (
        f"{group} has no position in {topic}-1 any more\n"
    )
    assert [row["partition"] for row in json.loads(barnabas("group", "describe", group, "--json"))["partitions"]] == [0]
    assert barnabas("group", "delete", group, "--dry-run") == f"would delete {group}\n"
    assert "no group matches" in barnabas("group", "delete", "--regex", group[:-1], status=1)
    trial = json.loads(barnabas("group", "delete", "-r", f"{group}|{group}x", "--dry-run", "--json"))
    assert trial == {"group_id": group, "deleted": False}
    assert barnabas("group", "delete", "-r", f"{group}.*") == f"deleted {group}\n"
    assert "GROUP_ID_NOT_FOUND" in barnabas("group", "delete", group, "--dry-run", status=1)
    gone = barnabas("group", "delete", group, status=1)
    assert gone.startswith(f"barnabas: there is no group {group!r}")
    assert gone.endswith(" [GROUP_ID_NOT_FOUND]\n")


def test_groups_of_one_type_and_the_members_of_one(barnabas: Run, topic: str, group: str) -> None:
    barnabas("group", "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute")
    assert group in barnabas("group", "list", "--type", "Classic", "--no-lag")
    assert group not in barnabas("group", "list", "--type", "consumer", "--no-lag")
    assert "--type: there is no type 'foo'; choose from classic" in barnabas("group", "list", "--type", "foo", status=2)
    assert re.fullmatch(
        rf"{group}  Empty  0 members  coordinator \d+  lag 0\nmember +instance +client +host +protocol .*\n",
        barnabas("group", "describe", group, "--members"),
    )
    barnabas("group", "delete", group)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "say where to"),
        (("--to-latest", "--to-earliest"), "say where to"),
        (("--to-time", "soon"), "'soon' is not a valid time"),
        (("--by-duration", "1x"), "'1x' is not a valid duration"),
        (("--to-offset", "-1"), "--to-offset must be 0 or more"),
        (("--to-latest", "--topic", "t:x"), "'t:x' is not a valid list of partitions"),
    ],
)
def test_a_reset_that_makes_no_sense(barnabas: Run, words: tuple[str, ...], complaint: str) -> None:
    assert complaint in barnabas("group", "reset-offsets", "cli-nobody", *words, status=2)


def test_a_reset_to_a_topic_that_is_not_there(barnabas: Run) -> None:
    words = ("group", "reset-offsets", "cli-nobody", "--to-latest", "-t", "cli-nowhere")
    assert barnabas(*words, status=1).startswith("barnabas: there is no topic 'cli-nowhere'")


def test_several_groups_are_described_and_deleted_and_each_result_is_a_line_of_json(
    barnabas: Run, topic: str, group: str
) -> None:
    both = (group, f"{group}-b")
    for name in both:
        barnabas("group", "reset-offsets", name, "-t", topic, "--to-latest", "--execute")
    described = barnabas("group", "describe", group, "-r", f"{group}-.")
    assert re.findall(r"^(\S+)  Empty", described, re.MULTILINE) == list(both)
    rows = [json.loads(line) for line in barnabas("group", "describe", *both, "--json").splitlines()]
    assert [row["group_id"] for row in rows] == list(both)
    gone = json.loads(barnabas("group", "delete-offsets", group, "-t", f"{topic}:1", "--json"))
    assert gone == {"group_id": group, "topic": topic, "partition": 1, "deleted": True}
    assert barnabas("group", "delete-offsets", group, "-t", "gone") == f"{group} had no position in gone\n"
    deleted = barnabas("group", "delete", *both, "--json").splitlines()
    assert [json.loads(line) for line in deleted] == [{"group_id": name, "deleted": True} for name in both]
    assert "no group matches" in barnabas("group", "describe", "-r", f"{group}.*", status=1)


def test_a_topic_grows_and_shows_what_is_configured(barnabas: Run, topic: str) -> None:
    assert barnabas("topic", "alter", topic, "--partitions", 3) == f"{topic}: 3 partitions, before 2\n"
    assert barnabas("topic", "alter", topic, "--partitions", 3) == f"{topic}: 3 partitions, before 3\n"
    assert "can grow and never shrink" in barnabas("topic", "alter", topic, "--partitions", 2, status=1)
    found = json.loads(barnabas("topic", "describe", topic, "--json"))
    assert len(found["partitions"]) == 3
    assert found["configs"]["min.insync.replicas"]["value"] == "1"


def test_a_configuration_that_no_topic_has_is_not_deleted(barnabas: Run, topic: str) -> None:
    alter = ("topic", "alter", topic, "--config", "retention.bytes=5", "--delete-config")
    complaint = "there is no topic configuration 'retention.sm' (did you mean 'retention.ms'?) [INVALID_CONFIG]"
    assert complaint in barnabas(*alter, "retention.sm", status=1)
    assert "there is no topic configuration 'foo'" in barnabas(*alter, "foo", status=1)
    found = json.loads(barnabas("topic", "describe", topic, "--json"))
    assert found["configs"]["retention.bytes"]["value"] == "-1"


def test_durations_and_sizes_are_told_beside_the_number_but_not_to_programs(barnabas: Run, topic: str) -> None:
    barnabas("config", "set", "-t", topic, "retention.ms=7d", "segment.bytes=64MiB", "retention.bytes=1023")
    lines = barnabas("config", "list", "-t", topic, "--changed").splitlines()[1:]
    shown = {name: value for name, value, _ in (re.split(r" {2,}", line) for line in lines)}
    assert shown == {"retention.ms": "604800000 (7d)", "segment.bytes": "67108864 (64 MiB)", "retention.bytes": "1023"}
    found = json.loads(barnabas("config", "list", "-t", topic, "retention.ms", "--json"))
    assert found["value"] == "604800000"


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "describe", "x" * 300),
        ("topic", "create", "cli-large", "--partitions", 99_999_999_999),
        ("group", "describe", "g" * 9_000),
    ],
    ids=lambda words: f"{words[0]}-{words[1]}",
)
def test_what_no_cluster_can_have_is_told_in_one_line(barnabas: Run, words: tuple[str, ...]) -> None:
    said = barnabas(*words, status=2)
    assert said.startswith("barnabas: ")
    assert said.count("\n") == 1


def test_records_are_deleted(barnabas: Run, topic: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    lines = tmp_path_factory.mktemp("lines") / "lines"
    lines.write_text('{"value":"a","timestamp_ms":1000}\n{"value":"b","timestamp_ms":1700000000000}\n{"value":"c"}\n')
    barnabas("produce", topic, "--partition", 0, "--format", "json", "--file", lines)
    run = ("topic", "delete-records", topic)
    assert "say which records" in barnabas(*run, status=2)
    assert barnabas(*run, "--all", "--dry-run", "-p", 0) == f"{topic}-0 would start at 3, and lose 3 records\n"
    assert "has partitions 0 to 1 [UNKNOWN_TOPIC_OR_PARTITION]" in barnabas(*run, "--all", "-p", 2, status=1)
    assert barnabas(*run, "--before-time", "2000-01-01", "--partition", 0) == f"{topic}-0 starts at 1\n"
    assert "OFFSET_OUT_OF_RANGE" in barnabas(*run, "--before-offset", 4, "--partition", 0, status=1)
    assert json.loads(barnabas(*run, "--before-offset", 2, "--partition", 0, "--json")) == {
        "name": topic,
        "deleted": True,
        "partitions": [{"partition": 0, "start_offset": 2, "start_offset_before": 1}],
    }
    assert barnabas(*run, "--all") == f"{topic}-0 starts at 3\n{topic}-1 starts at 0\n"
