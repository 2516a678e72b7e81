"""Starts three real brokers whose new groups do not wait for more members."""

from collections.abc import Iterator

import pytest
from broker.wire_client import Wire

from barnabas_broker.testing import RunningCluster

from .group_client import GroupClient

QUICK = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "offsets.retention.check.interval.ms": 600_000,
    "offsets.topic.num.partitions": 4,
}


@pytest.fixture(scope="package")
def brokers() -> Iterator[RunningCluster]:
    with RunningCluster(3, settings=QUICK) as cluster:
        yield cluster


@pytest.fixture
def topic(brokers: RunningCluster, own_name: str) -> str:
    """A new topic with four partitions."""
    wire = Wire("127.0.0.1", brokers.cluster.nodes[1].port)
    wire.create(own_name, 4, 1)
    wire.close()
    return own_name


@pytest.fixture
def client(brokers: RunningCluster, topic: str) -> Iterator[GroupClient]:
    """A client of a group that is named as the topic is."""
    client = GroupClient(brokers.bootstrap, topic, topic)
    yield client
    client.lose()
