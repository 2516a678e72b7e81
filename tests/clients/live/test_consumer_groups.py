"""Members of a group share partitions, commit, and can rely on their callbacks, whichever protocol they speak."""

import asyncio
import os
from collections.abc import Callable, Iterator

import pytest
from machines import cluster_handle

from barnabas_clients.consumer.consumer import Consumer
from barnabas_clients.consumer.errors import NoOffsetError
from barnabas_clients.errors import CommitFailedError
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

from .batches import append_values
from .conftest import MakeTopic
from .test_consumer import VALUES, read

Member = Callable[..., Consumer]


@pytest.fixture(scope="module", params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    """Return the protocol of this test's group."""
    return str(request.param)


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest, protocol: str) -> Iterator[str]:
    """Where brokers are that serve the protocol: those of all tests, or one that is told to."""
    given = os.environ.get("BARNABAS_TEST_BOOTSTRAP")
    if given or protocol == "classic":
        yield given or str(request.getfixturevalue("cluster").bootstrap)
    else:
        with cluster_handle.cluster(1) as handle:
            yield handle.bootstrap


@pytest.fixture
def member(bootstrap: str, group_id: str, protocol: str) -> Member:
    """Make a member of this test's group; it begins with the first record."""

    def make(*topics: str, **settings: object) -> Consumer:
        given = {"topics": topics, "auto_offset_reset": "earliest", "group_protocol": protocol, **settings}
        if protocol == "classic":
            given["heartbeat_interval_s"] = 0.2
        return Consumer(bootstrap, group_id=group_id, **given)  # type: ignore[arg-type]  # checked where it is called

    return make


async def assigned(consumer: Consumer, count: int) -> None:
    """Return when this many partitions are assigned; the consumer asks for records meanwhile, and there are none."""
    async with asyncio.timeout(30):
        while len(consumer.assignment) != count:
            assert await consumer.get_many(timeout_s=0.02) == {}


async def test_two_members_share_the_partitions_and_read_each_record_once(
    bootstrap: str, make_topic: MakeTopic, member: Member
) -> None:
    name = await make_topic(4)
    async with member(name) as first, member(name) as second:
        await asyncio.gather(assigned(first, 2), assigned(second, 2))
        assert not first.assignment & second.assignment
        for partition in range(4):
            await append_values(bootstrap, name, VALUES, partition=partition)
        found = await asyncio.gather(read(first, 2_000), read(second, 2_000))
    seen = sorted((record.partition, record.offset) for records in found for record in records)
    assert seen == [(partition, offset) for partition in range(4) for offset in range(1_000)]


async def test_committing_before_the_first_assignment_stores_nothing(make_topic: MakeTopic, member: Member) -> None:
    name = await make_topic()
    async with member(name) as consumer:
        await consumer.commit()
        assert await consumer.committed(TopicPartition(name, 0)) == {}


async def test_an_automatic_commit_never_says_less_than_the_application_did(
    bootstrap: str, make_topic: MakeTopic, member: Member
) -> None:
    name = await make_topic()
    await append_values(bootstrap, name, VALUES)

    async def fail_after_a_commit() -> None:
        async with member(name) as consumer:
            async for record in consumer:
                if record.offset == 7:
                    await consumer.commit()
                    # Closing commits what was finished with, of which the record in hand is no part by itself.
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_after_a_commit()
    async with member(name) as consumer:
        assert (await read(consumer, 1))[0].offset == 8


async def test_a_restart_goes_on_behind_what_was_finished(
    bootstrap: str, make_topic: MakeTopic, member: Member
) -> None:
    name = await make_topic()
    await append_values(bootstrap, name, VALUES)
    async with member(name) as consumer:
        assert (await read(consumer, 10))[-1].offset == 9
    async with member(name) as consumer:
        assert (await read(consumer, 1))[0].offset == 10


async def test_what_was_in_hand_when_it_failed_comes_again(
    bootstrap: str, make_topic: MakeTopic, member: Member
) -> None:
    name = await make_topic()
    await append_values(bootstrap, name, VALUES)

    async def fail_at(offset: int) -> None:
        async with member(name) as consumer:
            async for record in consumer:
                if record.offset == offset:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_at(7)
    async with member(name) as consumer:
        assert (await read(consumer, 1))[0].offset == 7
        many = await consumer.get_many(max_records=5)
        assert [record.offset for records in many.values() for record in records] == [8, 9, 10, 11, 12]
        await consumer.close()  # not asked for more: the five are not finished
    async with member(name) as consumer:
        assert (await read(consumer, 1))[0].offset == 8


