"""Settings from a file, the environment and the command line: which one counts, and which one is wrong."""

import re
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.config.broker import Address, BrokerConfig, ConfigError, accepted_names
from barnabas_broker.config.broker import settings as all_settings
from barnabas_broker.config.sources import OTHER_VARIABLES, gather, variable_of

MINIMAL = 'node.id = 1\ncluster.id = "c"\nlog.dir = "/d"\ncluster.nodes.1 = "h:1"\n'
COMPLETE = {
    "BARNABAS_NODE_ID": "2",
    "BARNABAS_CLUSTER_ID": "c",
    "BARNABAS_LOG_DIR": "/d",
    "BARNABAS_CLUSTER_NODES": "1@a:1,2@b:2",
}


def of(file: str | None = MINIMAL, environment: Mapping[str, str] | None = None, *assignments: str) -> BrokerConfig:
    return gather(file, environment or {}, assignments, file_name="" if file is None else "broker.toml")


def test_a_broker_can_be_configured_by_its_environment_alone() -> None:
    config = of(None, COMPLETE | {"BARNABAS_CLUSTER_SECRET": "s", "HOME": "/root"})
    assert (config.node_id, config.log_dir, config.cluster_secret) == (2, "/d", "s")
    assert config.nodes == {1: Address("a", 1), 2: Address("b", 2)}


def test_the_command_line_counts_before_the_environment_and_that_before_the_file() -> None:
    file = MINIMAL + "num.partitions = 2\n"
    in_environment = {"BARNABAS_NUM_PARTITIONS": "3"}
    assert of().num_partitions == 1
    assert of(file).num_partitions == 2
    assert of(file, in_environment).num_partitions == 3
    assert of(file, in_environment, "num.partitions=4").num_partitions == 4


def test_another_unit_is_the_same_setting() -> None:
    file = MINIMAL + "log.retention.ms = 1\n"
    assert of(file, {"BARNABAS_LOG_RETENTION_HOURS": "2"}).log_retention_ms == 7_200_000
    assert of(file, {"BARNABAS_LOG_RETENTION_HOURS": "2"}, "log.retention.minutes=1").log_retention_ms == 60_000
    in_one = {"BARNABAS_LOG_RETENTION_MINUTES": "1", "BARNABAS_LOG_RETENTION_HOURS": "2"}
    assert of(file, in_one).log_retention_ms == 60_000


def test_all_nodes_take_the_place_of_all_and_one_of_one() -> None:
    file = MINIMAL + 'cluster.nodes.2 = "g:2"\n'
    assert set(of(file, {"BARNABAS_CLUSTER_NODES": "1@x:1,3@y:1"}).nodes) == {1, 3}
    assert of(file, {"BARNABAS_CLUSTER_NODES_2": "x:9"}).nodes == {1: Address("h", 1), 2: Address("x", 9)}
    assert of(file, {}, "cluster.nodes.1=x:9").nodes[1] == Address("x", 9)
    assert set(of(file, {"BARNABAS_CLUSTER_NODES": "1@x:1,3@y:1"}, "cluster.nodes.2=z:1").nodes) == {1, 2, 3}


