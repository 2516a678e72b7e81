"""A request, a replica or a connection for which something fails takes nobody with it."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker.wire_client import Wire, batch, fetch_request, offsets_of, produce_request

from barnabas_broker.partition.partition import Partition
from barnabas_broker.server.connections import Connection
from barnabas_broker.server.handlers import fetch, produce
from barnabas_broker.testing import Cluster, RunningCluster
from barnabas_broker.timing.timers import Timers
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.fetch import FetchRequest
from barnabas_clients.protocol.registry import Message
from barnabas_raftlog.errors import StorageFailedError

FOREVER_MS = 60_000


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    with RunningCluster(1, racks=["a"]) as cluster:
        yield cluster


@pytest.fixture
def wires(running: RunningCluster) -> Iterator[list[Wire]]:
    """Three connections, and a topic `t` that has been made."""
    made = [Wire("127.0.0.1", running.cluster.nodes[1].port) for _ in range(3)]
    yield made
    for wire in made:
        wire.close()


def parked(running: RunningCluster, wire: Wire, request: Message, version: int) -> None:
    """Send a request and wait until the broker has looked at it, and parked it."""
    waiters = running.cluster.nodes[1].partitions.waiting.fetches
    before = len(waiters)
    wire.send(request, version)

    async def go_on(_: Cluster) -> None:
        await asyncio.sleep(0)

    while len(waiters) == before:
        running.run(go_on)


def failing(method: Callable[..., Any], error: Exception, concerns: Callable[[Any], bool]) -> Callable[..., Any]:
    """Return `method`, which raises `error` for those whom that concerns."""

    def call(self: Any, *arguments: Any) -> Any:
        if concerns(self):
            raise error
        return method(self, *arguments)

    return call


def rack_request(topic: str) -> FetchRequest:
    request = fetch_request(topic, 1, max_wait_ms=FOREVER_MS)
    request.rack_id = "b"
    return request


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageFailedError("damaged"), ErrorCode.KAFKA_STORAGE_ERROR),
        (ValueError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_woken_fetch_that_fails_is_answered_and_so_are_those_behind_it(
    running: RunningCluster, wires: list[Wire], monkeypatch: pytest.MonkeyPatch, error: Exception, code: ErrorCode
) -> None:
    topic = f"woken-{code}"
    wires[2].create(topic)
    wires[2].produce(topic, batch())
    first = rack_request(topic)
    second = fetch_request(topic, 1, max_wait_ms=FOREVER_MS)
    parked(running, wires[0], first, 12)
    parked(running, wires[1], second, 12)
    monkeypatch.setattr(fetch._Look, "_preferred", failing(fetch._Look._preferred, error, lambda _: True))
    wires[2].produce(topic, batch())
    assert wires[0].receive(first, 12).responses[0].partitions[0].error_code == code
    assert offsets_of(wires[1].receive(second, 12).responses[0].partitions[0].records) == [1]


def test_a_fetch_whose_time_is_up_and_that_fails_is_answered(
    running: RunningCluster, wires: list[Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    wires[0].create("timed-out")
    request = fetch_request("timed-out", 0, max_wait_ms=1)
    look = failing(fetch._Fetch.look, ValueError("no"), lambda one: one.is_last_look)
    monkeypatch.setattr(fetch._Fetch, "look", look)
    result = wires[0].ask(request, 12).responses[0].partitions[0]
    assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_consumer_with_a_rack_is_served_here_if_where_followers_end_cannot_be_read(
    wires: list[Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    wires[0].create("racks")
    wires[0].produce("racks", batch())
    wires[0].produce("racks", batch())
    damaged = StorageFailedError("a damaged segment")
    readable = failing(Partition.readable_elsewhere, damaged, lambda partition: partition.topic_name == "racks")
    monkeypatch.setattr(Partition, "readable_elsewhere", readable)
    result = wires[0].ask(rack_request("racks"), 12).responses[0].partitions[0]
    assert (result.error_code, offsets_of(result.records)) == (0, [1])


def test_a_produce_that_cannot_be_answered_ends_its_connection_only(
    running: RunningCluster, wires: list[Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    wires[0].create("unanswered")
    concerned = wires[0].socket.getsockname()[1]
    answer = failing(
        produce._Produce._answer,
        ValueError("no"),
        lambda one: one.exchange.connection.peer.endswith(f":{concerned}"),
    )
    monkeypatch.setattr(produce._Produce, "_answer", answer)
    wires[0].send(produce_request("unanswered", batch()), 9)
    assert wires[0].is_closed_by_peer()
    assert wires[1].produce("unanswered", batch()).base_offset == 1
    assert not running.cluster.nodes[1].failure.done()


def test_a_connection_that_cannot_be_written_to_takes_no_other_answers_with_it(
    running: RunningCluster, wires: list[Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    wires[2].create("written")
    requests = [fetch_request("written", 0, max_wait_ms=FOREVER_MS) for _ in range(2)]
    for wire, request in zip(wires, requests, strict=False):
        parked(running, wire, request, 12)
    concerned = wires[0].socket.getsockname()[1]
    send = failing(Connection._send, ValueError("no"), lambda one: one.peer.endswith(f":{concerned}"))
    monkeypatch.setattr(Connection, "_send", send)
    wires[2].produce("written", batch())
    assert wires[0].is_closed_by_peer()
    assert offsets_of(wires[1].receive(requests[1], 12).responses[0].partitions[0].records) == [0]


def test_a_replica_whose_review_fails_keeps_no_other_from_being_reviewed(
    running: RunningCluster, wires: list[Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    wires[0].create("reviewed", partitions=3)
    partitions = running.cluster.nodes[1].partitions
    mine = partitions.topics["reviewed"].partitions
    reviewed = list[int]()
    review = Partition.review

    def note(self: Partition, now_ms: int) -> bool:
        if self.topic_name == "reviewed":
            reviewed.append(self.index)
            if self.index == 1:
                raise ValueError("members that are not allowed")
        return review(self, now_ms)

    monkeypatch.setattr(Partition, "review", note)

    async def do(_: Cluster) -> None:
        partitions.reviews._waiting.update(dict.fromkeys(mine[index] for index in (0, 1, 2)))
        partitions.reviews._review()

    running.run(do)
    assert sorted(set(reviewed)) == [0, 1, 2]


async def test_a_timer_that_fails_is_raised_and_the_others_go_on() -> None:
    now = [0]
    called = []
    raised = asyncio.get_running_loop().create_future()
    timers = Timers(lambda: now[0])

    def fail() -> None:
        raise ValueError("no")

    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.set_result(context["exception"]))
    timers.add(0, fail)
    timers.add(0, lambda: called.append("same time"))
    later = asyncio.Event()
    timers.add(1, later.set)
    assert str(await raised) == "no"
    assert called == ["same time"]
    now[0] = 1
    await asyncio.wait_for(later.wait(), 10)
    timers.close()
