"""A consumer can be asked for one record, for what it knows, and for its counters; it waits as it is told to."""

import asyncio
import logging
import math

import pytest
from clients.fake_broker import FakeBroker
from clients.fake_log import FakeLog, values_of
from clients.groups.storing_coordinator import StoringCoordinator
from clients.virtual import run_virtually, serving_virtually

from barnabas_clients import (
    ClientClosedError,
    Consumer,
    DeadlineExceededError,
    NotAssignedError,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from barnabas_clients.protocol.errors import ErrorCode
from barnabas_clients.protocol.metadata import MetadataRequest
from barnabas_clients.protocol.offset_commit import OffsetCommitRequest

T0 = TopicPartition("t", 0)
BOOTSTRAP = "127.0.0.1:9001"


def consumer(**settings: object) -> Consumer:
    given = {"topics": ["t"], "auto_offset_reset": "earliest", **settings}
    return Consumer(BOOTSTRAP, **given)  # type: ignore[arg-type]  # checked where it is called


def brokers(records: int = 3, partitions: int = 1) -> tuple[FakeBroker, FakeLog, StoringCoordinator]:
    broker = FakeBroker()
    log = FakeLog(broker, partitions=partitions)
    if records:
        log.append(values_of(records))
    coordinator = StoringCoordinator(broker, partitions=partitions)
    return broker, log, coordinator


def test_one_record_after_the_other_and_none_when_none_came_in_time() -> None:
    async def main() -> None:
        broker, log, _ = brokers()
        async with serving_virtually(broker), consumer() as reader:
            assert [(await reader.getone()).value for _ in range(2)] == values_of(2)
            third = await reader.getone(timeout_s=0)
            assert third is not None
            assert third.value == b"2"
            began_s = asyncio.get_running_loop().time()
            assert await reader.getone(timeout_s=7) is None
            assert asyncio.get_running_loop().time() - began_s == pytest.approx(7, abs=0.01)
            log.append(values_of(1, 3))
            assert (await reader.getone()).value == b"3"

    run_virtually(main())


def test_a_cancelled_call_for_one_record_loses_none_wherever_it_is_cancelled() -> None:
    async def main() -> None:
        broker, log, _ = brokers(0)
        log.append(values_of(200))
        seen: list[bytes | None] = []
        async with serving_virtually(broker), consumer() as reader:
            for turns in range(2_000):
                asking = asyncio.ensure_future(reader.getone())
                for _ in range(turns % 7):
                    await asyncio.sleep(0)
                asking.cancel()
                await asyncio.wait({asking})
                if not asking.cancelled():
                    seen.append(asking.result().value)
                if len(seen) == 150:
                    break
                await asyncio.sleep(0.001)
            while len(seen) < 200:
                seen.append((await reader.getone()).value)
        assert seen == values_of(200)

    run_virtually(main())


def test_asking_for_one_record_finishes_the_one_before() -> None:
    async def main() -> None:
        broker, _, coordinator = brokers()
        async with serving_virtually(broker):
            reader = await consumer(group_id="g", auto_commit_interval_s=1).start()
            await reader.getone()
            await reader.getone()
            await reader.stop()
            assert coordinator.stored == {0: 1}, "the second is in hand, and comes again"
            await reader.stop()

    run_virtually(main())


def test_a_consumer_is_started_once_and_stopped_at_any_time() -> None:
    async def main() -> None:
        broker, _, _ = brokers()
        async with serving_virtually(broker):
            never = consumer()
            await never.stop()
            with pytest.raises(ClientClosedError, match="the consumer is closed; make another one"):
                await never.start()
            reader = consumer()
            with pytest.raises(ClientClosedError, match="is not open yet; use it as `async with`, or start it"):
                await reader.getone()
            assert await reader.start() is reader
            with pytest.raises(RuntimeError, match="the consumer was started before; make another one"):
                await reader.start()
            assert (await reader.getone()).value == b"0"
            await reader.stop()
            await reader.stop()
            for call in (reader.pause, reader.resume):
                with pytest.raises(ClientClosedError, match="the consumer is closed"):
                    call(T0)
            with pytest.raises(ClientClosedError, match="the consumer is closed"):
                await reader.seek(T0, 0)

    run_virtually(main())


def test_a_callback_may_commit_when_the_consumer_closes() -> None:
    async def main() -> None:
        broker, _, coordinator = brokers()

        async def revoked(reader: Consumer, _: frozenset[TopicPartition]) -> None:
            await reader.commit()
            assert (await reader.committed(T0))[T0].offset == 2

        async with (
            serving_virtually(broker),
            consumer(group_id="g", auto_commit=False, on_revoked=revoked) as reader,
        ):
            await reader.getone()
            await reader.getone()
        assert coordinator.stored == {0: 2}

    run_virtually(main())


def test_a_callback_that_raises_when_the_consumer_closes_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        broker, _, _ = brokers()

        def revoked(_: Consumer, __: frozenset[TopicPartition]) -> None:
            raise ZeroDivisionError("by a test\n")

        async with serving_virtually(broker), consumer(group_id="g", on_revoked=revoked) as reader:
            await reader.getone()

    run_virtually(main())
    (told,) = [row.getMessage() for row in caplog.records if "callback" in row.getMessage()]
    assert told == "closing: a callback has raised ZeroDivisionError('by a test\\n')"


def test_what_is_known_of_topics_and_partitions() -> None:
    async def main() -> None:
        broker, log, _ = brokers(partitions=2)
        async with serving_virtually(broker), consumer(topics=()) as reader:
            assert await reader.partitions_for_topic("t") == {0, 1}
            asked = broker.count(MetadataRequest)
            assert await reader.partitions_for_topic("t") == {0, 1}
            assert broker.count(MetadataRequest) == asked, "it is known"
            with pytest.raises(UnknownTopicOrPartitionError, match="nope"):
                await reader.partitions_for_topic("nope")
            await reader.assign([T0])
            assert reader.highwater(T0) is None
            await reader.getone()
            assert reader.highwater(T0) == 3
            log.append(values_of(4, 3))
            await asyncio.sleep(1)
            assert reader.highwater(T0) == 7
            with pytest.raises(NotAssignedError, match="t-1 is not assigned"):
                reader.highwater(TopicPartition("t", 1))

    run_virtually(main())


def test_counters() -> None:
    async def main() -> None:
        broker, log, coordinator = brokers(0, partitions=2)
        async with serving_virtually(broker), consumer(group_id="g", auto_commit=False) as reader:
            before = reader.metrics()
            assert (before.records, before.polls, before.lag, before.rebalances, before.commits) == (0, 0, 0, 0, 0)
            assert before.fetch_latency_s == 0.0
            assert await reader.get_many(timeout_s=1) == {}
            log.append(values_of(10))
            for count in range(1, 4):
                await anext(reader)
                assert reader.metrics().records == count
            assert reader.metrics().lag == 7
            found = await reader.get_many(max_records=5)
            assert sum(map(len, found.values())) == 5
            await reader.commit()
            coordinator.refuse(OffsetCommitRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            with pytest.raises(Exception, match="GROUP_AUTHORIZATION_FAILED"):
                await reader.commit({T0: 1})
            after = reader.metrics()
            assert (after.records, after.lag, after.rebalances) == (8, 2, 1)
            assert (after.commits, after.commit_failures) == (1, 1)
            assert 0 < after.fetch_latency_s < 1
            assert after.polls == 3
            await reader.unsubscribe()
            assert reader.metrics().rebalances == 1, "it is not forgotten with the membership"

    run_virtually(main())


@pytest.mark.parametrize(("outage_timeout_s", "limit_s"), [(None, 3), (100, 100)])
def test_asking_raises_when_nothing_was_readable_for_so_long(outage_timeout_s: float | None, limit_s: float) -> None:
    async def main() -> None:
        broker, _, _ = brokers()
        reader = consumer(timeout_s=3, outage_timeout_s=outage_timeout_s)
        async with serving_virtually(broker):
            await reader.start()
            await reader.get_many()
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(DeadlineExceededError, match=f"nothing could be read for {limit_s} s: t-0: .* refused"):
            await reader.getone()
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(limit_s, abs=1)
        await reader.stop(1)

    run_virtually(main())


@pytest.mark.slow
def test_an_outage_may_last_for_ever_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas_clients")

    async def main() -> None:
        broker, log, _ = brokers()
        reader = consumer(outage_timeout_s=math.inf)
        async with serving_virtually(broker):
            await reader.start()
            assert len((await reader.get_many())[T0]) == 3
        waiting = asyncio.ensure_future(reader.getone())
        await asyncio.sleep(100)
        assert not waiting.done()
        log.append(values_of(1, 3))
        async with serving_virtually(broker):
            assert (await waiting).value == b"3"
            await reader.stop(1)

    run_virtually(main())
    assert [(row.levelname, row.getMessage()) for row in caplog.records if row.levelno > logging.INFO] == [
        (
            "WARNING",
            "barnabas-consumer: no broker answers (connection to 127.0.0.1:9001: connection refused); trying again",
        ),
        (
            "WARNING",
            "nothing could be read for 30 s (t-0: connection to 127.0.0.1:9001: connection refused); trying again",
        ),
    ]
