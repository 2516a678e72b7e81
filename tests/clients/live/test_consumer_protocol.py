"""What only groups of KIP-848 have: coordinators that assign, and match patterns; and how such groups are shown."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator

import pytest
from machines import cluster_handle

from barnabas_clients import Admin, Producer
from barnabas_clients.consumer.consumer import Consumer
from barnabas_clients.protocol.errors import KafkaError
from barnabas_clients.topic_partition import TopicPartition

from .batches import append_values
from .conftest import MakeTopic
from .test_consumer import VALUES, read
from .test_consumer_groups import assigned

Member = Callable[..., Consumer]
LIMIT_S = 30


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """Where brokers are that serve this protocol."""
    if given := os.environ.get("BARNABAS_TEST_BOOTSTRAP"):
        yield given
    else:
        with cluster_handle.cluster(1) as handle:
            yield handle.bootstrap


@pytest.fixture
def member(bootstrap: str, group_id: str) -> Member:
    """Make a member of this test's group; it begins with the first record."""

    def make(*topics: str, **settings: object) -> Consumer:
        given = {"topics": topics, "auto_offset_reset": "earliest", "group_protocol": "consumer", **settings}
        return Consumer(bootstrap, group_id=group_id, **given)  # type: ignore[arg-type]  # checked where it is called

    return make


async def test_four_members_settle_and_are_shown_with_their_epochs_and_targets(
    bootstrap: str, make_topic: MakeTopic, member: Member, group_id: str
) -> None:
    name = await make_topic(8)
    async with contextlib.AsyncExitStack() as stack:
        members = [await stack.enter_async_context(member(name, client_id=f"c{number}")) for number in range(4)]
        async with asyncio.timeout(LIMIT_S):
            while [len(one.assignment) for one in members] != [2] * 4:
                await asyncio.gather(*(one.get_many(timeout_s=0.02) for one in members))
        shared = [key for one in members for key in one.assignment]
        assert sorted(key.partition for key in shared) == list(range(8))
        async with Admin(bootstrap) as admin:
            async with asyncio.timeout(LIMIT_S):
                while (group := (await admin.describe_groups([group_id]))[group_id]).state != "Stable":
                    await asyncio.gather(*(assigned(one, 2) for one in members))
            assert (group.type, group.assignor, group.epoch) == ("consumer", "uniform", group.assignment_epoch)
            by_client = {one.client_id: one for one in group.members}
            for number, consumer in enumerate(members):
                found = by_client[f"c{number}"]
                assert (found.assignment, found.target) == (consumer.assignment, consumer.assignment)
                assert (found.type, found.epoch, found.topics) == ("consumer", group.epoch, frozenset({name}))
            assert group_id in {row.group_id for row in await admin.list_groups(types=["Consumer"])}
            assert group_id not in {row.group_id for row in await admin.list_groups(types=["classic"])}


async def test_the_coordinator_matches_a_pattern_and_finds_what_comes_later(
    bootstrap: str, make_topic: MakeTopic, member: Member, group_id: str
) -> None:
    first = await make_topic()
    await append_values(bootstrap, first, [b"first"])
    async with member(server_pattern=rf"{first}|{first[:-2]}..x") as consumer:
        assert [record.value for record in await read(consumer, 1)] == [b"first"]
        assert consumer.subscription == {first}
        async with Admin(bootstrap) as admin:
            (found,) = (await admin.describe_groups([group_id]))[group_id].members
        assert (found.server_pattern, found.topics) == (rf"{first}|{first[:-2]}..x", frozenset())
        second = await make_topic()
        await consumer.subscribe([second])
        await append_values(bootstrap, second, [b"second"])
        assert [record.value for record in await read(consumer, 1)] == [b"second"]
        assert consumer.subscription == {second}


async def test_what_the_coordinator_refuses_reaches_the_application(make_topic: MakeTopic, member: Member) -> None:
    async with member(server_pattern="orders-[") as consumer:
        with pytest.raises(KafkaError, match="INVALID_REGULAR_EXPRESSION"):
            await read(consumer, 1)
    async with member(await make_topic(), group_remote_assignor="nobody") as consumer:
        with pytest.raises(KafkaError, match="UNSUPPORTED_ASSIGNOR"):
            await read(consumer, 1)


async def test_an_instance_that_is_there_is_not_given_to_another(make_topic: MakeTopic, member: Member) -> None:
    name = await make_topic(2)
    async with member(name, group_instance_id="a") as first:
        await assigned(first, 2)
        async with member(name, group_instance_id="a") as second:
            with pytest.raises(KafkaError, match="UNRELEASED_INSTANCE_ID"):
                await read(second, 1)
        await assigned(first, 2)


async def test_a_transaction_stores_offsets_in_the_member_s_epoch(
    bootstrap: str, make_topic: MakeTopic, member: Member
) -> None:
    name = await make_topic()
    await append_values(bootstrap, name, VALUES[:5])
    async with member(name, auto_commit=False) as consumer:
        await read(consumer, 3)
        async with (
            Producer(bootstrap, transactional_id=f"{name}-copy") as producer,
            producer.transaction() as transaction,
        ):
            await transaction.send_offsets(consumer)
        assert (await consumer.committed())[TopicPartition(name, 0)].offset == 3
