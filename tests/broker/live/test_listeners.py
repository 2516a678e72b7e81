"""Brokers with several listeners: each client is told the addresses of the one that it came in on, everywhere."""

import dataclasses
from collections.abc import Iterator

import pytest

from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_clients.protocol.describe_cluster import DescribeClusterRequest
from barnabas_clients.protocol.describe_health import DescribeHealthRequest
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.wire_client import Wire, batch

BOTH = {"listeners": "inside://127.0.0.1:0,outside://127.0.0.2:0"}
HOSTS = {"INSIDE": "127.0.0.1", "OUTSIDE": "127.0.0.2"}
LISTENER_NOT_FOUND = ErrorCode.LISTENER_NOT_FOUND


@pytest.fixture(scope="module")
def two_brokers() -> Iterator[RunningCluster]:
    with RunningCluster(2, settings=BOTH) as cluster:
        yield cluster


@pytest.fixture(params=sorted(HOSTS))
def listener(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def wire(two_brokers: RunningCluster, listener: str) -> Iterator[Wire]:
    wire = Wire(HOSTS[listener], two_brokers.cluster.nodes[1].listener.ports[listener])
    yield wire
    wire.close()


def places(cluster: Cluster, listener: str) -> dict[int, tuple[str, int]]:
    return {node_id: (HOSTS[listener], node.listener.ports[listener]) for node_id, node in cluster.nodes.items()}


def test_metadata_and_the_cluster_are_told_as_the_listener_has_them(
    two_brokers: RunningCluster, wire: Wire, listener: str
) -> None:
    expected = places(two_brokers.cluster, listener)
    metadata = wire.ask(MetadataRequest(topics=[]), 12)
    assert {one.node_id: (one.host, one.port) for one in metadata.brokers} == expected
    described = wire.ask(DescribeClusterRequest(), 1)
    assert {one.broker_id: (one.host, one.port) for one in described.brokers} == expected
    health = wire.ask(DescribeHealthRequest(), 0)
    assert {one.node_id: (one.host, one.port) for one in health.brokers} == expected


def test_coordinators_are_told_as_the_listener_has_them(two_brokers: RunningCluster, wire: Wire, listener: str) -> None:
    expected = places(two_brokers.cluster, listener)
    keys = [f"group-{number}" for number in range(20)]
    found = wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4).coordinators
    assert {one.node_id for one in found} == {1, 2}
    assert all((one.host, one.port) == expected[one.node_id] for one in found)


def test_leaders_are_hinted_at_as_the_listener_has_them(two_brokers: RunningCluster, wire: Wire, listener: str) -> None:
    topic = f"hints-{listener}"
    wire.create(topic, partitions=2)
    (described,) = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics
    (elsewhere,) = [one.partition_index for one in described.partitions if one.leader_id == 2]
    expected = [(2, *places(two_brokers.cluster, listener)[2])]
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=elsewhere, records=batch())])
    produced = wire.ask(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[data]), 10)
    assert [(one.node_id, one.host, one.port) for one in produced.node_endpoints] == expected
    asked = FetchTopic(topic_id=described.topic_id, partitions=[FetchPartition(partition=elsewhere)])
    fetched = wire.ask(FetchRequest(max_wait_ms=0, topics=[asked]), 16)
    assert [(one.node_id, one.host, one.port) for one in fetched.node_endpoints] == expected


def test_bootstrap_servers_are_those_of_the_listener(two_brokers: RunningCluster, listener: str) -> None:
    cluster = two_brokers.cluster
    expected = ",".join(f"{host}:{port}" for _, (host, port) in sorted(places(cluster, listener).items()))
    assert cluster.bootstrap_of(listener.lower()) == expected
    assert cluster.bootstrap == cluster.bootstrap_of("inside")


@pytest.fixture(scope="module")
def mixed_brokers() -> Iterator[RunningCluster]:
    """The second broker has no outside, and the third one names none of its listeners."""
    running = RunningCluster(3, settings=BOTH)
    configs = running.cluster.configs
    configs[2] = dataclasses.replace(configs[2], listeners="inside://127.0.0.1:0")
    configs[3] = dataclasses.replace(configs[3], listeners="127.0.0.1:0")
    with running:
        yield running


@pytest.mark.parametrize(
    ("listener", "seen", "code", "old_code"),
    [("INSIDE", [1, 2, 3], 0, 0), ("OUTSIDE", [1, 3], LISTENER_NOT_FOUND, ErrorCode.LEADER_NOT_AVAILABLE)],
)
def test_a_broker_without_the_listener_is_left_out_and_what_it_leads_has_no_leader(
    mixed_brokers: RunningCluster, listener: str, seen: list[int], code: int, old_code: int
) -> None:
    wire = Wire(HOSTS[listener], mixed_brokers.cluster.nodes[1].listener.ports[listener])
    try:
        wire.create(f"mixed-{listener}", partitions=3)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=f"mixed-{listener}")])
        for version, expected in ((12, code), (5, old_code)):
            told = wire.ask(asked, version)
            assert [one.node_id for one in told.brokers] == seen
            rows = {one.replica_nodes[0]: (one.leader_id, one.error_code) for one in told.topics[0].partitions}
            assert rows == {1: (1, 0), 2: (-1 if expected else 2, expected), 3: (3, 0)}
        assert [one.broker_id for one in wire.ask(DescribeClusterRequest(), 1).brokers] == seen
        health = wire.ask(DescribeHealthRequest(), 0).brokers
        assert [one.node_id for one in health if (one.host, one.port) != (None, -1)] == seen
        assert len(health) == 3
        keys = [f"group-{number}" for number in range(30)]
        found = wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4).coordinators
        codes = {one.error_code: one.node_id for one in found}
        assert (ErrorCode.COORDINATOR_NOT_AVAILABLE in codes) == bool(code)
        assert {one.node_id for one in found if not one.error_code} == set(seen)
    finally:
        wire.close()
