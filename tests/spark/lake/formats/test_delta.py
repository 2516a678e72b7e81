"""A Delta table keeps what it says of offsets through checkpoints, and says so when it was lost."""

import datetime as dt
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import FileSystem, LocalFileSystem, SubTreeFileSystem
from spark.lake.formats.archives import SCHEMA, DeltaArchive, key_of, range_of, rows_of

from barnabas_spark.lake.formats import delta
from barnabas_spark.lake.formats.delta import DeltaFormat
from barnabas_spark.lake.formats.delta_entries import VERSION, changes, is_ours, spans_of
from barnabas_spark.lake.formats.delta_log import entries_at
from barnabas_spark.lake.formats.delta_options import delta_options
from barnabas_spark.lake.formats.errors import line_of
from barnabas_spark.lake.ranges import PartitionKey, Purpose, Span
from barnabas_spark.lake.table import ConflictError, TableError, UnknownOutcomeError


@pytest.fixture
def archive(tmp_path: Path) -> DeltaArchive:
    return DeltaArchive(tmp_path)


@pytest.fixture
def log(archive: DeltaArchive) -> FileSystem:
    return SubTreeFileSystem(str(archive.root), LocalFileSystem())


def commits(archive: DeltaArchive) -> list[Path]:
    return sorted((archive.root / "_delta_log").glob("*.json"))


def test_ranges_outlive_the_commits_that_wrote_them(archive: DeltaArchive) -> None:
    archive.add((0, 50, 60), (1, 0, 3))
    archive.add((0, 10, 20), purpose=Purpose.BACKFILL)
    DeltaTable(str(archive.root)).create_checkpoint()
    for commit in commits(archive)[:-1]:
        commit.unlink()
    assert archive.spans(0) == [(10, 20), (50, 60)]
    archive.add((0, 60, 70))
    assert archive.spans(0) == [(10, 20), (50, 70)]
    assert archive.rows() == rows_of((0, 10, 20), (0, 50, 70), (1, 0, 3))


def test_transactions_have_no_time_so_that_they_never_expire(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))
    table = DeltaTable(str(archive.root))
    table.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 0 seconds"})
    archive.add((0, 5, 8))
    DeltaTable(str(archive.root)).create_checkpoint()
    written = [line for commit in commits(archive) for line in commit.read_text().splitlines() if '"txn"' in line]
    assert written
    assert not [line for line in written if "lastUpdated" in line]
    assert archive.spans(0) == [(0, 8)]


@pytest.mark.slow
def test_loading_reads_as_many_commits_after_many_as_after_a_few(archive: DeltaArchive, log: FileSystem) -> None:
    """At most the hundred since the last checkpoint, which deltalake writes by itself; later only the new ones."""
    table = archive.open()
    for offset in range(120):
        table.commit(table.load(), [], [range_of(0, offset, offset + 1)], Purpose.GAP)
    opened: list[str] = []

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(log, name)

        def open_input_file(self, path: str) -> object:
            opened.append(path)
            return log.open_input_file(path)

    entries = entries_at(Counting(), 119)
    assert [Span(0, 120, 3)] == spans_of(entries)[key_of(0)]
    assert len(opened) <= 2 + 100
    opened.clear()
    entries_at(Counting(), 119, (117, entries))
    assert len(opened) == 2


def test_a_checkpoint_of_parts_or_of_version_2_is_read_as_well(archive: DeltaArchive, log: FileSystem) -> None:
    archive.add((0, 0, 5), (1, 0, 3))
    DeltaTable(str(archive.root)).create_checkpoint()
    folder = archive.root / "_delta_log"
    wanted = entries_at(log, 0)
    (folder / f"{0:020}.json").unlink()
    classic = folder / f"{0:020}.checkpoint.parquet"

    parts = classic.rename(folder / f"{0:020}.checkpoint.{1:010}.{1:010}.parquet")
    assert entries_at(log, 0) == wanted
    (folder / "_last_checkpoint").write_text('{"version":0,"size":9,"parts":1}')
    assert entries_at(log, 0) == wanted

    (folder / "_last_checkpoint").write_text('{"version":0,"size":9,"v2Checkpoint":{}}')
    parts.rename(folder / f"{0:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet")
    assert entries_at(log, 0) == wanted


def test_a_hole_in_the_log_is_an_error(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))
    archive.add((0, 5, 8))
    archive.add((0, 8, 9))
    table = archive.open()
    commits(archive)[1].unlink()
    with pytest.raises(TableError):
        table.load()


