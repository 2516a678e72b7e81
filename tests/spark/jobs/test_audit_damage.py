"""Every kind of damage that is planted in a lake or a log is found, named, and nothing else is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from spark.jobs.one_process import OneProcess, merged_here
from spark.lake.produced import PARTITIONS, Topic, new_topic, produce
from spark.lake.sweep import FILES, in_process, settings_for

from barnabas_spark.jobs.audit import gathering
from barnabas_spark.jobs.audit.evidence import Evidence
from barnabas_spark.jobs.audit.findings import findings_of
from barnabas_spark.jobs.audit.gathering import Question, gather
from barnabas_spark.jobs.audit.report import page_of
from barnabas_spark.jobs.audit.summary import summaries_of
from barnabas_spark.jobs.auditing import verdict_of
from barnabas_spark.lake.archive import archive
from barnabas_spark.lake.formats.delta import DeltaFormat
from barnabas_spark.lake.formats.iceberg import IcebergFormat
from barnabas_spark.lake.formats.manifests import Manifest
from barnabas_spark.lake.formats.parquet import ParquetFormat
from barnabas_spark.lake.layout import RECORD_SCHEMA
from barnabas_spark.lake.logs import ask_logs
from barnabas_spark.lake.ranges import CommittedRange, Purpose
from barnabas_spark.lake.store import DirectoryStore, Location

pytestmark = [pytest.mark.spark, pytest.mark.process]

ROWS = 120


@pytest.fixture(scope="module")
def topic(cluster: Any) -> Topic:
    made = new_topic(cluster.bootstrap)
    produce(made, range(ROWS))
    return made


@pytest.fixture(autouse=True)
def spark_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "merge_units", merged_here)


class Lake:
    """A Parquet table of a topic in a directory: two commits, a file for each partition in each."""

    def __init__(self, topic: Topic, root: Path) -> None:
        self.topic = topic
        self.root = root
        self.settings = settings_for(topic, 2000)
        self.archive()

    @property
    def table(self) -> ParquetFormat:
        return ParquetFormat(DirectoryStore(self.root))

    def archive(self, partition_by: str = "", **changes: Any) -> None:
        store = DirectoryStore(self.root)
        files = FILES._replace(partition_by=partition_by, file_bytes=1 << 20)
        settings = self.settings._replace(**changes)
        archive(self.table, settings, in_process(store, settings, files), wait=lambda _: None)

    def file_of(self, partition: int) -> Path:
        """Return the file with the first rows of a partition."""
        files = self.table.files(self.table.load())
        return min(self.root / path for path in files if f"-{partition}-0000" in path)

    def rewrite(self, partition: int, change: Callable[[Any], Any]) -> None:
        path = self.file_of(partition)
        pq.write_table(change(pq.read_table(path)), path)

    def commit(self, partition: int, start: int, end: int, rows: int = 0) -> None:
        logs = ask_logs(self.settings.options, self.topic.name)
        epoch = logs.partitions[partition].leader_epoch
        said = CommittedRange(logs.key(partition), start, end, epoch, "read_uncommitted", rows, 0, self.topic.name)
        self.table.commit(self.table.load(), [], [said], Purpose.BACKFILL)

    def seen(self, **changes: Any) -> Evidence:
        question = Question(self.topic.name, Location(str(self.root)), "", self.settings.options, True, "")
        return gather(OneProcess(), question._replace(**changes), lambda _: None)

    def wrong(self, **changes: Any) -> list[tuple[str, int, int, int]]:
        """Return what an audit finds wrong."""
        return [
            (one.kind, one.partition, one.start_offset, one.end_offset)
            for one in findings_of(self.seen(**changes))
            if one.is_wrong
        ]

    def kinds(self, **changes: Any) -> set[str]:
        return {kind for kind, *_ in self.wrong(**changes)}


@pytest.fixture
def lake(topic: Topic, tmp_path: Path) -> Lake:
    return Lake(topic, tmp_path / "lake")


@pytest.fixture
def own_lake(cluster: Any, tmp_path: Path) -> Lake:
    """A lake whose topic may be harmed."""
    made = new_topic(cluster.bootstrap)
    produce(made, range(60))
    return Lake(made, tmp_path / "lake")


def value_at(table: Any, row: int, value: bytes | None) -> Any:
    values = table.column("value").to_pylist()
    values[row] = value
    return table.set_column(table.schema.get_field_index("value"), "value", pa.array(values, pa.binary()))


def test_a_sound_lake_is_proved_row_by_row(lake: Lake) -> None:
    seen = lake.seen()
    assert findings_of(seen) == []
    for one in summaries_of(seen, []):
        assert (one.start_offset, one.end_offset, one.rows, one.without_row) == (0, 40, 40, 0)
        assert (one.claims, one.claims_proved) == (one.log_units, one.log_proved)
        assert one.claims > 1
        assert (one.lag, one.is_sound) == (0, True)
    assert sum(count for _, count in seen.timeline.counts) == ROWS


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_of_the_other_formats_is_proved_by_the_notes_of_its_commits(
    kind: str, topic: Topic, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    table = (
        DeltaFormat(str(root), RECORD_SCHEMA)
        if kind == "delta"
        else IcebergFormat(str(root), "lake.lake", RECORD_SCHEMA)
    )
    settings = settings_for(topic, 2000)
    files = FILES._replace(partition_by="", file_bytes=1 << 20)
    archive(table, settings, in_process(DirectoryStore(root), settings, files), wait=lambda _: None)
    question = Question(topic.name, Location(str(root)), "", None, False, "")
    seen = gather(OneProcess(), question, lambda _: None)
    assert findings_of(seen) == []
    assert [(one.rows, one.claims_proved == one.claims > 1) for one in summaries_of(seen, [])] == [(40, True)] * 3


def test_rows_that_are_mixed_over_files_are_sorted_before_they_are_judged(topic: Topic, tmp_path: Path) -> None:
    lake = Lake.__new__(Lake)
    lake.topic, lake.root, lake.settings = topic, tmp_path / "lake", settings_for(topic, 1 << 30)
    lake.archive("hour")
    told: list[str] = []
    question = Question(topic.name, Location(str(lake.root)), "", lake.settings.options, True, "")
    assert findings_of(gather(OneProcess(), question, told.append)) == []
    assert any("are mixed over" in line for line in told)


@pytest.mark.parametrize("reads_log", [True, False])
@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda rows: rows.slice(1), "lost rows"),
        (lambda rows: pa.concat_tables([rows.slice(0, 4), rows.slice(5)]), "lost rows"),
        (lambda rows: pa.concat_tables([rows, rows.slice(3, 1)]), "doubled rows"),
        (lambda rows: pa.concat_tables([rows.slice(0, 3), rows.slice(2)]), "doubled rows"),
        (lambda rows: value_at(value_at(rows, 1, b"swapped"), 2, None), "changed rows"),
        (lambda rows: value_at(rows, 0, b""), "changed rows"),
    ],
)
def test_damage_to_rows_is_found(damage: Any, kind: str, reads_log: bool, lake: Lake) -> None:
    lake.rewrite(1, damage)
    found = lake.wrong(reads_log=reads_log)
    assert kind in {one[0] for one in found}
    expected = {kind, "other file"} | ({"unlike the log"} if reads_log and kind != "doubled rows" else set())
    assert {one[0] for one in found} <= expected
    assert {one[1] for one in found} - {-1} == {1}, "the others are not accused"


def test_the_offsets_of_lost_rows_are_named(lake: Lake) -> None:
    lake.rewrite(1, lambda rows: pa.concat_tables([rows.slice(0, 4), rows.slice(6)]))
    (text,) = [one.text for one in findings_of(lake.seen(options=None)) if one.kind == "lost rows"]
    assert "2 rows of" in text
    assert text.endswith("no row at [4, 6)")


def test_a_row_with_an_offset_that_no_commit_covers_is_found(lake: Lake) -> None:
    def add(rows: Any) -> Any:
        more = rows.slice(0, 1)
        at = more.schema.get_field_index("offset")
        return pa.concat_tables([rows, more.set_column(at, more.schema.field(at), pa.array([7000], pa.int64()))])

    lake.rewrite(2, add)
    assert ("stray rows", 2, 7000, 7001) in lake.wrong()


def test_a_file_that_is_missing_is_found(lake: Lake) -> None:
    lake.file_of(0).unlink()
    assert lake.kinds() == {"missing file", "lost rows", "unlike the log"}


@pytest.mark.parametrize("column", ["topic", "key", "value"])
def test_a_file_that_is_corrupt_is_found(column: str, lake: Lake) -> None:
    """Also in a column that no checksum covers."""
    path = lake.file_of(0)
    group = pq.ParquetFile(path).metadata.row_group(0)
    (chunk,) = [group.column(at) for at in range(group.num_columns) if group.column(at).path_in_schema == column]
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(path.read_bytes())
    data[start + chunk.total_compressed_size - 2] ^= 0xFF
    path.write_bytes(data)
    assert lake.kinds(options=None) & {"unreadable file", "changed rows"}


def test_a_file_that_was_cut_is_found(lake: Lake) -> None:
    path = lake.file_of(0)
    path.write_bytes(path.read_bytes()[:-20])
    assert "unreadable file" in lake.kinds()


def test_a_range_that_two_commits_say_is_found(lake: Lake) -> None:
    """As a writer without the check of ranges would leave it: the manifest follows, and overlaps."""
    path = max((lake.root / "_manifests").iterdir())
    data = path.read_bytes()
    said = Manifest.decode(data, "it")
    again = said.ranges[0]._replace(start_offset=said.ranges[0].start_offset - 1)
    changed = json.loads(data) | {"ranges": [*json.loads(data)["ranges"], json.loads(data)["ranges"][0]]}
    changed["ranges"][-1]["start_offset"] = again.start_offset
    path.write_bytes(json.dumps(changed).encode())
    assert "range said twice" in lake.kinds()


def test_a_hole_is_found_and_the_log_is_named_that_fills_it(own_lake: Lake) -> None:
    produce(own_lake.topic, range(60, 90))
    own_lake.commit(2, 25, 28)
    found = findings_of(own_lake.seen())
    assert [(one.kind, one.start_offset, one.end_offset) for one in found if one.partition == 2 and one.is_wrong] == [
        ("hole", 20, 25),
        ("unlike the log", 25, 28),
    ]
    assert any("archive --from-offset fills the hole" in one.text for one in found)


def test_a_gap_is_wrong_until_it_is_accepted(own_lake: Lake) -> None:
    produce(own_lake.topic, range(60, 120))
    admin = AdminClient({"bootstrap.servers": own_lake.topic.bootstrap})
    before = [TopicPartition(own_lake.topic.name, each, 30) for each in range(PARTITIONS)]
    for future in admin.delete_records(before).values():
        future.result(30)
    assert own_lake.wrong() == [("gap", each, 20, 30) for each in range(PARTITIONS)]
    own_lake.archive(accept_gap=True)
    found = findings_of(own_lake.seen())
    assert [(one.kind, one.is_wrong, one.start_offset, one.end_offset) for one in found] == [
        ("accepted gap", False, 20, 30)
    ] * PARTITIONS
    summaries = summaries_of(own_lake.seen(), found)
    assert [(one.rows, one.without_row, one.lag) for one in summaries] == [(30, 10, 0)] * PARTITIONS


def test_a_topic_that_was_created_again_is_found(own_lake: Lake) -> None:
    admin = AdminClient({"bootstrap.servers": own_lake.topic.bootstrap})
    admin.delete_topics([own_lake.topic.name])[own_lake.topic.name].result(30)
    new_topic(own_lake.topic.bootstrap, name=own_lake.topic.name)
    produce(own_lake.topic, range(60))
    assert own_lake.wrong() == [("another topic", -1, -1, -1)]
    own_lake.archive(restart_topic=True)
    assert own_lake.wrong() == []
    assert findings_of(own_lake.seen())[0].kind == "earlier topic"


def test_a_lake_that_is_ahead_of_the_log_is_found(own_lake: Lake) -> None:
    own_lake.commit(0, 20, 50)
    assert ("lake ahead of the log", 0, 20, 50) in own_lake.wrong()


def test_lag_is_shown_and_is_not_wrong(own_lake: Lake) -> None:
    produce(own_lake.topic, range(60, 75))
    seen = own_lake.seen()
    assert findings_of(seen) == []
    assert [one.lag for one in summaries_of(seen, [])] == [5, 5, 5]


def test_the_lag_of_a_group_is_shown_and_a_group_that_is_beyond_the_log_is_wrong(lake: Lake) -> None:
    group = f"readers-{lake.topic.name}"
    consumer = Consumer({"bootstrap.servers": lake.topic.bootstrap, "group.id": group})
    places = [TopicPartition(lake.topic.name, 0, 25), TopicPartition(lake.topic.name, 1, 41)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    seen = lake.seen(group=group)
    found = findings_of(seen)
    assert [(one.kind, one.partition, one.start_offset, one.end_offset) for one in found] == [
        ("group ahead of the log", 1, 40, 41)
    ]
    assert [one.group_lag for one in summaries_of(seen, found)] == [15, 0, None]


def test_a_topic_alone_is_read_whole(lake: Lake) -> None:
    seen = lake.seen(location=None)
    assert findings_of(seen) == []
    assert [(one.rows, one.log_proved, one.lag) for one in summaries_of(seen, [])] == [(40, 1, None)] * 3


def test_the_report_is_one_page_that_says_what_is_wrong(lake: Lake) -> None:
    lake.rewrite(1, lambda rows: rows.slice(1))
    seen = lake.seen()
    findings = findings_of(seen)
    summaries = summaries_of(seen, findings)
    page = page_of(seen, summaries, findings, verdict_of(seen, summaries, findings))
    assert page.count("<svg") == page.count("</svg>") == 4
    assert "lost rows" in page
    assert "prefers-color-scheme: dark" in page
    assert not [word for word in ("src=", "<script", "@import", "url(http") if word in page]
    assert "#010101" not in page, "colours follow the page"
