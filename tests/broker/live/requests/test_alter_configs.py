"""AlterConfigs and IncrementalAlterConfigs over a real socket: what changes, what is refused, what follows."""

import pytest

from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from barnabas_clients.protocol.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from broker.wire_client import Wire, batch

TOPIC = 2
BROKER = 4
SET, DELETE, APPEND, SUBTRACT = range(4)
Change = tuple[str, int, str | None]


def alter(
    wire: Wire, name: str, *changes: Change, kind: int = TOPIC, version: int = 1, validate_only: bool = False
) -> int:
    """Return the code of an incremental change."""
    rows = [IncrementalAlterableConfig(name=key, config_operation=what, value=value) for key, what, value in changes]
    resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    [answer] = wire.ask(request, version).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    assert bool(answer.error_message) == bool(answer.error_code)
    code: int = answer.error_code
    return code


def replace(wire: Wire, name: str, version: int = 2, **configs: str | None) -> int:
    """Return the code of a change that names all there is to be."""
    rows = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=rows)
    [answer] = wire.ask(AlterConfigsRequest(resources=[resource]), version).responses
    code: int = answer.error_code
    return code


def set_for(wire: Wire, name: str) -> dict[str, str]:
    """Return what is set for the topic itself."""
    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
    [result] = wire.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    return {config.name: config.value for config in result.configs if config.config_source == 1}


@pytest.mark.parametrize("version", range(2))
def test_what_is_named_changes_and_the_rest_stays(wire: Wire, topic: str, version: int) -> None:
    assert alter(wire, topic, ("retention.ms", SET, "5000"), ("segment.ms", SET, "9"), version=version) == 0
    assert set_for(wire, topic) == {"retention.ms": "5000", "segment.ms": "9"}
    assert (
        alter(wire, topic, ("segment.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete"), version=version) == 0
    )
    assert set_for(wire, topic) == {"retention.ms": "5000", "cleanup.policy": ""}
    assert alter(wire, topic, ("retention.ms", SET, "1"), version=version, validate_only=True) == 0
    assert set_for(wire, topic)["retention.ms"] == "5000"


@pytest.mark.parametrize("version", range(3))
def test_a_replacement_forgets_the_rest(wire: Wire, topic: str, version: int) -> None:
    assert replace(wire, topic, version, retention_ms="5000") == 0
    assert replace(wire, topic, version, segment_ms="9") == 0
    assert set_for(wire, topic) == {"segment.ms": "9"}
    assert replace(wire, topic, version) == 0
    assert set_for(wire, topic) == {}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", SET, "-2")], ErrorCode.INVALID_CONFIG),
        ([("segment.ms", SET, "9"), ("compression.type", SET, "brotli")], ErrorCode.INVALID_CONFIG),
        ([("flush.mode", SET, "page-cache")], ErrorCode.INVALID_CONFIG),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 7, "1")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused_as_a_whole(wire: Wire, topic: str, changes: list[Change], code: ErrorCode) -> None:
    assert alter(wire, topic, *changes) == code
    assert set_for(wire, topic) == {}


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "1", ErrorCode.INVALID_REQUEST),
        (BROKER, "", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_other_resources_are_refused(wire: Wire, kind: int, name: str, code: ErrorCode) -> None:
    assert alter(wire, name, ("retention.ms", SET, "5000"), kind=kind) == code


def test_each_resource_has_its_own_answer(wire: Wire, topic: str) -> None:
    rows = [IncrementalAlterableConfig(name="segment.ms", config_operation=SET, value="9")]
    names = [topic, "nobody", "twice", "twice"]
    resources = [
        IncrementalAlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=rows) for name in names
    ]
    answers = wire.ask(IncrementalAlterConfigsRequest(resources=resources), 1).responses
    assert [(answer.resource_name, answer.error_code) for answer in answers] == [
        (topic, 0),
        ("nobody", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]


def test_a_change_is_acted_on_at_once(wire: Wire, topic: str) -> None:
    assert wire.produce(topic, batch(body_bytes=500)).error_code == 0
    assert alter(wire, topic, ("max.message.bytes", SET, "300"), ("min.insync.replicas", SET, "2")) == 0
    assert wire.produce(topic, batch(body_bytes=500)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert wire.produce(topic, batch()).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert alter(wire, topic, ("max.message.bytes", DELETE, None), ("min.insync.replicas", DELETE, None)) == 0
    assert wire.produce(topic, batch(body_bytes=500)).base_offset == 1


def test_a_change_outlives_a_restart() -> None:
    with RunningCluster(1) as running:
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        wire.create("kept", max_message_bytes="5000")
        assert alter(wire, "kept", ("max.message.bytes", SET, "300")) == 0
        wire.close()

        async def restart(cluster: Cluster) -> None:
            await cluster.stop(1)
            await cluster.start(1)
            await cluster.wait_ready()

        running.run(restart)
        wire = Wire("127.0.0.1", running.cluster.nodes[1].port)
        assert set_for(wire, "kept") == {"max.message.bytes": "300"}
        assert wire.produce("kept", batch(body_bytes=500)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        wire.close()
