"""A membership goes through joining, rebalancing, committing, losing and leaving."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from clients.conftest import Run
from clients.fake_broker import Answer, FakeBroker, serving

from barnabas_clients.assignors.assignor import Assignor
from barnabas_clients.assignors.built_in import COOPERATIVE_STICKY, RANGE
from barnabas_clients.backoff import Backoff
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import CommitFailedError
from barnabas_clients.groups.session import GroupSettings
from barnabas_clients.protocol.errors import ErrorCode, FencedInstanceIdError, GroupAuthorizationFailedError
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_clients.protocol.join_group import JoinGroupRequest
from barnabas_clients.protocol.leave_group import LeaveGroupRequest
from barnabas_clients.protocol.offset_commit import OffsetCommitRequest
from barnabas_clients.protocol.sync_group import SyncGroupRequest
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

from .fake_coordinator import TOPIC, FakeCoordinator, Recorder, refusal
from .settled_session import SettledSession

LONG_S = 15.0
POLL_S = 60.0
QUICK = Backoff(0.001, 0.01)
ALL = (0, 1, 2, 3)
POSITION = {TopicPartition(TOPIC, 0): OffsetAndMetadata(7)}


@contextlib.asynccontextmanager
async def member(
    broker: FakeBroker,
    handler: Recorder,
    *,
    assignor: Assignor = RANGE,
    instance: str | None = None,
) -> AsyncIterator[SettledSession]:
    """Start a session, and close it in the end."""
    settings = GroupSettings(
        group_id="g",
        group_instance_id=instance,
        session_timeout_s=6.0,
        heartbeat_interval_s=0.01,
        rebalance_timeout_s=POLL_S,
        assignors=(assignor,),
    )
    async with Cluster(f"127.0.0.1:{broker.port}", backoff=QUICK) as cluster:
        session = SettledSession(cluster, settings, handler, backoff=QUICK)
        session.start()
        try:
            yield session
        finally:
            await session.close(LONG_S)


def test_a_lone_member_gets_everything_and_gives_it_back(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving(broker):
            async with member(broker, handler) as session:
                await session.wait_stable(LONG_S)
                assert (session.generation_id, session.member_id) == (1, "m1")
                assert handler.mine == {TopicPartition(TOPIC, number) for number in ALL}
            assert handler.log == [("assign", ALL), ("revoke", ALL)]
            assert not group.joined
            assert (session.generation_id, session.member_id) == (-1, "")

    run(main())


def test_a_static_member_does_not_leave(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving(broker):
            async with member(broker, handler, instance="i") as session:
                await session.wait_stable(LONG_S)
            assert group.count(LeaveGroupRequest) == 0
            assert handler.log == [("assign", ALL), ("revoke", ALL)]

    run(main())


def test_two_members_share_eagerly(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        one = Recorder()
        two = Recorder()
        group = FakeCoordinator(broker)
        async with serving(broker), member(broker, one) as first:
            await first.wait_stable(LONG_S)
            group.size = 2
            async with member(broker, two):
                await one.until("assign", "revoke", "assign")
                await two.until("assign")
                assert one.log == [("assign", ALL), ("revoke", ALL), ("assign", (0, 1))]
                assert two.log == [("assign", (2, 3))]
                group.size = 1

    run(main())


def test_two_members_share_cooperatively_without_ever_sharing_a_partition(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        one = Recorder()
        two = Recorder()
        group = FakeCoordinator(broker)
        async with serving(broker), member(broker, one, assignor=COOPERATIVE_STICKY) as first:
            await first.wait_stable(LONG_S)
            group.size = 2
            async with member(broker, two, assignor=COOPERATIVE_STICKY):
                await one.until("assign", "revoke", "assign", "assign")
                await two.until("assign", "assign")
                assert one.log == [("assign", ALL), ("revoke", (2, 3)), ("assign", ()), ("assign", ())]
                assert two.log == [("assign", ()), ("assign", (2, 3))]
                group.size = 1

    run(main())


def test_heartbeats_go_on_while_the_application_takes_its_time(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving(broker), member(broker, handler) as session:
            for gate, told in (("assign", ("assign",)), ("revoke", ("assign", "revoke"))):
                handler.gates[gate].clear()
                if gate == "revoke":
                    await group.rebalance()
                await handler.until(*told)
                await group.beats(3)
                handler.gates[gate].set()
                await session.wait_stable(LONG_S)

    run(main())


def test_a_member_that_the_coordinator_has_forgotten_has_lost_its_partitions(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving(broker), member(broker, handler) as session:
            await session.wait_stable(LONG_S)
            group.refuse(HeartbeatRequest, ErrorCode.UNKNOWN_MEMBER_ID)
            await handler.until("assign", "lose", "assign")
            assert session.member_id != "m1"
            group.refuse(HeartbeatRequest, ErrorCode.ILLEGAL_GENERATION)
            known = session.member_id
            await handler.until("assign", "lose", "assign", "lose", "assign")
            assert session.member_id == known

    run(main())


@pytest.mark.parametrize("kind", [JoinGroupRequest, SyncGroupRequest, HeartbeatRequest])
def test_what_passes_is_waited_for(run: Run, kind: type[object]) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        group.refuse(kind, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
        async with serving(broker), member(broker, handler) as session:
            await group.until(lambda: not group.refusals[kind])
            await session.wait_stable(LONG_S)
            assert handler.log == [("assign", ALL)]

    run(main())


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (JoinGroupRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (SyncGroupRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (HeartbeatRequest, ErrorCode.FENCED_INSTANCE_ID),
    ],
)
def test_what_no_retry_mends_ends_the_session(run: Run, kind: type[object], code: ErrorCode) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving(broker), member(broker, handler, instance="i") as session:
            if kind is HeartbeatRequest:
                await session.wait_stable(LONG_S)
            group.refuse(kind, code)
            if kind is HeartbeatRequest:
                await handler.until("assign", "lose")
            with pytest.raises((GroupAuthorizationFailedError, FencedInstanceIdError)):
                await session.wait_stable(LONG_S)
            assert session.failure is not None
            assert handler.log == ([("assign", ALL), ("lose", ALL)] if kind is HeartbeatRequest else [])
            with pytest.raises(type(session.failure)):
                await session.commit(POSITION, LONG_S)

    run(main())


def test_a_handler_that_raises_ends_the_session(run: Run) -> None:
    async def main() -> None:
        class Faulty(Recorder):
            async def assign(self, added: frozenset[TopicPartition], whole: frozenset[TopicPartition]) -> None:
                raise LookupError(f"{len(added)} of {len(whole)}")

        broker = FakeBroker(1)
        group = FakeCoordinator(broker)
        async with serving(broker), member(broker, Faulty()) as session:
            with pytest.raises(LookupError, match="4 of 4"):
                await session.wait_stable(LONG_S)
            assert not group.joined

    run(main())


def test_a_user_that_does_not_poll_gives_way_and_may_come_back(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving(broker), member(broker, handler) as session:
            await session.wait_stable(LONG_S)
            # Its time passes here, not in a wait: a short limit would be over before a busy machine has joined.
            session._heartbeats._user._polled_at_s -= POLL_S
            await handler.until("assign", "lose")
            await group.until(lambda: not group.joined)
            assert session.generation_id == -1
            with pytest.raises(CommitFailedError, match="not a member"):
                await session.commit(POSITION, LONG_S)
            session.polled()
            await handler.until("assign", "lose", "assign")
            session._heartbeats._user._polled_at_s -= POLL_S
            await handler.until("assign", "lose", "assign", "lose")

    run(main())


def test_a_changed_subscription_is_joined_with_and_an_empty_one_leaves(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving(broker), member(broker, handler) as session:
            await session.wait_stable(LONG_S)
            handler.topics = frozenset({TOPIC, "u"})
            group.cluster.topics["u"] = [(1, 1)]
            session.resubscribe()
            await handler.until("assign", "revoke", "assign")
            assert TopicPartition("u", 0) in handler.mine
            handler.topics = frozenset()
            session.resubscribe()
            await group.until(lambda: not group.joined)
            assert not handler.mine
            handler.topics = frozenset({"u"})
            session.resubscribe()
            await handler.until("assign", "revoke", "assign", "revoke", "assign")
            assert handler.mine == {TopicPartition("u", 0)}

    run(main())


def test_the_leader_sees_a_topic_grow_and_one_appear(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder(TOPIC, "later")
        group = FakeCoordinator(broker)
        async with serving(broker), member(broker, handler) as session:
            await session.wait_stable(LONG_S)
            group.cluster.topics["later"] = [(1, 1)]
            group.grow(5)
            await handler.until("assign", "revoke", "assign")
            assert handler.log[-1] == ("assign", (0, 0, 1, 2, 3, 4))

    run(main())


def test_a_commit_goes_out_in_the_members_generation(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving(broker), member(broker, handler, instance="i") as session:
            await session.wait_stable(LONG_S)
            await session.commit(POSITION, LONG_S)
            assert group.commits == [(0, "m1", 7)]
            (request,) = [request for request, _ in broker.seen if isinstance(request, OffsetCommitRequest)]
            assert request.generation_id_or_member_epoch == 1
            assert request.group_instance_id == "i"

    run(main())


@pytest.mark.parametrize("assignor", [RANGE, COOPERATIVE_STICKY], ids=["eager", "cooperative"])
def test_a_commit_that_straddles_a_rebalance_is_repeated_if_nothing_was_taken(run: Run, assignor: Assignor) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        answer = broker.answers[OffsetCommitRequest]
        held = asyncio.Event()

        async def hold(request: OffsetCommitRequest) -> Answer:
            held.set()
            await group.until(lambda: bool(group.joined) and group.is_rebalancing)
            broker.answers[OffsetCommitRequest] = answer
            return refusal(request, ErrorCode.ILLEGAL_GENERATION)

        async with serving(broker), member(broker, handler, assignor=assignor) as session:
            await session.wait_stable(LONG_S)
            broker.answers[OffsetCommitRequest] = hold
            commit = asyncio.create_task(session.commit(POSITION, LONG_S))
            await held.wait()
            # The member joins again while its commit is under way, and the next generation begins only later.
            group.size = 2
            session.resubscribe()
            await group.until(lambda: broker.answers[OffsetCommitRequest] is answer)
            group.size = 1
            await group.complete()
            if assignor is RANGE:
                with pytest.raises(CommitFailedError, match="taken"):
                    await commit
                assert not group.commits
            else:
                await commit
                assert group.commits == [(0, "m1", 7)]

    run(main())


def test_a_commit_of_a_member_that_was_thrown_out_fails(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving(broker), member(broker, handler) as session:
            await session.wait_stable(LONG_S)
            group.refuse(OffsetCommitRequest, ErrorCode.UNKNOWN_MEMBER_ID)
            with pytest.raises(CommitFailedError, match="taken"):
                await session.commit(POSITION, LONG_S)
            await handler.until("assign", "lose", "assign")

    run(main())
