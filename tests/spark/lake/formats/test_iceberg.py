"""An Iceberg table says of offsets in two places what must be equal; expiry, rollback and editing are found out."""

import datetime as dt
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table
from spark.lake.formats.archives import SCHEMA, IcebergArchive, key_of, range_of, rows_of, write_rows

from barnabas_spark.lake.formats.iceberg import IcebergFormat
from barnabas_spark.lake.ranges import Purpose
from barnabas_spark.lake.table import ConflictError, DataFile, TableError, UnknownOutcomeError


@pytest.fixture
def archive(tmp_path: Path) -> IcebergArchive:
    return IcebergArchive(tmp_path)


@pytest.fixture
def table(archive: IcebergArchive) -> Iterator[Table]:
    """The table of an archive that has committed twice."""
    archive.add((0, 0, 5))
    archive.add((0, 5, 8), (1, 0, 3))
    table = archive.table()
    yield table
    table.catalog.close()


def snapshots(table: Table) -> list[int]:
    return [one.snapshot_id for one in table.refresh().snapshots()]


def found(archive: IcebergArchive, partition: int = 0, *, adopt: bool = False) -> list[tuple[int, int]]:
    spans = archive.open(adopt=adopt).load().spans.get(key_of(partition), ())
    return [(span.start_offset, span.end_offset) for span in spans]


def test_spans_stand_in_the_summary_and_in_the_property_and_the_commit_beside_them(table: Table) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    said = str(snapshot.summary["barnabas.spans"])
    assert said == table.properties["barnabas.spans"]
    assert json.loads(said) == {"kAfKa-1": {key_of(0).topic_id: {"0": [[0, 8, 3]], "1": [[0, 3, 3]]}}}
    ranges = json.loads(str(snapshot.summary["barnabas.commit"]))["barnabas"]["ranges"]
    assert [(one["partition"], one["startOffset"], one["endOffset"], one["rows"]) for one in ranges] == [
        (0, 5, 8, 3),
        (1, 0, 3, 3),
    ]


def test_spans_are_found_behind_the_snapshots_of_others(archive: IcebergArchive, table: Table) -> None:
    archive.append_by_another()
    archive.append_by_another()
    assert found(archive) == [(0, 8)]


def test_a_table_of_somebody_else_is_begun_afresh(archive: IcebergArchive, table: Table) -> None:
    table.catalog.drop_table("lake.orders")
    theirs = table.catalog.create_table("lake.orders", SCHEMA, location=str(archive.root))
    write_rows(archive.root / "theirs.parquet", -1, 0, 1)
    theirs.append(pq.read_table(archive.root / "theirs.parquet"))
    assert archive.open().load().spans == {}
    archive.add((0, 0, 5))
    assert archive.rows() == rows_of((0, 0, 5))


# Expiry.


def test_expiry_of_older_snapshots_leaves_the_spans(archive: IcebergArchive, table: Table) -> None:
    table.maintenance.expire_snapshots().by_id(snapshots(table)[0]).commit()
    assert found(archive) == [(0, 8)]
    archive.add((0, 8, 9))
    assert archive.rows() == rows_of((0, 0, 9), (1, 0, 3))


def test_expiry_of_the_snapshot_that_said_it_is_refused_until_it_is_adopted(
    archive: IcebergArchive, table: Table
) -> None:
    archive.append_by_another()
    table.refresh()
    table.maintenance.expire_snapshots().by_ids(snapshots(table)[:2]).commit()
    with pytest.raises(TableError, match=r"snapshots have expired, .* --adopt, which believes the property"):
        archive.open().load()
    assert found(archive, adopt=True) == [(0, 8)]
    archive.add((0, 8, 9), adopt=True)
    assert found(archive) == [(0, 9)]
    assert archive.rows() == rows_of((0, 0, 9), (1, 0, 3))


def test_files_of_a_snapshot_that_has_expired_are_an_error(archive: IcebergArchive, table: Table) -> None:
    reader = archive.open()
    state = reader.load()
    archive.add((0, 8, 9))
    table.refresh()
    table.maintenance.expire_snapshots().by_ids(snapshots(table)[:2]).commit()
    with pytest.raises(TableError, match="has expired"):
        reader.files(state)


