"""Loads anything that speaks Kafka's protocol, through librdkafka: one process, one `Load`.

Every topic is made for its measurement and deleted behind it. Half of each value cannot be compressed.
"""

import asyncio
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import msgspec
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .kafka_waiters import Waiters
from .load import Load, percentile, phase

TURN = 512  # so many records in a row go to one partition, which is how batches fill
VALUES = 64
CREATED_AT_ONCE = 500  # partitions a request
LEADERS_LIMIT_S = 180.0
DELIVERY_LIMIT_S = 300.0
READ_LIMIT_S = 300.0
READ_AT_ONCE_BYTES = 4 << 20  # more would be new memory each time
IN_FLIGHT_MAX = 10_000  # requests; bytes are the limit then
WARM_S = 2.0  # of an open loop, not counted
PAUSE_LIMIT_S = 60.0
NODES = (1, 2, 3)


class NotDeliveredError(RuntimeError):
    """Records were not acknowledged, or not read again."""


@contextmanager
def topic_for(load: Load) -> Iterator[str]:
    """Make a topic with a leader for each partition; delete it at the end."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": load.address})
    if load.led_by:
        order = [load.led_by, *(node for node in NODES if node != load.led_by)][: load.replicas]
        wanted = NewTopic(name, load.partitions, replica_assignment=[order] * load.partitions, config=load.configs)
    else:
        wanted = NewTopic(name, load.partitions, load.replicas, config=load.configs)
    admin.create_topics([wanted], request_timeout=LEADERS_LIMIT_S)[name].result(LEADERS_LIMIT_S)
    deadline = time.monotonic() + LEADERS_LIMIT_S
    while True:
        found = admin.list_topics(name, timeout=30).topics[name].partitions
        if len(found) == load.partitions and all(one.leader >= 0 for one in found.values()):
            break
        if time.monotonic() > deadline:
            raise NotDeliveredError("the topic has no leaders")
        time.sleep(0.05)
    yield name
    admin.delete_topics([name])[name].result(60)


def values_of(load: Load) -> list[bytes]:
    half = load.record_bytes // 2
    return [os.urandom(half) + bytes(load.record_bytes - half) for _ in range(VALUES)]


class Deliveries:
    """Counts librdkafka's reports; any failure ends the measurement."""

    def __init__(self) -> None:
        self.count = 0
        self.failure = ""

    def __call__(self, error: KafkaError | None, _: Message) -> None:
        self.count += 1
        if error is not None:
            self.failure = str(error)

    def check(self, undelivered: int = 0) -> None:
        if undelivered or self.failure:
            raise NotDeliveredError(f"{undelivered} records were not delivered: {self.failure}")


def producer_for(load: Load, report: Callable[[KafkaError | None, Message], None], **more: object) -> Producer:
    is_all = load.acks == "all"
    settings: dict[str, object] = {
        "bootstrap.servers": load.address,
        "acks": load.acks,
        "enable.idempotence": is_all,
        "compression.type": load.compression,
        "message.max.bytes": 2_000_000,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 256_000,
        "on_delivery": report,
    }
    if load.in_flight_mib:
        settings |= {
            "enable.idempotence": False,
            "max.in.flight.requests.per.connection": IN_FLIGHT_MAX,
            "queue.buffering.max.kbytes": load.in_flight_mib << 10,
        }
    return Producer(settings | more)


