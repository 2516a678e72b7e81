"""Each record arrives once, in order, while leaders die, stand still and come back."""

import asyncio
import os
import signal
import uuid
from collections.abc import Callable, Iterator

import pytest
from clients.leader_requests import request_leader
from machines import cluster_handle

from barnabas_clients import Producer
from barnabas_clients.admin import topics as admin
from barnabas_clients.cluster.cluster import Cluster
from barnabas_clients.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_raftlog.records.reader import read_records

pytestmark = [pytest.mark.process, pytest.mark.slow]

TIMEOUT_S = 40.0
RECORDS = 4_000
ON_THE_WIRE = 400  # records, more than a batch


@pytest.fixture(scope="module")
def brokers() -> Iterator[cluster_handle.ClusterHandle]:
    """Three brokers that a test may harm, if it mends them."""
    with cluster_handle.cluster() as handle:
        yield handle


async def read_values(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    async with Cluster(bootstrap) as cluster, asyncio.timeout(TIMEOUT_S):
        await cluster.leader(topic, 0, TIMEOUT_S)
        topic_id = cluster.view.topics[topic].topic_id
        assert topic_id is not None
        while len(values) < count:
            part = FetchPartition(partition=0, fetch_offset=len(values), partition_max_bytes=1 << 22)
            request = FetchRequest(
                max_wait_ms=200,
                min_bytes=1,
                max_bytes=1 << 24,
                session_epoch=-1,
                topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[part])],
            )
            answer = await request_leader(cluster, topic, 0, request, TIMEOUT_S)
            values += [
                record.value
                for row in answer.responses
                for found in row.partitions
                for record in read_records(found.records or b"", len(values))
            ]
    return values


class Leader:
    """The process that leads the test's partition. Its id is found out beforehand: signals then cost no time."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def tell(self, number: signal.Signals) -> None:
        os.kill(self._pid, number)


async def send_through(
    brokers: cluster_handle.ClusterHandle, before: Callable[[Leader], None], harm: Callable[[Leader], None]
) -> None:
    """Send numbers to one partition, do harm to its leader on the way, and read them all back.

    `before` comes some records earlier than `harm`: what suspends the leader there leaves batches on the wire.
    """
    bootstrap = brokers.bootstrap
    topic = f"failover-{uuid.uuid4().hex[:8]}"
    pids = await asyncio.to_thread(brokers.pids)
    async with Cluster(bootstrap) as cluster:
        await admin.create_topic(cluster, topic, 1, 3, timeout_s=TIMEOUT_S)
        leader = Leader(pids[(await cluster.leader(topic, 0, TIMEOUT_S)).node_id])
    async with Producer(bootstrap, batch_bytes=2_000, timeout_s=TIMEOUT_S) as producer:
        deliveries = []
        for number in range(RECORDS):
            deliveries.append(await producer.send(topic, b"%d" % number))
            if number == RECORDS // 2:
                before(leader)
            if number == RECORDS // 2 + ON_THE_WIRE:
                assert producer.metrics().requests_in_flight > 0
                harm(leader)
        await producer.flush()
        offsets = [(await delivery).offset for delivery in deliveries]
        assert producer.metrics().retries > 0
    assert await read_values(bootstrap, topic, RECORDS) == [b"%d" % number for number in range(RECORDS)]
    # -1: appended by an attempt whose answer was lost, too long ago for the leader to remember where.
    assert all(offset in {number, -1} for number, offset in enumerate(offsets))


async def test_a_leader_killed_with_batches_on_the_wire(brokers: cluster_handle.ClusterHandle) -> None:
    await send_through(brokers, lambda leader: leader.tell(signal.SIGSTOP), lambda leader: leader.tell(signal.SIGKILL))
    await asyncio.to_thread(brokers.start)


async def test_a_leader_that_stands_still_with_batches_in_its_sockets(brokers: cluster_handle.ClusterHandle) -> None:
    def wake_later(leader: Leader) -> None:
        asyncio.get_running_loop().call_later(3, leader.tell, signal.SIGCONT)

    await send_through(brokers, lambda leader: leader.tell(signal.SIGSTOP), wake_later)
