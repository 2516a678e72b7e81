"""Brokers that serve groups of KIP-848."""

import os
from collections.abc import Iterator

import pytest
from machines import cluster_handle


@pytest.fixture(scope="package")
def brokers() -> Iterator[str]:
    if given := os.environ.get("BARNABAS_INTEROP_BOOTSTRAP"):
        yield given
        return
    with cluster_handle.cluster() as handle:
        yield handle.bootstrap
