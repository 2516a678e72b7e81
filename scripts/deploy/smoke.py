"""Uses an installed Barnabas once: a cluster, records, a killed broker, more records, all of them read.

    python -m deploy.smoke

Whatever is installed for the running Python is what is used. Exit status 0: every record was read, in order.
"""

import asyncio
import sys

from machines import cluster_handle

from barnabas_clients import Admin, Consumer, Producer

TOPIC = "orders"
RECORDS = 200
DEADLINE_S = 60.0


async def send(bootstrap: str, first: int, end: int) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(first, end):
            await producer.send_and_wait(TOPIC, str(number).encode(), key=b"table 4")


async def read(bootstrap: str) -> list[int]:
    async with Consumer(bootstrap, topics=[TOPIC], group_id="bar", auto_offset_reset="earliest") as consumer:
        numbers: list[int] = []
        async for record in consumer:
            assert record.value is not None
            numbers.append(int(record.value))
            if len(numbers) == RECORDS:
                break
        return numbers


async def use(cluster: cluster_handle.ClusterHandle) -> list[int]:
    async with asyncio.timeout(DEADLINE_S):
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=3)
            (topic,) = await admin.describe_topics([TOPIC])
        await send(cluster.bootstrap, 0, RECORDS // 2)
        leader = topic.partitions[0].leader_id
        cluster.kill(leader if leader > 0 else 1)
        await send(cluster.bootstrap, RECORDS // 2, RECORDS)
        return await read(cluster.bootstrap)


def main() -> int:
    """Run it once, and return the exit status."""
    with cluster_handle.cluster() as cluster:
        numbers = asyncio.run(use(cluster))
    return 0 if numbers == list(range(RECORDS)) else 1


if __name__ == "__main__":
    sys.exit(main())
