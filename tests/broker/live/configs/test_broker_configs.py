"""What is set for brokers while they run, over a real socket: stored, told, followed, and refused as in Kafka."""

from collections.abc import Iterator, Mapping

import pytest

from barnabas_broker.config.dynamic import DYNAMIC
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from barnabas_clients.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas_metadata_quorum.controller.commands import AlterResources, ConfigChange, ConfiguredResource
from broker.live.requests.test_alter_configs import BROKER, DELETE, SET, SUBTRACT, TOPIC, alter
from broker.wire_client import Wire, batch

GROUP = 32
LARGEST = "message.max.bytes"
SESSION = "consumer.session.timeout.ms"
LAGS = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"


def described(wire: Wire, kind: int, name: str, version: int = 4) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=version >= 3)
    [result] = wire.ask(request, version).results
    assert result.error_code == 0
    return {config.name: config for config in result.configs}


def sources(config: DescribeConfigsResourceResult) -> list[tuple[str, str | None, int]]:
    assert (config.value, config.config_source) == (config.synonyms[0].value, config.synonyms[0].source)
    return [(one.name, one.value, one.source) for one in config.synonyms]


@pytest.fixture
def clean(wire: Wire) -> Iterator[Wire]:
    """A connection to a broker for which nothing is set, nor is when the test has ended."""
    yield wire
    for kind, name in ((BROKER, ""), (BROKER, "1"), (GROUP, "g")):
        request = AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=kind, resource_name=name)])
        assert wire.ask(request, 2).responses[0].error_code == 0


@pytest.mark.parametrize("version", range(1, 5))
def test_each_source_is_told_the_one_that_counts_first(clean: Wire, topic: str, version: int) -> None:
    assert alter(clean, "", (LARGEST, SET, "5000"), kind=BROKER) == 0
    assert alter(clean, "1", (LARGEST, SET, "4000"), kind=BROKER) == 0
    behind = [(LARGEST, "4000", 2), (LARGEST, "5000", 3), (LARGEST, "1048588", 5)]
    of_broker = described(clean, BROKER, "1", version)
    assert sources(of_broker[LARGEST]) == behind
    assert {name for name, one in of_broker.items() if not one.read_only} == DYNAMIC
    of_all = described(clean, BROKER, "", version)
    assert sources(of_all[LARGEST]) == [(LARGEST, "5000", 3)]
    assert list(of_all) == [LARGEST]
    assert sources(described(clean, TOPIC, topic, version)["max.message.bytes"]) == behind
    assert alter(clean, topic, ("max.message.bytes", SET, "3000")) == 0
    assert sources(described(clean, TOPIC, topic, version)["max.message.bytes"])[0] == ("max.message.bytes", "3000", 1)


