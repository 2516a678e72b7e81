"""Reads whole topics with another's client, as an independent witness of what was written."""

from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

__all__ = ["Found", "create", "records_of", "values_of"]


class Found(NamedTuple):
    """A record, and where it is."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def create(bootstrap: str, topic: str, partitions: int, *, max_message_bytes: int = 1 << 20, replicas: int = 3) -> None:
    """Create a topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, partitions, replicas, config={"max.message.bytes": str(max_message_bytes)})
    admin.create_topics([new])[topic].result(30)


def records_of(bootstrap: str, topic: str) -> list[Found]:
    """Return the records of a topic, partition after partition, each from its start to its end now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "witness", "enable.auto.commit": False})
    try:
        found = []
        for partition in sorted(consumer.list_topics(topic, 30).topics[topic].partitions):
            start, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), 30)
            consumer.assign([TopicPartition(topic, partition, start)])
            while start < end:
                for message in consumer.consume(min(end - start, 10_000), 30):
                    assert message.error() is None, message.error()
                    assert message.offset() == start
                    start += 1
                    found.append(Found(partition, message.key(), message.value(), message.headers() or []))
        return found
    finally:
        consumer.close()


def values_of(bootstrap: str, topic: str) -> list[bytes | None]:
    """Return the values of a topic, partition after partition."""
    return [record.value for record in records_of(bootstrap, topic)]
