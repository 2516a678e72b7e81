"""The clients against real brokers: this project's, or whatever BARNABAS_TEST_BOOTSTRAP names.

`scripts/test-against-kafka` sets it to an Apache Kafka that it has started, so nothing here may rely on what only
Barnabas does. Every test ends with no task and no socket more than it began with.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from cancellation import open_sockets, sockets_close, tasks_end

from barnabas_clients.admin import topics as admin
from barnabas_clients.cluster.cluster import Cluster

TIMEOUT_S = 30.0
MakeTopic = Callable[..., Awaitable[str]]
"""(partitions=1, replication_factor=-1) -> the name of a new topic whose partitions have leaders."""


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Where the brokers are."""
    given = os.environ.get("BARNABAS_TEST_BOOTSTRAP")
    return given or str(request.getfixturevalue("cluster").bootstrap)


@pytest.fixture
async def make_topic(bootstrap: str) -> AsyncIterator[MakeTopic]:
    """Create topics of unique names, which go with the test."""
    names: list[str] = []
    async with Cluster(bootstrap, client_id="test-topics") as cluster:

        async def make(partitions: int = 1, replication_factor: int = -1) -> str:
            name = f"live-{uuid.uuid4().hex[:12]}"
            names.append(name)
            await admin.create_topic(cluster, name, partitions, replication_factor, timeout_s=TIMEOUT_S)
            return name

        yield make
        if names:
            await admin.delete_topics(cluster, names, TIMEOUT_S)


@pytest.fixture
def group_id() -> str:
    """Return the name of a group that nobody else uses."""
    return f"group-{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
async def nothing_leaks() -> AsyncIterator[None]:
    """See the module. First in, last out."""
    tasks = asyncio.all_tasks()
    sockets = open_sockets()
    yield
    await tasks_end(tasks)
    await sockets_close(sockets)