async def test_a_commit_by_hand_covers_what_was_handed_out(
    bootstrap: str, make_topic: MakeTopic, member: Member
) -> None:
    name = await make_topic()
    partition = TopicPartition(name, 0)
    await append_values(bootstrap, name, VALUES)
    async with member(name, auto_commit=False) as consumer:
        async for record in consumer:
            if record.offset == 4:
                await consumer.commit()
            if record.offset == 8:
                break
        assert (await consumer.committed(partition))[partition].offset == 5
        await consumer.commit({partition: OffsetAndMetadata(3, "a note")})
        stored = (await consumer.committed())[partition]
        assert (stored.offset, stored.metadata) == (3, "a note")
    async with member(name, auto_commit=False) as consumer:
        assert (await read(consumer, 1))[0].offset == 3


async def test_finished_offsets_are_committed_regularly(bootstrap: str, make_topic: MakeTopic, member: Member) -> None:
    name = await make_topic()
    partition = TopicPartition(name, 0)
    await append_values(bootstrap, name, VALUES[:20])
    async with member(name, auto_commit_interval_s=0.05) as consumer:
        await read(consumer, 10)
        async with asyncio.timeout(20):
            # The tenth is still in hand.
            while (stored := await consumer.committed(partition)).get(partition) != OffsetAndMetadata(9, "", 0):
                assert stored.get(partition, OffsetAndMetadata(0)).offset <= 9
                if stored.get(partition, OffsetAndMetadata(-1)).offset == 9:
                    break


