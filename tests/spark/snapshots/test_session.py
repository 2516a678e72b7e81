"""A real Spark session reads by the name of a snapshot."""

import uuid
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]


def write(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, value=b"v", partition=number % 2)
    assert producer.flush(60) == 0


def test_a_dataframe_by_name_has_the_same_rows_later(spark: SparkSession, cluster: Any) -> None:
    topics = [f"named-{uuid.uuid4().hex[:12]}" for _ in range(2)]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(topic, 2) for topic in topics]).values():
        future.result(30)
    for topic in topics:
        write(cluster.bootstrap, topic, 10)
    name = f"snapshot-{topics[0]}"

    def load(*subscribed: str, **also: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": ",".join(subscribed), "snapshot": name}
        return spark.read.format("barnabas").options(**options, **also).load()

    assert not load(*topics).isEmpty()
    for topic in topics:
        write(cluster.bootstrap, topic, 7)
        assert load(topic).count() == 10
    with pytest.raises(AnalysisException, match=r"snapshot: .* holds no topic 'another-one', but"):
        load("another-one").count()
