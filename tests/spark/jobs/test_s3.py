"""Every job that keeps a table, or reads one, does so in an object store as it does in a directory."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from spark.lake.formats.cutting import KEYS, Bucket, Cutter, s3_behind_a_cutter
from spark.lake.produced import Topic, expected_rows, new_topic, produce

from barnabas_spark.jobs import cli
from barnabas_spark.lake.formats.choosing import FORMATS
from barnabas_spark.lake.read import read_lake
from barnabas_spark.lake.store import Location
from barnabas_spark.latest.read import read_latest
from barnabas_spark.sinks.delta import DeltaSink

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

ROWS = 60
Run = Callable[..., list[dict[str, Any]]]


class Tables(NamedTuple):
    """Where tables of one format are: below one URL, with the options of its store."""

    kind: str
    url: str
    options: Mapping[str, str]

    def words(self, option: str, name: str) -> list[str]:
        """Return the part of a command line that names a table."""
        words = [option, f"{self.url}/{name}", "--format", self.kind]
        return words + [word for each in self.options.items() for word in ("--store-option", "=".join(each))]


@pytest.fixture(scope="module")
def server() -> Iterator[Cutter]:
    with s3_behind_a_cutter() as server:
        yield server


@pytest.fixture
def bucket(server: Cutter) -> Iterator[Location]:
    """Return a folder of a new bucket."""
    made = Bucket(server)
    yield Location(f"s3://{made.name}/lake", {"endpoint": server.target_url, **KEYS})
    made.close()


@pytest.fixture(params=FORMATS)
def tables(request: pytest.FixtureRequest, bucket: Location, tmp_path: Path) -> Tables:
    catalog = {"catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path}/catalog.db"}
    catalog = catalog if request.param == "iceberg" else {}
    return Tables(request.param, bucket.url, dict(bucket.options) | catalog)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], spark: Any) -> Run:
    def run(*words: str) -> list[dict[str, Any]]:
        capfd.readouterr()
        assert cli.main([*words, "--json"]) == 0, capfd.readouterr().err
        return [json.loads(line) for line in capfd.readouterr().out.splitlines()]

    return run


def latest_of(topic: Topic, numbers: Iterable[int]) -> dict[tuple[int, bytes], bytes]:
    """Return what stands in a topic for each key of each partition, but for those that were deleted."""
    rows = {(row.partition, row.key): row.value for row in expected_rows(topic, numbers) if row.key is not None}
    return {key: value for key, value in rows.items() if value is not None}


def test_a_topic_goes_into_a_bucket_and_comes_back(cluster: Any, spark: Any, tables: Tables, run: Run) -> None:
    topic, other = new_topic(cluster.bootstrap), new_topic(cluster.bootstrap)
    produce(topic, range(ROWS))
    brokers = ["-b", topic.bootstrap]
    archived = run("archive", topic.name, *tables.words("--to", "lake"), *brokers)
    assert sum(one["rows"] for one in archived) == ROWS
    produce(topic, range(ROWS, 2 * ROWS))
    again = run("archive", topic.name, *tables.words("--to", "lake"), *brokers, "--compact")
    assert sum(one["rows"] for one in again) == ROWS
    rows = read_lake(spark, f"{tables.url}/lake", table_format=tables.kind, store_options=tables.options)
    found = sorted((row.partition, row.offset, row.key, row.value) for row in rows.collect())
    wanted = [(row.partition, row.offset, row.key, row.value) for row in expected_rows(topic, range(2 * ROWS))]
    assert [(*row[:2], *(one and bytes(one) for one in row[2:])) for row in found] == wanted
    run("audit", topic.name, *tables.words("--lake", "lake"), *brokers)
    run("backfill", other.name, *tables.words("--from", "lake"), *brokers)
    run("archive", other.name, *tables.words("--to", "copy"), *brokers)
    copy = read_lake(spark, f"{tables.url}/copy", table_format=tables.kind, store_options=tables.options)
    assert sorted((row.partition, row.offset, row.key, row.value) for row in copy.collect()) == found


def test_latest_records_are_kept_in_a_bucket(cluster: Any, spark: Any, tables: Tables, run: Run) -> None:
    topic = new_topic(cluster.bootstrap)
    produce(topic, range(ROWS))
    run("archive", topic.name, *tables.words("--to", "lake"), "-b", topic.bootstrap)
    words = ["compact", topic.name, *tables.words("--to", "latest"), "--from-lake", f"{tables.url}/lake"]
    assert sum(one["read"] for one in run(*words)) == ROWS
    produce(topic, range(ROWS, 2 * ROWS))
    words = ["compact", topic.name, *tables.words("--to", "latest"), "-b", topic.bootstrap, "--merge"]
    assert sum(one["read"] for one in run(*words)) == ROWS
    assert sum(one["read"] for one in run(*words)) == 0
    rows = read_latest(spark, f"{tables.url}/latest", table_format=tables.kind, store_options=tables.options).collect()
    found = {(row.partition, bytes(row.key)): bytes(row.value) for row in rows}
    assert len(found) == len(rows)
    assert found == latest_of(topic, range(2 * ROWS))


def test_a_stream_lands_in_a_bucket(cluster: Any, spark: Any, bucket: Location, tmp_path: Path) -> None:
    topic = new_topic(cluster.bootstrap)
    for end in (ROWS, 2 * ROWS):
        produce(topic, range(end - ROWS, end))
        stream = spark.readStream.format("barnabas").option("kafka.bootstrap.servers", topic.bootstrap)
        rows = stream.option("subscribe", topic.name).option("startingOffsets", "earliest").load()
        sink = DeltaSink(bucket.url, store_options=bucket.options)
        writer = rows.select("partition", "offset").writeStream.foreachBatch(sink).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination(60)
    options = {**bucket.options, "allow_http": "true"}
    table: pa.Table = DeltaTable(bucket.url, storage_options=options).to_pyarrow_table()
    found = sorted(zip(*(table.column(name).to_pylist() for name in ("partition", "offset")), strict=True))
    assert found == [row[1:3] for row in expected_rows(topic, range(2 * ROWS))]
