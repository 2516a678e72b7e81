"""Six brokers in this process, which the tests of this folder share; each makes topics of its own."""

from collections.abc import Iterator

import pytest

from barnabas_broker.testing import RunningCluster

RACKS = ("red", "green", "blue", "red", "green", "blue")
# What is to be seen here takes less than a second each; preferred leaders may come home at once.
SETTINGS = {"leader.imbalance.check.interval.seconds": 1}


@pytest.fixture(scope="package")
def six_brokers() -> Iterator[RunningCluster]:
    with RunningCluster(6, racks=RACKS, settings=SETTINGS) as cluster:
        yield cluster
