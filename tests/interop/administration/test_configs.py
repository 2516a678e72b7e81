"""Configurations are described, altered and refused as in Apache Kafka, and its own tool alters those of Barnabas.

The same requests go raw to both, in every version. Where the answers differ, the table of steps says so, and why.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from bench import systems
from broker.wire_client import Wire
from interop import runtimes
from interop.console_tools import Tools

from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from barnabas_clients.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas_metadata_quorum.topic_configs import TOPIC_CONFIGS

pytestmark = [pytest.mark.interop, pytest.mark.slow]

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
TAKEN = ErrorCode.NONE
WRONG = ErrorCode.INVALID_REQUEST
CONFIG = ErrorCode.INVALID_CONFIG
SESSION = "consumer.session.timeout.ms"
OURS = {"flush.mode", "record.validation", "replica.observers"}


class Step(NamedTuple):
    """A change of one resource, and what comes of it. `ours` is None if it is the same here."""

    kind: int
    name: str
    change: tuple[str, int, str | None]
    code: ErrorCode
    ours: ErrorCode | None = None


STEPS = (
    Step(TOPIC, "t", ("retention.ms", SET, "5000"), TAKEN),
    Step(TOPIC, "t", ("retention.ms", SET, " 5000 "), TAKEN),
    Step(TOPIC, "t", ("retention.ms", SET, "-2"), CONFIG),
    Step(TOPIC, "t", ("retention.ms", SET, "x"), CONFIG),
    Step(TOPIC, "t", ("retention.ms", SET, None), WRONG),
    Step(TOPIC, "t", ("retention.ms", APPEND, "1"), CONFIG),
    Step(TOPIC, "t", ("retention.ms", DELETE, None), TAKEN),
    Step(TOPIC, "t", ("no.such.config", SET, "1"), CONFIG),
    Step(TOPIC, "t", ("no.such.config", DELETE, None), TAKEN),
    Step(TOPIC, "t", ("segment.bytes", SET, "1000"), CONFIG),
    Step(TOPIC, "t", ("segment.jitter.ms", SET, "1000"), TAKEN),
    Step(TOPIC, "t", ("min.cleanable.dirty.ratio", SET, "1.5"), CONFIG),
    Step(TOPIC, "t", ("cleanup.policy", APPEND, "compact"), TAKEN),
    Step(TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact"), TAKEN),
    Step(TOPIC, "t", ("cleanup.policy", SET, "none"), CONFIG),
    Step(TOPIC, "t", ("min.compaction.lag.ms", SET, str(2**63 - 1)), TAKEN),
    Step(TOPIC, "t", ("max.compaction.lag.ms", SET, "5"), CONFIG),
    Step(TOPIC, "t", ("min.compaction.lag.ms", DELETE, None), TAKEN),
    Step(TOPIC, "t", ("flush.messages", SET, "1"), TAKEN),
    Step(TOPIC, "t", ("flush.ms", SET, "-1"), CONFIG),
    Step(TOPIC, "t", ("preallocate", SET, "FALSE"), TAKEN),
    Step(TOPIC, "t", ("preallocate", SET, "maybe"), CONFIG),
    Step(TOPIC, "t", ("remote.storage.enable", SET, "true"), CONFIG),
    Step(TOPIC, "t", ("local.retention.ms", SET, "7"), TAKEN),
    Step(TOPIC, "t", ("leader.replication.throttled.replicas", SET, "0:1"), TAKEN),
    Step(TOPIC, "t", ("leader.replication.throttled.replicas", SET, "x"), CONFIG),
    # What could not be acted on is refused here.
    Step(TOPIC, "t", ("preallocate", SET, "true"), TAKEN, CONFIG),
    Step(TOPIC, "t", ("unclean.leader.election.enable", SET, "true"), TAKEN, CONFIG),
    Step(TOPIC, "t", ("index.interval.bytes", SET, "8192"), TAKEN, CONFIG),
    Step(TOPIC, "t", ("file.delete.delay.ms", SET, "1"), TAKEN, CONFIG),
    Step(TOPIC, "t", ("errors.deadletterqueue.group.enable", SET, "true"), TAKEN, CONFIG),
    Step(TOPIC, "t", ("segment.index.bytes", SET, "100"), TAKEN, CONFIG),
    Step(TOPIC, "t", ("max.decompressed.message.bytes", SET, "1000000"), TAKEN, CONFIG),
    Step(TOPIC, "nobody", ("retention.ms", SET, "5000"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    Step(BROKER, "", ("message.max.bytes", SET, "5000"), TAKEN),
    Step(BROKER, "", ("message.max.bytes", SET, "-1"), WRONG),
    Step(BROKER, "", ("message.max.bytes", SET, "x"), WRONG),
    Step(BROKER, "", ("num.partitions", SET, "2"), WRONG),
    Step(BROKER, "", ("log.retention.hours", SET, "2"), WRONG),
    Step(BROKER, "", ("message.max.bytes", APPEND, "2"), CONFIG),
    Step(BROKER, "", ("no.such.setting", DELETE, None), TAKEN),
    Step(BROKER, "", ("no.such.setting", SET, "2"), TAKEN, WRONG),  # Nothing is stored here that nobody reads.
    Step(BROKER, "", ("no.such.setting", DELETE, None), TAKEN),
    Step(BROKER, "1", ("message.max.bytes", SET, "4000"), TAKEN),
    Step(BROKER, "1", ("log.cleaner.backoff.ms", SET, "20000"), TAKEN),
    Step(BROKER, "1", ("leader.replication.throttled.rate", SET, "100000"), TAKEN),
    Step(BROKER, "1", ("listeners", SET, "x"), WRONG),
    Step(BROKER, "2", ("message.max.bytes", SET, "4000"), WRONG),
    Step(BROKER, "x", ("message.max.bytes", SET, "4000"), WRONG),
    Step(GROUP, "g", (SESSION, SET, "50000"), TAKEN),
    Step(GROUP, "g", (SESSION, SET, "44999"), CONFIG),
    Step(GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "4999"), CONFIG),
    Step(GROUP, "g", ("no.such.config", SET, "1"), CONFIG),
    Step(GROUP, "g", ("share.session.timeout.ms", SET, "50000"), TAKEN, CONFIG),  # There are no share groups here.
    Step(GROUP, "", (SESSION, SET, "50000"), WRONG),
    Step(99, "x", ("a", SET, "1"), WRONG),
)  # fmt: skip
COMPARED = {32: range(1, 5), 33: range(3), 44: range(2)}
"""The APIs, and their versions, whose answers are compared here."""
OTHERWISE = {"file.delete.delay.ms"}
"""Topic configurations whose defaults differ: docs/retention.md says why."""
ASKED = 5_000
"""A change is looked for so often at most; each time is a round trip."""
SET_BY_KAFKA = {"min.insync.replicas"}
"""It sets this for all brokers by itself, for eligible leader replicas (KIP-966), which a Raft group does not need."""


@pytest.fixture(scope="module")
def barnabas() -> Iterator[RunningCluster]:
    # As both are shipped: brokers of tests have other settings.
    with RunningCluster(1, settings={"log.segment.bytes": 1 << 30, "log.retention.ms": 604_800_000}) as running:
        yield running


@pytest.fixture(scope="module")
def kafka() -> Iterator[Wire]:
    runtimes.kafka_jars()
    with systems.kafka(synced=False, nodes=1) as peer:
        host, port = peer.address.rsplit(":", 1)
        wire = Wire(host, int(port))
        wire.create("t")
        yield wire
        wire.close()


@pytest.fixture(scope="module")
def ours(barnabas: RunningCluster) -> Iterator[Wire]:
    wire = Wire("127.0.0.1", barnabas.cluster.nodes[1].port)
    wire.create("t")
    yield wire
    wire.close()


def taken(wire: Wire, step: Step, version: int) -> int:
    name, operation, value = step.change
    row = IncrementalAlterableConfig(name=name, config_operation=operation, value=value)
    resource = IncrementalAlterConfigsResource(resource_type=step.kind, resource_name=step.name, configs=[row])
    [answer] = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), version).responses
    assert (answer.resource_type, answer.resource_name) == (step.kind, step.name)
    code: int = answer.error_code
    return code


def forget(wire: Wire) -> None:
    """Take back all that is set, but for Kafka's own `min.insync.replicas` of all brokers, which has to stay."""
    for kind, name in ((TOPIC, "t"), (BROKER, "1"), (GROUP, "g")):
        resource = AlterConfigsResource(resource_type=kind, resource_name=name)
        assert wire.ask(AlterConfigsRequest(resources=[resource]), 2).responses[0].error_code == 0
    assert taken(wire, Step(BROKER, "", ("message.max.bytes", DELETE, None), TAKEN), 1) == 0
    for kind, name in ((TOPIC, "t"), (BROKER, "1"), (GROUP, "g"), (BROKER, "")):
        await_set(wire, kind, name, set())


