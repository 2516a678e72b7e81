"""Requests that wait for a coordinator neither lose their place nor outlive their client."""

import asyncio
from collections.abc import Generator
from types import SimpleNamespace
from typing import cast

from steps import outcome

from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.server.connections import Exchange, Limits, Listener
from barnabas_broker.server.context import BrokerContext
from barnabas_broker.server.handlers.group_routing import Refused, Steps, begun, route
from barnabas_clients.protocol.error_codes import ErrorCode
from barnabas_clients.protocol.heartbeat import HeartbeatResponse
from barnabas_clients.protocol.registry import Message


class LoadingCoordinator:
    """Says "loading" until `loaded` is set, as the real one does to whoever asks or waits."""

    def __init__(self) -> None:
        self.loaded = asyncio.Event()

    def shard_of(self, _: str) -> ErrorCode:
        return ErrorCode.NONE if self.loaded.is_set() else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    async def certain_shard(self, group_id: str) -> GroupShard | ErrorCode:
        await self.loaded.wait()
        await asyncio.sleep(0)  # A request that arrives now finds the shard certain, and this one still waits.
        return self.shard_of(group_id)


class Routing:
    """A listener whose requests go through `route`; each is one byte, which `acted` gets when it is carried out."""

    def __init__(self) -> None:
        self.coordinator = LoadingCoordinator()
        self.acted = list[bytes]()
        self.arrived = asyncio.Queue[bytes]()
        self.abandoned = asyncio.Event()
        self._broker = cast("BrokerContext", SimpleNamespace(coordinator=self.coordinator))
        self.tasks = set[asyncio.Task[Message | None]]()
        self.listener = Listener(Limits(), self._serve)

    def _serve(self, exchange: Exchange) -> None:
        assert exchange.frame is not None
        body = bytes(exchange.frame[8:])
        self.arrived.put_nowait(body)
        exchange.abandon = self.abandoned.set

        def act(_: object) -> Message | None:
            self.acted.append(body)
            return None

        def refused(code: ErrorCode) -> Message | None:
            # The coordinator here has no shard to act on; it answers NONE in the place of one.
            assert code is ErrorCode.NONE
            return act(None)

        outcome = route(self._broker, exchange, "g", act, cast("Refused", refused))
        if asyncio.iscoroutine(outcome):
            self.tasks.add(asyncio.create_task(outcome))


async def open_writer(routing: Routing) -> asyncio.StreamWriter:
    await routing.listener.bind("127.0.0.1", 0)
    await routing.listener.accept()
    _, writer = await asyncio.open_connection("127.0.0.1", routing.listener.port)
    return writer


def frame(body: bytes) -> bytes:
    return (len(body) + 8).to_bytes(4, "big") + bytes(8) + body


async def test_a_request_does_not_overtake_one_that_waits() -> None:
    routing = Routing()
    writer = await open_writer(routing)
    writer.write(frame(b"1"))
    assert await routing.arrived.get() == b"1"
    routing.coordinator.loaded.set()
    writer.write(frame(b"2"))
    async with asyncio.timeout(10):
        assert await routing.arrived.get() == b"2"
        await asyncio.gather(*routing.tasks)
    assert routing.acted == [b"1", b"2"]
    writer.close()
    await routing.listener.close()


async def test_nothing_is_done_for_a_connection_that_has_ended() -> None:
    routing = Routing()
    writer = await open_writer(routing)
    writer.write(frame(b"1"))
    await routing.arrived.get()
    writer.close()
    async with asyncio.timeout(10):
        await routing.abandoned.wait()
        routing.coordinator.loaded.set()
        await asyncio.gather(*routing.tasks)
    assert routing.acted == []
    await routing.listener.close()


def test_what_ends_in_its_first_step_is_the_answer_and_waits_for_no_turn() -> None:
    answer = HeartbeatResponse()

    def steps(count: int) -> Steps:
        for _ in range(count):
            yield
        return answer

    assert begun(steps(0)) is answer
    assert begun(answer) is answer
    rest = begun(steps(3))
    assert isinstance(rest, Generator)
    assert outcome(rest) == (answer, 2)