def test_topics_follow_the_brokers_settings(clean: Wire, topic: str) -> None:
    assert clean.produce(topic, batch(body_bytes=500)).error_code == 0
    assert alter(clean, "", (LARGEST, SET, "300"), kind=BROKER) == 0
    assert clean.produce(topic, batch(body_bytes=500)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(clean, "1", (LARGEST, SET, "900"), kind=BROKER) == 0
    assert clean.produce(topic, batch(body_bytes=500)).error_code == 0
    assert alter(clean, topic, ("max.message.bytes", SET, "300")) == 0
    assert clean.produce(topic, batch(body_bytes=500)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(clean, topic, ("max.message.bytes", DELETE, None)) == 0
    assert alter(clean, "1", (LARGEST, DELETE, None), kind=BROKER) == 0
    assert clean.produce(topic, batch(body_bytes=500)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(clean, "", (LARGEST, DELETE, None), kind=BROKER) == 0
    assert clean.produce(topic, batch(body_bytes=500)).error_code == 0


def test_a_new_topic_follows_them_too(clean: Wire, own_name: str) -> None:
    assert alter(clean, "", (LARGEST, SET, "300"), kind=BROKER) == 0
    clean.create(own_name)
    assert clean.produce(own_name, batch(body_bytes=500)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_limits_of_the_broker_itself_change(one_broker: RunningCluster, clean: Wire) -> None:
    node = one_broker.cluster.nodes[1]
    rows = [
        ("max.connections.per.ip", SET, "77"),
        ("max.connections", SET, "88"),
        ("log.cleaner.backoff.ms", SET, "99"),
        ("leader.replication.throttled.rate", SET, "65536"),
        ("producer.id.expiration.ms", SET, "5000"),
    ]
    assert alter(clean, "1", *rows, kind=BROKER) == 0
    assert (node.listener.limits.per_host_max, node.listener.limits.connections_max) == (77, 88)
    assert node.broker.compaction._rounds.interval_ms == 99
    assert node.catch_up._sending.chunk_bytes == 16_384
    assert node.catch_up._throttle.chunk_bytes > 16_384
    assert node.broker.config.producer_id_expiration_ms == 5_000
    assert alter(clean, "1", *((name, DELETE, None) for name, _, _ in rows), kind=BROKER) == 0
    assert (node.listener.limits.per_host_max, node.broker.compaction._rounds.interval_ms) == (2**31 - 1, 15_000)
    assert node.catch_up._sending.chunk_bytes == node.catch_up._throttle.chunk_bytes


@pytest.mark.parametrize(
    ("name", "changes", "code"),
    [
        ("", [("num.partitions", SET, "3")], ErrorCode.INVALID_REQUEST),
        ("1", [("listeners", SET, "127.0.0.1:1")], ErrorCode.INVALID_REQUEST),
        ("", [("flush.mode", SET, "page-cache")], ErrorCode.INVALID_REQUEST),
        ("", [("no.such.setting", SET, "3")], ErrorCode.INVALID_REQUEST),
        ("", [(LARGEST, SET, "0")], ErrorCode.INVALID_REQUEST),
        ("", [(LARGEST, SET, "1MiB")], ErrorCode.INVALID_REQUEST),
        ("", [("log.cleaner.min.cleanable.ratio", SET, "1.5")], ErrorCode.INVALID_REQUEST),
        ("", [("log.retention.ms", SET, "7d")], ErrorCode.INVALID_REQUEST),
        ("1", [("compression.type", SET, "brotli")], ErrorCode.INVALID_REQUEST),
        ("1", [(LAGS[0], SET, "9"), (LAGS[1], SET, "8")], ErrorCode.INVALID_REQUEST),
        ("1", [(LARGEST, SET, None)], ErrorCode.INVALID_REQUEST),
        ("1", [(LARGEST, 9, "1000")], ErrorCode.INVALID_REQUEST),
        ("1", [(LARGEST, SUBTRACT, "1000")], ErrorCode.INVALID_CONFIG),
        ("2", [(LARGEST, SET, "1000")], ErrorCode.INVALID_REQUEST),
        ("one", [(LARGEST, SET, "1000")], ErrorCode.INVALID_REQUEST),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_as_a_whole(
    clean: Wire, name: str, changes: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    assert alter(clean, name, ("max.connections", SET, "99"), *changes, kind=BROKER) == code
    assert not described(clean, BROKER, "")
    assert described(clean, BROKER, "1")["max.connections"].config_source != 2


def test_what_is_not_set_may_be_taken_back(clean: Wire) -> None:
    """Kafka's tool for reassignments takes back the throttles that it may have set."""
    assert alter(clean, "", ("no.such.setting", DELETE, None), kind=BROKER) == 0
    assert alter(clean, "1", ("leader.replication.throttled.rate", DELETE, None), kind=BROKER) == 0


def test_validation_changes_nothing(clean: Wire) -> None:
    assert alter(clean, "", (LARGEST, SET, "5000"), kind=BROKER, validate_only=True) == 0
    assert alter(clean, "", (LARGEST, SET, "x"), kind=BROKER, validate_only=True) == ErrorCode.INVALID_REQUEST
    assert not described(clean, BROKER, "")


@pytest.mark.parametrize("version", range(3))
def test_a_replacement_forgets_the_rest(clean: Wire, version: int) -> None:
    for name in ("max.connections", "max.connections.per.ip"):
        rows = [AlterableConfig(name=name, value="99")]
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=rows)
        assert clean.ask(AlterConfigsRequest(resources=[resource]), version).responses[0].error_code == 0
        assert list(described(clean, BROKER, "")) == [name]


@pytest.mark.parametrize("version", range(1, 5))
def test_groups_have_configurations(clean: Wire, version: int) -> None:
    assert alter(clean, "g", (SESSION, SET, "50000"), kind=GROUP) == 0
    configs = described(clean, GROUP, "g", version)
    assert sources(configs[SESSION])[0] == (SESSION, "50000", 8)
    assert sources(configs["consumer.heartbeat.interval.ms"])[0][1:] == ("5000", 5)
    assert not any(one.read_only for one in configs.values())
    assert described(clean, GROUP, "nobody", version)[SESSION].value == "45000"
    assert alter(clean, "g", (SESSION, SET, "60001"), kind=GROUP) == ErrorCode.INVALID_CONFIG
    assert alter(clean, "g", ("share.session.timeout.ms", SET, "45000"), kind=GROUP) == ErrorCode.INVALID_CONFIG
    assert alter(clean, "", (SESSION, SET, "50000"), kind=GROUP) == ErrorCode.INVALID_REQUEST


def test_a_request_sets_no_more_than_fits_one_command(clean: Wire) -> None:
    def ask(*names: str, value: str) -> list[int]:
        rows = [IncrementalAlterableConfig(name=SESSION, config_operation=SET, value=value)]
        resources = [
            IncrementalAlterConfigsResource(resource_type=GROUP, resource_name=name, configs=rows) for name in names
        ]
        answers = clean.ask(IncrementalAlterConfigsRequest(resources=resources, validate_only=True), 1).responses
        return [answer.error_code for answer in answers]

    codes = ask(*(f"g{number}" for number in range(101)), value="50000")
    assert codes == [0] * 100 + [ErrorCode.POLICY_VIOLATION]
    codes = ask(*(f"g{number}" for number in range(40)), value="5" * 32_000)
    assert codes == [ErrorCode.INVALID_CONFIG] * 32 + [ErrorCode.POLICY_VIOLATION] * 8


async def _set_wrong(cluster: Cluster) -> None:
    """Store what no broker would ask for: a later version, or another broker, may have."""
    rows = (("max.connections", "none"), (LARGEST, "300"), ("of.later", "x"), ("node.id", "7"))
    changes = tuple(ConfigChange(name, value=value) for name, value in rows)
    await cluster.nodes[1].metadata.submit(AlterResources((ConfiguredResource(BROKER, "", changes),)), 10.0)


async def _restart(cluster: Cluster) -> None:
    await cluster.stop(1)
    await cluster.start(1)
    await cluster.wait_ready()


def test_what_is_set_outlives_a_restart_and_what_is_wrong_harms_nobody(own_name: str) -> None:
    with RunningCluster(1) as running:
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        wire.create(own_name)
        assert alter(wire, "1", ("max.connections.per.ip", SET, "77"), kind=BROKER) == 0
        running.run(_set_wrong)
        for is_again in (False, True):
            node = running.cluster.nodes[1]
            assert list(described(wire, BROKER, "")) == [LARGEST]
            assert wire.produce(own_name, batch(body_bytes=500)).error_code == ErrorCode.MESSAGE_TOO_LARGE
            assert described(wire, BROKER, "1")["max.connections.per.ip"].value == "77"
            assert node.listener.limits.per_host_max == 77
            ignored = [one["cause"] for one in node.events.to_list() if one["kind"] == "setting ignored"]
            assert [cause.partition("=")[0] for cause in ignored] == ["max.connections", "node.id", "of.later"]
            wire.close()
            if not is_again:
                running.run(_restart)
                wire = Wire("127.0.0.1", running.cluster.nodes[1].port)


async def _all_know(cluster: Cluster, expected: Mapping[tuple[int, str], Mapping[str, str]]) -> None:
    for node in cluster.nodes.values():
        await node.metadata.wait_until(lambda image: image.resource_configs == expected, 20.0)


async def _replace_controller(cluster: Cluster) -> int:
    """Stop the active controller, and return it when another one is there."""
    controller_id = next(iter(cluster.nodes.values())).metadata.leader_id
    assert controller_id is not None
    await cluster.stop(controller_id)
    return controller_id


async def _return(cluster: Cluster) -> None:
    (away,) = {1, 2, 3} - cluster.nodes.keys()
    await cluster.start(away)
    await cluster.wait_ready()


def limits_of(cluster: Cluster) -> dict[int, int]:
    return {node_id: node.listener.limits.per_host_max for node_id, node in cluster.nodes.items()}


def test_every_broker_follows_and_so_does_one_that_was_away() -> None:
    name = "max.connections.per.ip"
    with RunningCluster(3) as running:
        cluster = running.cluster
        wires = {node_id: Wire("127.0.0.1", node.port) for node_id, node in cluster.nodes.items()}
        assert alter(wires[1], "", (name, SET, "99"), kind=BROKER) == 0
        assert alter(wires[2], "2", (name, SET, "98"), kind=BROKER) == 0
        assert alter(wires[3], "2", (name, SET, "97"), kind=BROKER) == ErrorCode.INVALID_REQUEST
        both = {(BROKER, ""): {name: "99"}, (BROKER, "2"): {name: "98"}}
        running.run(lambda cluster: _all_know(cluster, both))
        assert limits_of(cluster) == {1: 99, 2: 98, 3: 99}
        gone = running.run(_replace_controller)
        left = min({1, 2, 3} - {gone})
        assert alter(wires[left], "", (name, SET, "96"), kind=BROKER) == 0
        running.run(_return)
        later = both | {(BROKER, ""): {name: "96"}}
        running.run(lambda cluster: _all_know(cluster, later))
        assert limits_of(cluster) == {1: 96, 2: 98, 3: 96}
        for wire in wires.values():
            wire.close()
