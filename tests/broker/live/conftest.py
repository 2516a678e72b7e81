"""Real brokers in this process, shared by the tests of this folder. Each makes topics of its own."""

from collections.abc import Iterator

import pytest

from barnabas_broker.testing import RunningCluster
from broker.wire_client import Wire


@pytest.fixture(scope="package")
def one_broker() -> Iterator[RunningCluster]:
    with RunningCluster(1) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def three_brokers() -> Iterator[RunningCluster]:
    with RunningCluster(3) as cluster:
        yield cluster


@pytest.fixture
def wire(one_broker: RunningCluster) -> Iterator[Wire]:
    wire = Wire("127.0.0.1", one_broker.cluster.nodes[1].port)
    yield wire
    wire.close()


@pytest.fixture
def topic(own_name: str, wire: Wire) -> str:
    """The name of a new topic with one partition."""
    wire.create(own_name)
    return own_name