def test_a_pointer_to_the_checkpoint_that_is_damaged_is_left_out(archive: DeltaArchive, log: FileSystem) -> None:
    archive.add((0, 0, 5))
    DeltaTable(str(archive.root)).create_checkpoint()
    wanted = entries_at(log, 0)
    (archive.root / "_delta_log" / "_last_checkpoint").write_text("[")
    assert entries_at(log, 0) == wanted


def test_a_damaged_commit_or_checkpoint_is_an_error_with_its_name(archive: DeltaArchive, log: FileSystem) -> None:
    archive.add((0, 0, 5))
    DeltaTable(str(archive.root)).create_checkpoint()
    (archive.root / "_delta_log" / f"{0:020}.checkpoint.parquet").write_bytes(b"PAR1")
    with pytest.raises(TableError, match=r"checkpoint.parquet is damaged"):
        entries_at(log, 0)
    commits(archive)[0].write_text("{")
    (archive.root / "_delta_log" / f"{0:020}.checkpoint.parquet").unlink()
    with pytest.raises(TableError, match=r"0.json is damaged"):
        entries_at(log, 0)


def test_what_a_commit_says_stands_in_the_history(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))
    said = json.loads(DeltaTable(str(archive.root)).history()[0]["userMetadata"])["barnabas"]
    assert said["purpose"] == "archive"
    assert said["ranges"] == [
        {
            "clusterId": "kAfKa-1",
            "topicId": key_of(0).topic_id,
            "topic": "orders",
            "partition": 0,
            "startOffset": 0,
            "endOffset": 5,
            "leaderEpoch": 3,
            "isolationLevel": "read_uncommitted",
            "rows": 5,
            "crc": 17,
        }
    ]


def test_each_partition_has_a_fence_of_its_own(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5), (1, 0, 3))
    table = DeltaTable(str(archive.root))
    assert table.transaction_version(f"barnabas/kAfKa-1/{key_of(0).topic_id}/0") == 5
    assert table.transaction_version(f"barnabas/kAfKa-1/{key_of(0).topic_id}/1") == 3


# What was lost.


def rewritten(archive: DeltaArchive, leave_out: str) -> None:
    """Take transactions away, as a tool does that writes a table's files into a new log."""
    for commit in commits(archive):
        kept = [line for line in commit.read_text().splitlines() if not ('"txn"' in line and leave_out in line)]
        commit.write_text("".join(f"{line}\n" for line in kept))


@pytest.mark.parametrize("lost", ["barnabas/", "barnabas-span/", "barnabas-archive/checksum"])
def test_a_lost_transaction_is_an_error_and_no_fresh_start(archive: DeltaArchive, lost: str) -> None:
    archive.add((0, 0, 5), (1, 0, 3))
    rewritten(archive, lost)
    with pytest.raises(TableError, match="some are missing or were changed"):
        archive.open().load()


def test_all_transactions_lost_where_files_of_an_archive_are_is_an_error(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))
    rewritten(archive, "barnabas")
    with pytest.raises(TableError, match="nothing says which offsets are in them"):
        archive.open().load()


def test_a_table_of_somebody_else_is_begun_afresh(archive: DeltaArchive) -> None:
    archive.append_by_another()
    assert archive.open().load() == (0, {})
    archive.add((0, 0, 5))
    assert archive.rows() == rows_of((0, 0, 5))


def test_a_log_that_was_cut_is_an_error(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))
    archive.add((0, 5, 8))
    created, went_on = (commit.read_text().splitlines() for commit in commits(archive))
    first = [line for line in created if '"commitInfo"' not in line]
    commits(archive)[0].write_text("\n".join([went_on[0], *first, *went_on[1:]]))
    commits(archive)[1].unlink()
    with pytest.raises(TableError, match="at version 0, but its offsets were committed in version 1"):
        archive.open().load()


def test_a_restore_since_ranges_were_committed_is_an_error_until_it_is_adopted(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))
    archive.add((0, 5, 8), (1, 0, 3))
    archive.go_back(0)
    with pytest.raises(TableError, match=r"was restored \(version 2\) after offsets were committed \(version 1\)"):
        archive.open().load()
    assert [tuple(span[:2]) for span in archive.open(adopt=True).load().spans[key_of(0)]] == [(0, 5)]
    archive.add((0, 5, 7), adopt=True)
    assert archive.rows() == rows_of((0, 0, 7))
    assert archive.spans(0) == [(0, 7)]
    assert archive.spans(1) == []