async def test_nothing_is_taken_away_before_the_application_asks_for_more(
    bootstrap: str, make_topic: MakeTopic, member: Member, protocol: str
) -> None:
    name = await make_topic(2)
    for partition in (0, 1):
        await append_values(bootstrap, name, VALUES[:3], partition=partition)
    told: list[str] = []

    async def on_revoked(consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        told.append(f"revoked {len(partitions)}")
        assert partitions <= consumer.assignment

    async with member(name, on_revoked=on_revoked) as first:
        in_hand = await first.get_many(max_records=6, timeout_s=30)
        assert in_hand
        async with member(name) as second:
            waiting = asyncio.ensure_future(assigned_or_more(second, 1))
            done, _ = await asyncio.wait({waiting}, timeout=0.7)
            assert not done
            assert told == []
            assert len(first.assignment) == 2
            await asyncio.gather(assigned_or_more(first, 1), waiting)
            # The range assignor makes everybody give up everything, and a coordinator only what moves.
            assert told == [f"revoked {2 if protocol == 'classic' else 1}"]
            assert len(second.assignment) == 1


async def assigned_or_more(consumer: Consumer, count: int) -> None:
    async with asyncio.timeout(30):
        while len(consumer.assignment) != count:
            await consumer.get_many(timeout_s=0.02)


async def test_a_callback_may_seek_before_anything_is_handed_out(
    bootstrap: str, make_topic: MakeTopic, member: Member
) -> None:
    name = await make_topic()
    await append_values(bootstrap, name, VALUES)

    async def on_assigned(consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.sleep(0)
        for partition in partitions:
            await consumer.seek(partition, 500)

    async with member(name, on_assigned=on_assigned) as consumer:
        assert (await read(consumer, 1))[0].offset == 500


async def test_what_a_callback_raises_reaches_the_application_once(
    bootstrap: str, make_topic: MakeTopic, member: Member
) -> None:
    name = await make_topic()
    await append_values(bootstrap, name, VALUES)

    async def on_assigned(consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        raise ZeroDivisionError

    async with member(name, on_assigned=on_assigned) as consumer:
        with pytest.raises(ZeroDivisionError):
            await read(consumer, 1)
        assert (await read(consumer, 1))[0].offset == 0


async def test_a_cooperative_rebalance_leaves_the_others_alone(
    make_topic: MakeTopic, member: Member, protocol: str
) -> None:
    name = await make_topic(4)
    revoked: list[frozenset[TopicPartition]] = []

    async def on_revoked(_: Consumer, partitions: frozenset[TopicPartition]) -> None:
        revoked.append(partitions)

    settings = {"assignors": ["cooperative-sticky"]} if protocol == "classic" else {}
    async with member(name, on_revoked=on_revoked, **settings) as first:
        await assigned(first, 4)
        async with member(name, **settings) as second:
            await asyncio.gather(assigned(first, 2), assigned(second, 2))
            assert [len(partitions) for partitions in revoked] == [2]


@pytest.mark.parametrize(
    ("protocol", "assignor"),
    [
        ("classic", "range"),
        ("classic", "roundrobin"),
        ("classic", "sticky"),
        ("classic", "cooperative-sticky"),
        ("consumer", "uniform"),
        ("consumer", "range"),
    ],
    indirect=["protocol"],
)
async def test_every_assignor_shares_and_resumes(
    bootstrap: str, make_topic: MakeTopic, member: Member, assignor: str, protocol: str
) -> None:
    name = await make_topic(4)
    for partition in range(4):
        await append_values(bootstrap, name, VALUES[:10], partition=partition)
    settings = {"assignors": [assignor]} if protocol == "classic" else {"group_remote_assignor": assignor}
    async with member(name, **settings) as first:
        found = await read(first, 40)
        async with member(name, **settings) as second:
            await asyncio.gather(assigned_or_more(first, 2), assigned_or_more(second, 2))
            for partition in range(4):
                await append_values(bootstrap, name, VALUES[10:20], partition=partition)
            more = await asyncio.gather(read(first, 20), read(second, 20))
    seen = sorted((record.partition, record.offset) for records in (found, *more) for record in records)
    assert seen == [(partition, offset) for partition in range(4) for offset in range(20)]


async def test_a_static_member_that_restarts_disturbs_nobody(make_topic: MakeTopic, member: Member) -> None:
    name = await make_topic(2)
    revoked: list[str] = []

    async def on_revoked(*_: object) -> None:
        revoked.append("revoked")

    async with member(name, group_instance_id="a", on_revoked=on_revoked) as first:
        async with member(name, group_instance_id="b") as second:
            await asyncio.gather(assigned(first, 1), assigned(second, 1))
            before = second.assignment
            held = len(revoked)
        async with member(name, group_instance_id="b") as second:
            await assigned(second, 1)
            assert second.assignment == before
        assert len(revoked) == held
        assert await first.get_many(timeout_s=0.5) == {}
        assert len(revoked) == held


async def test_a_pattern_finds_topics_that_come_later(bootstrap: str, make_topic: MakeTopic, member: Member) -> None:
    first, second = await make_topic(), await make_topic()
    await append_values(bootstrap, first, [b"first"])
    pattern = f"{first}|{second}x?"
    async with member(pattern=pattern, metadata_max_age_s=0.2) as consumer:
        await assigned_or_more(consumer, 2)
        assert consumer.subscription == {first, second}
        await consumer.subscribe([second])
        await assigned_or_more(consumer, 1)
        await append_values(bootstrap, second, [b"second"])
        assert (await read(consumer, 1))[0].value == b"second"
        await consumer.unsubscribe()
        assert consumer.assignment == frozenset()


async def test_without_a_policy_a_group_without_offsets_is_an_error(
    bootstrap: str, make_topic: MakeTopic, member: Member
) -> None:
    name = await make_topic()
    await append_values(bootstrap, name, VALUES[:5])
    async with member(name, auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffsetError, match=f"{name}-0"):
            await read(consumer, 1)
        await consumer.seek(TopicPartition(name, 0), 2)
        assert (await read(consumer, 1))[0].offset == 2


async def test_a_group_commits_for_partitions_assigned_by_hand(
    bootstrap: str, make_topic: MakeTopic, member: Member
) -> None:
    name = await make_topic()
    partition = TopicPartition(name, 0)
    await append_values(bootstrap, name, VALUES[:5])
    for offset in range(2):
        async with member(topics=()) as consumer:
            await consumer.assign([partition])
            assert (await read(consumer, 1))[0].offset == offset


async def test_a_callback_may_commit_what_is_revoked(bootstrap: str, make_topic: MakeTopic, member: Member) -> None:
    name = await make_topic()
    await append_values(bootstrap, name, VALUES)

    async def on_revoked(consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        await consumer.commit(dict.fromkeys(partitions, 123))

    async with member(name, auto_commit=False, on_revoked=on_revoked) as consumer:
        await read(consumer, 1)
        await consumer.unsubscribe()
        assert consumer.assignment == frozenset()
        await consumer.subscribe([name])
        assert (await read(consumer, 1))[0].offset == 123


async def test_a_member_that_stays_away_loses_its_partitions_and_is_told(
    bootstrap: str, make_topic: MakeTopic, member: Member
) -> None:
    name = await make_topic()
    await append_values(bootstrap, name, VALUES)
    lost = asyncio.Event()

    async def on_lost(consumer: Consumer, partitions: frozenset[TopicPartition]) -> None:
        assert partitions == {TopicPartition(name, 0)}
        assert consumer.assignment == frozenset()
        lost.set()

    async with member(name, max_poll_interval_s=0.5, on_lost=on_lost) as consumer:
        assert (await read(consumer, 1))[0].offset == 0
        async with asyncio.timeout(20):
            await lost.wait()
        with pytest.raises(CommitFailedError):
            await consumer.commit({TopicPartition(name, 0): 1})
        # The record that was in hand was not finished with in time.
        assert (await read(consumer, 1))[0].offset == 0
