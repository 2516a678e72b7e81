"""Loads brokers with transactions, through this project's own client on every system: one process, one `Load`.

Librdkafka, which makes the other loads, knows the first protocol of transactions only; this client speaks the second
one where the brokers have it, and costs the same beside either. Each producer has an id of its own, and one transaction
open at a time: so many records in turn into all partitions, then the commit, which is answered when it is decided.
A transaction is timed from its beginning to that answer.
"""

import asyncio
import sys
import time

import msgspec

from barnabas_clients.producer.producer import Producer

from .kafka_load import note_latencies, topic_for, values_of
from .load import Load, phase

__all__ = ["main"]

WARM_S = 5.0  # not counted: the Java of the peer compiles
OPEN_LIMIT_S = 60.0


async def work(producer: Producer, topic: str, load: Load, waits: list[float], until: float) -> None:
    """Make transactions until then; note the seconds that each took."""
    values = values_of(load)
    while time.perf_counter() < until:
        began = time.perf_counter()
        async with producer.transaction():
            for number in range(load.batch_records):
                _ = await producer.send(topic, values[number % len(values)], partition=number % load.partitions)
        waits.append(time.perf_counter() - began)


async def transactions(load: Load) -> None:
    with topic_for(load) as topic:
        ids = [f"{topic}-{number}" for number in range(load.producers)]
        producers = [Producer(load.address, transactional_id=one, linger_s=0.0) for one in ids]
        async with asyncio.timeout(OPEN_LIMIT_S):
            await asyncio.gather(*(one.__aenter__() for one in producers))
        try:
            await together(producers, topic, load, [], WARM_S)
            waits = list[float]()
            with phase("transactions") as metrics:
                began = time.perf_counter()
                await together(producers, topic, load, waits, load.seconds)
                seconds = time.perf_counter() - began
                metrics["transactions_s"] = len(waits) / seconds
                metrics["records_s"] = len(waits) * load.batch_records / seconds
                note_latencies(metrics, waits)
        finally:
            await asyncio.gather(*(one.__aexit__(None, None, None) for one in producers))


async def together(producers: list[Producer], topic: str, load: Load, waits: list[float], seconds: float) -> None:
    until = time.perf_counter() + seconds
    async with asyncio.TaskGroup() as tasks:
        for one in producers:
            tasks.create_task(work(one, topic, load, waits, until))


def main() -> int:
    asyncio.run(transactions(msgspec.json.decode(sys.argv[1], type=Load)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
