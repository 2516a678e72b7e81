"""The log tells of brokers, outages and leaders: a line for each change, and none for an attempt."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest
from clients.fake_broker import FakeBroker, FakeCluster
from clients.virtual import run_virtually, serving_virtually

from barnabas_clients.backoff import Backoff
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.cluster.cluster_log import MOVES_PAUSE_S
from barnabas_clients.errors import DeadlineExceededError
from barnabas_clients.protocol.metadata import MetadataRequest

LONG_S = 100.0


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> "Told":
    return Told(caplog)


class Told:
    """What the log says, without the name of the client."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "barnabas_clients")
        self.caplog = caplog

    def __call__(self) -> list[str]:
        """Return what was told since the last call."""
        rows = [row for row in self.caplog.records if row.name == "barnabas_clients.cluster"]
        self.caplog.clear()
        assert all(row.levelno == logging.INFO or "no broker answers" in row.getMessage() for row in rows)
        return [row.getMessage().removeprefix("billing: ") for row in rows]


def client(*addresses: str) -> Cluster:
    return Cluster(addresses or "127.0.0.1:9001", client_id="billing", request_timeout_s=5)


def run(main: Coroutine[Any, Any, None]) -> None:
    run_virtually(main)


def test_connecting_names_the_cluster_and_its_brokers(told: Told) -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        FakeCluster(one, two)
        async with serving_virtually(one, two), client():
            pass

    run(main())
    assert told() == ["connected to cluster c: broker 1 at 127.0.0.1:9001, broker 2 at 127.0.0.1:9002"]


def test_of_many_brokers_only_some_are_named(told: Told) -> None:
    async def main() -> None:
        brokers = [FakeBroker(number) for number in range(1, 41)]
        FakeCluster(*brokers)
        async with serving_virtually(*brokers), client():
            pass

    run(main())
    (line,) = told()
    assert line.endswith("broker 4 at 127.0.0.1:9004, broker 5 at 127.0.0.1:9005 and 35 more")


def test_a_text_of_a_broker_is_harmless_and_short(told: Told) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        cluster = FakeCluster(broker)

        async def metadata(request: MetadataRequest) -> Any:
            answer = await cluster.metadata(request)
            answer.cluster_id = "\x1b[31m\n" * 1_000
            return answer

        broker.answers[MetadataRequest] = metadata
        async with serving_virtually(broker), client():
            pass

    run(main())
    (line,) = told()
    assert line.isprintable()
    assert len(line) < 200
    assert line.startswith("connected to cluster \\x1b[31m\\n")


def test_an_outage_is_told_once_and_so_is_its_end(told: Told) -> None:
    async def main() -> None:
        broker = FakeBroker(1)
        FakeCluster(broker)
        cluster = client()
        async with serving_virtually(broker):
            await cluster.refresh(timeout_s=1)
        told()
        with pytest.raises(DeadlineExceededError):
            await cluster.refresh(timeout_s=LONG_S)
        assert told() == [
            "lost broker 1 at 127.0.0.1:9001: connection refused",
            "no broker answers (connection to 127.0.0.1:9001: connection refused); trying again",
        ]
        async with serving_virtually(broker):
            await cluster.refresh(timeout_s=1)
            assert told() == [
                "connected to broker 1 at 127.0.0.1:9001 again after 99.6 s",
                "a broker answers again after 99.6 s",
            ]
            await cluster.close()

    run(main())


@pytest.mark.slow
def test_a_thousand_failed_attempts_log_no_more_than_two_lines(told: Told) -> None:
    attempts = 0

    async def main() -> None:
        nonlocal attempts
        dial = Cluster._dial

        async def counted(cluster: Cluster, way: Any) -> Any:
            nonlocal attempts
            attempts += 1
            return await dial(cluster, way)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Cluster, "_dial", counted)
            with pytest.raises(DeadlineExceededError):
                async with Cluster("127.0.0.1:9001", timeout_s=900, backoff=Backoff(1.0, 1.0)):
                    pass

    run(main())
    assert attempts > 1_000
    assert len(told()) == 1


