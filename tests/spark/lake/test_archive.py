"""An archive goes on where the table ends, and stops, with both offsets, where it cannot."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from machines import cluster_handle
from spark.lake.produced import PARTITIONS, Topic, expected_rows, file_rows, new_topic, produce
from spark.lake.sweep import FILES, in_process, settings_for

from barnabas_spark import clusters as connections
from barnabas_spark.lake import writing
from barnabas_spark.lake.archive import ArchiveError, ArchiveResult, archive
from barnabas_spark.lake.checksums import RowsChecksum
from barnabas_spark.lake.compaction import commit_compaction, groups_of, rewrite_group
from barnabas_spark.lake.formats.parquet import ParquetFormat
from barnabas_spark.lake.layout import RECORD_SCHEMA
from barnabas_spark.lake.logs import ask_logs
from barnabas_spark.lake.orphans import AGE_S_MIN, remove_orphans
from barnabas_spark.lake.ranges import CommittedRange, Purpose, Span
from barnabas_spark.lake.rounds import GapError, LostLogError, OtherTopicError
from barnabas_spark.lake.store import DirectoryStore, Location
from barnabas_spark.lake.table import TableError
from barnabas_spark.lake.writing import Piece, Unreadable, Written
from barnabas_spark.planning.plan import DataLossError, Split
from barnabas_spark.reading.reader import read_split

pytestmark = [pytest.mark.process, pytest.mark.slow]


class Lake:
    """A topic, and a table of it in a directory."""

    def __init__(self, topic: Topic, root: Path) -> None:
        self.topic = topic
        self.root = root
        self.store = DirectoryStore(root)

    def archive(
        self,
        round_bytes: int = 1 << 30,
        *,
        accept_gap: bool = False,
        restart: bool = False,
        backfill: tuple[int, int] | None = None,
    ) -> ArchiveResult:
        settings = settings_for(self.topic, round_bytes)
        settings = settings._replace(accept_gap=accept_gap, restart_topic=restart, backfill=backfill)
        files = FILES._replace(partition_by="")
        return archive(
            ParquetFormat(self.store), settings, in_process(self.store, settings, files), wait=lambda _: None
        )

    @property
    def table(self) -> ParquetFormat:
        return ParquetFormat(self.store)

    def rows(self) -> list[Any]:
        return list(file_rows(self.root, self.table.files(self.table.load())))

    def spans(self) -> dict[int, list[tuple[int, int]]]:
        return {key.partition: [span[:2] for span in spans] for key, spans in self.table.load().spans.items()}

    def delete_before(self, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.topic.bootstrap})
        before = [TopicPartition(self.topic.name, each, offset) for each in range(PARTITIONS)]
        for future in admin.delete_records(before).values():
            future.result(30)


@pytest.fixture
def lake(cluster: Any, tmp_path: Path) -> Lake:
    return Lake(new_topic(cluster.bootstrap), tmp_path / "lake")


def test_each_run_adds_what_is_new(lake: Lake) -> None:
    assert lake.archive().rounds == 0
    produce(lake.topic, range(60))
    first = lake.archive(round_bytes=900)
    assert first.rounds > 1
    assert [one[:4] for one in first.partitions] == [(each, 0, 20, 20) for each in range(PARTITIONS)]
    assert lake.archive().rounds == 0
    produce(lake.topic, range(60, 90))
    assert [one[:4] for one in lake.archive().partitions] == [(each, 20, 30, 10) for each in range(PARTITIONS)]
    assert lake.rows() == expected_rows(lake.topic, range(90))
    assert lake.spans() == {each: [(0, 30)] for each in range(PARTITIONS)}


def test_ranges_have_checksums_that_files_and_topic_give_again(lake: Lake) -> None:
    produce(lake.topic, range(90))
    lake.archive(round_bytes=900)
    raw_id = ask_logs(settings_for(lake.topic).options, lake.topic.name).raw_id
    tables = [
        pq.read_table(lake.root / path, columns=RECORD_SCHEMA.names) for path in lake.table.files(lake.table.load())
    ]
    ranges = [one for commit in lake.table.commits() for one in commit.ranges]
    assert len(ranges) > PARTITIONS
    for one in ranges:
        checksum, rows = RowsChecksum(), 0
        for table in sorted(tables, key=lambda table: table.column("offset")[0].as_py()):
            for batch in table.to_batches():
                offset = batch.column("offset")[0].as_py()
                if batch.column("partition")[0].as_py() == one.key.partition and (
                    one.start_offset <= offset < one.end_offset
                ):
                    checksum, rows = checksum.extended(batch), rows + batch.num_rows
        assert (checksum.value, rows) == (one.crc, one.rows)
        split = Split(lake.topic.name, raw_id, one.key.partition, -1, one.start_offset, one.end_offset)
        piece = Piece(split, one.key.topic_id, 1 << 30)
        again = writing.write_to(DirectoryStore(lake.root / "again"), piece, settings_for(lake.topic).options, FILES)
        assert isinstance(again, Written)
        assert again.checksum.value == one.crc


def test_a_gap_is_refused_with_both_offsets_or_committed(lake: Lake) -> None:
    produce(lake.topic, range(60))
    lake.archive()
    produce(lake.topic, range(60, 120))
    lake.delete_before(30)
    with pytest.raises(GapError, match=r"-0: the table ends at 20, and the log starts at 30.*--accept-gap"):
        lake.archive()
    assert lake.spans() == {each: [(0, 20)] for each in range(PARTITIONS)}
    result = lake.archive(accept_gap=True)
    assert {(one.gap, one.rows) for one in result.partitions} == {(10, 10)}
    assert lake.spans() == {each: [(0, 40)] for each in range(PARTITIONS)}
    assert lake.rows() == expected_rows(lake.topic, [*range(60), *range(90, 120)])
    gaps = [one for commit in lake.table.commits() if commit.purpose == "gap" for one in commit.ranges]
    assert [(one.start_offset, one.end_offset, one.rows) for one in gaps] == [(20, 30, 0)] * PARTITIONS


def test_a_topic_made_anew_is_refused_unless_told(lake: Lake) -> None:
    produce(lake.topic, range(30))
    lake.archive()
    admin = AdminClient({"bootstrap.servers": lake.topic.bootstrap})
    admin.delete_topics([lake.topic.name])[lake.topic.name].result(30)
    new_topic(lake.topic.bootstrap, name=lake.topic.name)
    produce(lake.topic, range(60))
    with pytest.raises(OtherTopicError, match="--restart-topic"):
        lake.archive()
    assert len(lake.rows()) == 30
    lake.archive(restart=True)
    assert len(lake.rows()) == 90
    assert sorted(span for spans in lake.table.load().spans.values() for span in spans) == sorted(
        [Span(0, 10, spans[-1].leader_epoch) for spans in list(lake.table.load().spans.values())[:PARTITIONS]]
        + [Span(0, 20, spans[-1].leader_epoch) for spans in list(lake.table.load().spans.values())[PARTITIONS:]]
    )
    lake.archive()
    assert len(lake.rows()) == 90


def test_a_log_that_ends_before_the_table_is_refused_with_both_offsets(lake: Lake) -> None:
    produce(lake.topic, range(30))
    key = ask_logs(settings_for(lake.topic).options, lake.topic.name).key(0)
    table = lake.table
    table.commit(
        table.load(), [], [CommittedRange(key, 0, 50, 0, "read_uncommitted", 0, 0, lake.topic.name)], Purpose.ARCHIVE
    )
    with pytest.raises(LostLogError, match="-0: the table ends at 50, and the log at 10"):
        lake.archive()


def test_a_log_whose_records_are_of_later_epochs_than_those_of_the_table_is_refused(lake: Lake) -> None:
    """As after an unclean election: the broker says where the epoch ended that the table saw."""
    produce(lake.topic, range(30))
    key = ask_logs(settings_for(lake.topic).options, lake.topic.name).key(0)
    table = lake.table
    ranges = [CommittedRange(key, 0, 5, 0, "read_uncommitted", 0, 0, lake.topic.name)]
    table.commit(table.load(), [], ranges, Purpose.ARCHIVE)
    with pytest.raises(LostLogError, match=r"-0: the table ends at 5 \(epoch 0\), .* ends at 0: it lost records"):
        lake.archive()


def test_a_range_without_records_is_committed_without_a_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_: Any) -> Iterator[Any]:
        yield from ()

    produce(lake.topic, range(30))
    monkeypatch.setattr(writing, "read_split", nothing)
    lake.archive()
    assert lake.spans() == {each: [(0, 10)] for each in range(PARTITIONS)}
    assert [one.files for one in lake.archive().partitions] == [0] * PARTITIONS
    assert not lake.table.files(lake.table.load())


def test_a_partition_that_cannot_be_read_holds_back_no_other(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:

    def lost(split: Any, *rest: Any) -> Iterator[Any]:
        if split.partition == 1:
            raise DataLossError("offsets 0 to 5 are gone")
        yield from read_split(split, *rest)

    produce(lake.topic, range(60))
    monkeypatch.setattr(writing, "read_split", lost)
    with pytest.raises(ArchiveError, match="offsets 0 to 5 are gone"):
        lake.archive(round_bytes=900)
    assert lake.spans() == {each: [(0, 20)] for each in (0, 2)}
    assert lake.rows() == [row for row in expected_rows(lake.topic, range(60)) if row.partition != 1]


def test_holes_are_filled_from_the_log(lake: Lake) -> None:
    produce(lake.topic, range(90))
    settings = settings_for(lake.topic)
    logs = ask_logs(settings.options, lake.topic.name)
    epoch = logs.partitions[1].leader_epoch
    split = Split(lake.topic.name, logs.raw_id, 1, epoch, 10, 20)
    written = writing.write_to(lake.store, Piece(split, logs.topic_id, 1 << 30), settings.options, FILES)
    assert isinstance(written, Written)
    table = lake.table
    crc = written.checksum.value
    ranges = [CommittedRange(logs.key(1), 10, 20, epoch, "read_uncommitted", 10, crc, lake.topic.name)]
    table.commit(table.load(), written.files, ranges, Purpose.ARCHIVE)
    lake.archive()
    assert lake.spans() == {0: [(0, 30)], 1: [(10, 30)], 2: [(0, 30)]}
    lake.archive(backfill=(4, 8))
    assert lake.spans()[1] == [(4, 8), (10, 30)]
    lake.archive(round_bytes=300, backfill=(0, 2**63 - 1))
    assert lake.spans() == {each: [(0, 30)] for each in range(PARTITIONS)}
    assert lake.rows() == expected_rows(lake.topic, range(90))
    assert {one.purpose for one in lake.table.commits()} == {"archive", "backfill"}


def test_small_files_become_large_ones_with_the_same_rows(lake: Lake) -> None:
    produce(lake.topic, range(90))
    lake.archive(round_bytes=900)
    table = lake.table
    before = table.load()
    groups = groups_of(table.data_files(before), 1 << 20)
    assert sum(len(one.files) for one in groups) == len(table.files(before))
    settings = FILES._replace(row_group_bytes=1 << 20)
    rewritten = [rewrite_group(one, Location(str(lake.root)), settings) for one in groups]
    produce(lake.topic, range(90, 120))
    lake.archive()  # meanwhile, which costs a round
    done = commit_compaction(table, rewritten, wait=lambda _: None)
    assert (done.files_before, done.files_after, done.rows) == (len(table.files(before)), len(groups), 90)
    assert lake.rows() == expected_rows(lake.topic, range(120))
    with pytest.raises(TableError, match="something else has replaced it"):
        commit_compaction(lake.table, [one._replace(file=one.file._replace(path="x")) for one in rewritten])
    lake.archive()
    assert lake.rows() == expected_rows(lake.topic, range(120))


def test_orphans_are_removed_by_age_and_nothing_else(lake: Lake) -> None:
    produce(lake.topic, range(60))
    lake.archive(round_bytes=900)
    kept = set(lake.table.files(lake.table.load()))
    for name in ("barnabas-t-0-lost.parquet", ".unfinished-barnabas-t-0-half.parquet", "somebody.csv"):
        lake.store.put(f"{FILES.folder}{name}", b"")
    lake.store.put(f"{FILES.folder}barnabas-t-0-young.parquet", b"")
    old_s = time.time() - AGE_S_MIN - 60
    for path in lake.root.glob("data/**/*"):
        if path.is_file() and "young" not in path.name:
            os.utime(path, (old_s, old_s))
    with pytest.raises(TableError, match="after 6 hours at the least"):
        remove_orphans(lake.table, lake.store, FILES.folder, 60)
    removed = remove_orphans(lake.table, lake.store, FILES.folder, AGE_S_MIN)
    assert [path.rpartition("/")[2] for path in removed] == [
        ".unfinished-barnabas-t-0-half.parquet",
        "barnabas-t-0-lost.parquet",
    ]
    left = {one.path for one in lake.store.list(FILES.folder)}
    assert left - kept == {f"{FILES.folder}{name}" for name in ("somebody.csv", "barnabas-t-0-young.parquet")}
    assert lake.rows() == expected_rows(lake.topic, range(60))


def test_a_leader_killed_between_two_rounds_is_followed(tmp_path: Path) -> None:
    with cluster_handle.cluster() as brokers:
        topic = new_topic(brokers.bootstrap)
        admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
        produce(topic, range(600))
        lake = Lake(topic, tmp_path / "lake")
        settings = settings_for(topic, 6_000)
        write = in_process(lake.store, settings)
        rounds = 0

        def run_pieces(pieces: Sequence[Piece]) -> Sequence[Written | Unreadable]:
            nonlocal rounds
            rounds += 1
            if rounds == 2:
                partitions = admin.list_topics(topic.name, 10).topics[topic.name].partitions
                brokers.kill(partitions[0].leader)
            return write(pieces)

        archive(ParquetFormat(lake.store), settings, run_pieces)
        assert rounds > 2
        produce(topic, range(600, 660))
        archive(ParquetFormat(lake.store), settings, write)  # whose leaders have epochs that the table has not
        assert lake.rows() == expected_rows(topic, range(660))
        connections.close_all()
