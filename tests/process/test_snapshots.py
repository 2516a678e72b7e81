"""Named snapshots through killed controllers, killed brokers one by one, and all of them at once."""

import asyncio
from collections.abc import Iterator

import pytest
from machines import cluster_handle

from barnabas_clients import Admin, Producer
from barnabas_clients.admin.client import Left, NamedSnapshot
from barnabas_clients.admin.snapshots import create_snapshot, ranges_now
from barnabas_clients.cluster.cluster import Cluster

pytestmark = [pytest.mark.process, pytest.mark.slow]

TOPICS = ("orders", "refunds")
WRITERS = 8


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[cluster_handle.ClusterHandle]:
    with cluster_handle.cluster() as brokers:
        yield brokers


async def write(bootstrap: str, count: int) -> None:
    async with Producer(bootstrap) as producer:
        sent = [await producer.send(TOPICS[number % 2], b"v", partition=number % 3) for number in range(count)]
        await asyncio.gather(*sent)


async def found(bootstrap: str, name: str) -> NamedSnapshot:
    """Return a snapshot that is whole."""
    async with Admin(bootstrap, timeout_s=60) as admin:
        snapshot = await admin.describe_snapshot(name)
        checks = await admin.check_snapshot(snapshot)
        assert {key: check for key, check in checks.items() if check.left is not Left.WHOLE} == {}
        return snapshot


async def racing(bootstrap: str, name: str, cluster: cluster_handle.ClusterHandle) -> list[NamedSnapshot]:
    """Let many use a new name, each with ranges of its own, while the controller is killed; return what they got."""
    async with Admin(bootstrap) as admin, Cluster(bootstrap) as first:
        everything = await ranges_now(first, TOPICS, 30)
        controller = (await admin.describe_cluster()).controller_id

        async def use(number: int) -> tuple[NamedSnapshot, bool]:
            async with Cluster(bootstrap) as own:
                ranges = {
                    topic_id: {key: one._replace(start_offset=min(number, one.end_offset)) for key, one in of.items()}
                    for topic_id, of in everything.items()
                }
                return await create_snapshot(own, name, ranges, 60)

        killing = asyncio.create_task(asyncio.to_thread(cluster.kill, controller))
        answers = await asyncio.gather(*map(use, range(WRITERS)))
        await killing
    assert [created for _, created in answers].count(True) == 1
    return [snapshot for snapshot, _ in answers]


def test_a_snapshot_is_the_same_whoever_is_killed(own_cluster: cluster_handle.ClusterHandle) -> None:
    bootstrap = own_cluster.bootstrap

    async def begin() -> NamedSnapshot:
        async with Admin(bootstrap) as admin:
            for topic in TOPICS:
                await admin.create_topic(topic, 3, 3)
            await write(bootstrap, 300)
            return await admin.create_snapshot("month-end", TOPICS)

    made = asyncio.run(begin())
    asyncio.run(write(bootstrap, 300))
    raced, *others = asyncio.run(racing(bootstrap, "raced", own_cluster))
    assert others == [raced] * (WRITERS - 1)
    assert asyncio.run(found(bootstrap, "raced")) == raced
    assert asyncio.run(found(bootstrap, "month-end")) == made, "one broker is dead"
    own_cluster.start()
    for node_id in (1, 2, 3):
        own_cluster.kill(node_id)
        asyncio.run(write(bootstrap, 30))
        assert asyncio.run(found(bootstrap, "month-end")) == made
        own_cluster.start()
    own_cluster.kill(1, 2, 3)
    own_cluster.start()
    assert asyncio.run(found(bootstrap, "month-end")) == made
    assert asyncio.run(found(bootstrap, "raced")) == raced
