"""Third-party clients against brokers in this process: write with acks=all, read all back."""

import asyncio

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_broker.testing import RunningCluster

pytestmark = pytest.mark.interop

COUNT = 500
EXPECTED = [(offset, b"%d" % offset) for offset in range(COUNT)]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka(three_brokers: RunningCluster, compression: str) -> None:
    config = {"bootstrap.servers": three_brokers.bootstrap}
    topic = f"librdkafka-{compression}"
    admin = AdminClient(config)  # kept: it stops when nobody holds it
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(10)
    failures = []
    producer = confluent_kafka.Producer(config | {"enable.idempotence": True, "compression.type": compression})
    for _, value in EXPECTED:
        producer.produce(topic, value=value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(20) == 0
    assert failures == []
    consumer = confluent_kafka.Consumer(config | {"group.id": "unused", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[tuple[int | None, bytes | None]] = []
    while len(found) < COUNT:
        messages = consumer.consume(COUNT, 10)
        assert messages, f"only {len(found)} came"
        found += [(message.offset(), message.value()) for message in messages]
    assert found == EXPECTED
    assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0)) == (0, COUNT)
    consumer.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python(three_brokers: RunningCluster) -> None:
    import kafka  # its import warns, which must happen within the test

    bootstrap = three_brokers.bootstrap.split(",")
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    sent = [producer.send("kafka-python", value, partition=0) for _, value in EXPECTED]
    assert [future.get(10).offset for future in sent] == list(range(COUNT))
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    partition = kafka.TopicPartition("kafka-python", 0)
    consumer.assign([partition])
    assert (consumer.beginning_offsets([partition]), consumer.end_offsets([partition])) == (
        {partition: 0},
        {partition: COUNT},
    )
    found: list[tuple[int, bytes]] = []
    while len(found) < COUNT:
        found += [(record.offset, record.value) for records in consumer.poll(10_000).values() for record in records]
    assert found == EXPECTED
    consumer.close()


def test_aiokafka(three_brokers: RunningCluster) -> None:
    async def main() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=three_brokers.bootstrap, enable_idempotence=True
        ) as producer:
            sent = [await producer.send("aiokafka", value, partition=0) for _, value in EXPECTED]
            assert [(await future).offset for future in sent] == list(range(COUNT))
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=three_brokers.bootstrap, auto_offset_reset="earliest")
        async with consumer:
            consumer.assign([aiokafka.TopicPartition("aiokafka", 0)])
            found: list[tuple[int, bytes]] = []
            while len(found) < COUNT:
                record = await consumer.getone()
                found.append((record.offset, record.value))
            assert found == EXPECTED

    asyncio.run(main())