# Rollback.


def test_a_rollback_is_refused_until_it_is_adopted(archive: IcebergArchive, table: Table) -> None:
    table.manage_snapshots().rollback_to_snapshot(snapshots(table)[0]).commit()
    with pytest.raises(TableError, match=r"was rolled back or restored, .* goes on from the offsets of the current"):
        archive.open().load()
    assert found(archive, adopt=True) == [(0, 5)]
    archive.add((0, 5, 7), adopt=True)
    assert archive.rows() == rows_of((0, 0, 7))
    assert (found(archive), found(archive, 1)) == ([(0, 7)], [])


def test_a_rollback_is_found_behind_the_snapshots_of_others(archive: IcebergArchive, table: Table) -> None:
    table.manage_snapshots().rollback_to_snapshot(snapshots(table)[0]).commit()
    archive.append_by_another()
    with pytest.raises(TableError, match="rolled back"):
        archive.open().load()


def test_a_rollback_to_before_the_first_range_is_refused(archive: IcebergArchive, table: Table) -> None:
    table.catalog.drop_table("lake.orders")
    theirs = table.catalog.create_table("lake.orders", SCHEMA, location=str(archive.root))
    write_rows(archive.root / "theirs.parquet", -1, 0, 1)
    theirs.append(pq.read_table(archive.root / "theirs.parquet"))
    archive.add((0, 0, 5))
    theirs.refresh()
    theirs.manage_snapshots().rollback_to_snapshot(snapshots(theirs)[0]).commit()
    with pytest.raises(TableError, match="rolled back to a time before it had any"):
        archive.open().load()


def test_a_rollback_between_looking_and_committing_is_a_conflict(archive: IcebergArchive, table: Table) -> None:
    archiver = archive.open()
    state = archiver.load()
    table.manage_snapshots().rollback_to_snapshot(snapshots(table)[0]).commit()
    with pytest.raises(ConflictError):
        archiver.commit(state, [archive.write(0, 8, 9)], [range_of(0, 8, 9)], Purpose.ARCHIVE)


def test_a_rollback_of_what_others_appended_is_none_of_ours(archive: IcebergArchive, table: Table) -> None:
    archive.append_by_another()
    table.refresh()
    table.manage_snapshots().rollback_to_snapshot(snapshots(table)[1]).commit()
    archive.add((0, 8, 9))
    assert archive.rows() == rows_of((0, 0, 9), (1, 0, 3))


def test_only_what_was_wrong_at_the_start_is_adopted(archive: IcebergArchive, table: Table) -> None:
    first, _ = snapshots(table)
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    archiver = archive.open(adopt=True)
    assert archiver.load().version == first
    assert archiver.load().version == first
    table.transaction().set_properties({"barnabas.spans": "{}"}).commit_transaction()
    with pytest.raises(TableError, match="say different offsets"):
        archiver.load()


# Properties.


def test_a_property_that_was_removed_or_changed_is_refused(archive: IcebergArchive, table: Table) -> None:
    with table.transaction() as change:
        change.remove_properties("barnabas.spans")
    with pytest.raises(TableError, match=r"the property 'barnabas.spans' was removed"):
        archive.open().load()
    assert found(archive, adopt=True) == [(0, 8)]
    with table.transaction() as change:
        change.set_properties({"barnabas.spans": "{}"})
    with pytest.raises(TableError, match="the property was changed"):
        archive.open().load()


def test_a_table_that_has_lost_both_is_refused_where_files_of_an_archive_are(
    archive: IcebergArchive, table: Table
) -> None:
    archive.append_by_another()
    table.refresh()
    table.maintenance.expire_snapshots().by_ids(snapshots(table)[:2]).commit()
    with table.transaction() as change:
        change.remove_properties("barnabas.spans")
    with pytest.raises(TableError, match="has files of an archive"):
        archive.open().load()


