"""A task's rows are in the topics when it ends, byte for byte, as another's client reads them.

They write as Spark's workers would, without a Spark session.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from barnabas_clients.errors import DeadlineExceededError
from barnabas_spark import clusters as connections
from barnabas_spark.options.writes import parse_write_options
from barnabas_spark.writing import columns
from barnabas_spark.writing.layout import Layout
from barnabas_spark.writing.outcome import TaskOutcome
from barnabas_spark.writing.task import NoTopicError, NotWrittenError, write_rows

from .records_of import Found, create, records_of, values_of

pytestmark = [pytest.mark.process, pytest.mark.slow]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LAYOUT = Layout(value=0, key=1, headers=2, topic=3, partition=4)
KINDS = {"value": pa.binary(), "key": pa.string(), "headers": HEADERS, "topic": pa.string(), "partition": pa.int32()}
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    connections.close_all()


def batch_of(rows: list[Row]) -> Any:
    columns = [pa.array([row.get(name) for row in rows], kind) for name, kind in KINDS.items()]
    return pa.RecordBatch.from_arrays(columns, names=list(KINDS))


def written(bootstrap: str, batches: Iterator[Any] | list[Any], **given: str) -> TaskOutcome:
    options = parse_write_options({"kafka.bootstrap.servers": bootstrap, "kafka.max.block.ms": "10000"} | given)
    return write_rows(batches, LAYOUT, options, 0)


def new_topic(cluster: Any, partitions: int = 3, max_message_bytes: int = 1 << 20) -> str:
    name = f"sink-{uuid.uuid4().hex[:8]}"
    create(cluster.bootstrap, name, partitions, max_message_bytes=max_message_bytes)
    return name


def row_of(topic: str, number: int) -> Row:
    return {
        "topic": topic,
        "key": None if number % 4 == 0 else f"key {number % 17}",
        "value": None if number % 7 == 0 else b"value %d " % number * (number % 30),
        "headers": [("n", b"%d" % number), ("none", None)] if number % 3 == 0 else ([] if number % 3 == 1 else None),
        "partition": number % 3 if number % 5 == 0 else None,
    }


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_rows_are_read_back_by_anothers_client(cluster: Any, codec: str) -> None:
    topics = [new_topic(cluster), new_topic(cluster)]
    rows = [row_of(topics[number % 2], number) for number in range(600)]
    given = {"kafka.compression.type": codec, "kafka.batch.size": "3000"}
    batches = [batch_of(rows[start : start + 100]) for start in range(0, 600, 100)]
    assert written(cluster.bootstrap, batches, **given).rows == 600
    for topic in topics:
        mine = [row for row in rows if row["topic"] == topic]
        found = records_of(cluster.bootstrap, topic)
        expected = [
            Found(0, None if row["key"] is None else row["key"].encode(), row["value"], row["headers"] or [])
            for row in mine
        ]
        key = lambda one: (one.key or b"", one.value or b"", one.headers)  # noqa: E731
        assert sorted((one._replace(partition=0) for one in found), key=key) == sorted(expected, key=key)


def test_partitions_are_those_of_kafkas_own_partitioner_and_keep_the_order(cluster: Any) -> None:
    topic, other = new_topic(cluster, 5), new_topic(cluster, 5)
    rows: list[Row] = [{"topic": topic, "key": f"key {number % 23}", "value": b"%d" % number} for number in range(500)]
    written(cluster.bootstrap, [batch_of(rows)])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2_random"})
    for row in rows:
        producer.produce(other, row["value"], row["key"])
    assert producer.flush(30) == 0
    assert records_of(cluster.bootstrap, topic) == records_of(cluster.bootstrap, other)


def test_a_topic_that_takes_small_batches_only_gets_them(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "PIECE_BYTES", 200_000)
    topic = new_topic(cluster, 1, max_message_bytes=30_000)
    values = [b"%06d" % number + bytes(194) for number in range(6_000)]
    batches = [batch_of([{"topic": topic, "value": value} for value in values])]
    assert written(cluster.bootstrap, batches).rows == 6_000
    assert values_of(cluster.bootstrap, topic) == values
    (opening,) = connections._this_process().clusters.values()
    producer = opening.result().producer
    first = producer.metrics()
    assert first.requests > first.batches
    # What a task has learned, the next one knows: it sends no batch that is too large.
    assert written(cluster.bootstrap, batches).rows == 6_000
    second = producer.metrics()
    assert second.requests - first.requests == second.batches - first.batches < 6_000 * 200 / 7_000


def test_the_row_that_is_too_large_for_its_topic_is_named(cluster: Any) -> None:
    topic = new_topic(cluster, 3, max_message_bytes=30_000)
    sizes = [40_000 if number == 77 else 10 for number in range(90)]
    rows = [{"topic": topic, "key": f"{number}", "value": bytes(size)} for number, size in enumerate(sizes)]
    with pytest.raises(NotWrittenError, match=rf"^row 77 of the task was not written to {topic}-\d: MESSAGE_TOO_LARGE"):
        written(cluster.bootstrap, [batch_of(rows[:50]), batch_of(rows[50:])])


def test_a_name_that_no_topic_can_have_is_refused(cluster: Any) -> None:
    with pytest.raises(NoTopicError, match="topic 't/x': that is not a valid name"):
        written(cluster.bootstrap, [batch_of([{"topic": "t/x", "value": b"v"}])])


def test_nobody_at_the_bootstrap_servers_is_said_in_time() -> None:
    with pytest.raises(DeadlineExceededError, match="connecting"):
        written("127.0.0.1:9", [batch_of([{"topic": "t", "value": b"v"}])], **{"kafka.max.block.ms": "300"})


def test_a_task_without_rows_asks_nobody() -> None:
    assert written("127.0.0.1:9", [batch_of([])]) == TaskOutcome(0, 0)
    assert written("127.0.0.1:9", []) == TaskOutcome(0, 0)


def test_tasks_of_a_worker_share_a_producer_until_one_fails(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "PIECE_BYTES", 1)  # so that rows leave before the others come
    topic = new_topic(cluster, 1)

    def ends_early() -> Iterator[Any]:
        yield batch_of([{"topic": topic, "value": b"first"}] * 2)
        raise RuntimeError("the query failed")

    for number in range(3):
        written(cluster.bootstrap, [batch_of([{"topic": topic, "value": b"%d" % number}])])
    (before,) = connections._this_process().clusters
    with pytest.raises(RuntimeError, match="the query failed"):
        written(cluster.bootstrap, ends_early())
    assert not connections._this_process().clusters
    written(cluster.bootstrap, [batch_of([{"topic": topic, "value": b"3"}])])
    assert list(connections._this_process().clusters) == [before]
    found = values_of(cluster.bootstrap, topic)
    assert [value for value in found if value != b"first"] == [b"0", b"1", b"2", b"3"]


def test_a_topic_created_again_with_fewer_partitions_gets_the_rows_of_the_next_task(cluster: Any) -> None:
    topic = new_topic(cluster, 4)
    rows: list[Row] = [{"topic": topic, "key": f"{number}", "value": b"%d" % number} for number in range(50)]
    written(cluster.bootstrap, [batch_of(rows)])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    create(cluster.bootstrap, topic, 2)
    written(cluster.bootstrap, [batch_of(rows)])
    found = records_of(cluster.bootstrap, topic)
    assert {record.partition for record in found} == {0, 1}
    assert sorted(int(record.value or b"") for record in found) == list(range(50))