def test_a_restore_is_found_behind_other_commits_and_a_checkpoint(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))
    archive.add((0, 5, 8))
    archive.go_back(0)
    archive.append_by_another()
    DeltaTable(str(archive.root)).create_checkpoint()
    with pytest.raises(TableError, match="was restored"):
        archive.open().load()


def test_a_restore_of_a_restored_table_leads_to_what_was_there_at_the_time(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))  # 0
    archive.add((0, 5, 8))  # 1
    archive.go_back(0)  # 2: as 0
    archive.go_back(1)  # 3: as 1
    archive.go_back(2)  # 4: as 0
    assert [tuple(span[:2]) for span in archive.open(adopt=True).load().spans[key_of(0)]] == [(0, 5)]


def test_a_restore_that_was_undone_or_that_took_nothing_of_the_archive_is_none_of_ours(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))  # 0
    archive.add((0, 5, 8))  # 1
    archive.append_by_another()  # 2
    archive.go_back(1)  # 3
    assert archive.spans(0) == [(0, 8)]
    archive.go_back(0)  # 4
    archive.go_back(3)  # 5: undone
    archive.add((0, 8, 9))
    assert archive.rows() == rows_of((0, 0, 9))


def test_a_restore_by_time_is_adopted_as_well(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))
    archive.add((0, 5, 8))
    minute_ago = commits(archive)[0].stat().st_mtime - 60
    os.utime(commits(archive)[0], (minute_ago, minute_ago))
    DeltaTable(str(archive.root)).restore(dt.datetime.fromtimestamp(minute_ago + 30, dt.UTC))
    with pytest.raises(TableError, match="was restored"):
        archive.open().load()
    assert [tuple(span[:2]) for span in archive.open(adopt=True).load().spans[key_of(0)]] == [(0, 5)]


def test_only_what_was_wrong_at_the_start_is_adopted(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))
    archive.add((0, 5, 8))
    archive.add((0, 8, 9))
    archive.go_back(0)
    table = archive.open(adopt=True)
    table.load()
    archive.go_back(1)
    with pytest.raises(TableError, match="was restored"):
        table.load()


def test_a_log_without_the_commits_since_then_may_hide_a_restore(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))
    archive.append_by_another()
    archive.append_by_another()
    DeltaTable(str(archive.root)).create_checkpoint()
    commits(archive)[1].unlink()
    with pytest.raises(TableError, match="no longer has the commit of version 1"):
        archive.open().load()
    archive.add((0, 5, 8), adopt=True)
    assert archive.spans(0) == [(0, 8)]


def test_a_table_in_the_place_of_the_one_that_was_compared_is_a_conflict(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))
    table = archive.open()
    state = table.load()
    shutil.rmtree(archive.root / "_delta_log")
    archive.add((0, 0, 2))
    with pytest.raises(ConflictError, match="replaced by another table"):
        table.commit(state, [archive.write(0, 5, 8)], [range_of(0, 5, 8)], Purpose.ARCHIVE)
    assert [tuple(span[:2]) for span in table.load().spans[key_of(0)]] == [(0, 2)]


# What became of a commit.


def failing(patch: pytest.MonkeyPatch, error: Exception, *, after: bool) -> None:
    """Let the next commit fail: before it, or after it has gone through."""

    class Failing(DeltaTable):
        def create_write_transaction(self, *args: Any, **named: Any) -> None:
            if after:
                super().create_write_transaction(*args, **named)
            raise error

    patch.setattr(delta, "DeltaTable", Failing)


