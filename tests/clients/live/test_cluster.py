"""The ground of the clients holds: topics, offsets, and cancellation at every await."""

from cancellation import sweep

from barnabas_clients.admin import topics as admin
from barnabas_clients.admin.offsets import list_offsets
from barnabas_clients.admin.values import OffsetSpec
from barnabas_clients.cluster.cluster import Cluster

from .conftest import TIMEOUT_S, MakeTopic


async def test_a_new_topic_is_empty_and_led(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic(3)
    async with Cluster(bootstrap) as cluster:
        (view,) = await admin.describe_topics(cluster, [name], TIMEOUT_S)
        assert sorted(view.partitions) == [0, 1, 2]
        ends = await list_offsets(
            cluster, {(name, partition): OffsetSpec.LATEST for partition in view.partitions}, TIMEOUT_S
        )
        assert {found.offset for found in ends.values()} == {0}


async def test_a_lookup_can_be_cancelled_anywhere(bootstrap: str, make_topic: MakeTopic) -> None:
    name = await make_topic()
    wanted = {(name, 0): int(OffsetSpec.EARLIEST)}

    async with Cluster(bootstrap) as cluster:
        awaits = await sweep(
            lambda: list_offsets(cluster, wanted, TIMEOUT_S),
            lambda: list_offsets(cluster, wanted, TIMEOUT_S),
        )
    assert awaits > 0


async def test_opening_a_client_can_be_cancelled_anywhere(bootstrap: str) -> None:
    async def use() -> None:
        async with Cluster(bootstrap) as cluster:
            await cluster.refresh(timeout_s=TIMEOUT_S)

    assert await sweep(use, use) > 1
