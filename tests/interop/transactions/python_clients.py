"""Transactional clients in Python: librdkafka, kafka-python and aiokafka, with the methods of `programs.Program`.

`copy` copies in capitals, a few records in each transaction, of which the first is aborted.
"""

import asyncio
import threading
import warnings
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka

from .programs import FencedError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that newer Pythons discourage
    import kafka
    import kafka.errors
    from kafka.structs import OffsetAndMetadata

__all__ = ["Aiokafka", "KafkaPython", "Librdkafka"]

TIMEOUT_S = 60.0
RECORDS_MAX = 4  # in a transaction of a copy


class Librdkafka:
    """The client of confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        self._servers = {"bootstrap.servers": bootstrap}
        self._producers: dict[str, confluent_kafka.Producer] = {}

    def _consumer(self, group: str) -> confluent_kafka.Consumer:
        known = {"isolation.level": "read_committed", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        return confluent_kafka.Consumer(self._servers | known | {"group.id": group})

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() == confluent_kafka.KafkaError._FENCED:
                raise FencedError(str(error)) from error
            raise

    def open(self, name: str, transactional_id: str) -> None:
        settings = {"transactional.id": transactional_id, "linger.ms": 0, "log_level": 0}
        self._producers[name] = confluent_kafka.Producer(self._servers | settings)
        self._producers[name].init_transactions(TIMEOUT_S)

    def begin(self, name: str) -> None:
        self._producers[name].begin_transaction()

    def send(self, name: str, topic: str, value: str) -> None:
        producer = self._producers[name]
        failures = []

        def note(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
            if error is not None:
                failures.append(error)

        producer.produce(topic, value.encode(), partition=0, on_delivery=note)
        assert producer.flush(TIMEOUT_S) == 0
        assert not failures, failures

    def commit(self, name: str) -> None:
        with self._telling():
            self._producers[name].commit_transaction(TIMEOUT_S)

    def abort(self, name: str) -> None:
        with self._telling():
            self._producers[name].abort_transaction(TIMEOUT_S)

    def close(self, name: str) -> None:
        del self._producers[name]

    def copy(self, transactional_id: str, group: str, source: str, target: str, count: int) -> None:
        self.open("copy", transactional_id)
        producer = self._producers.pop("copy")
        consumer = self._consumer(group)
        has_aborted = False
        try:
            consumer.subscribe([source])
            while count:
                found = consumer.consume(RECORDS_MAX, 0.5)
                if not found:
                    continue
                producer.begin_transaction()
                for message in found:
                    assert message.error() is None, message.error()
                    producer.produce(target, message.value().upper(), partition=0)
                position = confluent_kafka.TopicPartition(source, 0, found[-1].offset() + 1)
                producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), TIMEOUT_S)
                if has_aborted:
                    producer.commit_transaction(TIMEOUT_S)
                    count -= len(found)
                else:
                    producer.flush(TIMEOUT_S)
                    producer.abort_transaction(TIMEOUT_S)
                    consumer.seek(confluent_kafka.TopicPartition(source, 0, 0))
                    has_aborted = True
        finally:
            consumer.close()

    def read(self, topic: str, count: int) -> list[str]:
        consumer = self._consumer(f"{topic}-reader")
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
            return [message.value().decode() for message in consumer.consume(count, TIMEOUT_S)]
        finally:
            consumer.close()

    def end(self) -> None:
        self._producers.clear()


class KafkaPython:
    """The client of kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        self._servers = bootstrap.split(",")
        self._producers: dict[str, Any] = {}

    def _consumer(self, group: str | None = None) -> Any:
        return kafka.KafkaConsumer(
            bootstrap_servers=self._servers,
            group_id=group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=RECORDS_MAX,
        )

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (kafka.errors.ProducerFencedError, kafka.errors.InvalidProducerEpochError) as error:
            raise FencedError(str(error)) from error

    def _open(self, transactional_id: str) -> Any:
        producer = kafka.KafkaProducer(bootstrap_servers=self._servers, transactional_id=transactional_id, linger_ms=0)
        producer.init_transactions()
        return producer

    def open(self, name: str, transactional_id: str) -> None:
        self._producers[name] = self._open(transactional_id)

    def begin(self, name: str) -> None:
        self._producers[name].begin_transaction()

    def send(self, name: str, topic: str, value: str) -> None:
        self._producers[name].send(topic, value.encode(), partition=0).get(TIMEOUT_S)

    def commit(self, name: str) -> None:
        with self._telling():
            self._producers[name].commit_transaction()

    def abort(self, name: str) -> None:
        with self._telling():
            self._producers[name].abort_transaction()

    def close(self, name: str) -> None:
        self._producers.pop(name).close(TIMEOUT_S)

    def copy(self, transactional_id: str, group: str, source: str, target: str, count: int) -> None:
        producer, consumer = self._open(transactional_id), self._consumer(group)
        at = kafka.TopicPartition(source, 0)
        has_aborted = False
        try:
            consumer.subscribe([source])
            while count:
                found = consumer.poll(500).get(at, [])
                if not found:
                    continue
                producer.begin_transaction()
                for record in found:
                    producer.send(target, record.value.upper(), partition=0)
                offsets = {at: OffsetAndMetadata(found[-1].offset + 1, "", -1)}
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                if has_aborted:
                    producer.commit_transaction()
                    count -= len(found)
                else:
                    producer.flush(TIMEOUT_S)
                    producer.abort_transaction()
                    consumer.seek(at, 0)
                    has_aborted = True
        finally:
            consumer.close()
            producer.close(TIMEOUT_S)

    def read(self, topic: str, count: int) -> list[str]:
        consumer = self._consumer()
        try:
            consumer.assign([kafka.TopicPartition(topic, 0)])
            return [next(consumer).value.decode() for _ in range(count)]
        finally:
            consumer.close()

    def end(self) -> None:
        for name in list(self._producers):
            self.close(name)