def send_all(producer: Producer, topic: str, load: Load) -> None:
    """Produce `load.records`, as fast as the queue takes them, and wait until all are acknowledged."""
    values = values_of(load)
    partitions = load.partitions
    turn = TURN if load.record_bytes <= 4_096 else 1  # a batch of large records is full soon
    for number in range(load.records):
        while True:
            try:
                producer.produce(topic, values[number % VALUES], partition=number // turn % partitions)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % 1024:
            producer.poll(0)


def read_all(topic: str, load: Load, records: int) -> None:
    """Read `records` from the beginning of all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": load.address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "queued.min.messages": 200_000,
            # A consumer that has 64 MiB queued asks again after this; by default after a second, in which it has long
            # run dry. It would be the faster a broker, the slower.
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(load.partitions)])
    deadline = time.monotonic() + READ_LIMIT_S
    seen = 0
    at_once = max(1, min(2_000, READ_AT_ONCE_BYTES // load.record_bytes))
    while seen < records:
        # It waits until there are as many as it is asked for: for more than are left it would wait a second.
        for message in consumer.consume(min(at_once, records - seen), 1.0):
            if message.error() is not None:
                raise NotDeliveredError(str(message.error()))
            seen += 1
        if time.monotonic() > deadline:
            raise NotDeliveredError(f"only {seen} of {records} records were read")
    consumer.close()


def throughput(load: Load) -> None:
    """Produce, then read it all again."""
    with topic_for(load) as topic:
        deliveries = Deliveries()
        batching = {"linger.ms": 5, "batch.size": 1_000_000, "delivery.report.only.error": True}
        producer = producer_for(load, deliveries, **batching)
        first = load.partitions if load.is_active else 0
        for partition in range(first):
            producer.produce(topic, b"", partition=partition)
        deliveries.check(producer.flush(DELIVERY_LIMIT_S))
        with phase("produce") as metrics:
            began = time.perf_counter()
            send_all(producer, topic, load)
            deliveries.check(producer.flush(DELIVERY_LIMIT_S))
            note_rate(metrics, load, load.records, time.perf_counter() - began)
        with phase("consume") as metrics:
            began = time.perf_counter()
            read_all(topic, load, load.records + first)
            note_rate(metrics, load, load.records, time.perf_counter() - began)


def note_rate(metrics: dict[str, float], load: Load, records: int, seconds: float) -> None:
    metrics["records_s"] = records / seconds
    metrics["mb_s"] = records * load.record_bytes / seconds / 1e6
    metrics["bytes"] = records * load.record_bytes


def latency(load: Load) -> None:
    """Send at a fixed rate, also without answers; each record is timed from when it was due."""
    with topic_for(load) as topic, phase("latency") as metrics:
        note_latencies(metrics, open_loop(topic, load))


def open_loop(topic: str, load: Load) -> list[float]:
    """Return the seconds from when each record was due to its acknowledgement, but for the first `WARM_S`."""
    waits = list[float]()
    deliveries = Deliveries()
    value = values_of(load)[0]
    producer = producer_for(load, deliveries, **{"linger.ms": 0})
    began = time.perf_counter()
    first = int(WARM_S * load.rate)

    def report_for(due: float, *, counts: bool) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            deliveries(error, message)
            if counts:
                waits.append(time.perf_counter() - due)

        return report

    with reported_at_once(producer):
        for number in range(int(load.rate * (WARM_S + load.seconds))):
            due = began + number / load.rate
            if (left := due - time.perf_counter()) > 0:
                time.sleep(left)
            report = report_for(due, counts=number >= first)
            producer.produce(topic, value, partition=number % load.partitions, on_delivery=report)
    deliveries.check(producer.flush(DELIVERY_LIMIT_S))
    return waits


@contextmanager
def reported_at_once(producer: Producer) -> Iterator[None]:
    """Let another thread wait for deliveries.

    The sender would have to ask between one record and the next, and librdkafka, which counts in milliseconds, does not
    wait for less than one: it would spin, on the processor that the brokers need.
    """
    is_over = threading.Event()

    def wait() -> None:
        while not is_over.is_set():
            producer.poll(0.05)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def note_latencies(metrics: dict[str, float], waits: list[float]) -> None:
    for name, share in (("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999)):
        metrics[name] = percentile(waits, share) * 1e3
    metrics["max_ms"] = max(waits) * 1e3


def tiny(load: Load) -> None:
    """Send requests of one record, `in_flight` at a time."""
    with topic_for(load) as topic:
        deliveries = Deliveries()
        value = values_of(load)[0]
        producer = producer_for(
            load,
            deliveries,
            **{
                "linger.ms": 0,
                "batch.num.messages": 1,
                "enable.idempotence": False,
                "max.in.flight.requests.per.connection": load.in_flight,
            },
        )
        with phase("tiny") as metrics:
            sent = 0
            end = time.perf_counter() + load.seconds
            while time.perf_counter() < end:
                while sent - deliveries.count >= load.in_flight:
                    producer.poll(0.1)
                producer.produce(topic, value, partition=sent % load.partitions)
                sent += 1
                producer.poll(0)
            metrics["requests_s"] = deliveries.count / load.seconds
            metrics["requests"] = deliveries.count
            deliveries.check(producer.flush(DELIVERY_LIMIT_S))


def fan_out(load: Load) -> None:
    """One producer, and `consumers` that read all of it while it comes."""
    with topic_for(load) as topic:
        deliveries = Deliveries()
        failures = list[BaseException]()

        def read() -> None:
            try:
                read_all(topic, load, load.records)
            except NotDeliveredError as error:
                failures.append(error)

        readers = [threading.Thread(target=read) for _ in range(load.consumers)]
        producer = producer_for(load, deliveries, **{"linger.ms": 5, "delivery.report.only.error": True})
        with phase("fan-out") as metrics:
            began = time.perf_counter()
            for reader in readers:
                reader.start()
            send_all(producer, topic, load)
            deliveries.check(producer.flush(DELIVERY_LIMIT_S))
            for reader in readers:
                reader.join()
            if failures:
                raise failures[0]
            note_rate(metrics, load, load.records * load.consumers, time.perf_counter() - began)


def idle_consumers(load: Load) -> None:
    """Latency of a producer while `consumers` connections wait for records, each for those of one partition."""
    with topic_for(load) as topic:
        waiters = Waiters(load.address, topic, load.partitions, load.consumers)
        thread = threading.Thread(target=lambda: asyncio.run(waiters.run()))
        thread.start()
        try:
            waiters.are_waiting.wait(READ_LIMIT_S)
            with phase("idle consumers") as metrics:
                before = waiters.received
                note_latencies(metrics, open_loop(topic, load))
                metrics["answers_s"] = (waiters.received - before) / (WARM_S + load.seconds)
        finally:
            waiters.stop()
            thread.join()


def failover(load: Load) -> None:
    """Kill the leader of a partition that is written to; the pause is the longest time between acknowledgements."""
    one = msgspec.structs.replace(load, partitions=1)
    with topic_for(one) as topic:
        acknowledged = list[float]()
        deliveries = Deliveries()

        def report(error: KafkaError | None, message: Message) -> None:
            deliveries(error, message)
            acknowledged.append(time.perf_counter())

        impatient = {
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 50,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "topic.metadata.refresh.fast.interval.ms": 10,
            "log_level": 0,
        }
        producer = producer_for(one, report, **impatient)
        value = values_of(one)[0]
        metadata = AdminClient({"bootstrap.servers": one.address}).list_topics(topic, timeout=10)
        leader = metadata.topics[topic].partitions[0].leader
        with phase("failover") as metrics:
            began = time.perf_counter()
            killed = 0.0
            while not killed or time.perf_counter() < killed + PAUSE_LIMIT_S:
                now = time.perf_counter()
                if not killed and now > began + WARM_S:
                    killed = now
                    print("kill", leader, flush=True)
                if killed and now > killed + WARM_S and acknowledged[-1] > killed + WARM_S / 2:
                    break
                producer.produce(topic, value, partition=0)
                producer.poll(0.002)
            deliveries.check(producer.flush(DELIVERY_LIMIT_S))
            metrics["pause_s"] = max(later - earlier for earlier, later in pairwise(acknowledged))


KINDS = {
    "throughput": throughput,
    "latency": latency,
    "tiny": tiny,
    "fan-out": fan_out,
    "idle-consumers": idle_consumers,
    "failover": failover,
}


def main() -> int:
    load = msgspec.json.decode(sys.argv[1], type=Load)
    KINDS[load.kind](load)
    return 0


if __name__ == "__main__":
    sys.exit(main())
