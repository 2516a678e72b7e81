"""A real Spark session writes to a real cluster what another's client then reads."""

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from .writing.records_of import Found, create, records_of, values_of

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

COLUMNS = (
    "cast(id as string) as key",
    "if(id % 7 = 0, null, encode(concat('value ', id), 'utf-8')) as value",
    "if(id % 3 = 0, array(named_struct('key', 'n', 'value', encode(cast(id as string), 'utf-8'))), null) as headers",
    "cast(if(id % 5 = 0, id % 3, null) as int) as partition",
    "id as left_out",
)


class Sink:
    """A cluster to write to."""

    def __init__(self, spark: SparkSession, bootstrap: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap

    def create(self, partitions: int = 3) -> str:
        name = f"sink-{uuid.uuid4().hex[:12]}"
        create(self.bootstrap, name, partitions)
        return name

    def options(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap} | more

    def write(self, frame: DataFrame, **options: str) -> None:
        frame.write.format("barnabas").options(**self.options(**options)).mode("append").save()

    def stream(self, frame: DataFrame, folder: Path, mode: str, **options: str) -> None:
        """Write all that is there now, and end."""
        writer = frame.writeStream.format("barnabas").options(**self.options(**options)).outputMode(mode)
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(60)
        finally:
            query.stop()


@pytest.fixture(scope="module")
def sink(spark: SparkSession, cluster: Any) -> Sink:
    return Sink(spark, cluster.bootstrap)


def row_of(number: int) -> Found:
    """Return what becomes of row `number` of `COLUMNS`."""
    return Found(
        0,
        b"%d" % number,
        None if number % 7 == 0 else b"value %d" % number,
        [("n", b"%d" % number)] if number % 3 == 0 else [],
    )


def test_a_frame_of_several_partitions_is_written_row_by_row(sink: Sink) -> None:
    topic = sink.create()
    sink.write(sink.spark.range(0, 300, 1, 4).selectExpr(*COLUMNS), topic=topic)
    found = {int(record.key or b""): record for record in records_of(sink.bootstrap, topic)}
    assert len(found) == 300
    for number, record in found.items():
        assert record._replace(partition=0) == row_of(number)
        assert number % 5 or record.partition == number % 3


def test_a_column_names_topics_and_text_is_written_as_utf_8(sink: Sink) -> None:
    topics = sink.create(), sink.create()
    rows = [(topics[n % 2], f"grün {n}", 0) for n in range(10)]
    frame = sink.spark.createDataFrame(rows, "topic string, value string, partition int")
    sink.write(frame.repartition(1))
    for n, topic in enumerate(topics):
        assert values_of(sink.bootstrap, topic) == [f"grün {k}".encode() for k in range(n, 10, 2)]


def test_a_frame_without_rows_writes_nothing(sink: Sink) -> None:
    topic = sink.create()
    sink.write(sink.spark.range(0).selectExpr("cast(id as string) as value"), topic=topic)
    assert values_of(sink.bootstrap, topic) == []


@pytest.mark.parametrize(
    ("expression", "options", "words"),
    [
        ("1 as value", {"topic": "t"}, "value attribute unsupported type int. value must be a(n) string or binary"),
        ("'v' as value", {}, "topic option required when no 'topic' attribute is present"),
        ("'v' as value", {"topic": "t", "kafka.compresion.type": "zstd"}, "did you mean kafka.compression.type"),
    ],
)
def test_what_cannot_be_written_is_said_before_any_task_runs(
    sink: Sink, expression: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        sink.write(sink.spark.range(1).selectExpr(expression), **options)
    assert words in str(caught.value)


def test_a_row_that_cannot_be_written_is_named(sink: Sink) -> None:
    topic = sink.create()
    frame = sink.spark.range(0, 9, 1, 1).selectExpr("'v' as value", "cast(if(id = 7, 3, 0) as int) as partition")
    with pytest.raises(Exception, match=f"row 7 of the task: {topic} has no partition 3; it has 3, from 0 to 2"):
        sink.write(frame, topic=topic)


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("overwrite", 'a topic cannot be overwritten, only appended to; write mode\\("append"\\)'),
        # Spark's own words, before it asks the source.
        ("errorifexists", 'use either the "Append"'),
    ],
)
def test_only_appending_is_possible(sink: Sink, mode: str, words: str) -> None:
    frame = sink.spark.sql("select 'v' as value")
    with pytest.raises(AnalysisException, match=words):
        frame.write.format("barnabas").options(**sink.options(topic="t")).mode(mode).save()


def test_a_stream_writes_what_is_new_at_each_run(sink: Sink, tmp_path: Path) -> None:
    topic = sink.create()
    files = tmp_path / "files"
    for run in range(2):
        frame = sink.spark.range(run * 50, run * 50 + 50).selectExpr(*COLUMNS)
        frame.write.mode("append").parquet(str(files))
        stream = sink.spark.readStream.schema(frame.schema).parquet(str(files))
        sink.stream(stream, tmp_path, "append", topic=topic)
        found = sorted(int(record.key or b"") for record in records_of(sink.bootstrap, topic))
        assert found == list(range(run * 50 + 50))


def test_the_output_mode_complete_appends_every_result_and_spark_refuses_update(sink: Sink, tmp_path: Path) -> None:
    topic = sink.create()
    files = tmp_path / "files"
    words = sink.spark.createDataFrame([("a",), ("b",), ("a",)], "word string")
    words.write.parquet(str(files))
    counts = sink.spark.readStream.schema(words.schema).parquet(str(files)).groupBy("word").count()
    rows = counts.selectExpr("word as key", "cast(count as string) as value")
    sink.stream(rows, tmp_path, "complete", topic=topic)
    assert {record.key: record.value for record in records_of(sink.bootstrap, topic)} == {b"a": b"2", b"b": b"1"}
    with pytest.raises(StreamingQueryException, match="barnabas does not support Update mode"):
        sink.stream(rows, tmp_path / "update", "update", topic=topic)
