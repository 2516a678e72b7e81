"""A consumer begins at the right places, and leaves them right, despite failures.

Here some of the lookups and commits fail.
"""

import asyncio
import logging

import pytest
from clients.fake_broker import FakeBroker
from clients.fake_log import FakeLog, values_of
from clients.groups.storing_coordinator import StoringCoordinator
from clients.virtual import run_virtually, serving_virtually

from barnabas_clients import Consumer, TopicPartition
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.groups.coordinator import Coordinator, look_up_offsets
from barnabas_clients.protocol.errors import ErrorCode, TopicAuthorizationFailedError
from barnabas_clients.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas_clients.protocol.offset_fetch import OffsetFetchRequest

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def consumer(broker: FakeBroker, **settings: object) -> Consumer:
    return Consumer(f"127.0.0.1:{broker.port}", **{"group_id": "g", **settings})  # type: ignore[arg-type]


def brokers(partitions: int = 3) -> tuple[FakeBroker, FakeLog, StoringCoordinator]:
    broker = FakeBroker()
    log = FakeLog(broker, partitions=partitions)
    for number in range(partitions):
        log.append(values_of(10), number)
    coordinator = StoringCoordinator(broker, partitions=partitions)
    log.errors = coordinator.cluster.errors
    return broker, log, coordinator


def test_a_topic_that_is_gone_keeps_no_other_position_unknown() -> None:
    async def main() -> None:
        broker, _, coordinator = brokers()
        coordinator.stored = {0: 3}
        async with serving_virtually(broker), consumer(broker, auto_offset_reset="earliest") as reader:
            await reader.assign([T0, ("gone", 0)])
            assert await reader.position(T0, timeout_s=1) == 3

    run_virtually(main())