def test_a_broker_that_breaks_off_is_lost_until_it_is_reached_again(told: Told) -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        cluster = FakeCluster(one, two)

        async def silence(_: object) -> Any:
            await asyncio.Event().wait()

        two.answers[MetadataRequest] = silence
        asking = client()
        async with serving_virtually(one), asking:
            async with serving_virtually(two):
                await asking.refresh(timeout_s=1)
                waiting = asyncio.ensure_future(asking.ask_broker(2, MetadataRequest(), 100, "lane"))
                await asyncio.sleep(0.5)
                told()
            await asyncio.gather(waiting, return_exceptions=True)
            assert told() == ["lost broker 2 at 127.0.0.1:9002: connection reset by peer"]
            for _ in range(20):
                await asyncio.gather(asking.connect(2, 1.0), return_exceptions=True)
            assert told() == []
            await asyncio.sleep(3)
            two.answers[MetadataRequest] = cluster.metadata
            async with serving_virtually(two):
                await asking.connect(2, 1.0)
                await asking.connect(2, 1.0, "lane")
                assert told() == ["connected to broker 2 at 127.0.0.1:9002 again after 3.0 s"]

    run(main())


def test_a_broker_that_does_not_answer_is_lost(told: Told) -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        FakeCluster(one, two)

        async def silence(_: object) -> Any:
            await asyncio.Event().wait()

        two.answers[MetadataRequest] = silence
        async with serving_virtually(one, two), client() as asking:
            told()
            with pytest.raises(DeadlineExceededError):
                await asking.ask_broker(2, MetadataRequest(), 100)
            assert told() == ["lost broker 2 at 127.0.0.1:9002: 127.0.0.1:9002 did not answer MetadataRequest in time"]

    run(main())


def test_a_leader_s_move_is_told_once_however_it_is_heard_of(told: Told) -> None:
    async def main() -> None:
        one, two, three = FakeBroker(1), FakeBroker(2), FakeBroker(3)
        cluster = FakeCluster(one, two, three)
        cluster.topics["t"] = [(2, 1), (1, 1)]
        async with serving_virtually(one, two, three), client() as asking:
            await asking.refresh(["t"], timeout_s=1)
            told()
            asking.learn_leader("t", 0, 3, 2)
            cluster.topics["t"] = [(3, 2), (1, 1)]
            await asking.refresh(["t"], timeout_s=1)
            await asyncio.sleep(2 * MOVES_PAUSE_S)
            assert told() == ["the leader of t-0 is 3 (was 2)"]
            cluster.topics["t"] = [(-1, 3), (1, 1)]
            await asking.refresh(["t"], timeout_s=1)
            await asyncio.sleep(2 * MOVES_PAUSE_S)
            cluster.topics["t"] = [(1, 4), (1, 1)]
            await asking.refresh(["t"], timeout_s=1)
        # Closing tells what is left.
        assert told() == ["t-0 has no leader (it was 3)", "the leader of t-0 is 1 (was none)"]

    run(main())


@pytest.mark.slow
def test_leaders_that_move_together_share_a_line(told: Told) -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        cluster = FakeCluster(one, two)
        cluster.topics["t"] = [(1, 1)] * 3_000
        async with serving_virtually(one, two), client() as asking:
            await asking.refresh(["t"], timeout_s=1)
            told()
            for number in range(1_000):
                asking.learn_leader("t", number, 2, 2)
            cluster.topics["t"] = [(2, 2)] * 3_000
            await asking.refresh(["t"], timeout_s=1)
            await asyncio.sleep(2 * MOVES_PAUSE_S)
            moves = ", ".join(f"t-{number} from 1 to 2" for number in range(5))
            assert told() == [f"the leaders of 3000 partitions have moved: {moves} and 2995 more"]

    run(main())


def test_a_topic_that_was_made_again_has_no_leaders_that_moved(told: Told) -> None:
    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        cluster = FakeCluster(one, two)
        cluster.topics["t"] = [(1, 1)]
        async with serving_virtually(one, two), client() as asking:
            await asking.refresh(["t"], timeout_s=1)
            told()
            cluster.ids["t"] = b"another topic id"
            cluster.topics["t"] = [(2, 1)]
            await asking.refresh(["t"], timeout_s=1)
        assert told() == []

    run(main())


def test_nothing_is_compared_when_nobody_wants_to_know(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "barnabas_clients")

    async def main() -> None:
        one, two = FakeBroker(1), FakeBroker(2)
        FakeCluster(one, two).topics["t"] = [(1, 1)]
        async with serving_virtually(one, two), client() as asking:
            await asking.refresh(["t"], timeout_s=1)
            asking.learn_leader("t", 0, 2, 2)
            assert asking._log._moves == {}

    run(main())
