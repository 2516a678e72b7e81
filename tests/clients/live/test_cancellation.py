"""Each public method of each client, cancelled at each await it passes.

After every cancellation no task is left, the same connections are open, the group has the same one member, and the
client does what it did before. `tests/cancellation.py` says how a call is cancelled.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from cancellation import open_sockets, sockets_close, sweep
from clients.live.client_calls import ADMIN, CONSUMER, PRODUCER, SURVEYS, Clients

from barnabas_clients import Admin, Consumer, Producer, TopicPartition
from barnabas_clients.protocol.errors import KafkaError

from .conftest import TIMEOUT_S, MakeTopic

pytestmark = pytest.mark.slow

SOCKETS_MAX = 30
"""Of three clients: a connection to each of three brokers, in as many lanes as each uses, bootstrap included."""


@contextlib.asynccontextmanager
async def clients(bootstrap: str) -> AsyncIterator[Clients]:
    """Open one client of each kind; topics and groups that calls have made go with them."""
    topic, group_id = f"sweep-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
    async with (
        Admin(bootstrap) as admin,
        Producer(bootstrap) as producer,
        Consumer(bootstrap, group_id=group_id, auto_offset_reset="earliest") as consumer,
    ):
        await admin.create_topic(topic, 1)
        try:
            await consumer.subscribe([topic])
            yield Clients(producer=producer, consumer=consumer, admin=admin, topic=topic, group_id=group_id)
        finally:
            names = [view.name for view in await admin.list_topics() if view.name.startswith(topic)]
            await admin.delete_topics(names)


async def use(clients: Clients) -> None:
    """Send a record, receive it, commit it; look whether the group is what it was."""
    receipt = await clients.producer.send_and_wait(clients.topic, b"again")
    await clients.consumer.subscribe([clients.topic])
    async for record in clients.consumer:
        if record.topic == clients.topic and record.offset >= receipt.offset:
            break
    await clients.consumer.commit()
    committed = await clients.admin.group_offsets(clients.group_id)
    assert committed[clients.partition].offset == receipt.offset + 1
    described = await clients.admin.describe_groups([clients.group_id])
    assert len(described[clients.group_id].members) == 1


@pytest.mark.parametrize("name", [*PRODUCER, *CONSUMER, *ADMIN, *SURVEYS])
async def test_a_call_can_be_cancelled_anywhere(bootstrap: str, name: str) -> None:
    call = ({**PRODUCER, **CONSUMER, **ADMIN, **SURVEYS})[name]
    before = open_sockets()
    async with asyncio.timeout(2 * TIMEOUT_S), clients(bootstrap) as each:
        await use(each)
        # A broker may say no to what an earlier, cancelled call has done already.
        await sweep(lambda: as_coroutine(call(each, TIMEOUT_S)), lambda: use(each), answers=(KafkaError,))
        assert open_sockets() < before + SOCKETS_MAX


async def as_coroutine(awaitable: Awaitable[object]) -> object:
    return await awaitable


PLACES: dict[str, Callable[[Clients], Awaitable[object]]] = {
    "position": lambda c: c.consumer.position(c.partition),
    "seek": lambda c: c.consumer.seek(c.partition, 0),
    "seek_to_beginning": lambda c: c.consumer.seek_to_beginning(c.partition),
    "seek_to_end": lambda c: c.consumer.seek_to_end(c.partition),
    "unsubscribe": lambda c: c.consumer.unsubscribe(),
}


@pytest.mark.parametrize("name", PLACES)
async def test_changing_the_place_can_be_cancelled_anywhere(bootstrap: str, name: str) -> None:
    async def settle_and_use(clients: Clients) -> None:
        if clients.partition in clients.consumer.assignment:
            # An end that is still to be looked up would be behind the record that is sent next.
            await clients.consumer.position(clients.partition)
        await use(clients)

    async with asyncio.timeout(2 * TIMEOUT_S), clients(bootstrap) as each:
        await use(each)
        await sweep(lambda: as_coroutine(PLACES[name](each)), lambda: settle_and_use(each))


async def test_assigning_can_be_cancelled_anywhere(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = await make_topic()
    partition = TopicPartition(topic, 0)
    async with Producer(bootstrap) as producer, Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await producer.send_and_wait(topic, b"v")

        async def read() -> None:
            await consumer.assign([partition])
            await consumer.seek_to_beginning()
            assert (await anext(consumer)).offset == 0

        await sweep(lambda: consumer.assign([partition]), read)


async def many(consumer: Consumer) -> list[int]:
    found = await consumer.get_many(timeout_s=TIMEOUT_S)
    return [record.offset for records in found.values() for record in records]


async def one(consumer: Consumer) -> list[int]:
    return [(await anext(consumer)).offset]


async def batch(consumer: Consumer) -> list[int]:
    return [record.offset for record in await anext(consumer.batches())]


@pytest.mark.parametrize("ask", [many, one, batch])
async def test_asking_for_records_can_be_cancelled_anywhere(
    bootstrap: str, ask: Callable[[Consumer], Awaitable[list[int]]]
) -> None:
    """Cancelled or not, no record is lost and none comes twice."""
    taken: list[int] = []
    sent: list[int] = []
    async with asyncio.timeout(2 * TIMEOUT_S), clients(bootstrap) as each:
        await use(each)

        async def send() -> None:
            sent.append((await each.producer.send_and_wait(each.topic, b"next")).offset)

        async def receive() -> None:
            taken.extend(await ask(each.consumer))

        async def rest() -> None:
            if taken != sent:
                await receive()
            assert taken == sent

        await sweep(receive, rest, before=send)
        assert sent


@pytest.mark.parametrize("kind", ["producer", "consumer", "admin"])
async def test_opening_and_closing_can_be_cancelled_anywhere(
    bootstrap: str, kind: str, group_id: str, make_topic: MakeTopic
) -> None:
    topic = await make_topic()
    async with Producer(bootstrap) as producer:
        await producer.send_and_wait(topic, b"v")
    sockets = open_sockets()

    async def live() -> None:
        if kind == "producer":
            async with Producer(bootstrap) as producer:
                await producer.send_and_wait(topic, b"v")
        elif kind == "consumer":
            async with Consumer(
                bootstrap, topics=[topic], group_id=group_id, auto_offset_reset="earliest", auto_commit=False
            ) as consumer:
                await anext(consumer)
        else:
            async with Admin(bootstrap) as admin:
                await admin.list_groups()

    async with asyncio.timeout(4 * TIMEOUT_S):
        assert await sweep(live, lambda: sockets_close(sockets)) > 1
