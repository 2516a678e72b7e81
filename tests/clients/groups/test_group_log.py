"""The log tells the story of a membership: joins, assignments, rebalances with their reasons, losses and the end."""

import contextlib
import logging
from collections.abc import AsyncIterator

import pytest
from clients.fake_broker import FakeBroker
from clients.virtual import run_virtually, serving_virtually

from barnabas_clients.assignors.assignor import Assignor
from barnabas_clients.assignors.built_in import COOPERATIVE_STICKY, RANGE
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.groups.session import GroupSettings
from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.protocol.heartbeat import HeartbeatRequest
from barnabas_clients.protocol.join_group import JoinGroupRequest

from .fake_coordinator import FakeCoordinator, Recorder
from .settled_session import SettledSession

LONG_S = 100.0


class Told:
    """What the log says of groups."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "barnabas_clients")
        self.caplog = caplog

    def __call__(self) -> list[str]:
        """Return what was told since the last call; warnings begin with an exclamation mark."""
        rows = [row for row in self.caplog.records if row.name == "barnabas_clients.groups"]
        self.caplog.clear()
        return ["!" * (row.levelno > logging.INFO) + row.getMessage().removeprefix("group g: ") for row in rows]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    return Told(caplog)


@contextlib.asynccontextmanager
async def member(
    handler: Recorder,
    *,
    assignor: Assignor = RANGE,
    instance: str | None = None,
    rebalance_timeout_s: float = 60.0,
) -> AsyncIterator[SettledSession]:
    settings = GroupSettings(
        group_id="g",
        group_instance_id=instance,
        session_timeout_s=9.0,
        heartbeat_interval_s=1.0,
        rebalance_timeout_s=rebalance_timeout_s,
        assignors=(assignor,),
    )
    async with Cluster("127.0.0.1:9001") as cluster:
        session = SettledSession(cluster, settings, handler)
        session.start()
        try:
            yield session
        finally:
            await session.close(LONG_S)


def test_a_lone_member_s_life(told: Told) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCoordinator(broker)
        async with serving_virtually(broker), member(Recorder()) as session:
            await session.wait_stable(LONG_S)
            assert session.rebalances == 1

    run_virtually(main())
    assert told() == [
        "the coordinator is broker 1",
        "joined generation 1 as m1, the leader of 1",
        "assigned t-0, t-1, t-2, t-3",
        "revoked t-0, t-1, t-2, t-3",
        "left, because the consumer is closed",
    ]


def test_a_rebalance_is_told_with_its_reason(told: Told) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        one, two = Recorder(), Recorder()
        group = FakeCoordinator(broker)
        async with serving_virtually(broker), member(one, assignor=COOPERATIVE_STICKY) as first:
            await first.wait_stable(LONG_S)
            told()
            group.size = 2
            await group.rebalance()
            async with member(two, assignor=COOPERATIVE_STICKY) as second:
                await two.holds(2)
                await first.wait_stable(LONG_S)
                await second.wait_stable(LONG_S)
                assert told() == [
                    "the coordinator is broker 1",
                    "joining again: the coordinator has begun a rebalance",
                    "joined generation 2 as m1, the leader of 2",
                    "revoked t-2, t-3",
                    "assigned nothing new, and keeps 2",
                    "joining again: partitions were given up for other members",
                    "joined generation 2 as m3",
                    "assigned nothing",
                    "joining again: the coordinator has begun a rebalance",
                    "joined generation 3 as m1, the leader of 2",
                    "assigned nothing new, and keeps 2",
                    "joined generation 3 as m3",
                    "assigned t-2, t-3",
                ]

    run_virtually(main())


def test_a_topic_that_grows_is_a_reason(told: Told) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving_virtually(broker), member(handler) as session:
            await session.wait_stable(LONG_S)
            told()
            group.grow(8)
            await handler.holds(8)
            await session.wait_stable(LONG_S)
            assert told() == [
                "joining again: partitions of t have changed",
                "revoked t-0, t-1, t-2, t-3",
                "joined generation 2 as m1, the leader of 1",
                "assigned t-0, t-1, t-2, t-3, t-4 and 3 more",
            ]

    run_virtually(main())
    told()


def test_lost_partitions_are_a_warning(told: Told) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving_virtually(broker), member(handler) as session:
            await session.wait_stable(LONG_S)
            told()
            group.refuse(HeartbeatRequest, ErrorCode.UNKNOWN_MEMBER_ID)
            await handler.until("assign", "lose", "assign")
            await session.wait_stable(LONG_S)
            lines = told()
            assert lines[0] == "!lost t-0, t-1, t-2, t-3: the coordinator does not know this member any more"
            assert [line.partition(" as ")[0] for line in lines[1:]] == [
                "joined generation 2",
                "assigned t-0, t-1, t-2, t-3",
            ]

    run_virtually(main())


def test_an_application_that_does_not_come_back_is_a_warning(told: Told) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        FakeCoordinator(broker)
        async with serving_virtually(broker), member(handler, rebalance_timeout_s=30) as session:
            await session.wait_stable(LONG_S)
            told()
            await handler.until("assign", "lose")
        assert told() == [
            "!lost t-0, t-1, t-2, t-3: the application has not asked for records for 30 s (max_poll_interval_s)"
        ]

    run_virtually(main())


def test_late_heartbeats_are_told_once_and_so_is_their_end(told: Told) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        handler = Recorder()
        group = FakeCoordinator(broker)
        async with serving_virtually(broker), member(handler) as session:
            await session.wait_stable(LONG_S)
            told()
            group.refuse(HeartbeatRequest, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10)
            await group.beats(12)
            lines = told()
            assert len(lines) == 2
            assert lines[0].startswith("heartbeats are late: none was answered for ")
            assert lines[0].endswith(
                " s, and at 9 s the partitions go to others (COORDINATOR_LOAD_IN_PROGRESS: heartbeat)"
            )
            assert lines[1].startswith("heartbeats are answered again after ")
            assert handler.log == [("assign", (0, 1, 2, 3))]

    run_virtually(main())


def test_a_coordinator_that_moves_is_told(told: Told) -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        group = FakeCoordinator(one, two)
        async with serving_virtually(one, two), member(Recorder()) as session:
            await session.wait_stable(LONG_S)
            told()
            group.move(two)
            await group.until(lambda: group.count(HeartbeatRequest, two) > 2)
            assert told() == ["the coordinator is broker 2 (was 1)"]

    run_virtually(main())


def test_a_thousand_joins_that_fail_are_told_once(told: Told) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        group = FakeCoordinator(broker)
        group.refuse(JoinGroupRequest, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1_000)
        async with serving_virtually(broker), member(Recorder(), rebalance_timeout_s=3_000) as session:
            await session.wait_stable(2_000)
            assert group.count(JoinGroupRequest) > 1_000
            assert told() == [
                "the coordinator is broker 1",
                "cannot join (COORDINATOR_LOAD_IN_PROGRESS); trying again",
                "joined generation 1 as m1001, the leader of 1",
                "assigned t-0, t-1, t-2, t-3",
            ]

    run_virtually(main())


def test_a_static_member_tells_that_it_will_be_back(told: Told) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCoordinator(broker)
        async with serving_virtually(broker), member(Recorder(), instance="i") as session:
            await session.wait_stable(LONG_S)
            told()
        assert told() == [
            "revoked t-0, t-1, t-2, t-3",
            "static member i is away, because the consumer is closed; its partitions wait for it for 9 s",
        ]

    run_virtually(main())
