"""Every call ends at its deadline if brokers are frozen, killed or cut off.

Afterwards the clients go on. The calls are those of client_calls.py, all at once, with a deadline of a second or two.
None may return, none may hang, and each error names what was waited for. The request of a call may have been carried
out. Producing, consuming and committing shows that the clients are usable again.
"""

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from cancellation import open_sockets, sockets_close, tasks_end
from clients.live.client_calls import ADMIN, CONSUMER, PRODUCER, SURVEYS, Call, Clients, asking_methods
from machines import cluster_handle
from proxy import Proxy

from barnabas_broker.testing import Cluster
from barnabas_clients import Admin, Consumer, Producer
from barnabas_clients.errors import DeadlineExceededError

pytestmark = [pytest.mark.process, pytest.mark.slow]

DEADLINE_S = 1.5
HUNG_S = 30.0
"""Far beyond every deadline here: a call that reaches it hangs."""
NOT_ASKING = {
    Producer: {"close", "start", "stop", "prepare"},  # `prepare` waits in `flush`, in a transaction
    Admin: {"close", "start", "stop", *SURVEYS},
    # Records are asked for without a deadline of the broker's: see the tests below.
    Consumer: {
        "close",
        "start",
        "stop",
        "getone",
        "get_many",
        "assign",
        "unsubscribe",
        "seek_to_committed",
        "position",
        "seek",
        "seek_to_beginning",
        "seek_to_end",
        "skip",
    },
}
CALLS = {"producer": PRODUCER, "consumer": CONSUMER, "admin": ADMIN}


@pytest.fixture(scope="module")
def brokers() -> Iterator[cluster_handle.ClusterHandle]:
    """Three brokers that a test may harm, if it mends them."""
    with cluster_handle.cluster() as handle:
        yield handle


@contextlib.asynccontextmanager
async def clients(bootstrap: str, *, only_theirs: bool = True) -> AsyncIterator[Clients]:
    """Open one client of each kind, used once, with every connection that they need.

    Afterwards none of their tasks is left, and none of their sockets where the sockets here are `only_theirs`.
    """
    topic, group_id = f"outage-{uuid.uuid4().hex[:8]}", f"group-{uuid.uuid4().hex[:8]}"
    tasks = asyncio.all_tasks()
    sockets = open_sockets()
    async with (
        asyncio.timeout(4 * HUNG_S),
        Admin(bootstrap, timeout_s=20) as admin,
        Producer(bootstrap, timeout_s=20) as producer,
        Consumer(
            bootstrap, group_id=group_id, auto_offset_reset="earliest", session_timeout_s=20, timeout_s=20
        ) as consumer,
    ):
        await admin.create_topic(topic)
        await consumer.subscribe([topic])
        both = Clients(producer=producer, consumer=consumer, admin=admin, topic=topic, group_id=group_id)
        await use(both)
        yield both
    await tasks_end(tasks)
    if only_theirs:
        await sockets_close(sockets)


async def use(clients: Clients) -> None:
    """Send a record, receive it, commit it."""
    receipt = await clients.producer.send_and_wait(clients.topic, b"again", timeout_s=HUNG_S)
    async for record in clients.consumer:
        if record.offset >= receipt.offset:
            break
    await clients.consumer.commit(timeout_s=HUNG_S)
    committed = await clients.admin.group_offsets(clients.group_id, timeout_s=HUNG_S)
    assert committed[clients.partition].offset == receipt.offset + 1


async def end_at_their_deadlines(clients: Clients) -> None:
    """Make every call while nobody answers."""

    async def ended(name: str, call: Call) -> str:
        try:
            async with asyncio.timeout(HUNG_S):
                await call(clients, DEADLINE_S)
        except DeadlineExceededError as error:
            return "" if str(error) else f"{name} says nothing"
        except TimeoutError:
            return f"{name} hung"
        return f"{name} returned"

    wrong = await asyncio.gather(
        *(ended(f"{kind}.{name}", call) for kind, calls in CALLS.items() for name, call in calls.items())
    )
    assert not [text for text in wrong if text]
    for call in SURVEYS.values():
        async with asyncio.timeout(HUNG_S):
            # Without any broker there is nobody who could be silent.
            with contextlib.suppress(DeadlineExceededError):
                assert (await call(clients, DEADLINE_S)).silent
    async with asyncio.timeout(HUNG_S):
        assert await clients.consumer.get_many(timeout_s=DEADLINE_S) == {}


def tell(pids: dict[int, int], number: signal.Signals) -> None:
    for pid in pids.values():
        os.kill(pid, number)


def test_no_call_is_forgotten() -> None:
    for kind, calls in ((Producer, PRODUCER), (Consumer, CONSUMER), (Admin, ADMIN)):
        assert asking_methods(kind) == set(calls) | NOT_ASKING[kind], kind


async def test_frozen_brokers(brokers: cluster_handle.ClusterHandle) -> None:
    async with clients(brokers.bootstrap) as each:
        pids = await asyncio.to_thread(brokers.pids)
        tell(pids, signal.SIGSTOP)
        try:
            await end_at_their_deadlines(each)
        finally:
            tell(pids, signal.SIGCONT)
        await use(each)


async def test_killed_brokers(brokers: cluster_handle.ClusterHandle) -> None:
    async with clients(brokers.bootstrap) as each:
        await asyncio.to_thread(brokers.kill, 1, 2, 3)
        try:
            await end_at_their_deadlines(each)
        finally:
            await asyncio.to_thread(brokers.start)
        await use(each)


async def test_clients_close_in_time_although_nobody_answers(brokers: cluster_handle.ClusterHandle) -> None:
    async with clients(brokers.bootstrap) as each:
        delivery = await each.producer.send(each.topic, b"on its way")
        pids = await asyncio.to_thread(brokers.pids)
        tell(pids, signal.SIGSTOP)
        try:
            async with asyncio.timeout(HUNG_S):
                await asyncio.gather(
                    each.producer.close(DEADLINE_S),
                    each.consumer.close(DEADLINE_S),
                    each.admin.close(),
                    return_exceptions=True,
                )
            assert delivery.done()
        finally:
            tell(pids, signal.SIGCONT)


async def test_a_broker_behind_a_cut_wire() -> None:
    async with Proxy() as proxy:
        settings = {"advertised.listeners": f"127.0.0.1:{proxy.port}"}
        async with Cluster(1, settings=settings) as cluster:
            proxy.target_port = cluster.nodes[1].port
            async with clients(f"127.0.0.1:{proxy.port}", only_theirs=False) as each:
                proxy.cut()
                try:
                    await end_at_their_deadlines(each)
                finally:
                    proxy.mend()
                await use(each)
