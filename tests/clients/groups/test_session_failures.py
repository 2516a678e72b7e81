"""A membership survives failures, and ends when it must.

Coordinators die, freeze and move, and calls are cancelled.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from cancellation import sweep, tasks_end
from clients.conftest import Run
from clients.fake_broker import FakeBroker, serving

from barnabas_clients.backoff import Backoff
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.errors import ClientClosedError, DeadlineExceededError
from barnabas_clients.groups.session import GroupSettings
from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_clients.protocol.join_group import JoinGroupRequest
from barnabas_clients.protocol.leave_group import LeaveGroupRequest
from barnabas_clients.protocol.offset_commit import OffsetCommitRequest
from barnabas_clients.topic_partition import OffsetAndMetadata, TopicPartition

from .fake_coordinator import TOPIC, FakeCoordinator, Recorder
from .settled_session import SettledSession

LONG_S = 15.0
SHORT_S = 0.2
QUICK = Backoff(0.001, 0.01)
ALL = (0, 1, 2, 3)
POSITION = {TopicPartition(TOPIC, 0): OffsetAndMetadata(7)}
# The heartbeats' deadline is a third of it.
SESSION_TIMEOUT_S = 0.3


@contextlib.asynccontextmanager
async def member(
    *brokers: FakeBroker,
    handler: Recorder,
    heartbeat_s: float = 0.01,
    session_s: float = SESSION_TIMEOUT_S,
    close_s: float = LONG_S,
) -> AsyncIterator[SettledSession]:
    settings = GroupSettings("g", None, session_s, heartbeat_s)
    async with Cluster([f"127.0.0.1:{broker.port}" for broker in brokers], backoff=QUICK) as cluster:
        session = SettledSession(cluster, settings, handler, backoff=QUICK)
        session.start()
        try:
            yield session
        finally:
            await session.close(close_s)


@pytest.mark.parametrize("fate", ["dies", "freezes", "moves"])
def test_another_coordinator_is_found_and_the_application_hears_nothing_of_it(run: Run, fate: str) -> None:
    async def main() -> None:
        old = FakeBroker(1)
        new = FakeBroker(2)
        handler = Recorder()
        group = FakeCoordinator(old, new)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(serving(new))
            life = await stack.enter_async_context(contextlib.AsyncExitStack())
            await life.enter_async_context(serving(old))
            session = await stack.enter_async_context(member(old, new, handler=handler))
            await session.wait_stable(LONG_S)
            # A slow machine may have needed two joins: a heartbeat that took too long ends the one beside it.
            identity = session.member_id, session.generation_id
            group.move(new)
            if fate == "dies":
                await life.aclose()
            elif fate == "freezes":
                group.freeze(old)
            await group.until(lambda: group.count(HeartbeatRequest, new) > 2)
            await session.commit(POSITION, LONG_S)
            assert group.commits == [(0, session.member_id, 7)]
            assert handler.log == [("assign", ALL)]
            assert (session.member_id, session.generation_id) == identity

    run(main())


def test_a_dead_coordinator_is_noticed_between_heartbeats(run: Run) -> None:
    async def main() -> None:
        old = FakeBroker(1)
        new = FakeBroker(2)
        handler = Recorder()
        group = FakeCoordinator(old, new)
        async with serving(new), contextlib.AsyncExitStack() as life:
            await life.enter_async_context(serving(old))
            # Longer than the test may take.
            settings = GroupSettings("g", None, 3600.0, 1800.0)
            async with Cluster(f"127.0.0.1:{new.port}", backoff=QUICK) as cluster:
                session = SettledSession(cluster, settings, handler, backoff=QUICK)
                session.start()
                await session.wait_stable(LONG_S)
                await group.until(lambda: group.count(HeartbeatRequest, old) > 0)
                group.move(new)
                await life.aclose()
                await group.until(lambda: group.count(HeartbeatRequest, new) > 0)
                await session.close(LONG_S)

    run(main())


@pytest.mark.parametrize("fate", ["dies", "freezes"])
def test_a_join_does_not_wait_at_a_coordinator_that_is_gone(run: Run, fate: str) -> None:
    async def main() -> None:
        old = FakeBroker(1)
        new = FakeBroker(2)
        handler = Recorder()
        group = FakeCoordinator(old, new, size=2)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(serving(new))
            life = await stack.enter_async_context(contextlib.AsyncExitStack())
            await life.enter_async_context(serving(old))
            session = await stack.enter_async_context(member(old, new, handler=handler))
            await group.until(lambda: len(group.joined) == 1)
            group.joined.clear()
            group.size = 1
            group.move(new)
            if fate == "dies":
                await life.aclose()
            else:
                group.freeze(old)
            await session.wait_stable(LONG_S)
            assert group.count(JoinGroupRequest, new) > 0
            assert handler.log == [("assign", ALL)]

    run(main())


def test_a_frozen_coordinator_loses_its_connections(run: Run) -> None:
    async def main() -> None:
        old = FakeBroker(1)
        new = FakeBroker(2)
        handler = Recorder()
        group = FakeCoordinator(old, new)
        async with serving(old, new), member(new, handler=handler) as session:
            await session.wait_stable(LONG_S)
            group.freeze(old)
            group.move(new)
            await group.until(lambda: group.count(HeartbeatRequest, new) > 0)
            answered = [writer for writer in old.connections if not writer.transport.is_closing()]
            # Only the lane of metadata is left, where nothing waits for the group.
            assert len(answered) <= 1

    run(main())


def test_a_commit_leaves_a_frozen_coordinator_long_before_its_own_deadline(run: Run) -> None:
    async def main() -> None:
        old = FakeBroker(1)
        new = FakeBroker(2)
        handler = Recorder()
        group = FakeCoordinator(old, new)
        async with serving(old, new), member(old, new, handler=handler) as session:
            await session.wait_stable(LONG_S)
            group.freeze(old)
            commit = asyncio.create_task(session.commit(POSITION, 3600.0))
            await group.until(lambda: group.count(OffsetCommitRequest, old) > 0)
            group.move(new)
            await commit
            assert group.commits == [(0, "m1", 7)]

    run(main())


@pytest.mark.parametrize("what", ["joining", "in a generation", "revoking", "never found"])
@pytest.mark.parametrize("network", ["well", "frozen", "refused"])
def test_close_ends_within_its_deadline(run: Run, what: str, network: str) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker, size=2 if what == "joining" else 1)
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as life:
            await life.enter_async_context(serving(broker))
            if what == "never found":
                group.cluster.brokers[0].answers[FindCoordinatorRequest] = group.at(
                    broker, lambda _: asyncio.Event().wait(), FindCoordinatorRequest
                )
            async with Cluster(f"127.0.0.1:{broker.port}", backoff=QUICK) as cluster:
                session = SettledSession(cluster, GroupSettings("g"), handler, backoff=QUICK)
                session.start()
                if what == "joining":
                    await group.until(lambda: len(group.joined) == 1)
                elif what == "never found":
                    await group.until(lambda: group.count(FindCoordinatorRequest) > 0)
                else:
                    await session.wait_stable(LONG_S)
                if what == "revoking":
                    handler.gates["revoke"].clear()
                if what != "never found":
                    # All connections are there.
                    await group.until(lambda: group.count(HeartbeatRequest) > 0)
                if network == "frozen":
                    group.freeze(broker)
                elif network == "refused":
                    await life.aclose()
                began = loop.time()
                await session.close(SHORT_S)
                # Half of it would have been one more second: a limit, not a measurement.
                assert loop.time() - began < SHORT_S + 1.0
                assert session.generation_id == -1 or what == "revoking" or network == "frozen"
                assert session._task is not None
                assert session._task.done()
                with pytest.raises(ClientClosedError):
                    await session.wait_stable(LONG_S)
                await session.close(SHORT_S)

    run(main())


def test_a_handler_that_hangs_at_a_close_does_not_keep_the_group_waiting(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        handler.gates["revoke"].clear()
        async with serving(broker):
            async with member(broker, handler=handler, close_s=SHORT_S) as session:
                await session.wait_stable(LONG_S)
            assert group.count(LeaveGroupRequest) == 1

    run(main())


def test_a_handler_that_hung_already_before_a_close_is_left_for_a_goodbye(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving(broker):
            async with member(broker, handler=handler, close_s=SHORT_S) as session:
                await session.wait_stable(LONG_S)
                handler.gates["revoke"].clear()
                session.resubscribe()
                await handler.until("assign", "revoke")
            assert group.count(LeaveGroupRequest) == 1

    run(main())


def test_a_join_that_was_given_up_does_not_hold_back_the_next(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker, size=2)
        async with serving(broker), member(broker, handler=handler) as session:
            await group.until(lambda: len(group.joined) == 1)
            group.size = 1
            handler.topics = frozenset()
            session.resubscribe()
            handler.topics = frozenset({TOPIC})
            session.resubscribe()
            await session.wait_stable(LONG_S)
            assert handler.log == [("assign", ALL)]

    run(main())


def test_nobody_there_at_the_start_is_waited_for(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving(broker), member(broker, handler=handler) as session:
            group.refuse(JoinGroupRequest, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 5)
            with pytest.raises(DeadlineExceededError, match="group g: "):
                await session.wait_stable(0.0)
            await session.wait_stable(LONG_S)

    run(main())


def test_calls_can_be_cancelled_anywhere(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        FakeCoordinator(broker)
        # No heartbeat in between, however long this takes: a connection or a pause of theirs is not the call's.
        never = {"heartbeat_s": LONG_S, "session_s": 2 * LONG_S}
        async with serving(broker), member(broker, handler=handler, **never) as session:

            async def usable() -> None:
                await session.commit(POSITION, LONG_S)

            await session.wait_stable(LONG_S)
            # The first to ask dials for all: that the connection stays is right, and it must be there before the sweep.
            await usable()
            assert await sweep(usable, usable) > 0
            assert await sweep(lambda: session.wait_stable(LONG_S), usable) == 0

    run(main())


def test_a_close_that_is_cancelled_leaves_no_task(run: Run) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving(broker), Cluster(f"127.0.0.1:{broker.port}", backoff=QUICK) as cluster:
            for settled in (False, True):
                known = asyncio.all_tasks()
                session = SettledSession(cluster, GroupSettings("g"), handler, backoff=QUICK)
                session.start()
                if settled:
                    await session.wait_stable(LONG_S)
                    handler.gates["revoke"].clear()
                closing = asyncio.create_task(session.close(LONG_S))
                await asyncio.sleep(0)
                closing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await closing
                await tasks_end(known | {task for task in asyncio.all_tasks() if task in broker.tasks})
                assert not group.joined

    run(main())