def test_what_is_no_span_in_the_property_is_an_error_with_the_text(archive: IcebergArchive, table: Table) -> None:
    archive.append_by_another()
    table.refresh()
    table.maintenance.expire_snapshots().by_ids(snapshots(table)[:2]).commit()
    with table.transaction() as change:
        change.set_properties({"barnabas.spans": "all of them"})
    with pytest.raises(TableError, match=r"cannot be read: 'all of them'"):
        archive.open(adopt=True).load()


# One attempt only.


class Refusing:
    """Fails the next commit of a catalog: before it, or after it has gone through."""

    def __init__(self, catalog: Catalog, error: Exception, *, after: bool) -> None:
        self._catalog, self._error, self._after = catalog, error, after
        self.calls, self.retries = 0, ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, *args: Any) -> Any:
        self.calls += 1
        self.retries = args[0].properties.get("commit.retry.num-retries")
        if self._after:
            self._catalog.commit_table(*args)
        raise self._error


def struck(archive: IcebergArchive, error: Exception, *, after: bool) -> tuple[IcebergFormat, Refusing]:
    table = archive.open()
    refusing = Refusing(table._catalog(), error, after=after)
    table._opened = refusing  # type: ignore[assignment]
    return table, refusing


def test_a_refused_commit_is_not_tried_again_also_where_the_table_asks_for_it(
    archive: IcebergArchive, table: Table
) -> None:
    with table.transaction() as change:
        change.set_properties({"commit.retry.num-retries": "9", "commit.retry.min-wait-ms": "1"})
    archiver, refusing = struck(archive, CommitFailedException("branch main has changed"), after=False)
    with pytest.raises(ConflictError):
        archiver.commit(archiver.load(), [archive.write(0, 8, 9)], [range_of(0, 8, 9)], Purpose.ARCHIVE)
    assert (refusing.calls, refusing.retries) == (1, "0")


def test_a_commit_that_was_refused_because_it_went_through_has_gone_through(
    archive: IcebergArchive, table: Table
) -> None:
    """A client that repeats a request whose answer was lost meets its own commit, and the manifests must stay."""
    archiver, _ = struck(archive, CommitFailedException("requirement failed"), after=True)
    archiver.commit(archiver.load(), [archive.write(0, 8, 9)], [range_of(0, 8, 9)], Purpose.ARCHIVE)
    assert archive.rows() == rows_of((0, 0, 9), (1, 0, 3))


def test_a_commit_that_failed_after_its_success_is_found(archive: IcebergArchive, table: Table) -> None:
    archiver, _ = struck(archive, CommitStateUnknownException("503"), after=True)
    archiver.commit(archiver.load(), [archive.write(0, 8, 9)], [range_of(0, 8, 9)], Purpose.ARCHIVE)
    assert archive.rows() == rows_of((0, 0, 9), (1, 0, 3))


@pytest.mark.parametrize("error", [CommitStateUnknownException("503"), OSError("gone"), TimeoutError()], ids=str)
def test_a_commit_that_cannot_be_found_may_still_come(archive: IcebergArchive, table: Table, error: Exception) -> None:
    archiver, _ = struck(archive, error, after=False)
    with pytest.raises(UnknownOutcomeError, match="may be under way"):
        archiver.commit(archiver.load(), [archive.write(0, 8, 9)], [range_of(0, 8, 9)], Purpose.ARCHIVE)


def test_a_file_that_is_not_there_is_no_unknown_outcome(archive: IcebergArchive, table: Table) -> None:
    archiver = archive.open()
    gone = DataFile("data/barnabas-gone.parquet", 9, 1)
    with pytest.raises(TableError, match="nothing was committed") as caught:
        archiver.commit(archiver.load(), [gone], [range_of(0, 8, 9)], Purpose.ARCHIVE)
    assert not isinstance(caught.value, UnknownOutcomeError | ConflictError)
    assert found(archive) == [(0, 8)]


def test_other_writers_keep_their_retries_and_their_statistics(archive: IcebergArchive, table: Table) -> None:
    assert not [name for name in table.properties if name.startswith(("commit.retry", "write.metadata.metrics"))]


# Files, and tables that do not fit.


