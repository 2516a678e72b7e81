"""Writes records for the Spark benchmark, through librdkafka: a process that gets one `Writing` as JSON.

Without `rate` it fills a topic as quickly as it can. With it, records go out one by one in an open loop, with the time
at which they are handed to librdkafka as their timestamp. The process has the priority of the others: one that ran
behind them would be late in sending what it has stamped, and that would count as the latency of what is measured. So
what it costs, and how late it was, is part of its answer.
"""

import os
import random
import sys
import time
from collections.abc import Iterator

import msgspec
from confluent_kafka import KafkaError, Message, Producer

from bench.loads.load import percentile

TURN = 512  # so many records in a row go to one partition, which is how batches fill
VALUES = 1024
STEP_S = 0.005  # of the open loop
FLUSH_LIMIT_S = 300.0


class Writing(msgspec.Struct, frozen=True, kw_only=True):
    """Where to write, and what.

    Attributes:
        shares: The share of each partition, in any unit.
        kind: `bytes`: values of `record_bytes`, half of which cannot be compressed. `varied`: the same, from half as
            large to half as large again. `orders`: JSON of about 230 bytes.
        rate: Records a second for `seconds`; 0: `records` of them, at once.
        linger_ms: How long a record of an open loop may wait for others to go with it.
    """

    bootstrap: str
    topic: str
    shares: list[int]
    records: int = 0
    record_bytes: int = 1024
    kind: str = "bytes"
    rate: int = 0
    seconds: float = 0.0
    linger_ms: int = 0


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a load: what was acknowledged; of an open loop also when it began, how late it was, and its cost.

    `acked_p50_ms` is from the hand-over of a record to its acknowledgement.
    """

    records: int
    start_ms: int
    end_ms: int
    late_p99_ms: float = 0.0
    acked_p50_ms: float = 0.0
    cpu_s: float = 0.0


def values_of(writing: Writing) -> list[bytes]:
    chance = random.Random(27)
    if writing.kind == "orders":
        return [order(chance, number) for number in range(VALUES)]
    size = writing.record_bytes
    sizes = [chance.randint(size // 2, size * 3 // 2) if writing.kind == "varied" else size for _ in range(VALUES)]
    return [chance.randbytes(one // 2) + bytes(one - one // 2) for one in sizes]


def order(chance: random.Random, number: int) -> bytes:
    value = {
        "order_id": number * 7919 + chance.randrange(1000),
        "customer": f"customer-{chance.randrange(100_000)}",
        "amount": round(chance.random() * 500, 2),
        "paid": chance.random() < 0.8,
        "note": chance.randbytes(24).hex(),
        "items": [{"sku": f"sku-{chance.randrange(5000)}", "count": chance.randrange(1, 9)} for _ in range(2)],
        "address": {"street": f"Street {chance.randrange(900)}", "city": "Ludlow"},
    }
    return msgspec.json.encode(value)


class Deliveries:
    """Counts librdkafka's reports; any failure ends the process."""

    def __init__(self, *, is_timed: bool) -> None:
        self.count = 0
        self.took_ms: list[float] = []
        self._is_timed = is_timed

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            sys.exit(f"a record was not acknowledged: {error}")
        self.count += 1
        if self._is_timed:
            self.took_ms.append((message.latency() or 0.0) * 1000)


def turns(shares: list[int], records: int) -> Iterator[tuple[int, int]]:
    """Yield partitions, and how many records in a row each gets, until all are out."""
    left = [records * share // sum(shares) for share in shares]
    left[0] += records - sum(left)
    while any(left):
        for partition, count in enumerate(left):
            now = min(TURN, count)
            left[partition] -= now
            if now:
                yield partition, now


def fill(producer: Producer, writing: Writing, told: Deliveries) -> None:
    values = values_of(writing)
    number = 0
    for partition, count in turns(writing.shares, writing.records):
        for _ in range(count):
            key = b"key-%d" % (number % 100_000)
            while True:
                try:
                    producer.produce(writing.topic, values[number % VALUES], key, partition=partition, on_delivery=told)
                    break
                except BufferError:
                    producer.poll(0.05)
            number += 1
        producer.poll(0)


def pace(producer: Producer, writing: Writing, told: Deliveries) -> list[float]:
    """Send in an open loop, a partition after the other; return how late each record was, in milliseconds."""
    values = values_of(writing)
    late = []
    began = time.monotonic()
    total = int(writing.rate * writing.seconds)
    sent = 0
    while sent < total:
        due = min(total, int((time.monotonic() - began) * writing.rate))
        for number in range(sent, due):
            late.append((time.monotonic() - began - number / writing.rate) * 1000)
            producer.produce(
                writing.topic,
                values[number % VALUES],
                partition=number % len(writing.shares),
                timestamp=time.time_ns() // 1_000_000,
                on_delivery=told,
            )
        sent = max(sent, due)
        producer.poll(STEP_S)
    return late


def main() -> None:
    writing = msgspec.json.decode(sys.argv[1], type=Writing)
    told = Deliveries(is_timed=bool(writing.rate))
    settings = {"bootstrap.servers": writing.bootstrap, "acks": "all", "log_level": 0}
    settings |= {"linger.ms": writing.linger_ms} if writing.rate else {"linger.ms": 20, "batch.size": 1_000_000}
    if not writing.rate:
        # Idempotent: what is read is counted, and a request that is sent again must not be in the topic twice.
        settings |= {"queue.buffering.max.messages": 200_000, "enable.idempotence": True}
    producer = Producer(settings)
    start_ms = time.time_ns() // 1_000_000
    late = list[float]()
    if writing.rate:
        late = pace(producer, writing, told)
    else:
        fill(producer, writing, told)
    end_ms = time.time_ns() // 1_000_000
    if producer.flush(FLUSH_LIMIT_S):
        sys.exit("not everything was acknowledged")
    used = os.times()
    answer = Written(
        records=told.count,
        start_ms=start_ms,
        end_ms=end_ms,
        late_p99_ms=percentile(late, 0.99) if late else 0.0,
        acked_p50_ms=percentile(told.took_ms, 0.5) if told.took_ms else 0.0,
        cpu_s=used.user + used.system,
    )
    print(msgspec.json.encode(answer).decode(), flush=True)


if __name__ == "__main__":
    main()
