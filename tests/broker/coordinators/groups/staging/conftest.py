"""Starts three real brokers that offer transactions, for the tests of this folder."""

from collections.abc import Iterator

import pytest
from broker.coordinators.groups.conftest import QUICK

from barnabas_broker.testing import RunningCluster


@pytest.fixture(scope="package")
def brokers() -> Iterator[RunningCluster]:
    with RunningCluster(3, settings=QUICK) as cluster:
        yield cluster
