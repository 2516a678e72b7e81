"""Starts real brokers that offer transactions."""

from collections.abc import Iterator

import pytest
from broker.wire_client import Wire

from barnabas_broker.testing import RunningCluster

SETTINGS = {
    "transaction.state.log.num.partitions": 4,
    "offsets.topic.num.partitions": 4,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 50,
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[RunningCluster]:
    with RunningCluster(3, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def topic(brokers: RunningCluster, own_name: str) -> str:
    """A new topic with four partitions on all brokers."""
    wire = Wire("127.0.0.1", brokers.cluster.nodes[1].port)
    wire.create(own_name, 4, 3)
    wire.close()
    return own_name
