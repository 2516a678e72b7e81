"""Values come out as Spark's own functions make them of the bytes; compacted logs come out as Spark reads them."""

import json
import random
import time
import uuid
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from machines import cluster_handle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from .sources import Pair

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

SCHEMA = (
    "a long, b string, d double, s struct<x: int, y: string>, l array<long>, t timestamp, e date, f boolean, "
    "h tinyint, n decimal(10,2), ls array<struct<x: int, e: date>>, fl float, sh smallint, _corrupt_record string"
)
NAMES = ("a", "b", "d", "s", "l", "t", "e", "f", "h", "n", "ls", "fl", "sh", "other", "A")
PLAIN = ("1", "-1", "0", "true", "null", '"x"', '""', "1.5", "[]", "[1,2]", '{"x":1}', '[{"x":1},null]', '"2024-01-02"')
ODD = (
    *("1.0", "1e3", "99999999999999999999", "300", "40000", "NaN", '"NaN"', "1e39", "1e400", '"-INF"', "12.345"),
    *('"2024-01-02T03:04:05Z"', '"2024-01-02 03:04:05.5"', '"2024-13-02"', "1700000000", '"\\u00e9\\n"', '"\\ud800"'),
    *('[1,null,"x"]', '{"x":"q","y":"w"}', '{"x":1,"y":2,"z":[1,{"q":null}]}', '[{"x":"q"}]', "[[1]]", "123456789.12"),
)
WHOLE = (
    "null",
    "",
    " ",
    "1",
    "[]",
    '[{"a":1}]',
    '{"a":1}{"a":2}',
    '{"a":1} null',
    '{"a":',
    ' {"a":1}',
    '{"a":1}\n',
    "tru",
)


def records(seed: int, count: int) -> list[bytes | None]:
    """Return JSON objects, most of them as they should be, and some that are not."""
    chance = random.Random(seed)
    found: list[bytes | None] = [None, b"\xff", b'{"b":"\xff"}']
    for number in range(count):
        values = PLAIN if number % 3 else PLAIN + ODD
        names = chance.sample(NAMES, chance.choice((0, 1, 2, 3, 8)))
        text = "{" + ",".join(f'"{name}":{chance.choice(values)}' for name in names) + "}"
        if number % 10 == 0:
            at = chance.randrange(len(text) + 1)
            text = (
                text[:at]
                + chance.choice(('"', "}", "{", ",", "\n", "x", "\\", "["))
                + text[at + chance.choice((0, 1)) :]
            )
        elif number % 10 == 1:
            text = chance.choice(WHOLE)
        found.append(text.encode())
    return found


def write(bootstrap: str, topic: str, values: list[bytes | None]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value=value, partition=0)
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def json_topic(cluster: Any) -> str:
    name = f"values-{uuid.uuid4().hex[:8]}"
    write(cluster.bootstrap, name, records(27, 900))
    return name


def _at(offset: int) -> str:
    return json.dumps({"table": {"0": offset}})


def load(spark: SparkSession, source: str, bootstrap: str, topic: str, **options: str) -> Any:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
    return spark.read.format(source).options(**given).load()


def test_json_is_what_from_json_makes_of_it(pair: Pair, spark: SparkSession, cluster: Any, json_topic: str) -> None:
    kafka = load(spark, "kafka", cluster.bootstrap, json_topic)
    expected = kafka.select("offset", F.from_json(F.col("value").cast("string"), SCHEMA).alias("value"))
    options = {"valueFormat": "json", "valueSchema": SCHEMA, "columns": "offset,value"}
    ours = load(spark, "barnabas", cluster.bootstrap, json_topic, **options)
    assert ours.schema == expected.schema
    rows = [sorted(frame.collect(), key=lambda row: row.offset) for frame in (expected, ours)]
    # As text, because NaN is not equal to itself.
    different = [(one, other) for one, other in zip(*rows, strict=True) if repr(one) != repr(other)]
    assert different[:3] == []
    assert len(rows[0]) == 903


def test_text_is_what_a_cast_makes_of_it(pair: Pair, spark: SparkSession, cluster: Any, json_topic: str) -> None:
    kafka = load(spark, "kafka", cluster.bootstrap, json_topic).selectExpr("offset", "cast(value as string)")
    ours = load(spark, "barnabas", cluster.bootstrap, json_topic, valueFormat="string", columns="offset,value")
    assert ours.schema == kafka.schema
    # Compared in Spark: what is not UTF-8 does not get through to Python.
    assert kafka.exceptAll(ours).count() == ours.exceptAll(kafka).count() == 0


def test_a_compacted_log_has_the_same_rows(pair: Pair, spark: SparkSession) -> None:
    """Also where a range begins or ends at an offset that is gone."""
    with cluster_handle.cluster(settings={"log.cleaner.backoff.ms": "20"}) as brokers:
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"}
        admin.create_topics([NewTopic("table", 1, config=config)])["table"].result(30)
        producer = Producer({"bootstrap.servers": brokers.bootstrap, "batch.num.messages": 20, "linger.ms": 5})
        for number in range(600):
            value = None if number % 50 == 49 else number.to_bytes(8) * 640
            producer.produce("table", key=f"key {number * number % 41}", value=value, partition=0)
        assert producer.flush(30) == 0
        compared = Pair(spark, brokers.bootstrap)
        deadline = time.monotonic() + 60
        for offsets, options in (
            (600, {"subscribe": "table"}),
            (98, {"subscribe": "table", "startingOffsets": _at(3), "endingOffsets": _at(101)}),
            (600, {"subscribe": "table", "minPartitions": "7"}),
        ):
            while True:
                # Compaction goes on meanwhile: only what was the same before and after can be compared.
                before, kafkas, after = (read(options) for read in (compared.ours, compared.kafka, compared.ours))
                if before == after and len(before.rows) < offsets:
                    break
                assert time.monotonic() < deadline, "the log was not compacted"
            assert before.kind == "rows"
            assert kafkas == before


def test_a_schema_of_the_users_types_the_values(pair: Pair, spark: SparkSession, cluster: Any, json_topic: str) -> None:
    source = spark.read.schema("value struct<a: bigint>").format("barnabas")
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": json_topic, "valueFormat": "json"}
    ours = source.options(**given).load()
    kafka = load(spark, "kafka", cluster.bootstrap, json_topic).select(
        F.from_json(F.col("value").cast("string"), "a bigint").alias("value")
    )
    counts = [frame.selectExpr("count(*)", "count(value.a)", "sum(value.a)").collect() for frame in (ours, kafka)]
    assert counts[0] == counts[1]
