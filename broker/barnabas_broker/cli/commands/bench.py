"""`barnabas bench produce|consume|latency`: measures a cluster with our own clients, in this one process.

Each works on a topic of its own, which is created before and deleted afterwards, also at Ctrl-C; a topic that is named
with `--topic` is kept. What is measured is told with the client's own processor time: it is Python, and at full speed
often the limit. With `--rate` records leave by a schedule, and a latency counts from the time at which its record was
due: a client or a cluster that falls behind makes it longer, instead of sending less and looking well.

Memory is bounded by the producer's buffer, and `SAMPLES_MAX` latencies, or one a record in `latency`.

Values are random text, different in each record; it compresses to about three quarters.
"""

import asyncio
import base64
import contextlib
import logging
import os
import random
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, cast

from barnabas_broker.cli.addresses import endpoints_of
from barnabas_broker.cli.connecting import connected
from barnabas_broker.cli.errors import CommandError, UsageError, typed
from barnabas_broker.cli.legal_names import check_topic_names
from barnabas_broker.cli.limits import check_replication_factor
from barnabas_broker.cli.output import complain, say, say_json
from barnabas_broker.cli.streams.options import acks_of, as_usage, check_compression, seconds_of
from barnabas_broker.cli.streams.pipes import EndSignals, run
from barnabas_broker.cli.wording import counted
from barnabas_broker.config.quantities import parse_bytes, shown_bytes
from barnabas_broker.process.log_lines import log_to_stderr
from barnabas_clients import Admin, Consumer, Producer, TopicPartition
from barnabas_clients.cluster.topic_view import TopicView
from barnabas_clients.errors import ClientError
from barnabas_clients.producer.delivery import Delivery
from barnabas_clients.protocol.errors import KafkaError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from .bench_report import Measured, lines_of

__all__ = ["BenchOrder", "bench_consume", "bench_latency", "bench_produce"]

INTERRUPTED = 130
SAMPLES_MAX = 20_000
RECORD_BYTES_MIN = 8  # the number of a record
RECORD_BYTES_MAX = 64 << 20
BUFFER_BYTES = 32 << 20
RECORDS_AT_ONCE = 1000
CLEAN_UP_S = 10.0
POLL_S = 0.2


class BenchOrder(NamedTuple):
    """The options of the command line; those of producing have no effect where nothing is produced."""

    bootstrap: str
    topic: str | None
    partitions: int
    replication_factor: int
    records: int
    record_size: str
    compression: str
    as_json: bool
    timeout_s: float
    rate: float | None = None
    acks: str = "all"
    batch_size: str = "64KiB"
    linger: str = "5ms"

    @property
    def record_bytes(self) -> int:
        return _size("--record-size", self.record_size, RECORD_BYTES_MIN, RECORD_BYTES_MAX)

    @property
    def batch_bytes(self) -> int:
        return _size("--batch-size", self.batch_size, 1, RECORD_BYTES_MAX)


def bench_produce(order: BenchOrder) -> int:
    """Measure how fast records are acknowledged."""
    return _bench(order, "produce", "produced", _Produce)


def bench_consume(order: BenchOrder) -> int:
    """Measure how fast records are read; those of a scratch topic are written first."""
    return _bench(order, "consume", "consumed", _Consume)


def bench_latency(order: BenchOrder) -> int:
    """Measure how long a record takes from its sender to its reader."""
    return _bench(order, "latency", "passed on", _Latency)


class _Stopwatch:
    """Wall clock and this process's processor time, between `start` and `stop`."""

    def __init__(self) -> None:
        self._began: tuple[float, float] | None = None
        self._ended: tuple[float, float] | None = None

    def start(self) -> None:
        self._began = (time.perf_counter(), time.process_time())

    def stop(self) -> None:
        """Stop it, at the first call."""
        if self._ended is None:
            self._ended = (time.perf_counter(), time.process_time())

    def read(self) -> tuple[float, float]:
        """Return seconds of time and of processor time; zeros if it has not begun."""
        if self._began is None:
            return 0.0, 0.0
        self.stop()
        assert self._ended is not None
        return self._ended[0] - self._began[0], self._ended[1] - self._began[1]


