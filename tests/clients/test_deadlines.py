"""`timeout_s` is kept: the error comes in time, whichever broker is away, and however."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from clients.producer.virtual import Stage

from barnabas_clients import Admin, Consumer, Producer
from barnabas_clients.errors import DeadlineExceededError

TIMEOUT_S = 2.0
SLACK_S = 0.01
"""Turns of the loop take virtual time, too."""

CLIENTS: dict[str, Callable[[str], Any]] = {
    "producer": lambda bootstrap: Producer(bootstrap, timeout_s=TIMEOUT_S),
    "consumer": lambda bootstrap: Consumer(bootstrap, topics=["t"], timeout_s=TIMEOUT_S),
    "admin": lambda bootstrap: Admin(bootstrap, timeout_s=TIMEOUT_S),
}


def no_host(stage: Stage) -> None:
    stage.network.down.add("b1")


ABSENCES: dict[str, Callable[[Stage], None]] = {
    "refused": lambda stage: stage.refuse(1),
    "cut off": lambda stage: stage.cut(1),
    "without power": no_host,
    "standing still": lambda stage: stage.stall(1, 600),
}


async def within(timeout_s: float, work: Any) -> DeadlineExceededError:
    """Return how `work` failed, which must be when its time was over."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(DeadlineExceededError) as caught:
        await work
    assert loop.time() - began_s <= timeout_s + SLACK_S
    return caught.value


@pytest.mark.parametrize("absence", ABSENCES)
@pytest.mark.parametrize("client", CLIENTS)
def test_nobody_there_is_told_within_the_timeout(client: str, absence: str) -> None:
    stage = Stage(1)

    async def main() -> None:
        await asyncio.sleep(0.1)
        ABSENCES[absence](stage)
        began_s = asyncio.get_running_loop().time()
        error = await within(TIMEOUT_S, CLIENTS[client]("b1:9092").__aenter__())
        assert "timed out after 2 s" in str(error)
        assert asyncio.get_running_loop().time() - began_s >= TIMEOUT_S / 2, "somebody may come in time"
        stage.network.down.clear()

    stage.run(main())


@pytest.mark.parametrize("absence", ABSENCES)
@pytest.mark.parametrize("timeout_s", [None, 0.5, 0])
def test_a_producer_s_calls_end_in_time_when_everybody_has_gone(timeout_s: float | None, absence: str) -> None:
    stage = Stage(1)
    limit_s = TIMEOUT_S if timeout_s is None else timeout_s

    async def main() -> None:
        producer = stage.producer(timeout_s=TIMEOUT_S)
        async with producer:
            await producer.send_and_wait("t", b"value")
            ABSENCES[absence](stage)
            stage.leaders.topics["new"] = [(1, 1)]
            await within(limit_s, producer.send("new", b"value", timeout_s=timeout_s))
            await within(limit_s, producer.partitions("new", timeout_s=timeout_s))
            delivery = asyncio.ensure_future(await producer.send("t", b"value"))
            error = await within(limit_s, producer.send_and_wait("t", b"value", timeout_s=timeout_s))
            assert error.may_be_done
            assert "a record for t-0 was not acknowledged in time; last: " in str(error)
            assert absence != "refused" or not limit_s or "connection refused" in str(error)
            await within(limit_s, producer.flush(timeout_s=timeout_s))
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            await producer.close(timeout_s=timeout_s)
            assert loop.time() - began_s <= limit_s + SLACK_S
            await asyncio.wait([delivery])
            assert delivery.exception() is not None
        stage.network.down.clear()

    stage.run(main())


def test_a_broker_that_advertises_an_impossible_host_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(1, 2)
    connect = stage.client.create_connection

    async def create_connection(factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        if "\0" in host:
            raise ValueError("embedded null character")
        return await connect(factory, host, port, **options)

    monkeypatch.setattr(stage.client, "create_connection", create_connection)

    async def main() -> None:
        async with stage.producer(timeout_s=TIMEOUT_S, delivery_timeout_s=5) as producer:
            stage.brokers[0].host = "b\0"
            stage.leaders.move(0, 1)
            stage.reset(1)
            delivery = await producer.send("t", b"value")
            await asyncio.sleep(1)
            stage.leaders.move(0, 2)
            assert (await delivery).offset == 0

    stage.run(main())
