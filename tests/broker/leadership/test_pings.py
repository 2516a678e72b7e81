"""Before a client is told who leads, that broker is asked whether it is there."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from raftlog.quiet_links import QuietLinks

from barnabas_broker.leadership.pings import METHOD, WAIT_S, Pings
from barnabas_broker.testing import Cluster
from barnabas_clients import Admin
from barnabas_clients.cluster.connection import Connection
from barnabas_clients.protocol.find_coordinator import FindCoordinatorRequest
from barnabas_clients.protocol.metadata import MetadataRequest, MetadataRequestTopic
from barnabas_clients.protocol.registry import Message
from barnabas_raftlog.links.rpc import LinkDownError


class Links(QuietLinks):
    """Brokers that answer when told to. `asked`: who was asked, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.answers: dict[int, asyncio.Future[bytes]] = {}
        self.timeouts_s = list[float]()

    async def call(self, node_id: int, method: str, body: bytes, timeout_s: float) -> bytes:
        assert (method, body) == (METHOD, b"")
        self.timeouts_s.append(timeout_s)
        self.asked.append(node_id)
        self.answers[node_id] = asyncio.get_running_loop().create_future()
        return await self.answers[node_id]


async def test_all_who_ask_at_once_share_a_question_and_who_comes_later_asks_again() -> None:
    links = Links()
    pings = Pings(links)
    first = asyncio.create_task(pings.ask([2, 3]))
    second = asyncio.create_task(pings.ask([3]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert links.asked == [2, 3]
    early = links.answers[3]
    third = asyncio.create_task(pings.ask([3]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert links.asked == [2, 3, 3]
    early.set_result(b"")
    await second
    assert not first.done()
    assert not third.done(), "that answer may be older than its question"
    links.answers[2].set_result(b"")
    links.answers[3].set_result(b"")
    await asyncio.gather(first, third)


@pytest.mark.parametrize("round_trip_ms", [0, 100, 160])
async def test_who_is_far_has_the_time_to_answer(round_trip_ms: int) -> None:
    links = Links()
    links.round_trip.ms = round_trip_ms
    asking = asyncio.create_task(Pings(links).ask([2]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    links.answers[2].set_result(b"")
    await asking
    assert links.timeouts_s == [WAIT_S + round_trip_ms / 1000]


@pytest.mark.parametrize("error", [LinkDownError("gone"), TimeoutError()])
async def test_who_is_gone_or_stands_still_keeps_nobody_waiting(error: Exception) -> None:
    links = Links()
    asking = asyncio.create_task(Pings(links).ask([2]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    links.answers[2].set_exception(error)
    await asking


async def test_without_anybody_to_ask_there_is_nothing_to_wait_for() -> None:
    await Pings(Links()).ask([])


async def answer_while_it_goes(cluster: Cluster, gone: int, question: Message, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a question to another broker; let `gone` go when that one asks it whether it is there."""
    other = next(node for node_id, node in cluster.nodes.items() if node_id != gone)
    asked: list[list[int]] = []

    async def go_away(node_ids: Iterable[int]) -> None:
        asked.append(list(node_ids))
        await cluster.stop(gone)

    monkeypatch.setattr(other.broker.pings, "ask", go_away)
    connection = await Connection.open("127.0.0.1", other.port, timeout_s=10)
    answer = await connection.request(question, 20)
    await connection.close()
    assert asked == [[gone]]
    return answer


def test_a_leader_that_goes_while_it_is_asked_is_not_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question = MetadataRequest(topics=[MetadataRequestTopic(name="t")])

    async def main() -> None:
        async with Cluster(3, directory=tmp_path) as cluster:
            async with Admin(cluster.bootstrap) as admin:
                await admin.create_topic("t", partitions=1)
            leader_id = next(
                node_id
                for node_id, node in cluster.nodes.items()
                if node.partitions.topics["t"].partitions[0].is_leader
            )
            answer = await answer_while_it_goes(cluster, leader_id, question, monkeypatch)
            assert answer.topics[0].partitions[0].leader_id in set(cluster.nodes) - {leader_id}

    asyncio.run(main())


def test_a_coordinator_that_goes_while_it_is_asked_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = FindCoordinatorRequest(coordinator_keys=["g"])

    async def main() -> None:
        async with Cluster(3, directory=tmp_path) as cluster:
            connection = await Connection.open("127.0.0.1", cluster.nodes[1].port, timeout_s=20)
            coordinator_id = (await connection.request(question, 20)).coordinators[0].node_id
            await connection.close()
            answer = await answer_while_it_goes(cluster, coordinator_id, question, monkeypatch)
            assert answer.coordinators[0].node_id in set(cluster.nodes) - {coordinator_id}

    asyncio.run(main())
