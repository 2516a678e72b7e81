"""`Admin` against real brokers: groups and their offsets."""

import pytest
from cancellation import sweep

from barnabas_clients import Admin, Consumer, OffsetAndMetadata, TopicPartition
from barnabas_clients.admin.client import OffsetChange, ResetTo
from barnabas_clients.protocol.errors import (
    GroupIdNotFoundError,
    KafkaError,
    NonEmptyGroupError,
    UnknownTopicOrPartitionError,
)

from .conftest import MakeTopic
from .filling import fill

FIRST_MS = 1_700_000_000_000


async def test_a_group_made_of_offsets_alone(bootstrap: str, make_topic: MakeTopic, group_id: str) -> None:
    name = await make_topic(2)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    await fill(bootstrap, {first: 10})
    async with Admin(bootstrap) as admin:
        assert await admin.group_offsets(group_id) == {}
        await admin.alter_group_offsets(group_id, {first: OffsetAndMetadata(4, "mine"), second: OffsetAndMetadata(0)})
        found = await admin.group_offsets(group_id)
        assert {key: (position.offset, position.metadata) for key, position in found.items()} == {
            first: (4, "mine"),
            second: (0, ""),
        }
        assert list(await admin.group_offsets(group_id, [second])) == [second]
        listed = {row.group_id: row for row in await admin.list_groups()}[group_id]
        assert listed.state == "Empty"
        assert group_id in {row.group_id for row in await admin.list_groups(states=["Empty"])}
        assert group_id not in {row.group_id for row in await admin.list_groups(states=["Stable"])}
        described = (await admin.describe_groups([group_id]))[group_id]
        assert (described.state, described.members) == ("Empty", ())
        lag = await admin.group_lag(group_id)
        assert {key: (found.end_offset, found.lag, found.member) for key, found in lag.items()} == {
            first: (10, 6, None),
            second: (0, 0, None),
        }
        await admin.delete_group_offsets(group_id, [first, TopicPartition(name, 1)])
        assert await admin.group_offsets(group_id) == {}


async def test_deleting_groups_deletes_their_offsets(bootstrap: str, make_topic: MakeTopic, group_id: str) -> None:
    partition = TopicPartition(await make_topic(), 0)
    async with Admin(bootstrap) as admin:
        groups = [f"{group_id}-{number}" for number in range(3)]
        for group in groups:
            await admin.alter_group_offsets(group, {partition: OffsetAndMetadata(0)})
        assert list(await admin.describe_groups(groups)) == groups
        await admin.delete_groups(groups)
        assert not {row.group_id for row in await admin.list_groups()} & set(groups)
        assert await admin.group_offsets(groups[0]) == {}
        with pytest.raises(GroupIdNotFoundError, match=groups[0]):
            await admin.delete_groups(groups[:1])
        with pytest.raises(GroupIdNotFoundError, match=groups[0]):
            await admin.describe_groups(groups[:1])


@pytest.mark.parametrize(
    ("target", "after"),
    [
        (ResetTo.earliest(), 2),
        (ResetTo.latest(), 10),
        (ResetTo.offset(7), 7),
        (ResetTo.offset(1), 2),
        (ResetTo.offset(99), 10),
        (ResetTo.shift(3), 8),
        (ResetTo.shift(-99), 2),
        (ResetTo.time(FIRST_MS + 3500), 4),
        (ResetTo.time(FIRST_MS + 99_000), 10),
        (ResetTo.ago(0), 10),
        (ResetTo.ago(1 << 42), 2),
    ],
)
async def test_positions_are_reset(
    bootstrap: str, make_topic: MakeTopic, group_id: str, target: ResetTo, after: int
) -> None:
    partition = TopicPartition(await make_topic(), 0)
    await fill(bootstrap, {partition: 10}, first_timestamp_ms=FIRST_MS, step_ms=1000)
    async with Admin(bootstrap) as admin:
        await admin.delete_records({partition: 2})
        await admin.alter_group_offsets(group_id, {partition: OffsetAndMetadata(5)})
        plan = await admin.reset_group_offsets(group_id, target, dry_run=True)
        assert plan == {partition: OffsetChange(5, after)}
        assert (await admin.group_offsets(group_id))[partition].offset == 5
        assert await admin.reset_group_offsets(group_id, target) == plan
        assert (await admin.group_offsets(group_id))[partition].offset == after


