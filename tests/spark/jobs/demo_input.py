"""A small share of the demo's real input, and topics with it."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from confluent_kafka import Producer
from demonstration.source import Source
from spark.lake.produced import Topic

__all__ = ["produce_all", "source"]


@cache
def source() -> Source:
    """Return lines of Python's own library: the key is the file, the value a line of it."""
    return Source(3000)


def produce_all(topic: Topic, records: Iterable[tuple[bytes | None, bytes | None, int]]) -> None:
    """Write keys, values and timestamps; the key chooses the partition, as it does for every producer."""
    producer = Producer({"bootstrap.servers": topic.bootstrap, "linger.ms": 5})
    failures: list[Any] = []
    for key, value, timestamp_ms in records:
        producer.produce(
            topic.name,
            key=key,
            value=value,
            timestamp=timestamp_ms,
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failures
