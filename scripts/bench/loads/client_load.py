"""Measures one client once, in the process that runs this module.

`bench.measures.clients` starts it. It prints one line of JSON: seconds from the first record to the last (acknowledged,
or received), processor seconds in that time, and the largest resident memory of the process. That memory is VmHWM:
`ru_maxrss` begins with the parent's.

All clients are told the same: acks=all, idempotent, 5 ms of linger, batches of 64 KiB, no compression; consumers fetch
with their defaults and are asked for 500 records at a time, or one by one. Every value that is received is looked at.

*Alike*: values of one size, no keys. *Varied*: keys of 4 to 24 bytes, and values from a quarter of the size to seven
quarters of it, the same ones for every client.
"""

# ruff: noqa: PLC0415 - a process loads only the client that it measures: the others would be in its memory

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

LINGER_MS = 5
BATCH_BYTES = 65_536
MANY = 500
DEADLINE_S = 120.0


class Load(NamedTuple):
    """The load of one measurement: `warm_records` come before it and are not counted.

    `record_bytes` is the size of each value, or their mean if they are `is_varied`.
    """

    bootstrap: str
    topic: str
    records: int
    record_bytes: int
    warm_records: int
    is_varied: bool = False


class Watch:
    """Wall-clock and processor time from `start` to `stop`."""

    def start(self) -> None:
        self._began = time.perf_counter()
        self._cpu = time.process_time()

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu_seconds = time.process_time() - self._cpu


