"""`compact` keeps the latest record of each key, once, however often it runs."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from spark.jobs.demo_input import produce_all, source
from spark.lake.produced import Topic, new_topic
from spark.lake.sweep import in_process, settings_for

from barnabas_spark.jobs import cli
from barnabas_spark.jobs.archiving import read_options
from barnabas_spark.lake.archive import archive
from barnabas_spark.lake.formats.choosing import open_table
from barnabas_spark.lake.formats.parquet import ParquetFormat
from barnabas_spark.lake.layout import Layout
from barnabas_spark.lake.store import DirectoryStore, Location
from barnabas_spark.lake.table import TableError
from barnabas_spark.lake.writing import FileSettings, Unreadable
from barnabas_spark.latest.choosing import LATEST_LAYOUT
from barnabas_spark.latest.merging import files_to_merge, merge, merge_files
from barnabas_spark.latest.read import read_latest
from barnabas_spark.latest.run import CompactResult, TopicChangelog, compact
from barnabas_spark.latest.writing import ReadTopic, Sifted, SiftedPiece, write_sifted
from barnabas_spark.planning.plan import Split

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow]

NOW_MS = int(time.time() * 1000)


def archive_to(directory: Path, topic: Topic, partition_by: str = "") -> None:
    store, settings = DirectoryStore(directory), settings_for(topic)
    files = FileSettings(partition_by=partition_by)
    table = ParquetFormat(store, Layout(partition_by=partition_by))
    archive(table, settings, in_process(store, settings, files), wait=lambda _: None)


def changes(share: slice) -> list[tuple[bytes | None, bytes | None, int]]:
    """Return a part of the demo's input as a changelog: timestamps go back, and every seventh line deletes its key."""
    lines = list(source())[share]
    return [
        (None if number % 11 == 0 else name, None if number % 7 == 0 else line, NOW_MS - number)
        for number, (name, line) in enumerate(lines, share.start or 0)
    ]


def expected(records: list[tuple[bytes | None, bytes | None, int]]) -> dict[bytes, bytes]:
    kept: dict[bytes, bytes | None] = {key: value for key, value, _ in records if key is not None}
    return {key: value for key, value in kept.items() if value is not None}


