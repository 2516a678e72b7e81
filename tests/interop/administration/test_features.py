"""Features are told and changed as in Apache Kafka, and its own tool shows and changes those of Barnabas."""

import re
from collections.abc import Iterator

import pytest
from bench import systems
from broker.live.requests.feature_updates import (
    FEATURE,
    GROUPS,
    METADATA,
    STEPS,
    Outcome,
    Step,
    features_of,
    level_of,
    taken,
)
from broker.wire_client import Wire
from interop import runtimes
from interop.console_tools import Tools

from barnabas_broker.testing import RunningCluster
from barnabas_clients.protocol.error_codes import ErrorCode

pytestmark = [pytest.mark.interop, pytest.mark.slow]
QUESTIONS_MAX = 20_000
COMPARED = {18: range(6), 57: range(3)}
"""The APIs, and their versions, whose answers are compared here."""


@pytest.fixture(scope="module")
def barnabas() -> Iterator[RunningCluster]:
    with RunningCluster(1) as running:
        yield running


@pytest.fixture
def kafka() -> Iterator[Wire]:
    runtimes.kafka_jars()
    with systems.kafka(synced=False, nodes=1) as peer:
        host, port = peer.address.rsplit(":", 1)
        wire = Wire(host, int(port))
        yield wire
        wire.close()


@pytest.fixture
def ours(barnabas: RunningCluster) -> Iterator[Wire]:
    wire = Wire("127.0.0.1", barnabas.cluster.nodes[1].port)
    yield wire
    wire.close()


def told(wire: Wire, version: int) -> tuple[object, object, bool]:
    """Return the rows of the features that are here, and whether there is an epoch."""
    answer = features_of(wire, version)
    here = {FEATURE, GROUPS, METADATA}
    supported = sorted((one for one in answer.supported_features if one.name in here), key=lambda one: one.name)
    finalized = sorted((one for one in answer.finalized_features if one.name in here), key=lambda one: one.name)
    return supported, finalized, answer.finalized_features_epoch >= 0


def taken_by_kafka(kafka: Wire, step: Step, version: int) -> Outcome:
    """As `taken`; but its controller answers before its broker, which is asked for the level, has heard of a change."""
    outcome = taken(kafka, step, version)
    due = step.level if step.kafka is None else step.kafka.level
    for _ in range(QUESTIONS_MAX):  # each is a round trip
        if outcome.level == due:
            break
        outcome = outcome._replace(level=level_of(kafka))
    return outcome


def test_a_new_cluster_tells_of_its_level_as_kafka_does_and_changes_it_so(kafka: Wire, ours: Wire) -> None:
    for version in range(6):
        assert told(ours, version) == told(kafka, version)
    for version in range(3):
        for step in STEPS:
            if version not in step.versions:
                continue
            results = len(step.updates) if version < 2 and step.code == ErrorCode.NONE else 0
            expected = Outcome(step.code, results, step.level)
            assert taken_by_kafka(kafka, step, version) == (step.kafka or expected), (version, step)
            assert taken(ours, step, version) == expected, (version, step)


def test_kafkas_tool_shows_and_changes_features(barnabas: RunningCluster) -> None:
    tools = Tools(runtimes.kafka_jars(), barnabas.bootstrap)

    def row() -> list[str]:
        (line,) = [line for line in tools.run("kafka-features", "describe").splitlines() if FEATURE in line]
        return re.split(r"\s{2,}", line)

    assert row()[:4] == [
        f"Feature: {FEATURE}",
        "SupportedMinVersion: 0",
        "SupportedMaxVersion: 2",
        "FinalizedVersionLevel: 2",
    ]
    described = tools.run("kafka-features", "describe")
    (metadata,) = [line for line in described.splitlines() if METADATA in line]
    assert re.split(r"\s{2,}", metadata.replace("\t", "  "))[:4] == [
        f"Feature: {METADATA}",
        "SupportedMinVersion: 3.3-IV3",
        "SupportedMaxVersion: 4.4-IV2",
        "FinalizedVersionLevel: 4.4-IV2",
    ]
    tools.run("kafka-features", "upgrade", "--metadata", "4.4")
    with pytest.raises(AssertionError, match="metadata was added at level 33"):
        tools.run("kafka-features", "downgrade", "--metadata", "4.3")
    tools.run("kafka-features", "downgrade", "--feature", f"{FEATURE}=1")
    assert "FinalizedVersionLevel: 1" in row()
    with pytest.raises(AssertionError, match="a downgrade does not get to 2"):
        tools.run("kafka-features", "downgrade", "--feature", f"{FEATURE}=2")
    tools.run("kafka-features", "disable", "--feature", FEATURE)
    assert "FinalizedVersionLevel: 0" in row()
    tools.run("kafka-features", "upgrade", "--feature", f"{FEATURE}=2", "--dry-run")
    assert "FinalizedVersionLevel: 0" in row()
    tools.run("kafka-features", "upgrade", "--feature", f"{FEATURE}=2")
    assert "FinalizedVersionLevel: 2" in row()