def await_set(wire: Wire, kind: int, whose: str, names: set[str]) -> None:
    """Return when these are told as set, and no others: Kafka answers a change before its broker has taken it over."""
    told = set[str]()
    for _ in range(ASKED):
        told = set_for(wire, kind, whose)
        if told == names:
            return
    raise AssertionError(f"{told} are set for {kind} {whose!r}, not {names}")


def set_for(wire: Wire, kind: int, whose: str) -> set[str]:
    """Return the names of what is set for it, without what Kafka sets for all brokers by itself."""
    sources = {1, 2, 8} if whose else {3}
    found = {one.name for one in rows(described(wire, kind, whose, 4)).values() if one.config_source in sources}
    return found if whose else found - SET_BY_KAFKA


def described(wire: Wire, kind: int, name: str, version: int) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=version >= 3)
    result: DescribeConfigsResult = wire.ask(request, version).results[0]
    return result


def rows(result: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
    assert result.error_code == 0
    return {one.name: one for one in result.configs}


def shape(one: DescribeConfigsResourceResult) -> tuple[object, ...]:
    """Return what a row says beside its value: where it comes from first, its type, and its marks."""
    return one.config_source, one.config_type, one.is_sensitive, one.read_only, bool(one.documentation)


@pytest.mark.parametrize("version", range(2))
def test_changes_end_as_they_do_in_kafka(kafka: Wire, ours: Wire, version: int) -> None:
    assert [(step, taken(kafka, step, version)) for step in STEPS] == [(step, step.code) for step in STEPS]
    expected = [(step, step.code if step.ours is None else step.ours) for step in STEPS]
    assert [(step, taken(ours, step, version)) for step in STEPS] == expected
    for wire in (kafka, ours):
        forget(wire)


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("kind", [TOPIC, BROKER, GROUP])
def test_replacements_end_as_they_do_in_kafka(kafka: Wire, ours: Wire, kind: int, version: int) -> None:
    whose = {TOPIC: "t", BROKER: "1", GROUP: "g"}[kind]
    name, value = {TOPIC: ("segment.ms", "9000"), BROKER: ("message.max.bytes", "9000"), GROUP: (SESSION, "50000")}[
        kind
    ]
    for text, code in ((value, TAKEN), ("x", WRONG if kind == BROKER else CONFIG), (None, WRONG)):
        rows_ = [AlterableConfig(name=name, value=text)]
        resource = AlterConfigsResource(resource_type=kind, resource_name=whose, configs=rows_)
        for wire in (kafka, ours):
            assert wire.ask(AlterConfigsRequest(resources=[resource]), version).responses[0].error_code == code
    await_set(kafka, kind, whose, {name})
    assert set_for(ours, kind, whose) == {name}
    for wire in (kafka, ours):
        forget(wire)


@pytest.mark.parametrize("version", range(1, 5))
def test_topics_are_described_as_in_kafka(kafka: Wire, ours: Wire, version: int) -> None:
    theirs, own = (rows(described(wire, TOPIC, "t", version)) for wire in (kafka, ours))
    assert own.keys() - OURS == theirs.keys() == TOPIC_CONFIGS.keys() - OURS
    compared = theirs.keys() - SET_BY_KAFKA
    assert {name: shape(own[name]) for name in compared} == {name: shape(theirs[name]) for name in compared}
    values = {name: (one.value, own[name].value) for name, one in theirs.items()}
    assert {name for name, (value, our_value) in values.items() if value != our_value} == OTHERWISE


@pytest.mark.parametrize("version", range(1, 5))
def test_each_source_is_told_as_in_kafka(kafka: Wire, ours: Wire, version: int) -> None:
    sets = ((BROKER, "", "message.max.bytes", "5000"), (BROKER, "1", "message.max.bytes", "4000"))
    for wire in (kafka, ours):
        for kind, whose, name, value in sets:
            assert taken(wire, Step(kind, whose, (name, SET, value), TAKEN), 1) == 0
    for kind, whose, name, _ in sets:
        await_set(kafka, kind, whose, {name})
    for kind, whose, name in (
        (TOPIC, "t", "max.message.bytes"),
        (BROKER, "1", "message.max.bytes"),
        (BROKER, "", "message.max.bytes"),
    ):
        theirs, own = (rows(described(wire, kind, whose, version))[name] for wire in (kafka, ours))
        assert shape(own) == shape(theirs)
        assert [(one.name, one.value, one.source) for one in own.synonyms] == [
            (one.name, one.value, one.source) for one in theirs.synonyms
        ]
    for wire in (kafka, ours):
        forget(wire)


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize(
    ("kind", "name"),
    [(TOPIC, "nobody"), (TOPIC, ""), (TOPIC, "no name!"), (BROKER, "2"), (BROKER, "x"), (GROUP, ""), (GROUP, "new")],
)
def test_what_is_not_there_is_answered_as_in_kafka(kafka: Wire, ours: Wire, kind: int, name: str, version: int) -> None:
    assert described(ours, kind, name, version).error_code == described(kafka, kind, name, version).error_code


def test_kafkas_tool_alters_what_runs(barnabas: RunningCluster, ours: Wire) -> None:
    tools = Tools(runtimes.kafka_jars(), barnabas.bootstrap)

    def configs(*words: object) -> str:
        return tools.run("kafka-configs", *words)

    brokers = ("--entity-type", "brokers", "--entity-default")
    configs(*brokers, "--alter", "--add-config", "log.cleaner.backoff.ms=20000")
    assert "log.cleaner.backoff.ms=20000" in configs(*brokers, "--describe")
    one = ("--entity-type", "brokers", "--entity-name", 1)
    configs(*one, "--alter", "--add-config", "max.connections.per.ip=9999")
    assert "max.connections.per.ip=9999 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:" in configs(*one, "--describe")
    assert barnabas.cluster.nodes[1].listener.limits.per_host_max == 9_999
    configs(*one, "--alter", "--delete-config", "max.connections.per.ip")
    configs(*brokers, "--alter", "--delete-config", "log.cleaner.backoff.ms")
    group = ("--entity-type", "groups", "--entity-name", "g")
    configs(*group, "--alter", "--add-config", f"{SESSION}=51000")
    assert f"{SESSION}=51000" in configs(*group, "--describe")
    assert taken(ours, Step(GROUP, "g", (SESSION, DELETE, None), TAKEN), 1) == 0
