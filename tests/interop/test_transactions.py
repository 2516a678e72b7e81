"""The clients' transactions beside Apache Kafka: what is committed is read, and what is aborted never is.

Each test runs in both protocols of transactions, against each system of `SYSTEMS`.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from bench import systems
from cancellation import open_sockets, sockets_close, tasks_end
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import Producer as LibrdkafkaProducer
from machines import cluster_handle

from barnabas_clients import (
    Admin,
    CommitFailedError,
    Consumer,
    ConsumerRecord,
    KafkaError,
    Producer,
    ProducerFencedError,
    TopicPartition,
)
from barnabas_clients.cluster.features import Features
from barnabas_clients.producer import conversation

from . import runtimes

pytestmark = [pytest.mark.interop, pytest.mark.slow]
TIMEOUT_S = 60.0


@contextmanager
def kafka() -> Iterator[str]:
    runtimes.kafka_jars()
    with systems.kafka(synced=False, nodes=1) as peer:
        yield peer.address


@contextmanager
def barnabas() -> Iterator[str]:
    # In processes of their own: whose sockets are open here is counted.
    with cluster_handle.cluster() as handle:
        yield handle.bootstrap


SYSTEMS = {"kafka": kafka, "barnabas": barnabas}
"""What starts brokers, by name."""


class Place(NamedTuple):
    """Where the brokers are, and names that no other test uses."""

    bootstrap: str
    name: str

    def producer(self, transactional_id: str = "", **settings: object) -> Producer:
        known = {"transactional_id": transactional_id or self.name, "timeout_s": TIMEOUT_S} | settings
        return Producer(self.bootstrap, **known)  # type: ignore[arg-type]

    def consumer(self, **settings: object) -> Consumer:
        known = {"auto_offset_reset": "earliest", "read_committed": True, "auto_commit": False, "timeout_s": TIMEOUT_S}
        return Consumer(self.bootstrap, **(known | settings))  # type: ignore[arg-type]

    async def read(self, topic: str, at_least: int = 0, *, read_committed: bool = True) -> list[bytes]:
        """Return what is in a topic now, or when there are so many records: markers come after the commit's answer."""
        found: list[ConsumerRecord] = []
        async with self.consumer(read_committed=read_committed) as consumer:
            count = await consumer.partitions_for_topic(topic)
            places = [TopicPartition(topic, number) for number in range(len(count or ()))]
            await consumer.assign(places)
            ends = await consumer.end_offsets(places)
            while len(found) < at_least or any([await consumer.position(at) < end for at, end in ends.items()]):
                for records in (await consumer.get_many()).values():
                    found += records
        return [record.value or b"" for record in found]


@pytest.fixture(scope="module", params=SYSTEMS)
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    with SYSTEMS[request.param]() as address:
        yield address


