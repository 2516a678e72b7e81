"""Spark's own Kafka connector on brokers of Barnabas, and an independent client that writes and waits."""

import json
import queue
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery
from spark.writing.records_of import Found, records_of

__all__ = ["Own", "Progress", "Witness", "expected_copies", "expected_row"]

TIMEOUT_S = 60
# A record of long ago, so that nothing but the record itself can be its time.
BASE_MS = 1_600_000_000_000
# What the sink takes, as the source shows it.
COPIED = ("key", "value", "headers", "partition")


class Record(NamedTuple):
    """What is written as record `number` of a topic: every kind of key, value and headers that there is."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def record_of(number: int) -> Record:
    return Record(
        key=None if number % 5 == 0 else b"key %d" % number,
        value=None if number % 7 == 3 else b"value %d " % number * (number % 30),
        headers=[("h", b"%d" % number), ("none", None), ("h", b""), ("ü", b"\xff")] if number % 3 == 0 else [],
    )


def expected_row(number: int, topic: str, partitions: int) -> tuple[Any, ...]:
    """Return the row of a record, as (key, value, headers, topic, partition, offset, milliseconds, type of time)."""
    record = record_of(number)
    where = (topic, number % partitions, number // partitions)
    return record.key, record.value, record.headers or None, *where, BASE_MS + number, 0


class Own:
    """Reads and writes by `format("kafka")`. Record n of a topic is written to partition n modulo their number."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self._folder = folder
        self._options = {"kafka.bootstrap.servers": bootstrap, "includeHeaders": "true"}

    def create(self, partitions: int, name: str = "own") -> str:
        topic = f"{name}-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(30)
        return topic

    def produce(self, topic: str, partitions: int, numbers: range, codec: str = "none") -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "compression.codec": codec, "linger.ms": 5})
        for number in numbers:
            record = record_of(number)
            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                headers=record.headers,
                partition=number % partitions,
                timestamp=BASE_MS + number,
            )
        assert producer.flush(TIMEOUT_S) == 0

    def read(self, topic: str, **options: str) -> list[tuple[Any, ...]]:
        """Return the rows of a batch read, in the form of `expected_row`."""
        return rows_of(self.spark.read.format("kafka").options(**self._options, subscribe=topic, **options).load())

    def stream(self, topic: str, **options: str) -> DataFrame:
        given = {**self._options, "subscribe": topic, "startingOffsets": "earliest", **options}
        return self.spark.readStream.format("kafka").options(**given).load()

    def write(self, frame: DataFrame, **options: str) -> None:
        frame.write.format("kafka").options(**self._options, **options).save()

    def copy(self, source: str, target: str, **trigger: Any) -> StreamingQuery:
        """Begin to copy a topic to another one, partition by partition, or go on with it."""
        writer = self.stream(source).select(*COPIED).writeStream.format("kafka").options(**self._options)
        checkpoint = str(self._folder / f"{source} to {target}")
        writer = writer.option("topic", target).option("checkpointLocation", checkpoint).outputMode("update")
        return writer.trigger(**trigger).start()

    def copied(self, topic: str) -> list[Found]:
        return records_of(self.bootstrap, topic)


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    found = frame.selectExpr("*", "unix_millis(timestamp) as ms").collect()
    return [
        (
            row.key and bytes(row.key),
            row.value if row.value is None else bytes(row.value),
            None if row.headers is None else [(one.key, one.value and bytes(one.value)) for one in row.headers],
            *(row.topic, row.partition, row.offset, row.ms, row.timestampType),
        )
        for row in found
    ]


def expected_copies(partitions: int, count: int) -> list[Found]:
    """Return the records of a copied topic, partition after partition, each in its order."""
    numbers = [number for k in range(partitions) for number in range(k, count, partitions)]
    return [Found(number % partitions, *record_of(number)) for number in numbers]


class Witness:
    """Waits for records of a topic with another's client."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "waits", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, k, 0) for k in range(partitions)])
        self._seen = 0

    def wait_for(self, count: int, query: StreamingQuery) -> None:
        """Return once the topic, which the query writes to, has had so many records."""
        deadline = time.monotonic() + TIMEOUT_S
        while self._seen < count:
            message = self._consumer.poll(max(0.0, deadline - time.monotonic()))
            assert message is not None, f"{self._seen} of {count} records came: {query.exception() or query.status}"
            self._seen += message.error() is None

    def close(self) -> None:
        self._consumer.close()


class Progress(StreamingQueryListener):
    """Tells where the batches of the session's queries have ended."""

    def __init__(self) -> None:
        super().__init__()
        self._ends = queue.Queue[str]()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - PySpark's name
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - PySpark's name
        self._ends.put(event.progress.sources[0].endOffset)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - PySpark's name
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - PySpark's name
        pass

    def wait_for(self, ends: Mapping[str, Sequence[int]]) -> None:
        """Return once a batch has ended at these offsets of the partitions 0, 1, ... of each topic."""
        wanted = {topic: {str(k): end for k, end in enumerate(offsets)} for topic, offsets in ends.items()}
        while json.loads(self._ends.get(timeout=TIMEOUT_S)) != wanted:
            pass