def records_of(load: Load) -> list[tuple[bytes | None, bytes]]:
    """Return 64 keys and values, or 1,024 varied ones, half of each incompressible; a load repeats them."""
    if not load.is_varied:
        half = load.record_bytes // 2
        return [(None, os.urandom(half) + bytes(load.record_bytes - half)) for _ in range(64)]
    chance = random.Random(1)
    found: list[tuple[bytes | None, bytes]] = []
    for _ in range(1024):
        size = chance.randint(load.record_bytes // 4, load.record_bytes * 7 // 4)
        key = f"{chance.getrandbits(96):024x}"[: chance.randint(4, 24)].encode()
        found.append((key, chance.randbytes(size // 2) + bytes(size - size // 2)))
    return found


async def produce_barnabas(load: Load, watch: Watch) -> None:
    from barnabas_clients.producer.producer import Producer

    given = records_of(load)
    many = len(given)
    async with Producer(load.bootstrap, linger_s=LINGER_MS / 1000, batch_bytes=BATCH_BYTES) as producer:
        for number in range(load.warm_records):
            key, value = given[number % many]
            _ = await producer.send(load.topic, value, key=key)
        await producer.flush(DEADLINE_S)
        watch.start()
        for number in range(load.records):
            key, value = given[number % many]
            _ = await producer.send(load.topic, value, key=key)
        await producer.flush(DEADLINE_S)
        watch.stop()


async def produce_aiokafka(load: Load, watch: Watch) -> None:
    from aiokafka import AIOKafkaProducer

    given = records_of(load)
    many = len(given)
    producer = AIOKafkaProducer(
        bootstrap_servers=load.bootstrap,
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES,
    )
    async with producer:
        for number in range(load.warm_records):
            key, value = given[number % many]
            await producer.send(load.topic, value, key=key)
        await producer.flush()
        watch.start()
        for number in range(load.records):
            key, value = given[number % many]
            await producer.send(load.topic, value, key=key)
        await producer.flush()
        watch.stop()


async def produce_confluent(load: Load, watch: Watch) -> None:
    from confluent_kafka import Producer

    given = records_of(load)
    many = len(given)
    producer = Producer(
        {
            "bootstrap.servers": load.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
        }
    )

    def send(count: int) -> None:
        for number in range(count):
            key, value = given[number % many]
            while True:
                try:
                    producer.produce(load.topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.01)
            if not number % 512:
                producer.poll(0)
        if left := producer.flush(DEADLINE_S):
            raise RuntimeError(f"{left} records were not delivered")

    send(load.warm_records)
    watch.start()
    send(load.records)
    watch.stop()


async def consume_many_barnabas(load: Load, watch: Watch) -> None:
    from barnabas_clients.consumer.consumer import Consumer

    async with Consumer(load.bootstrap, topics=[load.topic], auto_offset_reset="earliest") as consumer:
        watch.start()
        count = 0
        size = 0
        while count < load.records:
            for records in (await consumer.get_many(MANY, DEADLINE_S)).values():
                count += len(records)
                for record in records:
                    size += len(record.value or b"")
        watch.stop()
    check(load, count, size)


async def consume_each_barnabas(load: Load, watch: Watch) -> None:
    from barnabas_clients.consumer.consumer import Consumer

    async with Consumer(load.bootstrap, topics=[load.topic], auto_offset_reset="earliest") as consumer:
        watch.start()
        count = 0
        size = 0
        async for record in consumer:
            size += len(record.value or b"")
            count += 1
            if count == load.records:
                break
        watch.stop()
    check(load, count, size)


async def consume_many_aiokafka(load: Load, watch: Watch) -> None:
    from aiokafka import AIOKafkaConsumer

    reading = AIOKafkaConsumer(load.topic, bootstrap_servers=load.bootstrap, auto_offset_reset="earliest")
    async with reading as consumer:
        watch.start()
        count = 0
        size = 0
        while count < load.records:
            for records in (await consumer.getmany(timeout_ms=int(DEADLINE_S * 1000), max_records=MANY)).values():
                count += len(records)
                for record in records:
                    size += len(record.value)
        watch.stop()
    check(load, count, size)


async def consume_each_aiokafka(load: Load, watch: Watch) -> None:
    from aiokafka import AIOKafkaConsumer

    reading = AIOKafkaConsumer(load.topic, bootstrap_servers=load.bootstrap, auto_offset_reset="earliest")
    async with reading as consumer:
        watch.start()
        count = 0
        size = 0
        async for record in consumer:
            size += len(record.value)
            count += 1
            if count == load.records:
                break
        watch.stop()
    check(load, count, size)


async def consume_many_confluent(load: Load, watch: Watch) -> None:
    _consume_confluent(load, watch, MANY)


async def consume_each_confluent(load: Load, watch: Watch) -> None:
    _consume_confluent(load, watch, 1)


def _consume_confluent(load: Load, watch: Watch, many: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": load.bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )
    partitions = consumer.list_topics(load.topic, timeout=DEADLINE_S).topics[load.topic].partitions
    consumer.assign([TopicPartition(load.topic, partition, 0) for partition in partitions])
    watch.start()
    count = 0
    size = 0
    while count < load.records:
        if many == 1:
            message = consumer.poll(DEADLINE_S)
            messages = [message] if message is not None else []
        else:
            messages = consumer.consume(many, 0.1)  # it waits for all of them, or so long
        for message in messages:
            if message.error() is not None:
                raise RuntimeError(str(message.error()))
            size += len(message.value())
        count += len(messages)
    watch.stop()
    consumer.close()
    check(load, count, size)


def check(load: Load, count: int, size: int) -> None:
    """Refuse a result that differs from the produced records."""
    given = records_of(load)
    rounds, rest = divmod(load.records, len(given))
    expected = sum(len(value) * (rounds + (number < rest)) for number, (_, value) in enumerate(given))
    if (count, size) != (load.records, expected):
        raise RuntimeError(f"{count} records of {size} bytes came, not {load.records} of {expected}")


MEASUREMENTS: dict[tuple[str, str], Callable[[Load, Watch], Awaitable[None]]] = {
    ("produce", "barnabas"): produce_barnabas,
    ("produce", "aiokafka"): produce_aiokafka,
    ("produce", "confluent-kafka"): produce_confluent,
    ("consume by 500", "barnabas"): consume_many_barnabas,
    ("consume by 500", "aiokafka"): consume_many_aiokafka,
    ("consume by 500", "confluent-kafka"): consume_many_confluent,
    ("consume one by one", "barnabas"): consume_each_barnabas,
    ("consume one by one", "aiokafka"): consume_each_aiokafka,
    ("consume one by one", "confluent-kafka"): consume_each_confluent,
}


def peak_resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what")
    parser.add_argument("client")
    parser.add_argument("load", help="a JSON object with the fields of Load")
    parser.add_argument("--uvloop", action="store_true")
    options = parser.parse_args()
    load = Load(**json.loads(options.load))
    watch = Watch()
    factory = None
    if options.uvloop:
        import uvloop

        factory = uvloop.new_event_loop

    async def measure() -> None:
        await MEASUREMENTS[options.what, options.client](load, watch)

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(measure())
    found = {"seconds": watch.seconds, "cpu_seconds": watch.cpu_seconds, "peak_bytes": peak_resident_bytes()}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
