"""Six brokers in this process, shared by the tests of this folder. Each makes topics of its own."""

from collections.abc import Iterator

import pytest

from barnabas_broker.testing import RunningCluster

RACKS = ("red", "green", "blue", "red", "green", "blue")
# Each test takes less than a second; preferred leaders may come home at once.
SETTINGS = {"leader.imbalance.check.interval.seconds": 1}


@pytest.fixture(scope="package")
def six_brokers() -> Iterator[RunningCluster]:
    with RunningCluster(6, racks=RACKS, settings=SETTINGS) as cluster:
        yield cluster