async def test_a_reset_may_make_a_group_and_must_name_something(
    bootstrap: str, make_topic: MakeTopic, group_id: str
) -> None:
    name = await make_topic(2)
    partition = TopicPartition(name, 1)
    async with Admin(bootstrap) as admin:
        with pytest.raises(GroupIdNotFoundError, match=group_id):
            await admin.reset_group_offsets(group_id, ResetTo.earliest())
        with pytest.raises(ValueError, match=f"{name}-0 cannot be shifted"):
            await admin.reset_group_offsets(group_id, ResetTo.shift(1), topics=[name])
        with pytest.raises(UnknownTopicOrPartitionError, match=f"{name}-9"):
            await admin.reset_group_offsets(group_id, ResetTo.latest(), partitions=[TopicPartition(name, 9)])
        assert await admin.reset_group_offsets(group_id, ResetTo.latest(), partitions=[partition]) == {
            partition: OffsetChange(None, 0)
        }
        assert len(await admin.reset_group_offsets(group_id, ResetTo.latest(), topics=[name])) == 2


async def test_a_group_at_work_is_described_and_left_alone(
    bootstrap: str, make_topic: MakeTopic, group_id: str
) -> None:
    partition = TopicPartition(await make_topic(), 0)
    await fill(bootstrap, {partition: 3})
    async with (
        Admin(bootstrap) as admin,
        Consumer(
            bootstrap, topics=[partition.topic], group_id=group_id, client_id="worker", auto_offset_reset="earliest"
        ) as consumer,
    ):
        assert (await anext(consumer)).offset == 0
        described = (await admin.describe_groups([group_id]))[group_id]
        assert (described.state, described.protocol_type, described.assignor) == ("Stable", "consumer", "range")
        (member,) = described.members
        assert (member.client_id, member.group_instance_id, member.assignment) == (
            "worker",
            None,
            frozenset({partition}),
        )
        assert group_id in {row.group_id for row in await admin.list_groups(states=["Stable"])}
        lag = await admin.group_lag(group_id)
        assert (lag[partition].member, lag[partition].end_offset) == (member, 3)

        with pytest.raises(NonEmptyGroupError, match=group_id):
            await admin.alter_group_offsets(group_id, {partition: OffsetAndMetadata(0)})
        with pytest.raises(NonEmptyGroupError, match=group_id):
            await admin.reset_group_offsets(group_id, ResetTo.earliest(), partitions=[partition])
        with pytest.raises(NonEmptyGroupError, match=group_id):
            await admin.delete_groups([group_id])
        with pytest.raises(KafkaError, match="GROUP_SUBSCRIBED_TO_TOPIC"):
            await admin.delete_group_offsets(group_id, [partition])
        plan = await admin.reset_group_offsets(group_id, ResetTo.latest(), partitions=[partition], dry_run=True)
        assert plan[partition].after == 3
        await consumer.commit({partition: OffsetAndMetadata(1)})
        assert (await admin.group_lag(group_id))[partition].lag == 2


async def test_lag_survives_the_end_of_a_topic(bootstrap: str, group_id: str, make_topic: MakeTopic) -> None:
    """Some brokers forget positions with their topic and some do not: either way the rest can be seen."""
    kept = TopicPartition(await make_topic(), 0)
    gone = f"{group_id}-topic"
    async with Admin(bootstrap) as admin:
        await admin.create_topic(gone)
        await admin.alter_group_offsets(
            group_id, {TopicPartition(gone, 0): OffsetAndMetadata(0), kept: OffsetAndMetadata(0)}
        )
        await admin.delete_topics([gone])
        lag = await admin.group_lag(group_id)
        assert lag[kept].lag == 0
        assert all(found.end_offset is None for key, found in lag.items() if key.topic == gone)


async def test_calls_about_groups_can_be_cancelled_anywhere(
    bootstrap: str, make_topic: MakeTopic, group_id: str
) -> None:
    partition = TopicPartition(await make_topic(), 0)
    async with Admin(bootstrap) as admin:

        async def usable() -> None:
            await admin.alter_group_offsets(group_id, {partition: OffsetAndMetadata(0)})
            assert (await admin.group_offsets(group_id))[partition].offset == 0

        for call in (
            admin.list_groups,
            lambda: admin.describe_groups([group_id]),
            lambda: admin.group_lag(group_id),
            lambda: admin.reset_group_offsets(group_id, ResetTo.earliest()),
            lambda: admin.delete_group_offsets(group_id, [partition]),
            lambda: admin.delete_groups([group_id]),
        ):
            await usable()
            assert await sweep(call, usable) > 0
        await admin.delete_groups([group_id])