@pytest.fixture(params=[1, 2])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Have the clients speak this protocol: both are spoken by brokers that have the second one."""
    if request.param == 1:
        monkeypatch.setattr(conversation, "FEATURE", "none")
    return int(request.param)


@pytest.fixture
async def place(bootstrap: str, level: int) -> AsyncIterator[Place]:
    tasks, sockets = asyncio.all_tasks(), open_sockets()
    name = f"tx-{uuid.uuid4().hex[:12]}"
    async with Admin(bootstrap, timeout_s=TIMEOUT_S) as admin:
        await admin.create_topic(name, partitions=2, replication_factor=1)
        await admin.create_topic(f"{name}-out", partitions=2, replication_factor=1)
    yield Place(bootstrap, name)
    await tasks_end(tasks)
    await sockets_close(sockets)


async def test_committed_records_are_read_and_aborted_ones_are_not(place: Place) -> None:
    async with place.producer() as producer:
        for number in range(6):
            transaction = producer.transaction()
            async with transaction:
                for partition in range(2):
                    _ = await producer.send(place.name, b"%d" % number, partition=partition)
                if number % 2:
                    await producer.flush()
                    await transaction.abort()
    assert sorted(await place.read(place.name, 6)) == [b"%d" % number for number in (0, 0, 2, 2, 4, 4)]
    everything = await place.read(place.name, read_committed=False)
    assert sorted(everything) == [b"%d" % number for number in range(6) for _ in range(2)]


async def test_an_open_transaction_holds_readers_of_committed_records_back(place: Place) -> None:
    """T16: they read up to the first record that is undecided, whoever wrote what is behind it."""
    async with place.producer() as first, place.producer(f"{place.name}-2") as second:
        open_one = first.transaction()
        await open_one.begin()
        await first.send_and_wait(place.name, b"undecided", partition=0)
        async with second.transaction():
            _ = await second.send(place.name, b"behind", partition=0)
        assert await place.read(place.name) == []
        await open_one.commit()
        assert await place.read(place.name, 2) == [b"undecided", b"behind"]


async def test_others_read_what_was_committed(place: Place) -> None:
    async with place.producer(compression="lz4", batch_bytes=1_000) as producer:
        async with producer.transaction() as aborted:
            for number in range(200):
                _ = await producer.send(place.name, b"no %d" % number * 5)
            await producer.flush()
            await aborted.abort()
        async with producer.transaction():
            for number in range(200):
                _ = await producer.send(place.name, b"%d" % number, partition=0)
    settings = {"bootstrap.servers": place.bootstrap, "group.id": place.name, "auto.offset.reset": "earliest"}
    consumer = LibrdkafkaConsumer(settings | {"isolation.level": "read_committed"})
    try:
        consumer.subscribe([place.name])
        found = await asyncio.to_thread(consumer.consume, 200, TIMEOUT_S)
    finally:
        await asyncio.to_thread(consumer.close)
    assert [message.value() for message in found] == [b"%d" % number for number in range(200)]


async def test_what_others_have_committed_is_read(place: Place) -> None:
    producer = LibrdkafkaProducer({"bootstrap.servers": place.bootstrap, "transactional.id": f"{place.name}-c"})

    def work() -> None:
        producer.init_transactions(TIMEOUT_S)
        for number in range(5):
            producer.begin_transaction()
            for _ in range(50):
                producer.produce(place.name, b"%d" % number, partition=0)
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S) if number % 2 else producer.commit_transaction(TIMEOUT_S)

    await asyncio.to_thread(work)
    assert await place.read(place.name, 150) == [b"%d" % number for number in (0, 2, 4) for _ in range(50)]


async def test_a_new_producer_fences_the_old_one_and_aborts_what_it_has_left(place: Place) -> None:
    async with place.producer() as old:
        transaction = old.transaction()
        await transaction.begin()
        await old.send_and_wait(place.name, b"left", partition=0)
        async with place.producer() as new:
            with pytest.raises(ProducerFencedError) as caught:
                await transaction.commit()
            assert (caught.value.fenced, caught.value.abortable) == (True, False)
            async with new.transaction():
                _ = await new.send(place.name, b"new", partition=0)
    assert await place.read(place.name, 1) == [b"new"]


async def test_a_transaction_that_is_too_old_is_aborted_by_the_coordinator(place: Place) -> None:
    async with place.producer(transaction_timeout_s=1) as producer:
        transaction = producer.transaction()
        await transaction.begin()
        await producer.send_and_wait(place.name, b"old", partition=0)
        # The coordinator looks for old ones every ten seconds; what has been aborted is decided for readers.
        async with place.consumer(read_committed=True) as reader, asyncio.timeout(TIMEOUT_S):
            await reader.assign([TopicPartition(place.name, 0)])
            while not (await reader.end_offsets([TopicPartition(place.name, 0)]))[TopicPartition(place.name, 0)]:
                await reader.get_many(timeout_s=0.5)
        with pytest.raises(KafkaError) as caught:
            await transaction.commit()
        # The coordinator has raised the epoch, and cannot tell this producer from one that was fenced.
        assert caught.value.abortable or caught.value.fenced
        assert caught.value.may_be_done is False
    assert await place.read(place.name) == []


class Copies:
    """Consumers that copy a topic, each answer in a transaction of its own, of which every third one fails."""

    def __init__(self, place: Place, count: int) -> None:
        self.place = place
        self.left = count
        self.rounds = 0
        self.failed = 0

    async def run(self, producer: Producer, consumer: Consumer) -> None:
        while self.left > 0:
            records = [record for each in (await consumer.get_many(20)).values() for record in each]
            if not records:
                continue
            try:
                await self._copy(producer, consumer, records)
            except (ZeroDivisionError, CommitFailedError, KafkaError) as error:
                # A rebalance may have taken the partitions away.
                if isinstance(error, KafkaError) and not error.abortable:
                    raise
                self.failed += 1
                await consumer.seek_to_committed()
            else:
                self.left -= len(records)

    async def _copy(self, producer: Producer, consumer: Consumer, records: list[ConsumerRecord]) -> None:
        async with producer.transaction() as transaction:
            for record in records:
                assert record.value is not None
                _ = await producer.send(f"{self.place.name}-out", record.value.upper(), partition=record.partition)
            await transaction.send_offsets(consumer)
            self.rounds += 1
            if self.rounds % 3 == 0:
                await producer.flush()
                raise ZeroDivisionError


async def test_records_are_copied_exactly_once(place: Place) -> None:
    """Consume, transform, produce, with failures; a second member comes on the way."""
    count = 400
    async with Producer(place.bootstrap) as source:
        for number in range(count):
            _ = await source.send(place.name, b"r%d" % number, partition=number % 2)
    group = {"topics": [place.name], "group_id": place.name}
    copies = Copies(place, count)
    async with (
        asyncio.timeout(TIMEOUT_S),
        place.producer(f"{place.name}-a") as first,
        place.producer(f"{place.name}-b") as second,
        place.consumer(**group) as one,
        place.consumer(**group) as other,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(copies.run(first, one))
        tasks.create_task(copies.run(second, other))
    assert copies.failed > 3
    found = await place.read(f"{place.name}-out", count)
    assert sorted(found) == sorted(b"R%d" % number for number in range(count))
    async with Admin(place.bootstrap) as admin:
        stored = await admin.group_offsets(place.name)
    # The marker of each transaction has an offset, too, but not in the topic that is read.
    assert {at: found.offset for at, found in stored.items()} == {
        TopicPartition(place.name, number): count // 2 for number in range(2)
    }


async def test_offsets_of_one_who_is_no_member_any_more_are_refused(place: Place) -> None:
    async with Producer(place.bootstrap) as source:
        await source.send_and_wait(place.name, b"v", partition=0)
    group = {"topics": [place.name], "group_id": place.name}
    async with place.producer() as producer, place.consumer(**group) as consumer:
        assert await consumer.getone() is not None
        given = consumer.offsets_to_send()
        await consumer.unsubscribe()
        transaction = producer.transaction()
        await transaction.begin()
        _ = await producer.send(place.name, b"no", partition=1)
        stale = type("Stale", (), {"offsets_to_send": lambda *_: given})()
        with pytest.raises(KafkaError) as caught:
            await transaction.send_offsets(stale)
        assert caught.value.abortable
        await transaction.abort()
        async with producer.transaction():
            _ = await producer.send(place.name, b"yes", partition=1)
    assert sorted(await place.read(place.name, 2)) == [b"v", b"yes"]


async def test_what_the_brokers_tell_of_transactions(place: Place) -> None:
    at = TopicPartition(place.name, 1)
    async with place.producer(transaction_timeout_s=50) as producer, Admin(place.bootstrap) as admin:
        async with producer.transaction():
            await producer.send_and_wait(place.name, b"v", partition=1)
            (listed,) = [
                row for row in await admin.list_transactions(states=["Ongoing"]) if row.transactional_id == place.name
            ]
            described = (await admin.describe_transactions([place.name]))[place.name]
            assert (described.state, described.partitions, described.timeout_s) == ("Ongoing", frozenset({at}), 50.0)
            assert (described.coordinator_id, described.producer_id) == (listed.coordinator_id, listed.producer_id)
            assert described.started_at_ms is not None
            (known,) = (await admin.describe_producers([at]))[at]
            assert (known.producer_id, known.producer_epoch) == (described.producer_id, described.producer_epoch)
            assert (known.start_offset, known.last_sequence) == (0, 0)
        assert await place.read(place.name, 1) == [b"v"]
        (known,) = (await admin.describe_producers([at]))[at]
        assert known.start_offset is None
        ids = [row.transactional_id for row in await admin.list_transactions(producer_ids=[known.producer_id])]
        assert ids == [place.name]
        with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_NOT_FOUND"):
            await admin.describe_transactions([f"{place.name}-nobody"])
        with pytest.raises(KafkaError, match="knows no state Confused"):
            await admin.list_transactions(states=["Confused"])


async def test_a_transaction_that_hangs_can_be_aborted_by_hand(place: Place) -> None:
    at = TopicPartition(place.name, 0)
    async with place.producer() as producer, Admin(place.bootstrap) as admin, producer.transaction() as transaction:
        await producer.send_and_wait(place.name, b"undecided", partition=0)
        async with Producer(place.bootstrap) as other:
            await other.send_and_wait(place.name, b"behind", partition=0)
        assert await place.read(place.name) == []
        with pytest.raises(KafkaError, match=r"no open transaction of .* begins at 1"):
            await admin.abort_transaction(at, 1)
        aborted = await admin.abort_transaction(at, 0)
        assert aborted.start_offset == 0
        assert await place.read(place.name, 1) == [b"behind"]
        await transaction.abort()


async def test_the_clients_know_which_protocol_the_cluster_speaks(place: Place, level: int) -> None:
    async with place.producer() as producer:
        features = producer._cluster.features
        assert isinstance(features, Features)
        assert features.level("transaction.version") == 2
        assert producer._conversation is not None
        assert producer._conversation.machine.is_second is (level == 2)
