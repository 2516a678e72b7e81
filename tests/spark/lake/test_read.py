"""One DataFrame of a table and of what the brokers have beyond it: no row twice, and none missing."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from spark.lake.buckets import bucket, s3_server
from spark.lake.produced import PARTITIONS, Topic, expected_rows, new_topic, produce
from spark.lake.sweep import FILES, in_process, settings_for
from spark.lake.values.sweep import ROWS as VALUE_ROWS
from spark.lake.values.sweep import fill_values, new_values

from barnabas_spark.jobs import cli
from barnabas_spark.lake.archive import archive
from barnabas_spark.lake.formats.choosing import DATA_FOLDERS, open_table
from barnabas_spark.lake.formats.parquet import ParquetFormat
from barnabas_spark.lake.layout import Layout
from barnabas_spark.lake.opening import open_store
from barnabas_spark.lake.ranges import Purpose
from barnabas_spark.lake.read import read_all, read_lake
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.table import TableError

__all__ = ["bucket", "s3_server"]

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

ROWS = 60
# Each way of reading: by Spark and by Python workers, with partitions in paths and without.
LAKES = [
    ("parquet", "day", "directory"),
    ("parquet", "hour", "s3"),
    ("delta", "hour", "directory"),
    ("iceberg", "day", "directory"),
]


class Lake(NamedTuple):
    """A table of a topic in one format."""

    kind: str
    partition_by: str
    location: Location

    def archive(self, topic: Topic, round_bytes: int = 2_000) -> None:
        store, settings = open_store(self.location), settings_for(topic, round_bytes)
        files = FILES._replace(partition_by=self.partition_by, folder=DATA_FOLDERS[self.kind], file_bytes=1 << 20)
        table = open_table(self.kind, self.location, Layout(partition_by=self.partition_by))
        archive(table, settings, in_process(store, settings, files), wait=lambda _: None)

    def read(self, spark: Any, version: object = None) -> Any:
        options = self.location.options
        return read_lake(spark, self.location.url, table_format=self.kind, version=version, store_options=options)

    def read_all(self, spark: Any, topic: Topic) -> Any:
        return read_all(
            spark,
            topic.name,
            lake=self.location.url,
            bootstrap=topic.bootstrap,
            table_format=self.kind,
            store_options=self.location.options,
        )


@pytest.fixture
def topic(cluster: Any) -> Topic:
    made = new_topic(cluster.bootstrap)
    produce(made, range(ROWS))
    return made


@pytest.fixture(params=LAKES, ids="-".join)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    kind, partition_by, where = request.param
    location = Location(str(tmp_path / "lake")) if where == "directory" else request.getfixturevalue("bucket")
    return Lake(kind, partition_by, location)


def offsets(frame: Any) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def produced(numbers: Iterable[int]) -> list[tuple[int, int]]:
    return sorted((number % PARTITIONS, number // PARTITIONS) for number in numbers)


def test_the_table_and_the_brokers_are_one_frame_of_one_moment(spark: Any, topic: Topic, lake: Lake) -> None:
    lake.archive(topic)
    produce(topic, range(ROWS, ROWS + 30))
    frame = lake.read_all(spark, topic)
    # What comes later, to the brokers or to the lake, is not of this moment.
    produce(topic, range(ROWS + 30, ROWS + 60))
    version = open_table(lake.kind, lake.location, None).load().version
    lake.archive(topic)
    assert offsets(frame) == produced(range(ROWS + 30))
    rows = sorted(lake.read(spark, version).collect(), key=lambda row: (row.partition, row.offset))
    for row, expected in zip(rows, expected_rows(topic, range(ROWS)), strict=True):
        assert (row.topic, row.key, row.value) == (topic.name, expected.key, expected.value)
        assert row.timestamp == expected.timestamp.replace(tzinfo=None)
        assert [one.asDict() for one in row.headers or []] == (expected.headers or [])
        if lake.kind != "iceberg" and lake.partition_by:
            assert row.date == expected.timestamp.date()
    now = lake.read_all(spark, topic)
    assert (offsets(now), now.columns) == (produced(range(ROWS + 60)), frame.columns)


def test_rows_deleted_beside_their_files_and_renamed_columns_are_refused(
    spark: Any, topic: Topic, tmp_path: Path
) -> None:
    delta = Lake("delta", "", Location(str(tmp_path / "delta")))
    delta.archive(topic)
    DeltaTable(str(tmp_path / "delta")).alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    assert len(offsets(delta.read(spark))) == ROWS  # None was deleted yet.
    iceberg = Lake("iceberg", "", Location(str(tmp_path / "iceberg")))
    iceberg.archive(topic)
    catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{tmp_path}/iceberg/catalog.db")
    table = catalog.load_table("lake.iceberg")
    with table.update_schema() as update:
        update.rename_column("value", "payload")
    catalog.close()
    with pytest.raises(TableError, match=r"the column 'payload' of lake\.iceberg was renamed, or added again"):
        iceberg.read(spark)


def test_partitions_that_no_path_says_are_read_from_the_log(spark: Any, topic: Topic, tmp_path: Path) -> None:
    lake = Lake("delta", "day", Location(str(tmp_path / "lake")))
    lake.archive(topic)
    before = sorted(tuple(row) for row in lake.read(spark).select("partition", "offset", "date").collect())
    table = open_table("delta", lake.location, None)
    state = table.load()
    one = table.data_files(state)[0]
    moved = one._replace(path="data/barnabas-moved.parquet")
    shutil.copy(tmp_path / "lake" / one.path, tmp_path / "lake" / moved.path)
    table.rewrite(state, [one.path], [moved])
    after = sorted(tuple(row) for row in lake.read(spark).select("partition", "offset", "date").collect())
    assert (after, len(after)) == (before, ROWS)


def test_the_command_decodes_values_and_the_tail_is_decoded_as_the_table_is(
    spark: Any, cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic, to = new_values(cluster.bootstrap), str(tmp_path / "lake")
    words = ["archive", topic.name, "--to", to, "-b", topic.bootstrap, "--format", "delta", "--partition-by", "day"]
    capfd.readouterr()
    assert cli.main([*words, "--value-schema", "id int, more string", "--json"]) == 0
    assert [json.loads(line)["rejects"] for line in capfd.readouterr().out.splitlines()] == [2, 2]
    fill_values(topic)
    frame = read_all(spark, topic.name, lake=to, bootstrap=topic.bootstrap, table_format="delta")
    tail = frame.where(f"offset >= {VALUE_ROWS // 2}").orderBy("partition", "offset").select("id", "more", "value")
    head = frame.where(f"offset < {VALUE_ROWS // 2}").orderBy("partition", "offset").select("id", "more", "value")
    assert [*map(tuple, tail.collect())] == [*map(tuple, head.collect())]
    assert cli.main([*words, "--compact"]) == 0  # with the schema of the table
    assert "rejects" in capfd.readouterr().out
    rejects = read_lake(spark, f"{to}_rejects", table_format="delta").select("value", "reason").distinct().collect()
    assert [*map(tuple, rejects)] == [(b'{"id": "x"}', "field 'id' is not int32: \"x\"")]
    assert cli.main([*words, "--value-schema", "id string"]) == 1
    assert "'id' is int there, and string now" in capfd.readouterr().err
    assert cli.main([*words, "--value-schema", "id binary"]) == 2
    assert "value.id: binary is not decoded from JSON" in capfd.readouterr().err


@pytest.mark.parametrize("kind", ["parquet", "iceberg"])
def test_a_column_that_became_wider_is_wide_in_rows_of_before(
    spark: Any, cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    topic, to = new_topic(cluster.bootstrap, 1), str(tmp_path / "lake")
    producer = Producer({"bootstrap.servers": topic.bootstrap})
    words = ["archive", topic.name, "--to", to, "-b", topic.bootstrap, "--format", kind]
    for number, schema in ((7, "id int"), (1 << 40, "id long")):
        producer.produce(topic.name, json.dumps({"id": number}), partition=0)
        assert producer.flush(30) == 0
        assert cli.main([*words, "--value-schema", schema]) == 0, capfd.readouterr().err
    producer.produce(topic.name, b'{"id": 9}', partition=0)
    assert producer.flush(30) == 0
    landed = read_lake(spark, to, table_format=kind).select("offset", "id")
    assert dict(landed.dtypes)["id"] == "bigint"
    assert sorted(map(tuple, landed.collect())) == [(0, 7), (1, 1 << 40)]
    frame = read_all(spark, topic.name, lake=to, bootstrap=topic.bootstrap, table_format=kind).select("offset", "id")
    assert sorted(map(tuple, frame.collect())) == [(0, 7), (1, 1 << 40), (2, 9)]


def test_a_hole_in_the_table_is_read_from_the_brokers(spark: Any, topic: Topic, tmp_path: Path) -> None:
    lake = Lake("parquet", "day", Location(str(tmp_path / "lake")))
    lake.archive(topic, 900)
    table = ParquetFormat(open_store(lake.location))
    first = next(table.commits())
    holed = lake._replace(location=Location(str(tmp_path / "holed")))
    (tmp_path / "holed").mkdir()
    (tmp_path / "holed/_data").symlink_to(tmp_path / "lake/_data")
    other = ParquetFormat(open_store(holed.location), Layout(partition_by="day"))
    for commit in [*table.commits()][1:]:
        other.commit(other.load(), commit.added, commit.ranges, Purpose.ARCHIVE)
    assert first.ranges[0].start_offset == 0
    assert offsets(holed.read_all(spark, topic)) == produced(range(ROWS))


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_brokers_that_begin_behind_the_end_of_the_lake_are_an_error(
    spark: Any, topic: Topic, tmp_path: Path, kind: str
) -> None:
    lake = Lake(kind, "", Location(str(tmp_path / "lake")))
    lake.archive(topic, 1 << 30)
    produce(topic, range(ROWS, ROWS + 60))
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    for future in admin.delete_records([TopicPartition(topic.name, 1, 30)]).values():
        future.result(30)
    with pytest.raises(TableError, match="-1: the lake ends at 20, and the brokers begin at 30"):
        lake.read_all(spark, topic)


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_lake_that_is_not_there_is_an_error(spark: Any, tmp_path: Path, kind: str) -> None:
    with pytest.raises(TableError, match=f"there is no {kind} table at"):
        read_lake(spark, str(tmp_path), table_format=kind)