def run(topic: Topic, location: Path, kind: str, capfd: pytest.CaptureFixture[str], *more: str) -> list[dict[str, Any]]:
    capfd.readouterr()
    words = ["compact", topic.name, "--to", str(location), "--format", kind, "-b", topic.bootstrap, "--json", *more]
    assert cli.main(words) == 0, capfd.readouterr().err
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def latest(spark: Any, location: Path, kind: str) -> dict[bytes, bytes]:
    rows = read_latest(spark, str(location), table_format=kind).select("key", "value").collect()
    found = {bytes(row.key): bytes(row.value) for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_the_table_of_the_demos_input_is_what_a_dict_says(
    spark: Any, cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    topic = new_topic(cluster.bootstrap)
    records = changes(slice(0, 2000))
    produce_all(topic, records)
    table = tmp_path / "latest"
    first = run(topic, table, kind, capfd)
    assert sum(one["read"] for one in first) == 2000
    assert sum(one["null_keys"] for one in first) == sum(key is None for key, _, _ in records)
    assert latest(spark, table, kind) == expected(records)
    # Nothing is new: nothing is read, and nothing changes.
    again = run(topic, table, kind, capfd)
    assert [(one["read"], one["files"]) for one in again] == [(0, 0)] * 3
    more = changes(slice(2000, 3000))
    produce_all(topic, more)
    last = run(topic, table, kind, capfd, "--merge")
    assert sum(one["read"] for one in last) == 1000
    assert latest(spark, table, kind) == expected(records + more)
    # Merged: whoever reads the files sees one row a key.
    merged = open_table(kind, Location(str(table)), LATEST_LAYOUT)
    files = [str(table / path) for path in merged.files(merged.load())]
    assert len(files) == 3
    rows = duckdb.read_parquet(files).filter("not deleted").project("key, value").fetchall()
    assert {bytes(key): bytes(value) for key, value in rows} == expected(records + more)
    assert len(rows) == len(expected(records + more))
    words = ["archive", topic.name, "--to", str(table), "--format", kind, "-b", topic.bootstrap]
    assert cli.main(words) == 1
    assert f"{table} has the latest records of `compact`; archive to another place" in capfd.readouterr().err
    # And what is merged is no end: the next run goes on from there.
    assert [(one["read"], one["files"]) for one in run(topic, table, kind, capfd)] == [(0, 0)] * 3


def test_an_archive_and_the_brokers_give_one_table_and_holes_are_filled_later(
    spark: Any, cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(cluster.bootstrap)
    records = changes(slice(0, 600))
    produce_all(topic, records)
    archive_to(tmp_path / "lake", topic, "hour")
    lake = ["--from-lake", str(tmp_path / "lake")]
    # Asking no broker: there is none at this address.
    nowhere = topic._replace(bootstrap="127.0.0.1:1")
    first = run(nowhere, tmp_path / "latest", "parquet", capfd, *lake)
    assert sum(one["read"] for one in first) == 600
    assert latest(spark, tmp_path / "latest", "parquet") == expected(records)
    more = changes(slice(600, 1200))
    produce_all(topic, more)
    assert sum(one["read"] for one in run(topic, tmp_path / "latest", "parquet", capfd)) == 600
    # The archive has nothing that the table lacks, and what is older than the table's rows changes none of them.
    again = run(nowhere, tmp_path / "latest", "parquet", capfd, *lake)
    assert sum(one["read"] for one in again) == 0
    assert latest(spark, tmp_path / "latest", "parquet") == expected(records + more)


def test_ranges_in_any_order_and_runs_at_once_leave_the_table_exact(cluster: Any, tmp_path: Path) -> None:
    """A range in the middle is first, as from an archive that began late; then another run takes what was left."""
    topic = new_topic(cluster.bootstrap, 1)
    records = changes(slice(0, 300))
    produce_all(topic, records)
    options = read_options(topic.bootstrap, topic.name)
    location, files = Location(str(tmp_path)), FileSettings(folder="_data/")
    table = ParquetFormat(DirectoryStore(tmp_path), LATEST_LAYOUT)

    def sifted(pieces: Sequence[SiftedPiece]) -> list[Sifted | Unreadable]:
        return [write_sifted(piece, ReadTopic(options), location, files) for piece in pieces]

    class Middle(TopicChangelog):
        def missing(self, stored: Any) -> Sequence[Split]:
            whole = super().missing({})[0]
            return [] if stored else [whole._replace(start_offset=100, end_offset=200)]

    compact(table, Middle(options, topic.name), sifted)
    other = ParquetFormat(DirectoryStore(tmp_path), LATEST_LAYOUT)
    raced: list[CompactResult] = []

    def overtaken(pieces: Sequence[SiftedPiece]) -> list[Sifted | Unreadable]:
        found = sifted(pieces)
        if not raced:
            raced.append(compact(other, TopicChangelog(options, topic.name), sifted))
        return found

    result = compact(table, TopicChangelog(options, topic.name), overtaken, wait=lambda _: None)
    assert (result.rounds, result.lost_rounds, result.partitions[0].read) == (0, 1, 0)
    assert [(one.offsets, one.read) for one in raced[0].partitions] == [(200, 200)]
    groups = files_to_merge(table.data_files(table.load()), 1)
    merged = merge(table, 1, lambda found: [merge_files(one, location, files) for one in found], wait=lambda _: None)
    assert merged is not None
    assert (len(groups), merged.files_before, merged.files_after) == (1, 3, 1)
    (file,) = table.files(table.load())
    rows = duckdb.read_parquet(str(tmp_path / file)).project("key, value, deleted").fetchall()
    assert {bytes(key): bytes(value) for key, value, deleted in rows if not deleted} == expected(records)
    assert len(rows) == len({key for key, _, _ in records if key is not None}) == merged.rows_after
    assert merge(table, 1, lambda _: [], wait=lambda _: None) is None


def test_a_table_is_of_one_topic_and_a_gap_is_accepted_by_who_says_so(
    cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(cluster.bootstrap, 1)
    options = read_options(topic.bootstrap, topic.name)
    table = ParquetFormat(DirectoryStore(tmp_path), LATEST_LAYOUT)
    produce_all(topic, changes(slice(0, 50)))

    def sifted(pieces: Sequence[SiftedPiece]) -> list[Sifted | Unreadable]:
        files = FileSettings(folder="_data/")
        return [write_sifted(piece, ReadTopic(options), Location(str(tmp_path)), files) for piece in pieces]

    compact(table, TopicChangelog(options, topic.name), sifted)
    produce_all(topic, changes(slice(50, 90)))
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    for future in admin.delete_records([TopicPartition(topic.name, 0, 60)]).values():
        future.result(30)
    with pytest.raises(TableError, match=r"the table ends at 50, and the log starts at 60.* --accept-gap"):
        compact(table, TopicChangelog(options, topic.name), sifted)
    result = compact(table, TopicChangelog(options, topic.name), sifted, accept_gap=True)
    assert [(one.gap, one.read, one.end_offset) for one in result.partitions] == [(10, 30, 90)]
    other = new_topic(cluster.bootstrap, 1)
    with pytest.raises(TableError, match="the table has keys of the topic with id"):
        compact(table, TopicChangelog(read_options(other.bootstrap, other.name), other.name), sifted)
    archive_to(tmp_path / "lake", topic)
    archived = ParquetFormat(DirectoryStore(tmp_path / "lake"))
    with pytest.raises(TableError, match="this is the table of an archive"):
        compact(archived, TopicChangelog(options, topic.name), sifted)


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (["compact", "t"], 2, "Missing option '--to'"),
        (["compact", "t", "--to", "x", "--lake-format", "orc"], 2, "--lake-format: 'orc' is not known"),
        (["compact", "t", "--to", "/proc/nowhere"], 1, "/proc/nowhere cannot be written"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: list[str], status: int, complaint: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == status
    said = capfd.readouterr().err
    assert said.startswith(f"barnabas-spark: {complaint}")
    assert said.count("\n") == 1
