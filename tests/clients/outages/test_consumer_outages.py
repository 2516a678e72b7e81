"""A member reads on, each record once and in order, while brokers freeze and die.

The brokers are leaders and coordinators.
"""

import asyncio
import os
import signal
import uuid
from collections.abc import Iterator

import pytest
from machines import cluster_handle

from barnabas_clients import Admin, Consumer, Producer

pytestmark = [pytest.mark.process, pytest.mark.slow]

PARTITIONS = 6
HUNG_S = 40.0


@pytest.fixture(scope="module")
def brokers() -> Iterator[cluster_handle.ClusterHandle]:
    with cluster_handle.cluster() as handle:
        yield handle


async def test_every_record_is_read_once_while_brokers_freeze_and_die(brokers: cluster_handle.ClusterHandle) -> None:
    topic = f"outage-{uuid.uuid4().hex[:8]}"
    offsets: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    async with (
        asyncio.timeout(4 * HUNG_S),
        Admin(brokers.bootstrap) as admin,
        Producer(brokers.bootstrap) as producer,
        Consumer(
            brokers.bootstrap, topics=[topic], group_id=topic, auto_offset_reset="earliest", auto_commit_interval_s=0.2
        ) as consumer,
    ):
        await admin.create_topic(topic, PARTITIONS, 3)

        async def send_and_read(count: int) -> None:
            deliveries = [await producer.send(topic, b"%d" % number) for number in range(count)]
            for delivery in deliveries:
                await delivery
            wanted = sum(map(len, offsets.values())) + count
            async with asyncio.timeout(HUNG_S):
                async for record in consumer:
                    offsets[record.partition].append(record.offset)
                    if sum(map(len, offsets.values())) == wanted:
                        return

        await send_and_read(500)
        pids = await asyncio.to_thread(brokers.pids)
        os.kill(pids[1], signal.SIGSTOP)
        try:
            await send_and_read(500)
        finally:
            os.kill(pids[1], signal.SIGCONT)
        await send_and_read(500)
        await asyncio.to_thread(brokers.kill, 2)
        await send_and_read(500)
        await asyncio.to_thread(brokers.start)
        await send_and_read(500)
        await consumer.commit()
        assert sum((await consumer.lag()).values()) == 0
    assert all(found == list(range(len(found))) for found in offsets.values())
