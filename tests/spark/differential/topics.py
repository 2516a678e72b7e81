"""Writes the topics that both sources read: every kind of record and of log that batches meet."""

import uuid
from typing import NamedTuple

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

__all__ = ["CODECS", "Topics", "write_topics"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MAIN_PARTITIONS = 3
MAIN_RECORDS = 600
DEADLINE_S = 30


class Topics(NamedTuple):
    """Names. Record n of `main` and of `second` is in partition n modulo their number, written at `base_ms` + n.

    Attributes:
        main: 600 records in 3 partitions: 200 each, in batches of every compression.
        second: 40 records in 2 partitions.
        empty: 2 partitions in which nothing was ever written.
        trimmed: 2 partitions of 50 records; offsets below 20, and all of the other one, were deleted.
    """

    base_ms: int
    prefix: str
    main: str
    second: str
    empty: str
    trimmed: str


def write_topics(bootstrap: str, base_ms: int) -> Topics:
    prefix = f"differential-{uuid.uuid4().hex[:8]}"
    names = [f"{prefix}.{name}" for name in ("main", "second", "empty", "trimmed")]
    topics = Topics(base_ms, prefix, *names)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [
        NewTopic(topics.main, MAIN_PARTITIONS),
        NewTopic(topics.second, 2),
        NewTopic(topics.empty, 2),
        NewTopic(topics.trimmed, 2),
    ]
    for future in admin.create_topics(wanted).values():
        future.result(DEADLINE_S)
    for turn, codec in enumerate(CODECS):
        each = MAIN_RECORDS // len(CODECS)
        _write(bootstrap, topics.main, MAIN_PARTITIONS, range(turn * each, (turn + 1) * each), base_ms, codec)
    _write(bootstrap, topics.second, 2, range(40), base_ms, "lz4")
    _write(bootstrap, topics.trimmed, 2, range(100), base_ms, "none")
    gone = [TopicPartition(topics.trimmed, 0, 20), TopicPartition(topics.trimmed, 1, 50)]
    for deleted in admin.delete_records(gone).values():
        deleted.result(DEADLINE_S)
    return topics


def _write(bootstrap: str, topic: str, partitions: int, numbers: range, base_ms: int, codec: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.codec": codec, "linger.ms": 5})
    failures: list[object] = []
    for number in numbers:
        producer.produce(
            topic,
            key=None if number % 5 == 0 else f"key {number}".encode(),
            value=None if number % 7 == 0 else f"value {number} ".encode() * (number % 30),
            headers=[("h", b"1"), ("none", None), ("h", "ü".encode()), ("empty", b"")] if number % 3 == 0 else [],
            partition=number % partitions,
            timestamp=base_ms + number,
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
    assert producer.flush(DEADLINE_S) == 0
    assert not failures
