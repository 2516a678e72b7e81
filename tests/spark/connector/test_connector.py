"""Spark's own Kafka connector reads, streams and writes topics of Barnabas: exactly the rows, no broker of Kafka's."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from machines import cluster_handle
from pyspark.sql import DataFrame, SparkSession
from spark.writing.records_of import Found

from .own import Own, Progress, Witness, expected_copies, expected_row

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 60
# The session has two slots, and Real-time Mode needs one for each partition.
SLOTS = 2
TWICE = "array(named_struct('key', 'a', 'value', X'01'), named_struct('key', 'a', 'value', null))"
SHORTEST_BATCH = "spark.sql.streaming.realTimeMode.minBatchDuration"


def by_place(row: tuple[Any, ...]) -> tuple[int, int]:
    return row[4], row[5]


@pytest.mark.parametrize("options", [{}, {"minPartitions": "7"}], ids=["by partition", "in parts"])
def test_a_batch_has_every_record_with_all_that_is_in_it(own: Own, options: dict[str, str]) -> None:
    topic = own.create(3)
    for turn, codec in enumerate(CODECS):
        own.produce(topic, 3, range(turn * 60, turn * 60 + 60), codec)
    expected = sorted((expected_row(number, topic, 3) for number in range(300)), key=by_place)
    assert sorted(own.read(topic, **options), key=by_place) == expected


def test_a_stream_goes_on_from_its_checkpoint(own: Own, tmp_path: Path) -> None:
    """Each run reads what is new, in batches of a limited size, each of which ends where its log says."""
    topic = own.create(3)
    batches: dict[int, list[int]] = {}

    def keep(frame: DataFrame, batch_id: int) -> None:
        assert batch_id not in batches
        batches[batch_id] = [row.offset * 3 + row.partition for row in frame.select("partition", "offset").collect()]

    for numbers in (range(60), range(60, 90)):
        own.produce(topic, 3, numbers)
        writer = own.stream(topic, maxOffsetsPerTrigger="30").writeStream.foreachBatch(keep)
        query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert query.awaitTermination(TIMEOUT_S)
        assert sorted(itertools.chain(*batches.values())) == list(range(numbers.stop))
    assert [len(numbers) for _, numbers in sorted(batches.items())] == [30, 30, 30]


def test_a_stream_from_topic_to_topic_lives_through_the_death_of_a_leader(
    spark_with_connector: SparkSession, tmp_path: Path
) -> None:
    """Consumers and idempotent producers of the connector find the new leaders; nothing is lost, doubled or moved."""
    # Its records are of long ago: brokers look for expired ones half a minute after they start.
    with cluster_handle.cluster(settings={"log.retention.ms": "-1"}) as brokers:
        own = Own(spark_with_connector, brokers.bootstrap, tmp_path)
        source, target = own.create(3, "from"), own.create(3, "to")
        own.produce(source, 3, range(60))
        query = own.copy(source, target, processingTime="0 seconds")
        witness = Witness(brokers.bootstrap, target, 3)
        try:
            witness.wait_for(60, query)
            leaders = AdminClient({"bootstrap.servers": brokers.bootstrap}).list_topics(source, 30).topics[source]
            brokers.kill(leaders.partitions[0].leader)
            own.produce(source, 3, range(60, 120))
            witness.wait_for(120, query)
            assert query.isActive, query.exception()
        finally:
            witness.close()
            query.stop()
        assert own.copied(target) == expected_copies(3, 120)


def test_the_sink_writes_to_the_topics_and_partitions_that_columns_name(own: Own) -> None:
    topics = own.create(3), own.create(3)
    columns = (
        f"if(id % 2 = 0, '{topics[0]}', '{topics[1]}') as topic",
        "cast(id as string) as key",
        "if(id % 7 = 0, null, encode(concat('value ', id), 'utf-8')) as value",
        f"if(id % 3 = 0, {TWICE}, null) as headers",
        "cast(id % 3 as int) as partition",
    )
    own.write(own.spark.range(0, 120, 1, 2).selectExpr(*columns))
    for odd, topic in enumerate(topics):
        assert sorted(own.copied(topic), key=lambda record: int(record.key or b"")) == [
            Found(
                number % 3,
                b"%d" % number,
                None if number % 7 == 0 else b"value %d" % number,
                [("a", b"\x01"), ("a", None)] if number % 3 == 0 else [],
            )
            for number in range(odd, 120, 2)
        ]


def test_real_time_mode_copies_rows_while_its_batches_run(own: Own, progress: Progress) -> None:
    """A batch of a second reads what comes meanwhile. After a stop the next run goes on where the last batch ended."""
    source, target = own.create(SLOTS, "from"), own.create(SLOTS, "to")
    own.produce(source, SLOTS, range(40))
    own.spark.conf.set(SHORTEST_BATCH, "500")
    witness = Witness(own.bootstrap, target, SLOTS)
    try:
        for written in (80, 120):
            query = own.copy(source, target, realTime="1 second")
            witness.wait_for(written - 40, query)
            own.produce(source, SLOTS, range(written - 40, written))
            witness.wait_for(written, query)
            progress.wait_for({source: [written // SLOTS] * SLOTS})
            query.stop()
            assert query.exception() is None
    finally:
        witness.close()
        own.spark.conf.unset(SHORTEST_BATCH)
    assert own.copied(target) == expected_copies(SLOTS, 120)
