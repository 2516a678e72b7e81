"""`barnabas topic` and `barnabas config` against real brokers: what is shown, changed, and refused."""

import json
import re

import pytest
from broker.cli.conftest import Run

pytestmark = pytest.mark.process


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells of a table by their first column."""
    return {cells[0]: cells[1:] for cells in (re.split(r" {2,}", line.strip()) for line in text.splitlines())}


def test_a_list_says_how_large_each_topic_is(
    barnabas: Run, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = tmp_path_factory.mktemp("lines") / "lines"
    lines.write_text("a record\n" * 1_200)
    barnabas("produce", topic, "--partition", 0, "--file", lines)
    found = rows(barnabas("topic", "list"))
    assert found["topic"] == ["partitions", "replicas", "records", "bytes", "under-replicated", "no leader"]
    partitions, replicas, records, size, under_replicated, without_leader = found[topic]
    assert (partitions, records, under_replicated, without_leader) == ("2", "1,200", "0", "0")
    row = json.loads(barnabas("topic", "list", topic, "--json"))
    assert row["name"] == topic
    assert (row["records"], row["replicas"]) == (1_200, int(replicas))
    assert row["bytes_on_disk"] == row["bytes"] * row["replicas"]
    assert size.endswith("iB")
    described = barnabas("topic", "describe", topic)
    assert re.match(rf"{topic}  id \w+  2 partitions, {replicas} replicas?, 1,200 records, {size}\n", described)
    assert "0 to 1200" in described
    assert "trouble" not in described


def test_topics_are_chosen_by_name_and_by_pattern(barnabas: Run, topic: str) -> None:
    assert barnabas("topic", "list", "--names-only", topic) == f"{topic}\n"
    assert barnabas("topic", "list", "--names-only", "-r", f"{topic[:-3]}...") == f"{topic}\n"
    assert json.loads(barnabas("topic", "list", "--names-only", "--json", "-r", topic)) == {"name": topic}
    assert barnabas("topic", "list", "--names-only", "-r", topic[:-3]) == "", "a pattern matches whole names"
    said = barnabas("topic", "list", "--names-only", "--unavailable", topic, progress=True)
    assert said == "barnabas: no topic has a partition without a leader\n"
    both = ("--under-replicated", "--unavailable")
    said = barnabas("topic", "list", "--names-only", *both, topic, progress=True)
    assert said == "barnabas: no topic has a partition with a replica too few or without a leader\n"
    found = [json.loads(line) for line in barnabas("topic", "describe", topic, "-r", topic, "--json").splitlines()]
    assert [one["name"] for one in found] == [topic]
    assert all("bytes" in row for row in found[0]["partitions"])
    assert "no topic matches" in barnabas("topic", "describe", "-r", topic[:-3], status=1)


def test_several_topics_are_created_described_altered_and_deleted_at_once(barnabas: Run, topic: str) -> None:
    names = [f"{topic}-a", f"{topic}-b"]
    made = barnabas("topic", "create", *names, "-p", 1, "-r", 1, "-c", "retention.ms=7d", "-c", "segment.bytes=64MiB")
    assert made == "".join(f"created {name}: 1 partition, 1 replica\n" for name in names)
    altered = barnabas("topic", "alter", *names, "-p", 2, "-c", "retention.ms=1h", "--json")
    assert [json.loads(line) for line in altered.splitlines()] == [
        {"name": name, "configs": {"retention.ms": "3600000"}, "partitions": 2, "partitions_before": 1}
        for name in names
    ]
    described = barnabas("topic", "describe", *names)
    assert described.count("\nretention.ms=3600000\nsegment.bytes=67108864\n") == 2
    assert "\n\n" in described
    # One that does not exist keeps all others from harm.
    assert f"there is no topic '{topic}-c'" in barnabas("topic", "delete", *names, f"{topic}-c", status=1)
    pattern = ("-r", f"{topic}-.")
    assert barnabas("topic", "delete", *pattern, "--dry-run") == "".join(f"would delete {name}\n" for name in names)
    deleted = barnabas("topic", "delete", *pattern, "--json")
    assert list(map(json.loads, deleted.splitlines())) == [{"name": name, "deleted": True} for name in names]
    assert barnabas("topic", "delete", "--if-exists", names[0]) == f"{names[0]} does not exist\n"


def test_what_is_there_already_does_not_keep_the_others(barnabas: Run, topic: str) -> None:
    complaint = barnabas("topic", "create", topic, status=1)
    assert complaint == f"barnabas: the topic {topic!r} exists already [TOPIC_ALREADY_EXISTS]\n"
    made = barnabas("topic", "create", topic, f"{topic}-d", "-p", 1, "-r", 1, "--if-not-exists", "--json")
    assert [(row["name"], row["created"]) for row in map(json.loads, made.splitlines())] == [
        (topic, False),
        (f"{topic}-d", True),
    ]
    barnabas("topic", "delete", f"{topic}-d")


def test_a_name_that_is_nearly_right_is_told(barnabas: Run, topic: str) -> None:
    there = f"there is no topic '{topic}x' (did you mean '{topic}'?) [UNKNOWN_TOPIC_OR_PARTITION]"
    for words in (
        ("topic", "describe"),
        ("topic", "list"),
        ("topic", "delete"),
        ("config", "list", "-t"),
    ):
        assert there in barnabas(*words, f"{topic}x", status=1), words
    wrong = "there is no topic configuration 'retention.sm' (did you mean 'retention.ms'?) [INVALID_CONFIG]"
    assert wrong in barnabas("topic", "create", f"{topic}y", "-c", "retention.sm=1", status=1)
    assert wrong in barnabas("topic", "alter", topic, "-c", "retention.sm=1", status=1)
    assert wrong in barnabas("config", "set", "-t", topic, "retention.sm=1", status=1)
    assert wrong in barnabas("config", "unset", "-t", topic, "retention.sm", status=1)
    assert wrong in barnabas("config", "list", "-t", topic, "retention.sm", status=1)


def test_configurations_are_listed_explained_set_and_unset(barnabas: Run, topic: str) -> None:
    assert barnabas("config", "set", "-t", topic, "segment.ms=2d") == f"topic {topic}: segment.ms=172800000\n"
    assert rows(barnabas("config", "list", "-t", topic, "--changed"))["segment.ms"] == ["172800000 (2d)", "topic"]
    listed = rows(barnabas("config", "list", "-t", topic))
    assert listed["cleanup.policy"] == ["delete", "default"]
    explained = barnabas("config", "describe", "-t", topic, "segment.ms").splitlines()
    assert explained[0].startswith("segment.ms = 172800000 (2d)  (set by: topic")
    assert explained[1].startswith("    ")
    assert len(explained) == 2
    value = json.loads(barnabas("config", "unset", "-t", topic, "segment.ms", "--json"))
    assert value == {"topic": topic, "configs": {"segment.ms": None}}
    assert "segment.ms" not in barnabas("config", "list", "-t", topic, "--changed")
    row = json.loads(barnabas("config", "list", "-t", topic, "cleanup.policy", "--json"))
    assert (row["topic"], row["name"], row["value"], row["source"]) == (topic, "cleanup.policy", "delete", "DEFAULT")


def test_a_broker_shows_its_settings_and_keeps_them(barnabas: Run) -> None:
    found = rows(barnabas("config", "list", "--broker", 1, "--changed"))
    assert found["node.id"] == ["1", "broker's settings"]
    assert "cluster.secret" not in found or found["cluster.secret"][0] == "(secret)"
    refused = barnabas("config", "set", "--broker", 1, "node.id=2", status=1)
    assert "broker 1 reads node.id when it starts: change it in the broker's configuration file" in refused
    assert "did you mean 'log.segment.bytes'?" in barnabas(
        "config", "unset", "--broker", 1, "log.segment.byte", status=1
    )
    assert "broker 99 is not in the cluster, or is down" in barnabas("config", "list", "--broker", 99, status=1)


def test_brokers_and_groups_take_configurations_while_they_run(barnabas: Run) -> None:
    name = "log.cleaner.backoff.ms"
    session = "consumer.session.timeout.ms"
    group = "cli-configured"
    assert barnabas("config", "set", "--all-brokers", f"{name}=20s") == f"all brokers: {name}=20000\n"
    assert barnabas("config", "set", "--broker", 1, f"{name}=10s") == f"broker 1: {name}=10000\n"
    assert rows(barnabas("config", "list", "--all-brokers"))[name] == ["20000 (20s)", "all brokers, at run time"]
    assert rows(barnabas("config", "list", "--broker", 1, name))[name] == ["10000 (10s)", "broker, at run time"]
    described = barnabas("config", "describe", "--broker", 1, name)
    assert described.startswith(f"{name} = 10000 (10s)  (set by: broker, at run time; default 15000 (15s))\n")
    assert barnabas("config", "unset", "--all-brokers", name) == f"all brokers: {name} unset\n"
    assert barnabas("config", "unset", "--broker", 1, name) == f"broker 1: {name} unset\n"
    assert name not in barnabas("config", "list", "--all-brokers")
    fixed = barnabas("config", "set", "--all-brokers", "num.partitions=2", status=1)
    assert "every broker reads num.partitions when it starts" in fixed
    assert "-5" in barnabas("config", "set", "--all-brokers", "max.connections=-5", status=1)
    assert barnabas("config", "set", "-g", group, f"{session}=50s") == f"group {group}: {session}=50000\n"
    assert rows(barnabas("config", "list", "-g", group, "--changed"))[session] == ["50000 (50s)", "group"]
    assert barnabas("config", "unset", "-g", group, session) == f"group {group}: {session} unset\n"
    assert "between 45000 and 60000" in barnabas("config", "set", "-g", group, f"{session}=1s", status=1)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("topic", "describe"), "say which topics: TOPIC... or --regex PATTERN"),
        (("topic", "delete"), "say which topics"),
        (("topic", "delete", "-r", "("), "--regex '(' is not a regular expression: "),
        (("topic", "list", "-r", "["), "--regex '[' is not a regular expression: "),
        (("topic", "create", "t", "-p", 0), "--partitions must be 1 or more"),
        (("topic", "create", "t", "-r", 0), "--replication-factor must be from 1 to 32767"),
        (("topic", "create", "t", "-c", "foo"), "--config: 'foo' is not a configuration; write NAME=VALUE"),
        (("topic", "create", "t", "-c", "retention.ms=x"), "--config: retention.ms: 'x' is not a duration"),
        (("topic", "alter", "t"), "say what to alter"),
        (("topic", "alter", "t", "-p", 0), "--partitions must be 1 or more"),
        (("topic", "alter", "t", "-c", "a=1", "--delete-config", "a"), "a cannot be set and deleted at once"),
        (("topic", "delete-records", "t"), "say which records to delete"),
        (("topic", "delete-records", "t", "--all", "--before-offset", 1), "say which records to delete"),
        (("topic", "delete-records", "t", "--before-offset", -1), "--before-offset must be 0 or more, not -1"),
        (("topic", "delete-records", "t", "--before-time", "soon"), "--before-time: 'soon' is"),
        (("topic", "observers", "t", "--brokers", "x"), "--brokers 'x' is not a list of brokers"),
        (("group", "describe"), "say which groups: GROUP... or --regex PATTERN"),
        (("group", "delete-offsets", "g", "-t", "t:x"), "'t:x'"),
        (
            ("config", "list"),
            "say whose configuration: --topic TOPIC, --broker ID, --all-brokers, --group GROUP or",
        ),
        (("config", "set", "-t", "t", "foo"), "'foo' is not a configuration"),
        (("config", "unset", "-t", "t", "a=1"), "'a=1': `config unset` takes names alone"),
    ],
    ids=lambda part: " ".join(map(str, part)) if isinstance(part, tuple) else "",
)
def test_a_command_line_that_makes_no_sense_has_status_2(
    barnabas: Run, words: tuple[object, ...], complaint: str
) -> None:
    said = barnabas(*words, status=2)
    assert said.startswith(f"barnabas: {complaint}")
    assert said.count("\n") == 1
