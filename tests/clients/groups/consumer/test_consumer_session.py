"""A membership in a group of KIP-848 joins, shares, commits, loses and leaves, and survives what coordinators do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from cancellation import sweep
from clients.conftest import Run
from clients.fake_broker import Answer, FakeBroker, serving
from clients.groups.fake_coordinator import TOPIC

from barnabas_clients import Consumer
from barnabas_clients.backoff import Backoff
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import CommitFailedError, UnsupportedVersionError
from barnabas_clients.groups import consumer_heartbeats, consumer_session
from barnabas_clients.groups.consumer_session import ConsumerGroupSettings, ConsumerSession
from barnabas_clients.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas_clients.protocol.errors import ErrorCode, KafkaError
from barnabas_clients.protocol.offset_commit import OffsetCommitRequest
from barnabas_clients.protocol.offset_fetch import OffsetFetchRequest
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

from .fake_consumers import FakeConsumers, Owner

LONG_S = 15.0
POLL_S = 60.0
QUICK = Backoff(0.001, 0.01)
ALL = (0, 1, 2, 3)
POSITION = {TopicPartition(TOPIC, 0): OffsetAndMetadata(7)}
Beat = ConsumerGroupHeartbeatRequest
Code = ErrorCode


def names_of(beat: Beat) -> list[str] | None:
    return None if beat.subscribed_topic_names is None else list(beat.subscribed_topic_names)


@contextlib.asynccontextmanager
async def member(
    *brokers: FakeBroker,
    handler: Owner,
    member_id: str = "m",
    instance: str | None = None,
    close_s: float = LONG_S,
) -> AsyncIterator[ConsumerSession]:
    """Start a session, and close it in the end."""
    settings = ConsumerGroupSettings("g", instance, rebalance_timeout_s=POLL_S)
    async with Cluster([f"127.0.0.1:{broker.port}" for broker in brokers], backoff=QUICK) as cluster:
        session = ConsumerSession(cluster, settings, handler, backoff=QUICK, member_id=member_id)
        session.start()
        try:
            yield session
        finally:
            await session.close(close_s)


@contextlib.asynccontextmanager
async def settled(
    interval_ms: int = 10, close_s: float = LONG_S
) -> AsyncIterator[tuple[FakeConsumers, Owner, ConsumerSession]]:
    """Serve a group with a lone member that has everything, which its coordinator has heard."""
    broker = FakeBroker(1)
    handler = Owner([])
    group = FakeConsumers(broker, interval_ms=interval_ms)
    async with serving(broker), member(broker, handler=handler, close_s=close_s) as session:
        await handler.holds(4)
        await group.until(lambda: group.members["m"].has == set(ALL))
        yield group, handler, session


def test_a_lone_member_gets_everything_and_gives_it_back(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Owner([])
        group = FakeConsumers(broker)
        async with serving(broker):
            async with member(broker, handler=handler) as session:
                await handler.holds(4)
                await group.until(lambda: group.members["m"].has == set(ALL))
                assert (session.generation_id, session.member_id, session.rebalances) == (1, "m", 1)
            assert handler.log == [("assign", ALL), ("revoke", ALL)]
            assert not group.members
            assert group.beats_seen[-1].member_epoch == -1
            assert session.generation_id == -1

    run(main())


def test_four_members_share_and_never_have_a_partition_together(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        group = FakeConsumers(broker, partitions=8)
        owners: list[Owner] = []
        async with serving(broker), contextlib.AsyncExitStack() as stack:
            for number in range(4):
                await stack.enter_async_context(member(broker, handler=Owner(owners), member_id=f"m{number}"))
            # Heartbeats come all the time, and each of them has a look at what is held together.
            await group.until(lambda: [len(owner.mine) for owner in owners] == [2] * 4)
            assert sorted(key.partition for owner in owners for key in owner.mine) == list(range(8))
            await group.until(lambda: all(known.epoch == group.epoch for known in group.members.values()))

    run(main())


def test_what_is_revoked_is_reported_after_the_application_is_done_with_it(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        owners: list[Owner] = []
        one, two = Owner(owners), Owner(owners)
        group = FakeConsumers(broker)
        async with serving(broker), member(broker, handler=one, member_id="a") as first:
            await one.holds(4)
            one.gates["revoke"].clear()
            async with member(broker, handler=two, member_id="b"):
                await one.until("assign", "revoke")
                beats = group.count(Beat)
                await group.until(lambda: group.count(Beat) > beats + 10)
                assert two.mine == frozenset()
                # The epoch is the old one until then, and in it the application may store what it has done.
                await first.commit({TopicPartition(TOPIC, 1): OffsetAndMetadata(5)}, LONG_S)
                assert group.commits == [(1, "a", 5)]
                one.gates["revoke"].set()
                await two.holds(2)
                assert two.log == [("assign", (1, 3))]
                assert one.log == [("assign", ALL), ("revoke", (1, 3))]

    run(main())


def test_g4_a_static_member_says_that_it_comes_back(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Owner([])
        group = FakeConsumers(broker)
        async with serving(broker):
            async with member(broker, handler=handler, instance="i"):
                await handler.holds(4)
            assert (group.beats_seen[-1].member_epoch, group.beats_seen[-1].instance_id) == (-2, "i")

    run(main())


@pytest.mark.parametrize("fate", ["dies", "freezes", "moves"])
def test_another_coordinator_is_found_and_the_application_hears_nothing_of_it(run: Run, fate: str) -> None:
    async def main() -> None:
        old, new = FakeBroker(1), FakeBroker(2)
        handler = Owner([])
        group = FakeConsumers(old, new, interval_ms=60_000 if fate == "dies" else 10)
        async with serving(new), serving(old), member(old, new, handler=handler):
            await handler.holds(4)
            await group.until(lambda: group.members["m"].has == set(ALL))
            group.move(new)
            if fate == "dies":
                old.drop_connections()
            elif fate == "freezes":
                group.freeze(old)
            await group.until(lambda: group.count(Beat, new) > 0)
            full = next(beat for beat, _ in new.seen if isinstance(beat, Beat))
            assert (full.member_epoch, full.rebalance_timeout_ms) == (1, POLL_S * 1000)
            assert full.topic_partitions is not None
            assert [list(row.partitions) for row in full.topic_partitions] == [list(ALL)]
            assert handler.log == [("assign", ALL)]

    run(main())


@pytest.mark.parametrize("code", [Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH])
def test_who_is_thrown_out_is_told_and_joins_again(run: Run, code: Code) -> None:
    async def main() -> None:
        async with settled() as (group, handler, session):
            handler.gates["lose"].clear()
            group.refuse(Beat, code)
            await handler.until("assign", "lose")
            with pytest.raises(CommitFailedError, match="not a member"):
                await session.commit(POSITION, LONG_S)
            before = len(group.beats_seen)
            handler.gates["lose"].set()
            await handler.until("assign", "lose", "assign")
            assert (group.beats_seen[before].member_id, group.beats_seen[before].member_epoch) == ("m", 0)

    run(main())


@pytest.mark.parametrize(
    "code", [Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE]
)
def test_g11_a_coordinator_that_moves_costs_nothing(run: Run, code: Code) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Owner([])
        group = FakeConsumers(broker)
        group.refuse(Beat, code)
        async with serving(broker), member(broker, handler=handler):
            await handler.holds(4)
            group.refuse(Beat, *[code] * 3)
            await group.until(lambda: not group.refusals[Beat])
            await group.beats_of(2)
            assert handler.log == [("assign", ALL)]

    run(main())


def test_an_error_that_no_retry_mends_ends_it_and_says_what_the_coordinator_said(run: Run) -> None:
    async def main() -> None:
        async with settled() as (group, handler, session):
            group.refuse(Beat, Code.UNSUPPORTED_ASSIGNOR)
            await handler.until("assign", "lose")
            assert session._task is not None
            await asyncio.wait({session._task})
            with pytest.raises(KafkaError, match="group g"):
                await session.commit(POSITION, LONG_S)

    run(main())


def test_a_cluster_that_does_not_serve_the_protocol_is_named_as_the_reason(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Owner([])
        group = FakeConsumers(broker)
        del broker.offered[Beat.api_key]
        async with serving(broker), member(broker, handler=handler) as session:
            assert session._task is not None
            await asyncio.wait({session._task})
            with pytest.raises(UnsupportedVersionError, match="group_protocol=classic"):
                await session.commit(POSITION, LONG_S)
            assert group.count(Beat) == 0
            assert handler.log == []

    run(main())


def test_g9_a_commit_of_an_old_epoch_is_repeated_after_the_next_heartbeat(run: Run) -> None:
    async def main() -> None:
        async with settled(interval_ms=60_000) as (group, _, session):
            group.change()
            group.members["m"].epoch = group.epoch - 1
            group.refuse(OffsetCommitRequest, Code.STALE_MEMBER_EPOCH)
            await session.commit(POSITION, LONG_S)
            assert session.generation_id == group.epoch
            assert group.commits == [(0, "m", 7)]

    run(main())


def test_g9_a_commit_of_who_is_no_member_any_more_fails(run: Run) -> None:
    async def main() -> None:
        async with settled(interval_ms=60_000) as (group, handler, session):
            group.forget("m")
            with pytest.raises(CommitFailedError, match="taken from this member"):
                await session.commit(POSITION, LONG_S)
            await handler.until("assign", "lose", "assign")

    run(main())


def test_g10_offsets_are_looked_up_as_a_member_and_again_in_the_next_epoch(run: Run) -> None:
    async def main() -> None:
        async with settled(interval_ms=60_000) as (group, _, session):
            group.stored[0] = 42
            group.group_errors.append(Code.STALE_MEMBER_EPOCH)
            found = await session.look_up(list(POSITION), LONG_S)
            assert found == {TopicPartition(TOPIC, 0): OffsetAndMetadata(42)}
            asked = [beat.groups[0] for beat, _ in group.brokers[0].seen if isinstance(beat, OffsetFetchRequest)]
            assert [(group.member_id, group.member_epoch) for group in asked] == [("m", 1), ("m", 1)]

    run(main())


def test_a_user_that_does_not_poll_gives_way_and_may_come_back(run: Run) -> None:
    async def main() -> None:
        async with settled() as (group, handler, session):
            session._heartbeats._user._polled_at_s -= POLL_S
            await handler.until("assign", "lose")
            await group.until(lambda: not group.members)
            assert group.beats_seen[-1].member_epoch == -1
            with pytest.raises(CommitFailedError, match="not a member"):
                await session.commit(POSITION, LONG_S)
            session.polled()
            await handler.until("assign", "lose", "assign")

    run(main())


def test_other_topics_are_said_at_once(run: Run) -> None:
    async def main() -> None:
        async with settled(interval_ms=60_000) as (group, handler, session):
            handler.topics = frozenset({TOPIC, "other"})
            session.resubscribe()
            await group.until(lambda: names_of(group.beats_seen[-1]) == ["other", TOPIC])
            handler.topics = frozenset()
            session.resubscribe()
            await group.until(lambda: not group.members)
            assert handler.log == [("assign", ALL), ("revoke", ALL)]
            handler.topics = frozenset({TOPIC})
            session.resubscribe()
            await handler.holds(4)

    run(main())


def test_g13_a_pattern_goes_to_the_coordinator_which_names_the_topics_by_their_ids(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Owner([], pattern="t|u.*")
        group = FakeConsumers(broker)
        async with serving(broker), member(broker, handler=handler):
            await handler.holds(4)
            first = group.beats_seen[0]
            assert (first.subscribed_topic_regex, names_of(first)) == ("t|u.*", [])

    run(main())


def test_a_topic_that_the_metadata_lacks_is_looked_for_until_it_is_there(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_session, "NAMES_INTERVAL_S", 0.01)

    async def main() -> None:
        broker = FakeBroker(1)
        handler = Owner([])
        group = FakeConsumers(broker)
        group.topic_id = b"made anew".ljust(16, b".")
        async with serving(broker), member(broker, handler=handler):
            await group.beats_of(5)
            assert handler.log == []
            group.cluster.ids[TOPIC] = group.topic_id
            await handler.holds(4)

    run(main())


def test_a_close_ends_in_its_time_though_nobody_answers(run: Run) -> None:
    async def main() -> None:
        async with settled(close_s=0.2) as (group, handler, _):
            group.freeze(group.brokers[0])
        assert handler.log == [("assign", ALL), ("revoke", ALL)]

    run(main())


def test_a_heartbeat_that_nobody_answers_is_said_again_and_in_full(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_heartbeats, "HEARTBEAT_TIMEOUT_S", 0.05)

    async def main() -> None:
        broker = FakeBroker(1)
        handler = Owner([])
        group = FakeConsumers(broker)
        answer = broker.answers[Beat]
        silent = 0

        async def answer_late(beat: Beat) -> Answer:
            nonlocal silent
            if silent:
                silent -= 1
                await asyncio.Event().wait()
            return await answer(beat)

        broker.answers[Beat] = answer_late
        async with serving(broker), member(broker, handler=handler):
            await handler.holds(4)
            await group.until(lambda: group.members["m"].has == set(ALL))
            silent = 2
            group.beats_seen.clear()
            await group.until(lambda: not silent and len(group.beats_seen) > 2)
            assert POLL_S * 1000 in {beat.rebalance_timeout_ms for beat in group.beats_seen}
            assert handler.log == [("assign", ALL)]

    run(main())


def test_calls_that_are_cancelled_leave_the_membership_usable(run: Run) -> None:
    async def main() -> None:
        async with settled() as (group, _, session):

            async def usable() -> None:
                await session.commit(POSITION, LONG_S)

            async def stale() -> None:
                group.refuse(OffsetCommitRequest, Code.STALE_MEMBER_EPOCH)

            await usable()
            assert await sweep(usable, usable) > 0
            assert await sweep(usable, usable, before=stale) > 1
            assert await sweep(lambda: session.look_up(list(POSITION), LONG_S), usable) > 0

    run(main())


def test_a_close_that_is_cancelled_leaves_no_task(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Owner([])
        FakeConsumers(broker)
        async with serving(broker), Cluster(f"127.0.0.1:{broker.port}", backoff=QUICK) as cluster:
            session = ConsumerSession(cluster, ConsumerGroupSettings("g"), handler, backoff=QUICK)
            session.start()
            await handler.holds(4)
            handler.gates["revoke"].clear()
            closing = asyncio.create_task(session.close(LONG_S))
            await handler.until("assign", "revoke")
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing

    run(main())


def test_who_waits_for_records_is_woken_by_a_failure_before_the_first_assignment(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        group = FakeConsumers(broker)
        group.refuse(Beat, Code.UNRELEASED_INSTANCE_ID)
        async with (
            serving(broker),
            Consumer(f"127.0.0.1:{broker.port}", topics=[TOPIC], group_id="g", group_protocol="consumer") as consumer,
        ):
            with pytest.raises(KafkaError, match="UNRELEASED_INSTANCE_ID"):
                await anext(consumer)

    run(main())
