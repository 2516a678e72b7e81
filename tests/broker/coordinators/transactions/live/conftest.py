"""Starts real brokers that offer transactions."""

import hashlib
from collections.abc import Iterator

import pytest
from broker.wire_client import Wire

from barnabas_broker.testing import RunningCluster

SETTINGS = {
    "unstable.api.versions.enable": True,
    "transaction.state.log.num.partitions": 4,
    "offsets.topic.num.partitions": 4,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 50,
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[RunningCluster]:
    with RunningCluster(3, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return "t" + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]


@pytest.fixture
def topic(brokers: RunningCluster, name: str) -> str:
    """A new topic with four partitions on all brokers."""
    host, _, port = brokers.bootstrap.partition(",")[0].rpartition(":")
    wire = Wire(host, int(port))
    wire.create(name, 4, 3)
    wire.close()
    return name