@pytest.mark.parametrize(
    "error", [CommitFailedError("Failed to commit transaction: 0"), OSError("no answer"), DeltaError("hook")], ids=str
)
def test_a_commit_that_failed_after_its_success_is_found(
    archive: DeltaArchive, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The client of a store repeats a request whose answer was lost, and then takes its own commit for another's."""
    archive.add((0, 0, 5))
    failing(monkeypatch, error, after=True)
    table = archive.open()
    table.commit(table.load(), [archive.write(0, 5, 8)], [range_of(0, 5, 8)], Purpose.ARCHIVE)
    assert archive.rows() == rows_of((0, 0, 8))


def test_a_commit_that_cannot_be_found_may_still_come(archive: DeltaArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.add((0, 0, 5))
    failing(monkeypatch, OSError("no answer"), after=False)
    table = archive.open()
    with pytest.raises(UnknownOutcomeError, match="a request may be under way: no answer"):
        table.commit(table.load(), [archive.write(0, 5, 8)], [range_of(0, 5, 8)], Purpose.ARCHIVE)


def test_a_commit_that_deltalake_refuses_to_make_is_no_unknown_outcome(
    archive: DeltaArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.add((0, 0, 5))
    failing(monkeypatch, DeltaProtocolError("the table needs a newer writer"), after=False)
    table = archive.open()
    with pytest.raises(TableError, match="does not take the commit: the table needs a newer writer") as caught:
        table.commit(table.load(), [archive.write(0, 5, 8)], [range_of(0, 5, 8)], Purpose.ARCHIVE)
    assert not isinstance(caught.value, UnknownOutcomeError | ConflictError)


# Tables that do not fit.


def test_columns_that_the_table_lacks_or_has_with_another_type_are_refused(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))
    more = SCHEMA.append(SCHEMA.field("key").with_name("more"))
    with pytest.raises(TableError, match="has no column 'more'"):
        DeltaFormat(str(archive.root), more).load()
    other = SCHEMA.set(0, SCHEMA.field("offset").with_name("partition"))
    with pytest.raises(TableError, match=r"the column 'partition' .* is integer, and not long"):
        DeltaFormat(str(archive.root), other).load()
    with pytest.raises(TableError, match=r"is partitioned by nothing, and not by \['timestampType'\]"):
        DeltaFormat(str(archive.root), SCHEMA, ["timestampType"]).load()


def test_a_table_that_cannot_be_opened_is_an_error_with_its_name(archive: DeltaArchive) -> None:
    archive.add((0, 0, 5))
    commits(archive)[0].write_text("{")
    with pytest.raises(TableError, match=f"the Delta table {archive.root} cannot be opened"):
        archive.open().load()


@pytest.mark.parametrize(
    "options", [{"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}, {"aws_conditional_put": "disabled"}], ids=["rename", "put"]
)
def test_stores_are_never_written_without_a_condition(options: dict[str, str]) -> None:
    with pytest.raises(TableError, match="two writers"):
        DeltaFormat("s3://bucket/table", SCHEMA, storage_options=options)


def test_what_is_said_of_a_store_stays_and_what_is_not_is_safe_and_does_not_last_for_minutes() -> None:
    assert delta_options({}) == {"aws_conditional_put": "etag", "max_retries": "5", "retry_timeout": "60s"}
    mine = {"AWS_ENDPOINT": "http://127.0.0.1:9", "Retry_Timeout": "5s", "max_retries": "0"}
    assert delta_options(mine) == mine | {"aws_conditional_put": "etag", "allow_http": "true"}
    assert "allow_http" not in delta_options({"endpoint": "https://s3.example"})


def test_an_error_is_one_line_without_colours() -> None:
    assert line_of(OSError("Generic S3 error \x1b[31m↳\x1b[0m Error\n  performing HEAD")) == (
        "Generic S3 error ↳ Error performing HEAD"
    )
    assert line_of(KeyError()) == "KeyError"


# Transactions as spans, and back.

PIECES = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@st.composite
def span_maps(draw: st.DrawFn) -> dict[PartitionKey, list[Span]]:
    found = {}
    for partition in draw(st.sets(st.integers(0, 3))):
        offset, spans = draw(st.integers(0, 5)), []
        for length in draw(PIECES):
            spans.append(Span(offset, offset + length, draw(st.integers(-1, 9))))
            offset += length + draw(st.integers(1, 3))
        found[PartitionKey(draw(st.sampled_from(["a", "b/c"])), "t", partition)] = spans
    return found


@given(span_maps(), span_maps())
def test_transactions_say_the_spans_that_were_written_last(
    first: dict[PartitionKey, list[Span]], second: dict[PartitionKey, list[Span]]
) -> None:
    entries = changes({}, first, (), 0)
    assert spans_of(entries) == first
    entries |= changes(entries, second, (), 1)
    assert spans_of(entries) == second
    assert entries[VERSION] == 1
    assert all(is_ours(name) for name in entries)


@given(span_maps(), st.data())
def test_no_single_transaction_can_be_lost_or_changed_unseen(
    spans: dict[PartitionKey, list[Span]], data: st.DataObject
) -> None:
    """But for the version, and an epoch that is not known (-1), which says nothing."""
    entries = changes({}, spans, (), 0)
    name = data.draw(st.sampled_from(sorted(entries.keys() - {VERSION})))
    if entries[name] != -1:
        with pytest.raises(TableError):
            spans_of({other: number for other, number in entries.items() if other != name})
    with pytest.raises(TableError):
        spans_of({**entries, name: entries[name] + 1})
