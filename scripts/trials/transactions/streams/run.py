"""Feeds the application, strikes it and the brokers on its way, and reads what it has written.

No more than `AHEAD` orders are on their way to their results, nor beyond the next fault, which waits for a number of
results: so it strikes in the middle of the work. Beside the orders there are others all the while, in transactions that
are aborted.

When the last order has its results the application is closed. Then everything is read again, from the beginning, and
must be what was read on the way.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from machines import java

from barnabas_clients import Admin, Consumer, KafkaError, Producer, TopicPartition
from barnabas_clients.consumer.record import ConsumerRecord
from barnabas_clients.errors import ClientError

from .application import SOURCE, ApplicationError, Instance
from .expected import Expected, expected_of
from .inputs import STEP_MS, Order, Payment, ending, orders_and_payments
from .judge import RESULTS, mismatches

__all__ = ["Run", "Strike", "Work"]

PARTITIONS = {"orders": 4, "payments": 3} | dict.fromkeys(RESULTS, 2)
"""Of the topics. Payments have others than orders, so that orders have to be partitioned anew to be joined."""
AHEAD = 300
PART = 30
DECOYS = 5
PATIENCE_S = 60.0
WRONG_SHOWN = 20
SETTINGS = {
    "application.id": "application",
    "num.stream.threads": "2",
    "commit.interval.ms": "100",
    "statestore.cache.max.bytes": "0",  # a result for each record
    "repartition.purge.interval.ms": "500",
    "main.consumer.session.timeout.ms": "6000",  # how long others wait for one that was killed
    "main.consumer.heartbeat.interval.ms": "1000",
    # So that changelogs are compacted while they are in use.
    "topic.segment.ms": "2000",
    "topic.min.cleanable.dirty.ratio": "0.01",
}
Places = dict[TopicPartition, list[ConsumerRecord]]


class Work(NamedTuple):
    """What there is to do. `begin_ms`: the time of the first order."""

    seed: int
    orders: int
    begin_ms: int

    @classmethod
    def of(cls, seed: int, orders: int) -> "Work":
        """Choose times that are over for two hours at least, so that windows end before the future begins."""
        now_ms = time.time_ns() // 1_000_000
        begin_ms = now_ms - 7_200_000 - orders * STEP_MS
        return cls(seed, orders, begin_ms - begin_ms % 60_000)

    def records(self) -> list[Order | Payment]:
        return list(orders_and_payments(*self))

    def expected(self) -> Expected:
        records = self.records()
        orders = [one for one in records if isinstance(one, Order)]
        return expected_of(orders, [one for one in records if isinstance(one, Payment)])


class Strike(NamedTuple):
    """A fault, and how many orders have results when it strikes."""

    at: int
    fault: Callable[[], Awaitable[None]]


class Results:
    """The committed results that were read so far."""

    def __init__(self, bootstrap: str, instances: Sequence[Instance]) -> None:
        self.found: Places = defaultdict(list)
        self._bootstrap = bootstrap
        self._instances = instances
        self._changed = asyncio.Condition()

    def count(self, topic: str) -> int:
        return sum(len(found) for place, found in self.found.items() if place.topic == topic)

    @contextlib.asynccontextmanager
    async def _consumer(self) -> AsyncIterator[Consumer]:
        settings = {"auto_offset_reset": "earliest", "read_committed": True, "auto_commit": False}
        async with Consumer(self._bootstrap, **settings, timeout_s=PATIENCE_S) as consumer:  # type: ignore[arg-type]
            await consumer.assign((topic, number) for topic in RESULTS for number in range(PARTITIONS[topic]))
            yield consumer

    async def follow(self) -> None:
        """Read until cancelled. Raises if a process of the application ends by itself."""
        async with self._consumer() as consumer:
            while True:
                for place, records in (await consumer.get_many(timeout_s=0.2)).items():
                    self.found[place] += records
                for instance in self._instances:
                    instance.check()
                async with self._changed:
                    self._changed.notify_all()

    async def wait_until_changed(self) -> None:
        async with self._changed:
            await self._changed.wait()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(condition)

    async def read_again(self) -> Places:
        """Return all results that are committed now."""
        found: Places = defaultdict(list)
        async with self._consumer() as consumer:
            places = consumer.assignment
            ends = await consumer.end_offsets(places)
            while any([await consumer.position(place) < end for place, end in ends.items()]):
                for place, records in (await consumer.get_many(timeout_s=0.2)).items():
                    found[place] += records
        return found


def by_topic(found: Places) -> dict[str, list[tuple[str, str | None]]]:
    """Return keys and values by topic; those of one key in order."""
    return {
        topic: [
            ((one.key or b"").decode(), None if one.value is None else one.value.decode())
            for place in sorted(found)
            if place.topic == topic
            for one in found[place]
        ]
        for topic in RESULTS
    }


class Run:
    """One run: the work, the brokers, and the instances of the application."""

    def __init__(
        self,
        work: Work,
        bootstrap: str,
        jars: Path,
        folder: Path,
        instances: int = 1,
        guarantee: str = "exactly_once_v2",
    ) -> None:
        self.work = work
        self.expected = work.expected()
        self.bootstrap = bootstrap
        classes = java.classes(SOURCE, jars)
        settings = SETTINGS | {
            "bootstrap.servers": bootstrap,
            "processing.guarantee": guarantee,
            "num.standby.replicas": str(min(1, instances - 1)),
        }
        self.instances = [Instance(number + 1, jars, classes, folder, settings) for number in range(instances)]
        self.results = Results(bootstrap, self.instances)
        self.aborted = 0  # transactions beside the input
        self._sent = 0
        self._next_strike = 0  # after so many orders: no more than `AHEAD` beyond them are sent before

    @property
    def done(self) -> int:
        """How many orders have results."""
        return self.results.count("totals")

    def _has_done(self, count: int) -> bool:
        return self.done >= count

    def _is_struck(self, count: int) -> bool:
        """Whether there is something of each task to lose: those of hopping windows lag behind totals and sessions."""
        return self._has_done(count) and self.results.count("hopping") > 0

    async def run(self, strikes: Sequence[Strike], limit_s: float) -> list[str]:
        """Do all the work, and return what is wrong: with the results, or with a process that ended by itself."""
        async with Admin(self.bootstrap, timeout_s=PATIENCE_S) as admin:
            for topic, count in PARTITIONS.items():
                await admin.create_topic(topic, count, 3)
        for instance in self.instances:
            instance.start()
        try:
            async with asyncio.timeout(limit_s):
                await self._work(strikes)
            for instance in self.instances:
                await instance.stop()
        except TimeoutError:
            words = [instance.last_words() for instance in self.instances]
            return [f"not complete after {limit_s:.0f} s", *self._wrong(self.results.found)[:WRONG_SHOWN], *words]
        except ApplicationError as error:
            return [str(error)]
        except ExceptionGroup as group:
            ended, others = group.split(ApplicationError)
            if ended is None or others is not None:
                raise
            return [str(error) for error in ended.exceptions]
        finally:
            for instance in self.instances:
                instance.kill()
        again = await self.results.read_again()
        changed = [f"{place}: it was read otherwise before" for place in again if not self._agrees(place, again[place])]
        return changed + self._wrong(again)

    async def _work(self, strikes: Sequence[Strike]) -> None:
        async with asyncio.TaskGroup() as tasks:
            follower = tasks.create_task(self.results.follow())
            feeder = tasks.create_task(self._feed())
            for self._next_strike, fault in strikes:
                await self.results.wait_until(partial(self._is_struck, self._next_strike))
                await fault()
            self._next_strike = self.work.orders
            await feeder
            await self.results.wait_until(self._is_complete)
            follower.cancel()

    def _agrees(self, place: TopicPartition, again: list[ConsumerRecord]) -> bool:
        before = self.results.found[place]
        return [(one.offset, one.key, one.value) for one in before] == [
            (one.offset, one.key, one.value) for one in again[: len(before)]
        ]

    def _wrong(self, found: Places) -> list[str]:
        return mismatches(by_topic(found), self.expected)

    def _is_complete(self) -> bool:
        """Whether there are as many results as there must be. Sessions have theirs in the transactions of totals."""
        expected = self.expected
        return (
            self._has_done(self.work.orders)
            and self.results.count("hopping") >= sum(count for count, _ in expected.hopping.values())
            and self.results.count("tumbling") >= len(expected.tumbling)
            and self.results.count("joined") >= expected.joined.total()
        )

    async def _feed(self) -> None:
        records = self.work.records()
        async with Producer(self.bootstrap, delivery_timeout_s=PATIENCE_S, timeout_s=PATIENCE_S) as producer:
            misleading = asyncio.create_task(self._mislead(records[:DECOYS]))
            while records:
                part, records = records[:PART], records[PART:]
                await self._send(producer, part)
                self._sent += sum(isinstance(one, Order) for one in part)
                await self.results.wait_until(self._may_send)
            misleading.cancel()
            await asyncio.wait([misleading])
            for partition in range(PARTITIONS["orders"]):
                last = ending(self.work.orders, self.work.begin_ms, partition)
                await self._send(producer, [last], partition)

    def _may_send(self) -> bool:
        return self._sent - min(self.done, self._next_strike) <= AHEAD

    async def _send(self, producer: Producer, part: Sequence[Order | Payment], partition: int | None = None) -> None:
        for one in part:
            topic = "orders" if isinstance(one, Order) else "payments"
            _ = await producer.send(topic, one.value, key=one.key, timestamp_ms=one.time_ms, partition=partition)
        await producer.flush()

    async def _mislead(self, decoys: Sequence[Order | Payment]) -> None:
        """Put records into transactions that are aborted, here or by the coordinator, until cancelled."""
        while True:
            with contextlib.suppress(KafkaError, ClientError):
                async with Producer(
                    self.bootstrap, transactional_id="decoys", transaction_timeout_s=5.0, timeout_s=10.0
                ) as producer:
                    while True:
                        async with producer.transaction() as transaction:
                            await self._send(producer, decoys)
                            await transaction.abort()
                        self.aborted += 1
                        await self.results.wait_until_changed()
