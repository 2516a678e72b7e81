"""One DataFrame of a table and of what the brokers have beyond it: no row twice, and none missing."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from spark.lake.buckets import bucket, s3_server
from spark.lake.produced import PARTITIONS, Topic, expected_rows, new_topic, produce
from spark.lake.sweep import FILES, in_process, settings_for

from barnabas_spark.lake.archive import archive
from barnabas_spark.lake.formats.parquet import ParquetFormat
from barnabas_spark.lake.layout import Layout
from barnabas_spark.lake.opening import open_store
from barnabas_spark.lake.ranges import Purpose
from barnabas_spark.lake.read import read_all, read_lake
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.table import TableError

__all__ = ["bucket", "s3_server"]

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def topic(cluster: Any) -> Topic:
    made = new_topic(cluster.bootstrap)
    produce(made, range(90))
    return made


@pytest.fixture(params=["directory", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    return Location(str(tmp_path / "lake")) if request.param == "directory" else request.getfixturevalue("bucket")


def archive_to(location: Location, topic: Topic, partition_by: str = "day") -> None:
    store = open_store(location)
    files = FILES._replace(partition_by=partition_by, folder="_data/")
    settings = settings_for(topic)
    table = ParquetFormat(store, Layout(partition_by=partition_by))
    archive(table, settings, in_process(store, settings, files), wait=lambda _: None)


def offsets(frame: Any) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def produced(numbers: Iterable[int]) -> list[tuple[int, int]]:
    return sorted((number % PARTITIONS, number // PARTITIONS) for number in numbers)


def test_a_table_is_read_as_it_is_now_or_was(spark: Any, topic: Topic, location: Location) -> None:
    archive_to(location, topic)
    frame = read_lake(spark, location.url, store_options=location.options)
    rows = sorted(frame.collect(), key=lambda row: (row.partition, row.offset))
    for row, expected in zip(rows, expected_rows(topic, range(90)), strict=True):
        assert (row.topic, row.key, row.value) == (topic.name, expected.key, expected.value)
        assert row.timestamp == expected.timestamp.replace(tzinfo=None)
        assert row.date == expected.timestamp.date()
        assert [one.asDict() for one in row.headers or []] == (expected.headers or [])
    first = read_lake(spark, location.url, version=1, store_options=location.options)
    assert 0 < len(offsets(first)) < 90


@pytest.mark.parametrize("partition_by", ["", "hour"])
def test_the_table_and_the_brokers_are_one_frame(
    spark: Any, topic: Topic, location: Location, partition_by: str
) -> None:
    archive_to(location, topic, partition_by)
    produce(topic, range(90, 150))
    frame = read_all(spark, topic.name, lake=location.url, bootstrap=topic.bootstrap, store_options=location.options)
    # What comes later, to the brokers or to the lake, is not of this moment.
    produce(topic, range(150, 180))
    archive_to(location, topic, partition_by)
    assert offsets(frame) == produced(range(150))
    again = read_all(spark, topic.name, lake=location.url, bootstrap=topic.bootstrap, store_options=location.options)
    assert offsets(again) == produced(range(180))
    assert again.columns == frame.columns


def test_a_hole_in_the_table_is_read_from_the_brokers(spark: Any, topic: Topic, tmp_path: Path) -> None:
    location = Location(str(tmp_path / "lake"))
    archive_to(location, topic)
    table = ParquetFormat(open_store(location))
    first = next(table.commits())
    holed = Location(str(tmp_path / "holed"))
    (tmp_path / "holed").mkdir()
    (tmp_path / "holed/_data").symlink_to(tmp_path / "lake/_data")
    other = ParquetFormat(open_store(holed), Layout(partition_by="day"))
    for commit in [*table.commits()][1:]:
        other.commit(other.load(), commit.added, commit.ranges, Purpose.ARCHIVE)
    assert first.ranges[0].start_offset == 0
    frame = read_all(spark, topic.name, lake=holed.url, bootstrap=topic.bootstrap)
    assert offsets(frame) == produced(range(90))


def test_brokers_that_begin_behind_the_end_of_the_lake_are_an_error(spark: Any, topic: Topic, tmp_path: Path) -> None:
    location = Location(str(tmp_path / "lake"))
    archive_to(location, topic)
    produce(topic, range(90, 180))
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    for future in admin.delete_records([TopicPartition(topic.name, 1, 40)]).values():
        future.result(30)
    with pytest.raises(TableError, match="-1: the lake ends at 30, and the brokers begin at 40"):
        read_all(spark, topic.name, lake=location.url, bootstrap=topic.bootstrap)


def test_a_lake_that_is_not_there_is_an_error(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="there is no parquet table at"):
        read_lake(spark, str(tmp_path))