class Aiokafka:
    """The client of aiokafka, on a loop in a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self._servers = bootstrap
        self._producers: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)
        except (aiokafka.errors.ProducerFenced, aiokafka.errors.InvalidProducerEpoch) as error:
            raise FencedError(str(error)) from error

    async def _start(self, transactional_id: str) -> Any:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=self._servers, transactional_id=transactional_id)
        await producer.start()
        return producer

    async def _consumer(self, *topics: str, group: str | None = None) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            *topics,
            bootstrap_servers=self._servers,
            group_id=group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        )
        await consumer.start()
        return consumer

    def open(self, name: str, transactional_id: str) -> None:
        self._producers[name] = self._run(self._start(transactional_id))

    def begin(self, name: str) -> None:
        self._run(self._producers[name].begin_transaction())

    def send(self, name: str, topic: str, value: str) -> None:
        self._run(self._producers[name].send_and_wait(topic, value.encode(), partition=0))

    def commit(self, name: str) -> None:
        self._run(self._producers[name].commit_transaction())

    def abort(self, name: str) -> None:
        self._run(self._producers[name].abort_transaction())

    def close(self, name: str) -> None:
        self._run(self._producers.pop(name).stop())

    def copy(self, transactional_id: str, group: str, source: str, target: str, count: int) -> None:
        self._run(self._copy(transactional_id, group, source, target, count))

    async def _copy(self, transactional_id: str, group: str, source: str, target: str, count: int) -> None:
        producer, consumer = await self._start(transactional_id), await self._consumer(source, group=group)
        at = aiokafka.TopicPartition(source, 0)
        has_aborted = False
        try:
            while count:
                found = (await consumer.getmany(at, timeout_ms=500, max_records=RECORDS_MAX)).get(at, [])
                if not found:
                    continue
                await producer.begin_transaction()
                for record in found:
                    await producer.send_and_wait(target, record.value.upper(), partition=0)
                await producer.send_offsets_to_transaction({at: found[-1].offset + 1}, group)
                if has_aborted:
                    await producer.commit_transaction()
                    count -= len(found)
                else:
                    await producer.abort_transaction()
                    consumer.seek(at, 0)
                    has_aborted = True
        finally:
            await consumer.stop()
            await producer.stop()

    def read(self, topic: str, count: int) -> list[str]:
        found: list[str] = self._run(self._read(topic, count))
        return found

    async def _read(self, topic: str, count: int) -> list[str]:
        consumer = await self._consumer()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            return [(await consumer.getone()).value.decode() for _ in range(count)]
        finally:
            await consumer.stop()

    def end(self) -> None:
        for name in list(self._producers):
            self.close(name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
