"""A real Spark session reads from a real cluster what another's client wrote."""

import json
import time
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from docs.tasks import SPARK
from documents.comparison import agree
from documents.pages import sections
from documents.reader import page_text
from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Recent, so that no broker takes the records for older than its retention allows.
BASE_MS = time.time_ns() // 1_000_000


class Source:
    """A topic of random name with known records, and the way to load it."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap

    def create(self) -> str:
        name = f"spark-{uuid.uuid4().hex[:12]}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for future in admin.create_topics([NewTopic(name, PARTITIONS)]).values():
            future.result(30)
        return name

    def write(self, topic: str, numbers: range, codec: str = "none") -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "compression.codec": codec, "linger.ms": 5})
        failures: list[object] = []
        for number in numbers:
            row = expected(topic, number)
            producer.produce(
                topic,
                key=row["key"],
                value=row["value"],
                headers=[(one["key"], one["value"]) for one in row["headers"] or []],
                partition=row["partition"],
                timestamp=BASE_MS + number,
                on_delivery=lambda error, _message: failures.append(error) if error else None,
            )
        assert producer.flush(60) == 0
        assert not failures

    def load(self, topic: str, **options: str) -> DataFrame:
        given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic}
        return self.spark.read.format("barnabas").options(**given, **options).load()


def expected(topic: str, number: int) -> dict[str, Any]:
    """Return record `number` of a topic as a row; partitions take turns."""
    return {
        "key": None if number % 5 == 0 else f"key {number}".encode(),
        "value": None if number % 7 == 0 else f"value {number} ".encode() * (number % 30),
        "topic": topic,
        "partition": number % PARTITIONS,
        "offset": number // PARTITIONS,
        "timestamp": datetime.fromtimestamp((BASE_MS + number) / 1000, UTC).replace(tzinfo=None),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "none", "value": None}] if number % 3 == 0 else None,
    }


def numbers(frame: DataFrame) -> list[int]:
    """Return which records a frame holds."""
    return sorted(row.offset * PARTITIONS + row.partition for row in frame.select("partition", "offset").collect())


@pytest.fixture(scope="module")
def source(spark: SparkSession, cluster: Any) -> Source:
    return Source(spark, cluster.bootstrap)


@pytest.fixture(scope="module")
def topic(source: Source) -> str:
    """Return a topic with records 0 to 600, compressed in every way; no test changes it."""
    name = source.create()
    for turn, codec in enumerate(CODECS):
        source.write(name, range(turn * 120, (turn + 1) * 120), codec)
    return name


def test_rows_are_what_was_written(source: Source, topic: str) -> None:
    frame = source.load(topic, includeHeaders="true")
    rows = frame.orderBy("offset", "partition").collect()
    found = [row.asDict(recursive=True) for row in rows]
    for row in found:
        row["key"], row["value"] = (one if one is None else bytes(one) for one in (row["key"], row["value"]))
    assert found == [expected(topic, number) for number in range(600)]


def test_a_loaded_frame_shows_one_moment(source: Source) -> None:
    name = source.create()
    source.write(name, range(30))
    frame = source.load(name)
    assert frame.count() == 30
    source.write(name, range(30, 60))
    assert frame.count() == 30
    assert source.load(name).count() == 60


def test_ranges_are_options(source: Source, topic: str) -> None:
    starting = json.dumps({topic: {"0": 10, "1": -2, "2": 200}})
    ending = json.dumps({topic: {"0": 20, "1": 5, "2": -1}})
    frame = source.load(topic, startingOffsets=starting, endingOffsets=ending)
    assert numbers(frame) == sorted([3 * n for n in range(10, 20)] + [3 * n + 1 for n in range(5)])


def test_timestamps_choose_a_range(source: Source, topic: str) -> None:
    frame = source.load(topic, startingTimestamp=str(BASE_MS + 90), endingTimestamp=str(BASE_MS + 120))
    assert numbers(frame) == list(range(90, 120))


@pytest.mark.parametrize(
    ("options", "parts"), [({}, 3), ({"minPartitions": "7"}, 7), ({"maxRecordsPerPartition": "50"}, 12)]
)
def test_ranges_are_cut_as_asked(source: Source, topic: str, options: dict[str, str], parts: int) -> None:
    frame = source.load(topic, **options)
    assert frame.rdd.getNumPartitions() == parts
    assert numbers(frame) == list(range(600))


def test_partitions_can_be_assigned(source: Source, topic: str) -> None:
    given = {"kafka.bootstrap.servers": source.bootstrap, "assign": json.dumps({topic: [1]})}
    frame = source.spark.read.format("barnabas").options(**given).load()
    assert numbers(frame) == list(range(1, 600, 3))


def test_a_pattern_finds_topics(source: Source, topic: str) -> None:
    given = {"kafka.bootstrap.servers": source.bootstrap, "subscribePattern": f"{topic[:-3]}.{{3}}"}
    assert source.spark.read.format("barnabas").options(**given).load().count() == 600


def test_an_empty_topic_has_no_rows(source: Source) -> None:
    assert source.load(source.create()).collect() == []


def test_a_limit_ends_tasks_early_without_harm(source: Source, topic: str) -> None:
    assert len(source.load(topic).limit(5).collect()) == 5
    assert source.load(topic).count() == 600


def test_a_schema_of_the_users_is_a_projection(source: Source, topic: str) -> None:
    given = {"kafka.bootstrap.servers": source.bootstrap, "subscribe": topic}
    frame = source.spark.read.format("barnabas").schema("offset long, topic string").options(**given).load()
    assert frame.columns == ["offset", "topic"]
    assert frame.selectExpr("sum(offset)", "count(distinct topic)").collect()[0] == (3 * sum(range(200)), 1)


def test_sql_reads_without_registration(source: Source, topic: str) -> None:
    source.spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW written USING barnabas "
        f"OPTIONS ('kafka.bootstrap.servers' '{source.bootstrap}', subscribe '{topic}')"
    )
    rows = source.spark.sql("SELECT partition, count(*), max(offset) FROM written GROUP BY 1 ORDER BY 1").collect()
    assert [tuple(row) for row in rows] == [(0, 200, 199), (1, 200, 199), (2, 200, 199)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "there-is-no-such-topic"}, "UNKNOWN_TOPIC_OR_PARTITION: there-is-no-such-topic"),
    ],
)
def test_mistakes_are_named(source: Source, topic: str, options: dict[str, str], words: str) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=words):
        source.load(topic).sparkSession.read.format("barnabas").options(
            **{"kafka.bootstrap.servers": source.bootstrap, "subscribe": topic} | options
        ).load().count()


def test_every_range_is_fetched_once(source: Source, cluster: Any) -> None:
    name = source.create()
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 5})
    for number in range(6_000):
        producer.produce(name, value=b"x" * 1024, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    source.load(name).write.format("noop").mode("append").save()
    fetches = [row for broker in cluster.status()["brokers"] for row in broker["fetches"] if row["topic"] == name]
    assert all(row["client_id"].startswith("barnabas-spark-") for row in fetches)
    assert sorted((row["partition"], row["ranges"]) for row in fetches) == [
        (k, [[0, 2_000]]) for k in range(PARTITIONS)
    ]
    for row in fetches:
        # Records that are fetched twice show in the bytes; headers and varints are less than a tenth of such records.
        assert 2_000 * 1024 < row["bytes"] < 2_000 * 1024 * 1.1
        assert row["requests"] <= 4


def test_the_program_of_getting_started_prints_what_the_page_shows(
    source: Source, capfd: pytest.CaptureFixture[str]
) -> None:
    text = page_text("docs/getting-started.md")
    (section,) = (section for section in sections(text) if section.title == SPARK)
    (program,) = section.examples
    assert program.shown_at is not None
    topic = source.create()
    producer = Producer({"bootstrap.servers": source.bootstrap})
    for value in ("one espresso", "two ristretti"):  # The README's.
        producer.produce(topic, key="table 4", value=value)
    assert producer.flush(60) == 0
    real = program.source.replace("localhost:9092", source.bootstrap).replace('"orders"', f'"{topic}"')
    exec(compile(real, "getting-started.md", "exec"), {"__name__": "__main__"})  # noqa: S102 - ours
    assert agree(text[program.shown_at], capfd.readouterr().out)
