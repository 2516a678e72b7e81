"""Three brokers in three racks that offer transactions, shared by the tests of this folder."""

from collections.abc import Iterator

import pytest

from barnabas_broker.testing import RunningCluster
from broker.live.test_three_brokers import Wires

RACKS = ("red", "green", "blue")


@pytest.fixture(scope="package")
def brokers() -> Iterator[RunningCluster]:
    with RunningCluster(3, racks=RACKS) as cluster:
        yield cluster


@pytest.fixture
def wires(brokers: RunningCluster) -> Iterator[Wires]:
    wires = Wires(brokers)
    yield wires
    wires.close()