def test_files_have_no_field_ids_and_are_found_by_the_names_of_columns(archive: IcebergArchive, table: Table) -> None:
    (path, *_) = archive.live()
    assert not [field for field in pq.read_schema(path) if field.metadata]
    mapped = json.loads(table.properties["schema.name-mapping.default"])
    assert [one["names"] for one in mapped] == [[name] for name in SCHEMA.names]
    rows = table.scan().to_arrow().sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert rows.column("value").to_pylist() == [row[2] for row in rows_of((0, 0, 8), (1, 0, 3))]
    assert rows.column("headers").to_pylist()[0] == [{"key": "h", "value": None}]


def test_files_without_statistics_of_most_columns_are_added_without_a_word(
    archive: IcebergArchive, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    path = f"data/barnabas-{uuid.uuid4().hex}.parquet"
    write_rows(archive.root / "full.parquet", 0, 8, 9)
    known = ["partition", "offset", "timestamp"]
    pq.write_table(pq.read_table(archive.root / "full.parquet"), archive.root / path, write_statistics=known)
    archiver = archive.open()
    size = (archive.root / path).stat().st_size
    archiver.commit(archiver.load(), [DataFile(path, size, 1)], [range_of(0, 8, 9)], Purpose.ARCHIVE)
    assert not caplog.records
    assert len(list(table.refresh().scan("offset = 8").plan_files())) == 1


@pytest.mark.parametrize(("partition_by", "length"), [("day", dt.timedelta(days=1)), ("hour", dt.timedelta(hours=1))])
def test_files_of_one_day_or_hour_are_partitioned_by_it(
    archive: IcebergArchive, partition_by: str, length: dt.timedelta
) -> None:
    table = IcebergFormat(str(archive.root), "lake.orders", SCHEMA, partition_by)
    files = []
    for number in range(3):
        path = f"data/barnabas-{uuid.uuid4().hex}.parquet"
        moment = dt.datetime(2026, 11, 27, 23, 59, tzinfo=dt.UTC) + number * length
        size = write_rows(archive.root / path, 0, number, number + 1, moment)
        files.append(DataFile(path, size, 1, {"date": moment.date().isoformat()}))
    table.commit(table.load(), files, [range_of(0, 0, 3)], Purpose.ARCHIVE)
    theirs = archive.table()
    day = theirs.scan("timestamp < '2026-11-28T00:00:00+00:00'").plan_files()
    assert [task.file.file_path for task in day] == [str(archive.root / files[0].path)]
    assert archive.rows() == rows_of((0, 0, 3))
    theirs.catalog.close()
    with pytest.raises(TableError, match=rf"is partitioned by \['{partition_by}'\], and not by nothing"):
        archive.open().load()


def test_columns_that_the_table_lacks_or_has_with_another_type_are_refused(
    archive: IcebergArchive, table: Table
) -> None:
    more = SCHEMA.append(pa.field("more", pa.int32()))
    with pytest.raises(TableError, match="has no column 'more'"):
        IcebergFormat(str(archive.root), "lake.orders", more).load()
    other = SCHEMA.set(0, pa.field("partition", pa.int64()))
    with pytest.raises(TableError, match=r"'partition' of lake.orders is int32, and not int64"):
        IcebergFormat(str(archive.root), "lake.orders", other).load()


def test_a_table_that_is_elsewhere_is_refused(archive: IcebergArchive, table: Table, tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{archive.root}/catalog.db"}
    with pytest.raises(TableError, match=f"is at {archive.root}, and not at /elsewhere"):
        IcebergFormat("/elsewhere", "lake.orders", SCHEMA, catalog=catalog).load()


def test_an_object_store_needs_a_catalog() -> None:
    with pytest.raises(TableError, match="needs a catalog"):
        IcebergFormat("s3://bucket/orders", "lake.orders", SCHEMA)


def test_a_catalog_that_cannot_be_opened_is_an_error_with_the_tables_name(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/nowhere/catalog.db"}
    with pytest.raises(TableError, match=r"the catalog of lake.orders cannot be opened"):
        IcebergFormat(str(tmp_path), "lake.orders", SCHEMA, catalog=catalog).load()
