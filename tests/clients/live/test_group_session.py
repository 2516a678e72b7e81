"""Memberships at real coordinators: groups share, grow, shrink, and remember."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from cancellation import sweep
from clients.groups.settled_session import SettledSession

from barnabas_clients.admin import topics as admin
from barnabas_clients.admin.groups import describe_groups
from barnabas_clients.assignors.assignor import Assignor
from barnabas_clients.assignors.built_in import ASSIGNORS, COOPERATIVE_STICKY, RANGE
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import CommitFailedError
from barnabas_clients.groups.session import GroupSettings
from barnabas_clients.protocol.errors import FencedInstanceIdError
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

from .conftest import TIMEOUT_S, MakeTopic


class Holder:
    """A handler that takes what it gets."""

    def __init__(self, *topics: str) -> None:
        self.topics = frozenset(topics)
        self.mine: frozenset[TopicPartition] = frozenset()
        self.taken: list[frozenset[TopicPartition]] = []
        self.changed = asyncio.Condition()

    def subscription(self) -> frozenset[str]:
        return self.topics

    def owned(self) -> frozenset[TopicPartition]:
        return self.mine

    async def revoke(self, partitions: frozenset[TopicPartition]) -> None:
        self.taken.append(partitions)
        self.mine -= partitions

    async def lose(self, partitions: frozenset[TopicPartition]) -> None:
        self.mine -= partitions

    async def assign(self, added: frozenset[TopicPartition], whole: frozenset[TopicPartition]) -> None:
        assert whole - added == self.mine
        self.mine = whole
        async with self.changed:
            self.changed.notify_all()

    async def until(self, holds: Callable[[frozenset[TopicPartition]], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S), self.changed:
            await self.changed.wait_for(lambda: holds(self.mine))


@contextlib.asynccontextmanager
async def member(
    bootstrap: str, group_id: str, handler: Holder, assignor: Assignor = RANGE, instance: str | None = None
) -> AsyncIterator[SettledSession]:
    async with Cluster(bootstrap, client_id="test-member") as cluster:
        settings = GroupSettings(
            group_id=group_id,
            group_instance_id=instance,
            session_timeout_s=10.0,
            heartbeat_interval_s=0.1,
            assignors=(assignor,),
        )
        session = SettledSession(cluster, settings, handler)
        session.start()
        try:
            yield session
        finally:
            await session.close(TIMEOUT_S)


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
async def test_a_group_shares_and_closes_ranks(
    bootstrap: str, make_topic: MakeTopic, group_id: str, assignor: Assignor
) -> None:
    name = await make_topic(4)
    one, two = Holder(name), Holder(name)
    async with member(bootstrap, group_id, one, assignor) as first:
        await first.wait_stable(TIMEOUT_S)
        assert len(one.mine) == 4
        async with member(bootstrap, group_id, two, assignor):
            await two.until(lambda mine: len(mine) == 2)
            await one.until(lambda mine: len(mine) == 2)
            assert not one.mine & two.mine
            async with Cluster(bootstrap) as cluster:
                found = (await describe_groups(cluster, [group_id], TIMEOUT_S))[group_id]
            assert (found.assignor, len(found.members)) == (assignor.name, 2)
        await one.until(lambda mine: len(mine) == 4)
        # Cooperative members are only ever asked for what moves.
        assert max(map(len, one.taken)) == (2 if assignor is COOPERATIVE_STICKY else 4)


async def test_positions_outlive_the_members(bootstrap: str, make_topic: MakeTopic, group_id: str) -> None:
    name = await make_topic(2)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    async with member(bootstrap, group_id, Holder(name)) as session:
        await session.wait_stable(TIMEOUT_S)
        await session.commit({first: OffsetAndMetadata(0, "here")}, TIMEOUT_S)
        assert (await session.committed([first, second], TIMEOUT_S)).keys() == {first}
    with pytest.raises(CommitFailedError, match="not a member"):
        await session.commit({first: OffsetAndMetadata(0)}, TIMEOUT_S)
    async with member(bootstrap, group_id, Holder(name)) as session:
        assert (await session.committed(None, TIMEOUT_S))[first].metadata == "here"
        await session.wait_stable(TIMEOUT_S)


async def test_a_static_member_comes_back_to_what_it_had(bootstrap: str, make_topic: MakeTopic, group_id: str) -> None:
    name = await make_topic(2)
    other = Holder(name)
    async with member(bootstrap, group_id, other, instance="b") as session:
        async with member(bootstrap, group_id, before := Holder(name), instance="a"):
            await before.until(lambda mine: len(mine) == 1)
            await session.wait_stable(TIMEOUT_S)
            had = before.taken
            generation_id = session.generation_id
        async with member(bootstrap, group_id, after := Holder(name), instance="a"):
            await after.until(lambda mine: len(mine) == 1)
            assert after.mine == had[-1]
            assert session.generation_id == generation_id


async def test_of_two_with_one_instance_id_the_newer_stays(
    bootstrap: str, make_topic: MakeTopic, group_id: str
) -> None:
    name = await make_topic(1)
    async with member(bootstrap, group_id, old := Holder(name), instance="a") as first:
        await first.wait_stable(TIMEOUT_S)
        async with member(bootstrap, group_id, new := Holder(name), instance="a"):
            await new.until(lambda mine: len(mine) == 1)
            with pytest.raises(FencedInstanceIdError):
                await first.commit({TopicPartition(name, 0): OffsetAndMetadata(0)}, TIMEOUT_S)
            assert not old.taken


async def test_the_leader_sees_new_partitions(bootstrap: str, make_topic: MakeTopic, group_id: str) -> None:
    name = await make_topic(1)
    async with member(bootstrap, group_id, holder := Holder(name, f"{name}-later")) as session:
        await session.wait_stable(TIMEOUT_S)
        async with Cluster(bootstrap) as cluster:
            await admin.create_topic(cluster, f"{name}-later", 2, timeout_s=TIMEOUT_S)
            try:
                await holder.until(lambda mine: len(mine) == 3)
            finally:
                await admin.delete_topics(cluster, [f"{name}-later"], TIMEOUT_S)


async def test_calls_can_be_cancelled_anywhere(bootstrap: str, make_topic: MakeTopic, group_id: str) -> None:
    name = await make_topic(1)
    position = {TopicPartition(name, 0): OffsetAndMetadata(0)}
    async with member(bootstrap, group_id, Holder(name)) as session:
        await session.wait_stable(TIMEOUT_S)

        async def usable() -> None:
            await session.commit(position, TIMEOUT_S)
            assert await session.committed(position, TIMEOUT_S)

        assert await sweep(usable, usable) > 0
    async with Cluster(bootstrap) as cluster:

        async def live() -> None:
            session = SettledSession(cluster, GroupSettings(group_id), Holder(name))
            session.start()
            try:
                await session.wait_stable(TIMEOUT_S)
            finally:
                await session.close(TIMEOUT_S)

        assert await sweep(live, live) > 0