@pytest.mark.parametrize(
    ("file", "environment", "assignments", "complaint"),
    [
        (
            MINIMAL,
            {"BARNABAS_LOG_DIRS": "x"},
            (),
            r"unknown environment variable: .*DIRS \(did you mean BARNABAS_LOG_DIR\?",
        ),
        (MINIMAL, {"BARNABAS_X": "x"}, (), "^unknown environment variable: BARNABAS_X$"),
        (
            MINIMAL,
            {"BARNABAS_NUM_PARTITIONS": "0"},
            (),
            "^environment variable BARNABAS_NUM_PARTITIONS: num.partitions is 0; it must be from 1",
        ),
        (MINIMAL, {"BARNABAS_NUM_PARTITIONS": ""}, (), "num.partitions is '', which is not an integer"),
        (MINIMAL, {"BARNABAS_FLUSH_MODE": "x"}, (), "^environment variable BARNABAS_FLUSH_MODE: flush.mode is 'x'; it"),
        (
            MINIMAL,
            {},
            ("num.partitons=1",),
            r"^--set: unknown setting: num.partitons \(did you mean num.partitions\?\)",
        ),
        (MINIMAL, {}, ("num.partitions",), "^--set 'num.partitions': write NAME=VALUE"),
        (MINIMAL, {}, ("node.id=1", "node.id=2"), "^--set node.id is given twice"),
        (MINIMAL, {}, ("log.retention.ms=1y",), "^--set: log.retention.ms is '1y', which is not a time: write 7d"),
        (MINIMAL + "node.idd = 1\n", {}, (), r"^broker.toml: unknown setting: node.idd \(did you mean node.id\?\)"),
        (MINIMAL + "log.retention.hour = 1\n", {}, (), r"\(did you mean log.retention.hours\?\)"),
        (MINIMAL + "raft.election.timeout.ms = 100\n", {}, (), "^broker.toml: raft.election.timeout.ms"),
        (MINIMAL, {}, ("raft.election.timeout.ms=100",), "^raft.election.timeout.ms"),
        (None, {}, (), r"^missing settings: node.id, .*\(give --config FILE, --set NAME=VALUE, or variables"),
        (None, {"BARNABAS_NODE_ID": "1"}, (), "^missing settings: cluster.id, cluster.nodes, log.dir$"),
        ("x", {}, (), "^broker.toml: not valid TOML"),
    ],
)
def test_what_is_wrong_is_said_with_its_source(
    file: str | None, environment: dict[str, str], assignments: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        of(file, environment, *assignments)


def test_no_two_names_have_one_variable_and_none_is_a_variable_of_other_commands() -> None:
    variables = [variable_of(name) for name in accepted_names()]
    assert len(variables) == len(set(variables)) > 60
    assert not OTHER_VARIABLES & set(variables)
    assert all(re.fullmatch(r"BARNABAS_[A-Z0-9_]+", variable) for variable in variables)
    assert not [one for one in variables if re.fullmatch(r"BARNABAS_CLUSTER_NODES_\d+", one)]
    of(MINIMAL, dict.fromkeys(OTHER_VARIABLES, "x"))


def test_what_kubernetes_says_of_a_service_named_barnabas_is_no_setting() -> None:
    names = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_KAFKA", "PORT", "PORT_9092_TCP", "PORT_9092_TCP_ADDR")
    given = {f"BARNABAS_{name}": "x" for name in names} | {"BARNABAS_2_SERVICE_HOST": "x"}
    assert of(MINIMAL, given) == of()


@given(st.data())
@settings(max_examples=60)
def test_every_setting_reads_the_same_from_each_source(data: st.DataObject) -> None:
    one = data.draw(st.sampled_from([one for one in all_settings() if one.type == "integer" and one.name != "node.id"]))
    assert one.minimum is not None
    assert one.maximum is not None
    value = data.draw(st.integers(one.minimum, one.maximum))
    found = set[object]()
    sources: list[tuple[str, dict[str, str], tuple[str, ...]]] = [
        (f'"{one.name}" = {value}\n', {}, ()),
        (f'"{one.name}" = "{value}"\n', {}, ()),
        ("", {variable_of(one.name): str(value)}, ()),
        ("", {}, (f"{one.name}={value}",)),
    ]
    for file, environment, assignments in sources:
        try:
            found.add(getattr(gather(MINIMAL + file, environment, assignments), one.name.replace(".", "_")))
        except ConfigError as error:
            found.add(str(error))  # It fits nothing else, wherever it stands.
    assert len(found) == 1


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("log.retention.ms", "7d", 604_800_000),
        ("log.retention.hours", "7d", 604_800_000),
        ("log.segment.bytes", "1GiB", 1 << 30),
        ("log.cleaner.dedupe.buffer.size", "64m", 64 << 20),
        ("log.cleaner.io.max.bytes.per.second", "8 MiB", 8 << 20),
        ("leader.imbalance.check.interval.seconds", "2m", 120),
        ("offsets.retention.minutes", "1h30m", 90),
        ("log.scrub.interval.hours", "1w", 168),
        ("log.retention.bytes", "-1", -1),
    ],
)
def test_times_and_sizes_are_read_as_people_write_them(name: str, text: str, expected: int) -> None:
    field = {"log.retention.hours": "log.retention.ms"}.get(name, name).replace(".", "_")
    assert getattr(of(MINIMAL + f'{name} = "{text}"\n'), field) == expected
    assert getattr(of(MINIMAL, {variable_of(name): text}), field) == expected
    assert getattr(of(MINIMAL, {}, f"{name}={text}"), field) == expected


@pytest.mark.parametrize(
    ("assignment", "complaint"),
    [
        ("offsets.retention.minutes=90s", "is '90s', which is not a whole number of minutes"),
        ("log.segment.bytes=1GB", "'1GB' is not a size: write 10GiB"),
        ("log.segment.bytes=1d", "is not a size"),
        ("log.retention.ms=1GiB", r"which is not a time: write 7d, 1h30m, 500ms, or a number \(of milliseconds\)"),
        ("group.max.size=1k", "group.max.size is '1k', which is not an integer"),
        ("log.segment.bytes=4GiB", "log.segment.bytes is 4294967296; it must be from 65536 to 2147483647"),
    ],
)
def test_a_unit_that_does_not_fit_is_refused(assignment: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        of(MINIMAL, {}, assignment)
