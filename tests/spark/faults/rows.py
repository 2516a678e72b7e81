"""A topic whose rows follow from their numbers, and a judge that compares all of them, in DuckDB."""

import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition
from spark.lake.produced import Topic, new_topic

from barnabas_spark.jobs.archiving import read_options
from barnabas_spark.lake.formats.choosing import DATA_FOLDERS, open_table
from barnabas_spark.lake.layout import Layout
from barnabas_spark.lake.logs import ask_logs
from barnabas_spark.lake.store import Location

__all__ = [
    "COLUMNS",
    "PARTITIONS",
    "Difference",
    "Filled",
    "archived",
    "compared",
    "consumed",
    "files_of",
    "fill",
    "spans_of",
    "whole_topic",
]

PARTITIONS = 3
VALUE_BYTES = 900
# Recent enough for every retention.
BASE = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=30)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
COLUMNS = tuple(SCHEMA.names)


class Filled(NamedTuple):
    """A topic with rows 0 to `rows`, and a file of them."""

    topic: Topic
    rows: int
    expected: Path


class Difference(NamedTuple):
    """How many rows are missing, and how many there are that were never produced, or once too often."""

    rows: int
    lost: int
    doubled: int
    foreign: int

    @property
    def is_exact(self) -> bool:
        return not (self.lost or self.doubled or self.foreign)

    @property
    def is_at_least_once(self) -> bool:
        return not (self.lost or self.foreign)

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.lost} lost, {self.doubled} more than once, {self.foreign} never produced"


def value_of(number: int) -> bytes | None:
    """Return the value of a row: as good as random, so that no codec makes it small; null now and then."""
    return None if number % 7 == 0 else random.Random(number).randbytes(VALUE_BYTES - number % 100)


def fill(bootstrap: str, rows: int, folder: Path, value_bytes: int = VALUE_BYTES) -> Filled:
    """Create a topic, write rows to it, and the same rows to a file in `folder`."""
    topic = new_topic(bootstrap, PARTITIONS)
    columns: list[list[object]] = [[] for _ in COLUMNS]
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    failures: list[object] = []
    for number in range(rows):
        value = value_of(number)
        value = value and value[:value_bytes]
        key = None if number % 5 == 0 else b"key %d" % number
        headers: list[tuple[str, bytes | None]] | None = (
            [("h", b"%d" % number), ("none", None)] if number % 3 == 0 else None
        )
        timestamp = BASE + timedelta(minutes=number % 97 * 10, milliseconds=number)
        producer.produce(
            topic.name,
            key=key,
            value=value,
            headers=headers,
            partition=number % PARTITIONS,
            timestamp=int(timestamp.timestamp() * 1000),
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
        producer.poll(0)
        shown = None if headers is None else [{"key": name, "value": given} for name, given in headers]
        row = (topic.name, number % PARTITIONS, number // PARTITIONS, timestamp, 0, key, value, shown)
        for column, cell in zip(columns, row, strict=True):
            column.append(cell)
    assert producer.flush(120) == 0
    assert not failures
    expected = folder / f"{topic.name}.expected.parquet"
    pq.write_table(pa.table([*map(pa.array, columns, SCHEMA.types)], schema=SCHEMA), expected)
    return Filled(topic, rows, expected)


def compared(expected: Path, files: Iterable[Path], columns: Sequence[str] = COLUMNS) -> Difference:
    """Compare rows one by one, in all `columns`, between a file and some files."""
    paths = [str(path) for path in files]
    names = ", ".join(f'"{name}"' for name in columns)
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        count = f"select {names}, count(*) as times from read_parquet(?) group by all"  # noqa: S608 - our own names
        connection.execute(f"create table expected as {count}", [str(expected)])
        if paths:
            connection.execute(f"create table found as {count}", [paths])
        else:
            connection.execute("create table found as from expected limit 0")
        same = " and ".join(f'expected."{name}" is not distinct from found."{name}"' for name in columns)
        one = connection.execute(
            "select coalesce(sum(found.times), 0),"  # noqa: S608 - our own names
            " count(*) filter (found.times is null or found.times < expected.times),"
            " coalesce(sum(found.times - expected.times) filter (found.times > expected.times), 0),"
            f" count(*) filter (expected.times is null) from expected full join found on {same}"
        ).fetchone()
    assert one is not None
    return Difference(*map(int, one))


def files_of(kind: str, root: Path) -> list[Path]:
    """Return the live files of an archive's table."""
    table = open_table(kind, Location(str(root)), Layout())
    return [root / path for path in table.files(table.load())]


def data_files(kind: str, root: Path) -> set[Path]:
    """Return all finished files of rows that are there, in the table or not."""
    return {path for path in (root / DATA_FOLDERS[kind]).rglob("*.parquet") if not path.name.startswith(".")}


def archived(kind: str, root: Path, filled: Filled) -> Difference:
    """Compare a table with the topic."""
    return compared(filled.expected, files_of(kind, root))


def spans_of(kind: str, root: Path) -> dict[int, list[tuple[int, int]]]:
    table = open_table(kind, Location(str(root)), Layout())
    return {key.partition: [tuple(one[:2]) for one in spans] for key, spans in table.load().spans.items()}


def whole_topic(filled: Filled) -> dict[int, list[tuple[int, int]]]:
    """Return the ranges that a whole archive has."""
    logs = ask_logs(read_options(filled.topic.bootstrap, filled.topic.name), filled.topic.name)
    return {each: [(log.start_offset, log.end_offset)] for each, log in logs.partitions.items()}


def consumed(topic: Topic, into: Path) -> Path:
    """Write key and value of all records of a topic to a file, as a consumer sees them."""
    consumer = Consumer({"bootstrap.servers": topic.bootstrap, "group.id": "judge", "enable.partition.eof": "false"})
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    try:
        for each in range(PARTITIONS):
            start, end = consumer.get_watermark_offsets(TopicPartition(topic.name, each), 30)
            consumer.assign([TopicPartition(topic.name, each, start)])
            left = end - start
            while left > 0:
                messages = consumer.consume(min(left, 5_000), 30)
                assert messages, f"{left} records of {topic.name}-{each} do not come"
                for message in messages:
                    assert not message.error(), message.error()
                    keys.append(message.key())
                    values.append(message.value())
                left -= len(messages)
    finally:
        consumer.close()
    pq.write_table(pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}), into)
    return into
