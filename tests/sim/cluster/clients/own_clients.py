"""Lets the project's own Producer, Consumer and Admin work in a run, and judges them.

*Producer*: a record that is delivered is at its offset, once, in the order of sending; one that failed is nowhere
unless the error says that it may be; every delivery has an outcome. *Consumer*: the records of a partition come in
order and without a hole for as long as it is this member's, and the next member begins no later than behind the
records that the group was handed. *Commits*: the group never has more than that. The Admin looks at them, as operators
do.

Each is a process of its own: a loop, and a generator of chance, by the name of its host.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from random import Random
from unittest.mock import patch

from barnabas_clients import (
    Admin,
    ClientError,
    Consumer,
    ConsumerRecord,
    Delivery,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
    chance,
)
from sim.cluster.judges.availability import Availability
from sim.cluster.judges.history import ClientHistory, Partition
from sim.cluster.machines.loop import VirtualLoop
from sim.cluster.world import MS, SECOND, World

from .client import WireClient
from .workload import timestamp_ms

__all__ = ["OWN_GROUP", "OwnAdmin", "OwnConsumer", "OwnProducer", "seeded_chance"]

OWN_GROUP = "own"
CALL_S = 5.0
REQUEST_S = 3.0
DELIVERY_S = 12.0
COMMITS = 0.3
SHARE_OF_ONE = 0.3
SESSION_S = 3.0
HEARTBEAT_S = 0.5
REFRESH_S = 5.0


def seeded_chance(world: World) -> AbstractContextManager[object]:
    """Give the project's clients the world's chance, each by the name of its host."""

    def generator() -> Random:
        loop = asyncio.get_running_loop()
        return world.chance(f"{loop.host} itself") if isinstance(loop, VirtualLoop) else Random()

    return patch.object(chance, "new_generator", generator)


def _bootstrap(client: WireClient) -> list[str]:
    return [f"{host}:{port}" for host, port in client.brokers.values()]


class OwnProducer:
    """Sends records one by one, to any partition, and waits for none of them before the next."""

    def __init__(
        self,
        client: WireClient,
        history: ClientHistory,
        availability: Availability,
        partitions: list[Partition],
        pause_ms: int,
    ) -> None:
        self.client = client
        self.history = history
        self.availability = availability
        self.pause_ms = pause_ms
        self._under_way = {partition: deque[tuple[bytes, int, Delivery]]() for partition in partitions}
        self._numbers = dict.fromkeys(partitions, 0)
        self.is_done = False

    async def run(self, goes_on: Callable[[], bool]) -> None:
        rng = self.client.rng
        linger_s = rng.choice((0.0, 0.05))
        in_flight = rng.choice((1, 5))
        while goes_on():
            producer = Producer(
                _bootstrap(self.client),
                linger_s=linger_s,
                in_flight_max=in_flight,
                batch_bytes=rng.choice((300, 65_536)),
                delivery_timeout_s=DELIVERY_S,
                request_timeout_s=REQUEST_S,
                timeout_s=CALL_S,
                metadata_max_age_s=REFRESH_S,
            )
            try:
                async with producer:
                    while goes_on():
                        await self._send(producer)
                        await self.client.pause(1, 2 * self.pause_ms)
            except (KafkaError, ClientError) as error:
                self.client.world.note(self.client.name, f"producer: {error}")
            self._settle_all()
            for partition, left in self._under_way.items():
                if left:
                    self.client.world.violate(f"{partition}: a closed producer owes the outcome of {left[0][0]!r}")
        self.is_done = True

    async def _send(self, producer: Producer) -> None:
        partition = self.client.rng.choice(list(self._under_way))
        topic, index = partition
        stamp_ms = timestamp_ms(self.client)
        value = f"{self.client.name}-{topic}-{index}-{self._numbers[partition]}".encode()
        self._numbers[partition] += 1
        self.history.on_sent(value, partition, self.client.name, is_idempotent=True, timestamp_ms=stamp_ms)
        key = self.history.key_of(value)
        try:
            delivery = await producer.send(topic, value, key=key, partition=index, timestamp_ms=stamp_ms)
        except (KafkaError, ClientError):
            self.history.on_refused(value)
            raise
        self._under_way[partition].append((value, self.client.world.now_us, delivery))
        delivery.add_done_callback(lambda _: self._settle(partition))

    def _settle_all(self) -> None:
        for partition in self._under_way:
            self._settle(partition)

    def _settle(self, partition: Partition) -> None:
        """Take in the outcomes that are there, in the order in which the records were sent."""
        under_way = self._under_way[partition]
        while under_way and under_way[0][2].done():
            value, sent_us, delivery = under_way.popleft()
            self._take(partition, value, sent_us, delivery)

    def _take(self, partition: Partition, value: bytes, sent_us: int, delivery: Delivery) -> None:
        world = self.client.world
        try:
            receipt = delivery.result()
        except (KafkaError, ClientError) as error:
            world.note(self.client.name, f"{value!r} failed: {error!r}, may be done: {error.may_be_done}")
            self.availability.on_unanswered("no refusal", partition, sent_us, error)
            if error.may_be_done:
                world.counts["own unknown"] += 1
                self.history.on_unknown([value])
            else:
                world.counts["own refused"] += 1
                self.history.on_refused(value)
            return
        assert (receipt.topic, receipt.partition) == partition, (receipt, partition)
        world.counts["own delivered"] += 1
        if receipt.offset < 0:
            self.history.on_delivered_somewhere(value)
        else:
            self.history.on_acknowledged([value], receipt.offset)


class OwnConsumer:
    """A member of a group that the project's own consumers form."""

    def __init__(self, client: WireClient, history: ClientHistory, topic: str) -> None:
        self.client = client
        self.history = history
        self.topic = topic
        self._positions = dict[Partition, int]()
        self.is_done = False

    async def run(self, goes_on: Callable[[], bool]) -> None:
        rng = self.client.rng
        while goes_on():
            self._positions.clear()
            consumer = Consumer(
                _bootstrap(self.client),
                topics=[self.topic],
                group_id=OWN_GROUP,
                auto_offset_reset="earliest",
                auto_commit=rng.random() < SHARE_OF_ONE,
                auto_commit_interval_s=0.5,
                assignors=rng.choice((("range",), ("range", "cooperative-sticky"))),
                session_timeout_s=SESSION_S,
                heartbeat_interval_s=HEARTBEAT_S,
                max_poll_interval_s=20.0,
                fetch_max_wait_s=0.3,
                fetch_max_bytes=rng.choice((20_000, 4 << 20)),
                partition_fetch_bytes=rng.choice((1_000, 1 << 20)),
                metadata_max_age_s=REFRESH_S,
                on_assigned=self._on_assigned,
                on_revoked=self._on_gone,
                request_timeout_s=REQUEST_S,
                timeout_s=CALL_S,
            )
            try:
                async with consumer:
                    await self._consume(consumer, goes_on)
            except (KafkaError, ClientError) as error:
                self.client.world.note(self.client.name, f"consumer: {error}")
                await self.client.pause()
        self.is_done = True

    async def _consume(self, consumer: Consumer, goes_on: Callable[[], bool]) -> None:
        """Read for a while; a member that joins anew makes the others share anew, too."""
        rng = self.client.rng
        rounds = self.client.rng.randrange(20, 200)
        while goes_on() and rounds:
            rounds -= 1
            if rng.random() < SHARE_OF_ONE:
                found = await consumer.get_many(1, 0.3)
            else:
                found = await consumer.get_many(rng.randrange(1, 200), 0.3)
            for records in found.values():
                self._take(records)
            if rng.random() < COMMITS:
                await self._commit(consumer)

    async def _commit(self, consumer: Consumer) -> None:
        await consumer.commit()
        self.client.world.counts["own commits"] += 1
        for key, stored in (await consumer.committed()).items():
            self.history.on_group_stored(OWN_GROUP, (key.topic, key.partition), stored.offset)

    def _take(self, records: Iterable[ConsumerRecord]) -> None:
        history = self.history
        name = self.client.name
        for record in records:
            partition = (record.topic, record.partition)
            offset = record.offset
            due = self._positions.get(partition)
            if due is None:
                history.judge.positioned(name, partition, offset)
            history.on_handed_out(OWN_GROUP, partition, offset, due)
            history.on_read(name, partition, offset, record.value or b"")
            self._positions[partition] = offset + 1
            self.client.world.counts["own consumed"] += 1

    async def _on_assigned(self, _consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        for key in partitions:
            self._positions.pop((key.topic, key.partition), None)

    async def _on_gone(self, _consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        for key in partitions:
            self._positions.pop((key.topic, key.partition), None)


class OwnAdmin:
    """Makes topics and removes them, and looks at the offsets that the group has stored."""

    def __init__(self, client: WireClient, history: ClientHistory, factor: int) -> None:
        self.client = client
        self.history = history
        self.factor = factor

    async def run(self, goes_on: Callable[[], bool]) -> None:
        number = 0
        while goes_on():
            try:
                async with Admin(_bootstrap(self.client), timeout_s=CALL_S) as admin:
                    while goes_on():
                        number += 1
                        await self._work(admin, f"own-{self.client.name}-{number}")
            except (KafkaError, ClientError) as error:
                self.client.world.note(self.client.name, f"admin: {error}")
                await self.client.pause(100, 500)

    async def _work(self, admin: Admin, name: str) -> None:
        await self.client.pause(100, 800)
        await admin.create_topics([NewTopic(name, self.client.rng.randrange(1, 4), self.factor)])
        # `describe_topics` asks again until a broker knows it.
        (view,) = await admin.describe_topics([name])
        assert view.name == name, view
        for key, stored in (await admin.group_offsets(OWN_GROUP)).items():
            self.history.on_group_stored(OWN_GROUP, (key.topic, key.partition), stored.offset)
        await admin.delete_topics([name])
        self.client.world.counts["own topics"] += 1


SETTLING_US = int((DELIVERY_S + CALL_S) * SECOND) + 100 * MS
"""So long, at most, the project's clients take to end when nothing hinders them."""
