"""Every way to read a topic with aborted, open and control batches shows what our consumer and Kafka's source show."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from barnabas_clients.consumer.consumer import Consumer
from barnabas_spark.clusters import run
from barnabas_spark.jobs import cli
from barnabas_spark.lake.read import read_all, read_lake
from barnabas_spark.latest.read import read_latest

from .sources import IMPATIENT, Pair
from .transactional import LEVELS, PARTITIONS, Transactional, write_transactional

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

Rows = list[tuple[int, int, str, str]]
"""Partition, offset, key and value of each record."""


@pytest.fixture(scope="module")
def written(pair: Pair) -> Iterator[Transactional]:
    found = write_transactional(pair.bootstrap)
    yield found
    found.close()


def rows_of(frame: DataFrame) -> Rows:
    chosen = frame.selectExpr("partition", "offset", "cast(key as string) key", "cast(value as string) value")
    return sorted((row.partition, row.offset, row.key, row.value) for row in chosen.collect())


def consumed(bootstrap: str, topic: str, level: str) -> Rows:
    async def read() -> Rows:
        found: Rows = []
        is_committed = level == "read_committed"
        async with Consumer(bootstrap, auto_offset_reset="earliest", read_committed=is_committed) as consumer:
            await consumer.assign([(topic, each) for each in range(PARTITIONS)])
            while any((await consumer.lag()).values()):
                for records in (await consumer.get_many(timeout_s=1)).values():
                    for one in records:
                        assert one.key is not None and one.value is not None  # noqa: PT018
                        found.append((one.partition, one.offset, one.key.decode(), one.value.decode()))
        return sorted(found)

    return run(read(), 60)


@pytest.mark.parametrize("level", LEVELS)
def test_batch_stream_and_snapshot_read_what_the_consumer_reads(
    pair: Pair, written: Transactional, level: str, tmp_path: Path
) -> None:
    expected = consumed(pair.bootstrap, written.topic, level)
    assert [(row[0], row[3]) for row in expected] == written.expected(level)
    options = {"subscribe": written.topic, "kafka.isolation.level": level, "startingOffsets": "earliest"}
    for more in ({}, {"minPartitions": "9"}, {"snapshot": f"{written.topic}-{level}"}):
        outcome = pair.ours(options | more)
        assert not outcome.error
        assert sorted((r.partition, r.offset, r.key.decode(), r.value.decode()) for r in outcome.rows) == expected, more
    kafkas = pair.kafka(options)
    assert not kafkas.error
    assert sorted((r.partition, r.offset, r.key.decode(), r.value.decode()) for r in kafkas.rows) == expected
    found: Rows = []
    given = {"kafka.bootstrap.servers": pair.bootstrap} | IMPATIENT | options
    frame = pair.spark.readStream.format("barnabas").options(**given, maxOffsetsPerTrigger="60").load()
    writer = frame.writeStream.foreachBatch(lambda rows, _: found.extend(rows_of(rows)))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    assert sorted(found) == expected


def command(capfd: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    capfd.readouterr()
    assert cli.main([*words, "--json"]) == 0, capfd.readouterr().err
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


@pytest.mark.parametrize("level", LEVELS)
def test_archive_audit_and_compact_have_what_the_consumer_reads(
    pair: Pair, written: Transactional, level: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spark, bootstrap, topic = pair.spark, pair.bootstrap, written.topic
    lake, latest = str(tmp_path / "lake"), str(tmp_path / "latest")
    expected = consumed(bootstrap, topic, level)
    command(capfd, "archive", topic, "--to", lake, "-b", bootstrap, "--isolation-level", level)
    assert rows_of(read_lake(spark, lake)) == expected
    everything = read_all(spark, topic, lake=lake, bootstrap=bootstrap, options={"kafka.isolation.level": level})
    assert rows_of(everything) == expected
    said = command(capfd, "audit", topic, "--lake", lake, "-b", bootstrap, "--isolation-level", level)
    assert sum(one["rows"] for one in said) == len(expected)
    assert all(one["claims_proved"] == one["claims"] and one["log_proved"] == one["log_units"] for one in said)
    command(capfd, "compact", topic, "--to", latest, "-b", bootstrap, "--isolation-level", level)
    newest: dict[tuple[int, str], tuple[int, str]] = {}
    for partition, offset, key, value in expected:
        newest[partition, key] = (offset, value)
    assert set(rows_of(read_latest(spark, latest))) <= {(p, o, k, v) for (p, k), (o, v) in newest.items()}
    assert {row[2] for row in rows_of(read_latest(spark, latest))} == {row[2] for row in expected}


def test_what_was_open_comes_with_its_end(pair: Pair, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An archive that went up to an open transaction goes on where that began, and no row comes twice."""
    written = write_transactional(pair.bootstrap)
    words = ("archive", written.topic, "--to", str(tmp_path), "-b", pair.bootstrap)
    command(capfd, *words)
    before = rows_of(read_lake(pair.spark, str(tmp_path)))
    written.close()
    command(capfd, *words)
    found = rows_of(read_lake(pair.spark, str(tmp_path)))
    assert found == consumed(pair.bootstrap, written.topic, "read_committed")
    assert set(before) < set(found)