class _Work(ABC):
    """One benchmark on one topic. `records` and `latencies_ms` grow while it runs, and are true at any time."""

    def __init__(self, order: BenchOrder, view: TopicView) -> None:
        self.order = order
        self.topic = view.name
        self.partitions = [TopicPartition(view.name, number) for number in sorted(view.partitions)]
        self.watch = _Stopwatch()
        self.records = 0
        self.record_bytes = order.record_bytes
        self.latencies_ms: dict[str, array[float]] = {}
        self._values = base64.b64encode(os.urandom(max(3 * self.record_bytes // 4, 49_152) + 3))

    @abstractmethod
    async def run(self) -> bool:
        """Work until all is done, or a deadline passes."""

    def value(self, number: int) -> bytes:
        """Return the content of a record, which begins with its number."""
        size_bytes = self.record_bytes - RECORD_BYTES_MIN
        at = random.randrange(len(self._values) - size_bytes)
        return number.to_bytes(RECORD_BYTES_MIN, "big") + self._values[at : at + size_bytes]

    def measured(self) -> Measured:
        took_s, cpu_s = self.watch.read()
        rate = self.order.rate
        return Measured(self.topic, self.records, self.record_bytes, took_s, cpu_s, rate, self.latencies_ms)

    async def send_all(self, producer: Producer, on_sent: Callable[[int, float, Delivery], None]) -> None:
        """Send the records, as fast as they are taken or by the rate; `on_sent` gets their number and due time."""
        order, now = self.order, time.perf_counter
        begin_s = now()
        for number in range(order.records):
            due_s = now() if order.rate is None else begin_s + number / order.rate
            if order.rate is not None and (ahead_s := due_s - now()) > 0:
                await asyncio.sleep(ahead_s)
            on_sent(number, due_s, await producer.send(self.topic, self.value(number)))
        await producer.flush(order.timeout_s)


class _Produce(_Work):
    """Sends; a latency is that from a record's due time to its acknowledgement, of some of the records."""

    async def run(self) -> bool:
        latencies = self.latencies_ms["acknowledged_after"] = array("d")
        failures: list[Exception] = []
        every = -(-self.order.records // SAMPLES_MAX)

        def on_done(due_s: float, delivery: Delivery) -> None:
            try:
                delivery.result()
            except (ClientError, KafkaError) as error:
                failures.append(error)
            else:
                latencies.append(1000 * (time.perf_counter() - due_s))

        def on_sent(number: int, due_s: float, delivery: Delivery) -> None:
            if number % every == 0:
                delivery.add_done_callback(partial(on_done, due_s))

        async with connected(_producer(self.order), self.order.timeout_s) as producer:
            await producer.partitions(self.topic)
            self.watch.start()
            try:
                await self.send_all(producer, on_sent)
            finally:
                self.watch.stop()
                self.records = producer.metrics().records_delivered
        if failures:
            raise failures[0]
        return True


class _Consume(_Work):
    """Reads from the beginning until it has as many records as were asked for."""

    async def run(self) -> bool:
        order = self.order
        if order.topic is None:
            complain(f"writing {order.records:,} records, which are not measured")
            async with connected(_producer(order), order.timeout_s) as producer:
                await self.send_all(producer, lambda *_: None)
        size_bytes = 0
        async with connected(_consumer(order), order.timeout_s) as consumer:
            await consumer.assign(self.partitions)
            ends = await consumer.end_offsets(self.partitions)
            starts = await consumer.begin_offsets(self.partitions)
            there = sum(ends[key] - starts[key] for key in self.partitions)
            if not there:
                raise CommandError(f"topic {self.topic!r} has no records to read")
            await consumer.seek_to_beginning()
            self.watch.start()
            try:
                while self.records < min(order.records, there):
                    found = await consumer.get_many(min(RECORDS_AT_ONCE, order.records - self.records), POLL_S)
                    for records in found.values():
                        self.records += len(records)
                        size_bytes += sum(len(record.value or b"") for record in records)
                    if not found and await _is_at_end(consumer, ends):
                        break  # Some offsets hold no record: of markers, or compacted.
            finally:
                self.watch.stop()
                self.record_bytes = size_bytes // max(1, self.records)
        return True


class _Latency(_Work):
    """Sends by a rate and reads in the same process, so that both ends have one clock."""

    async def run(self) -> bool:
        order = self.order
        due: array[float] = array("d")
        acknowledged = self.latencies_ms["acknowledged_after"] = array("d")
        arrived = self.latencies_ms["read_after"] = array("d")

        def on_done(due_s: float, delivery: Delivery) -> None:
            with contextlib.suppress(ClientError, KafkaError):
                delivery.result()
                acknowledged.append(1000 * (time.perf_counter() - due_s))

        def on_sent(_number: int, due_s: float, delivery: Delivery) -> None:
            due.append(due_s)
            delivery.add_done_callback(partial(on_done, due_s))

        async with (
            connected(_consumer(order), order.timeout_s) as consumer,
            connected(_producer(order), order.timeout_s) as producer,
        ):
            await producer.partitions(self.topic)
            await consumer.assign(self.partitions)
            await consumer.seek_to_end()
            self.watch.start()
            sending = asyncio.ensure_future(self.send_all(producer, on_sent))
            try:
                await self._read(consumer, sending, due, arrived)
            finally:
                self.watch.stop()
                sending.cancel()
                await asyncio.wait({sending})
        if self.records < order.records:
            raise CommandError(f"{order.records - self.records} of {order.records} records have not arrived")
        return True

    async def _read(
        self, consumer: Consumer, sending: "asyncio.Future[None]", due: "array[float]", arrived: "array[float]"
    ) -> None:
        """Take the time of every record; end with the last, or when none has come for too long."""
        last_s = time.perf_counter()
        while self.records < self.order.records and time.perf_counter() - last_s < self.order.timeout_s:
            if sending.done():
                sending.result()
            for records in (await consumer.get_many(RECORDS_AT_ONCE, POLL_S)).values():
                last_s = time.perf_counter()
                for record in records:
                    # Others may write to a topic that is named.
                    number = int.from_bytes((record.value or b"")[:RECORD_BYTES_MIN], "big")
                    if number < len(due):
                        arrived.append(1000 * (last_s - due[number]))
                        self.records += 1


def _bench(order: BenchOrder, what: str, verb: str, make: Callable[[BenchOrder, TopicView], _Work]) -> int:
    _check(order)
    log_to_stderr(logging.ERROR, "barnabas: %(message)s")
    return run(_on_a_topic(order, what, verb, make))


def _check(order: BenchOrder) -> None:
    if order.topic is not None:
        check_topic_names([order.topic])
    check_replication_factor(order.replication_factor)
    acks_of(order.acks)
    check_compression(order.compression)
    _ = order.record_bytes, order.batch_bytes  # They raise.
    seconds_of("--linger", order.linger, 0.0)
    endpoints_of(order.bootstrap)  # It raises.


async def _on_a_topic(order: BenchOrder, what: str, verb: str, make: Callable[[BenchOrder, TopicView], _Work]) -> int:
    name = order.topic or f"bench-{os.urandom(6).hex()}"
    with EndSignals() as wishes:
        async with connected(
            Admin(order.bootstrap, client_id="barnabas-bench", timeout_s=order.timeout_s), order.timeout_s
        ) as admin:
            try:
                view = await wishes.unless(_topic(admin, order, name))
                work = None if view is None else make(order, view)
                done = None if work is None else await wishes.unless(work.run())
            finally:
                if order.topic is None:
                    await _delete(admin, name)
        if work is not None and work.records and (done or wishes.end.is_set()):
            measured = work.measured()
            if order.as_json:
                say_json(measured.as_json(what))
            else:
                say(*lines_of(measured, verb))
        if wishes.end.is_set():
            complain("interrupted")
            return INTERRUPTED
    return 0


async def _topic(admin: Admin, order: BenchOrder, name: str) -> TopicView:
    """Return the topic to work on; it is made if it is not there."""
    try:
        with typed():
            view = await admin.create_topic(name, order.partitions, order.replication_factor)
    except TopicAlreadyExistsError:
        if order.topic is None:
            raise
        (view,) = await admin.describe_topics([name])
    replicas = len(next(iter(view.partitions.values())).replicas)
    fate = "deleted afterwards" if order.topic is None else "kept"
    complain(f"topic {name}: {counted(len(view.partitions), 'partition')}, {counted(replicas, 'replica')} each, {fate}")
    return view


async def _delete(admin: Admin, name: str) -> None:
    """Delete the scratch topic; if that fails, say that it is left, and what is its name."""
    try:
        await admin.delete_topics([name], timeout_s=CLEAN_UP_S)
    except UnknownTopicOrPartitionError:
        return  # It has not come to be.
    except (ClientError, KafkaError) as error:
        complain(f"topic {name} is left behind: {error}; delete it with: barnabas topic delete {name}")


async def _is_at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    async def is_there(key: TopicPartition, end: int) -> bool:
        return await consumer.position(key) >= end

    checks: list[Awaitable[bool]] = [is_there(key, end) for key, end in ends.items()]
    return all(await asyncio.gather(*checks))


def _producer(order: BenchOrder) -> Producer:
    acks = acks_of(order.acks)
    request_bytes_max = max(1 << 20, order.record_bytes + 1024)
    try:
        return Producer(
            order.bootstrap,
            client_id="barnabas-bench",
            acks=acks,
            idempotent=acks == "all",
            compression=cast("Any", order.compression),
            linger_s=seconds_of("--linger", order.linger, 0.0),
            batch_bytes=min(order.batch_bytes, request_bytes_max),
            buffer_bytes=max(BUFFER_BYTES, 4 * order.batch_bytes, 3 * request_bytes_max),
            request_bytes_max=request_bytes_max,
            delivery_timeout_s=order.timeout_s,
            request_timeout_s=order.timeout_s,
            timeout_s=order.timeout_s,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error


def _consumer(order: BenchOrder) -> Consumer:
    return Consumer(order.bootstrap, client_id="barnabas-bench", auto_commit=False, timeout_s=order.timeout_s)


def _size(option: str, text: str, least: int, most: int) -> int:
    with as_usage(option):
        try:
            found = parse_bytes(text)
        except ValueError as error:
            raise CommandError(str(error)) from error
    if not least <= found <= most:
        raise UsageError(f"{option} {text}: it must be from {least} B to {shown_bytes(most)}")
    return found
