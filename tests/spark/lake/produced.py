"""A topic with known rows, and the rows of a table as DuckDB reads them from its files."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

__all__ = ["Row", "Topic", "expected_rows", "file_rows", "new_topic", "produce"]

PARTITIONS = 3
# Recent enough for every retention; ten minutes a row, so that hours and days change.
BASE = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=30)
COLUMNS = 'topic, "partition", "offset", "timestamp", "timestampType", "key", "value", headers'


class Row(NamedTuple):
    """One row of a table, but for the topic's id."""

    topic: str
    partition: int
    offset: int
    timestamp: datetime
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: list[dict[str, Any]] | None


class Topic(NamedTuple):
    """A topic of `PARTITIONS` partitions on some brokers."""

    bootstrap: str
    name: str


def new_topic(bootstrap: str, partitions: int = PARTITIONS, name: str = "", **config: str) -> Topic:
    """Create a topic; a random name if none is given."""
    topic = Topic(bootstrap, name or f"lake-{uuid.uuid4().hex[:12]}")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic.name, partitions, config=config)]).values():
        future.result(30)
    return topic


def produce(topic: Topic, numbers: Iterable[int], partitions: int = PARTITIONS) -> None:
    """Write records by their numbers; partitions take turns."""
    producer = Producer({"bootstrap.servers": topic.bootstrap, "linger.ms": 5})
    failures: list[object] = []
    for number in numbers:
        row = row_of(topic.name, number, partitions)
        producer.produce(
            topic.name,
            key=row.key,
            value=row.value,
            headers=[(one["key"], one["value"]) for one in row.headers or []],
            partition=row.partition,
            timestamp=int(row.timestamp.timestamp() * 1000),
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert not failures


def row_of(topic: str, number: int, partitions: int = PARTITIONS) -> Row:
    """Return record `number` as the row of a table."""
    return Row(
        topic,
        number % partitions,
        number // partitions,
        BASE + timedelta(minutes=number % 97 * 10, milliseconds=number),
        0,
        None if number % 5 == 0 else f"key {number}".encode(),
        None if number % 7 == 0 else f"value {number} ".encode() * (number % 5),
        [{"key": "h", "value": b"1"}, {"key": "none", "value": None}] if number % 3 == 0 else None,
    )


def expected_rows(topic: Topic, numbers: Iterable[int], partitions: int = PARTITIONS) -> list[Row]:
    """Return these records as rows, in the order of partitions and offsets."""
    return sorted((row_of(topic.name, number, partitions) for number in numbers), key=lambda row: row[1:3])


def file_rows(root: Path, files: Sequence[str], columns: str = COLUMNS) -> list[Row]:
    """Return the rows in some files of a table, in the order of partitions and offsets."""
    if not files:
        return []
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        paths = [str(root / path) for path in files]
        found = connection.execute(
            f'select {columns} from read_parquet(?) order by "partition", "offset"',  # noqa: S608 - our own names
            [paths],
        ).fetchall()
    return [Row(*_plain(row)) for row in found]


def _plain(row: Sequence[Any]) -> Sequence[Any]:
    return [one.astimezone(UTC) if isinstance(one, datetime) else _unbuffered(one) for one in row]


def _unbuffered(value: Any) -> Any:
    if isinstance(value, list):
        return [_unbuffered(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _unbuffered(one) for name, one in value.items()}
    return bytes(value) if isinstance(value, bytearray | memoryview) else value
