"""The numbers that a trial sends through a program, and what has come of them: 0, 1, 2 and so on, as text."""

from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
from confluent_kafka import TopicPartition

__all__ = ["committed", "consumer_of", "produce"]

LIMIT_S = 60.0


def produce(bootstrap: str, topic: str, numbers: range, partitions: int = 1) -> None:
    """Put each number into the partition that it leaves as a remainder; all are acknowledged when this returns."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    refused: list[str] = []

    def told(error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is not None:
            refused.append(str(error))

    for number in numbers:
        producer.produce(topic, str(number), partition=number % partitions, on_delivery=told)
    left = producer.flush(LIMIT_S)
    assert left == 0, f"{left} numbers are not acknowledged"
    assert not refused, refused[0]


@contextmanager
def consumer_of(bootstrap: str, group: str = "judge", *, at_end: bool = False) -> Iterator[confluent_kafka.Consumer]:
    """Have a consumer of committed records that names a group; `at_end`: it tells of the ends of partitions."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"}
    consumer = confluent_kafka.Consumer({**settings, "enable.partition.eof": at_end})
    try:
        yield consumer
    finally:
        consumer.close()


def committed(bootstrap: str, topic: str, partition: int = 0) -> list[int]:
    """Return the numbers that who reads committed records finds in a partition, up to its end.

    Raises:
        TimeoutError: its end is not reached.
    """
    with consumer_of(bootstrap, at_end=True) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[int] = []
        while (message := consumer.poll(LIMIT_S)) is not None:
            if message.error():
                return found
            found.append(int(message.value() or b""))
    raise TimeoutError(f"the end of {topic} is not reached")