def test_a_partition_that_may_not_be_read_keeps_no_other_position_unknown() -> None:
    async def main() -> None:
        broker, _, coordinator = brokers()
        coordinator.stored = {0: 3, 1: 4}
        coordinator.unreadable = {1: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        async with serving_virtually(broker), consumer(broker, auto_offset_reset="earliest") as reader:
            await reader.assign([T0, T1, T2])
            assert await reader.position(T0, timeout_s=10) == 3
            assert await reader.position(T2, timeout_s=10) == 0
            with pytest.raises(TopicAuthorizationFailedError, match="t-1"):
                await reader.position(T1, timeout_s=10)

    run_virtually(main())


def test_an_end_that_is_refused_keeps_no_other_one_unknown() -> None:
    async def main() -> None:
        broker, log, _ = brokers()

        async def refuse(request: ListOffsetsRequest) -> ListOffsetsResponse:
            response = await log.list_offsets(request)
            for row in response.topics[0].partitions:
                row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if row.partition_index == 1 else 0
            return response

        broker.answers[ListOffsetsRequest] = refuse
        async with serving_virtually(broker), consumer(broker, group_id=None) as reader:
            await reader.assign([T0, T1, T2])
            assert await reader.position(T0, timeout_s=10) == await reader.position(T2, timeout_s=10) == 10
            with pytest.raises(TopicAuthorizationFailedError, match="t-1"):
                await reader.position(T1, timeout_s=10)

    run_virtually(main())


def test_a_group_that_cannot_be_asked_for_a_while_has_not_committed_nothing() -> None:
    async def main() -> None:
        broker, _, coordinator = brokers()
        coordinator.stored = {0: 3}
        coordinator.group_error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        async with serving_virtually(broker), consumer(broker, auto_offset_reset="latest") as reader:
            await reader.assign([T0])
            await asyncio.sleep(20)
            coordinator.group_error = ErrorCode.NONE
            assert await reader.position(T0, timeout_s=10) == 3

    run_virtually(main())


def test_a_position_is_told_as_soon_as_it_is_known() -> None:
    async def main() -> None:
        broker, _, coordinator = brokers()
        coordinator.stored = {0: 10}  # the end: nothing comes that would be news by itself
        async with serving_virtually(broker), consumer(broker) as reader:
            await reader.assign([T0])
            async with asyncio.timeout(1):
                assert await reader.position(T0, timeout_s=100) == 10

    run_virtually(main())


def test_a_position_that_an_answer_leaves_out_is_asked_for_again_and_not_taken_for_none() -> None:
    async def main() -> None:
        broker, _, coordinator = brokers()
        coordinator.stored = {0: 3, 1: 4}
        coordinator.left_out = {1}
        async with serving_virtually(broker), consumer(broker, auto_offset_reset="latest") as reader:
            await reader.assign([T0, T1])
            assert await reader.position(T0, timeout_s=10) == 3
            coordinator.left_out.clear()
            assert await reader.position(T1, timeout_s=10) == 4

    run_virtually(main())


def test_a_position_is_known_by_what_the_metadata_said_when_it_was_asked_for() -> None:
    """The answer names the topic by its id. Metadata that lacks the topic meanwhile must not make it nobody's."""

    async def main() -> None:
        broker, log, coordinator = brokers()
        coordinator.stored = {0: 3}
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def late(request: OffsetFetchRequest) -> object:
            asked.set()
            await go_on.wait()
            return await coordinator.fetch_offsets(request)

        broker.answers[OffsetFetchRequest] = late  # type: ignore[assignment]
        async with serving_virtually(broker), Cluster(f"127.0.0.1:{broker.port}") as cluster:
            looking = asyncio.ensure_future(look_up_offsets(Coordinator(cluster, "g"), [T0], 10))
            await asyncio.wait_for(asked.wait(), 5)
            log.errors["t"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await cluster.refresh(["t"], timeout_s=5)
            assert "t" not in cluster.view.topics
            go_on.set()
            assert (await looking)[T0] == (3, "", -1)

    run_virtually(main())


def test_what_was_finished_with_is_committed_although_metadata_lacked_the_topic_a_moment_ago() -> None:
    async def main() -> None:
        broker, log, coordinator = brokers()
        async with serving_virtually(broker):
            async with consumer(
                broker, topics=["t"], auto_offset_reset="earliest", auto_commit_interval_s=1e6
            ) as reader:
                while len(reader.assignment) < 3 or any((await reader.lag()).values()):
                    await reader.get_many(timeout_s=0.1)
                log.errors["t"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                await reader._core.cluster.refresh(["t"], timeout_s=5)
                del log.errors["t"]
            assert coordinator.stored == {0: 10, 1: 10, 2: 10}

    run_virtually(main())


@pytest.mark.parametrize("how", ["topics", "assign"])
def test_what_cannot_be_committed_is_named(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        broker, log, coordinator = brokers()
        async with serving_virtually(broker):
            settings = {"topics": ["t"]} if how == "topics" else {}
            async with consumer(broker, auto_offset_reset="earliest", **settings) as reader:
                if how == "assign":
                    await reader.assign([T0, T1, T2])
                while len(reader.assignment) < 3 or any((await reader.lag()).values()):
                    await reader.get_many(timeout_s=0.1)
                coordinator.stored.clear()
                log.errors["t"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                await reader._core.cluster.refresh(["t"], timeout_s=5)
            assert not coordinator.stored

    with caplog.at_level(logging.WARNING, "barnabas_clients"):
        run_virtually(main())
    told = [row.getMessage() for row in caplog.records if "not committed" in row.getMessage()]
    assert len(told) == 1
    assert told[0].endswith("it will be read again: t-0 up to 10, t-1 up to 10, t-2 up to 10")


def test_only_what_was_refused_is_named_as_not_committed(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        broker, _, coordinator = brokers()
        coordinator.unwritable = {1: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        async with (
            serving_virtually(broker),
            consumer(broker, topics=["t"], auto_offset_reset="earliest", auto_commit_interval_s=1e6) as reader,
        ):
            while len(reader.assignment) < 3 or any((await reader.lag()).values()):
                await reader.get_many(timeout_s=0.1)
        assert coordinator.stored == {0: 10, 2: 10}

    with caplog.at_level(logging.WARNING, "barnabas_clients"):
        run_virtually(main())
    (told,) = [row.getMessage() for row in caplog.records if "not committed" in row.getMessage()]
    assert told.endswith("it will be read again: t-1 up to 10")


def test_a_partition_of_which_nothing_was_read_is_not_named_as_not_committed(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        broker, _, coordinator = brokers()
        coordinator.unwritable = dict.fromkeys(range(3), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        is_assigned = asyncio.Event()

        async def on_assigned(*_: object) -> None:
            is_assigned.set()

        async with (
            serving_virtually(broker),
            consumer(broker, topics=["t"], auto_offset_reset="earliest", on_assigned=on_assigned) as reader,
        ):
            await is_assigned.wait()
            assert [await reader.position(each) for each in (T0, T1, T2)] == [0, 0, 0]
        assert not coordinator.stored

    with caplog.at_level(logging.WARNING, "barnabas_clients"):
        run_virtually(main())
    assert not [row for row in caplog.records if "not committed" in row.getMessage()]


def test_assigning_other_partitions_commits_what_was_finished_with_of_those_that_leave() -> None:
    async def main() -> None:
        broker, _, coordinator = brokers()
        async with serving_virtually(broker), consumer(broker, auto_offset_reset="earliest") as reader:
            await reader.assign([T0])
            assert await reader.get_many(timeout_s=5)
            assert not await reader.get_many(timeout_s=0)
            await reader.assign([T1])
            assert coordinator.stored == {0: 10}
            await reader.unsubscribe()

    run_virtually(main())
