"""Commits files and ranges of offsets to an Iceberg table, onto exactly the snapshot that was compared.

The spans of the whole table stand in the summary of the snapshot that wrote them, and in a property of the table, both
set by one commit. The summary says what the rows of a snapshot are: after a rollback it is older than the property.
Snapshots of other writers have none, so the nearest ancestor's counts, and that one may have expired. So both must be
there and be equal, or the table is refused until somebody adopts it.

Exactly one attempt: pyiceberg retries a lost commit by itself, onto a snapshot that nobody has compared, and deletes
its manifests when it gives up, though a catalog may report a conflict with a commit of ours that it has taken (the
answer was lost, and the request repeated). So the catalog's refusal is kept from pyiceberg (`_Once`), and our own id is
looked for in the table before anybody is told that nothing was committed. The property `commit.retry.num-retries` is 0
only in our copy of the table, because in the table it would take other writers' retries from them.

Files must have no field ids: pyiceberg adds a mapping from names to ids to the table. A file with other ids than the
table's would be taken, and be read as nulls.
"""

import contextlib
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform, HourTransform

from barnabas_spark.lake.layout import Layout, marked
from barnabas_spark.lake.ranges import CommittedRange, PartitionKey, Purpose, Span
from barnabas_spark.lake.table import ConflictError, DataFile, TableError, TableState, UnknownOutcomeError, check_rows

from .errors import UnreadableError, line_of
from .iceberg_reading import VALUES, check_names, data_file, layout_of, paths_of_all_snapshots, values_text
from .vectors import (
    COMPACTION,
    decode_spans,
    describe_commit,
    encode_spans,
    id_of_commit,
    is_archive_file,
    spans_after,
)

__all__ = ["IcebergFormat"]

SPANS = "barnabas.spans"  # in summaries, and among the properties of the table
COMMIT = "barnabas.commit"  # in summaries
PARTITIONINGS: Mapping[str, DayTransform[Any] | HourTransform[Any] | None] = {
    "": None,
    "day": DayTransform(),
    "hour": HourTransform(),
}
WITH_STATISTICS = {"topic", "topicId", "partition", "offset", "timestamp"}
# What the other formats' options of a store are called in a catalog.
STORE_OPTIONS = {
    "endpoint": "s3.endpoint",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "region": "s3.region",
}
NEW_TABLE = {
    "format-version": "2",
    # A commit adds a small manifest: without merging, each commit would list and each reader open all of them.
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
}


class IcebergFormat:
    """One Iceberg table at `root`, named `identifier` ("namespace.table") in a catalog; the first commit creates it.

    `catalog` are the properties of a pyiceberg catalog (options of a store may be called as in the other formats), or,
    if it has only a `name`, the name of one in pyiceberg's own configuration. Without it, the catalog is an SQLite file
    in `root`, which must be a directory then. `schema` is that of the files; `partition_by` is "", "day" or "hour", of
    their column `timestamp`; without a schema, the table is only read.
    With `adopt`, what the first `load` finds wrong is taken as it is, as that method says; what goes wrong later is
    still refused.
    """

    def __init__(
        self,
        root: str,
        identifier: str,
        schema: pa.Schema | None,
        partition_by: str = "",
        catalog: Mapping[str, str] | None = None,
        adopt: bool = False,
    ) -> None:
        if catalog is None and "://" in root:
            raise TableError(
                f"an Iceberg table in an object store needs a catalog; give it as options of {root}: catalog.type=rest "
                "and catalog.uri=https://..., or catalog.name of one that pyiceberg is configured for"
            )
        self.root = root.rstrip("/") if "://" in root else str(Path(root).absolute())
        self.identifier = identifier
        self._schema = schema
        self._partition_by = partition_by
        self._properties = dict(catalog) if catalog is not None else None
        self._adopt = adopt
        self._adopted: object = None  # what `load` has adopted: a snapshot, and the property beside it
        self._opened: Catalog | None = None

    def load(self) -> TableState:
        """Return the current snapshot, with what it says of offsets.

        Adopting: the nearest summary counts, which belongs to the rows; without one, the property of the table does.

        Raises:
            TableError: it cannot be read, other columns stand in it, or summary and property are not equal.
        """
        table = self._table()
        if table is None:
            return TableState(None, {})
        self._check_columns(table)
        snapshot = table.current_snapshot()
        return TableState(None if snapshot is None else snapshot.snapshot_id, self._spans(table))

    def commit(
        self, state: TableState, files: Sequence[DataFile], ranges: Sequence[CommittedRange], purpose: Purpose
    ) -> None:
        """Add `files` and what `ranges` say in one commit onto exactly `state.version`. `files` may be empty."""
        text = encode_spans(spans_after(state.spans, ranges, purpose))
        commit_id = uuid.uuid4().hex
        summary = {SPANS: text, COMMIT: describe_commit(commit_id, purpose.value, ranges)}

        def fill(transaction: Transaction) -> None:
            transaction.set_properties({SPANS: text})
            if files:
                paths = [f"{self.root}/{file.path}" for file in files]
                # Whether the table has a file already would take all manifests to find out. The ranges say it.
                transaction.add_files(paths, snapshot_properties=summary, check_duplicate_files=False)
            else:
                with transaction.update_snapshot(snapshot_properties=summary).fast_append():
                    pass

        self._commit(state, self._table() or self._create(), fill, commit_id)

    def rewrite(
        self, state: TableState, removed: Sequence[str], added: Sequence[DataFile], *, drops_rows: bool = False
    ) -> None:
        """Put `added` in the place of the live files `removed`, which have the same rows, onto exactly `state.version`.

        The snapshot is an overwrite to readers of changes: pyiceberg cannot write one that says "replace". Ranges stay
        what they are. With `drops_rows`, the new files lack some of the rows.

        Raises:
            TableError: a file is not live, or the numbers of rows do not fit.
            ConflictError, UnknownOutcomeError: as of `commit`.
        """
        table = self._table()
        if table is None:
            raise TableError(f"there is no table {self.identifier}, so no file in it can be replaced")
        live = {self._relative(file.file_path): file for file in self._live(table, state)}
        if missing := sorted(set(removed) - live.keys()):
            raise TableError(f"{self.identifier} has no live file '{missing[0]}', so it cannot be replaced")
        rows, rows_added = sum(live[path].record_count for path in removed), sum(file.rows for file in added)
        check_rows(rows, rows_added, drops_rows=drops_rows)
        commit_id = uuid.uuid4().hex
        text = encode_spans(state.spans)
        summary = {SPANS: text, COMMIT: describe_commit(commit_id, COMPACTION)}

        def fill(transaction: Transaction) -> None:
            transaction.set_properties({SPANS: text})
            with transaction.update_snapshot(snapshot_properties=summary).overwrite() as snapshot:
                for path in removed:
                    snapshot.delete_data_file(live[path])
                for file in added:
                    snapshot.append_data_file(
                        parquet_file_to_data_file(table.io, transaction.table_metadata, f"{self.root}/{file.path}")
                    )

        self._commit(state, table, fill, commit_id)

    def files(self, state: TableState) -> Sequence[str]:
        """Return the paths of the live files of a snapshot, relative to the table, sorted."""
        table = self._table() if state.version is not None else None
        if table is None:
            return []
        return sorted(self._relative(file.file_path) for file in self._live(table, state))

    def data_files(self, state: TableState) -> Sequence[DataFile]:
        """Return the live files with their sizes, rows and partitions, in the order of `files`."""
        table = self._table() if state.version is not None else None
        if table is None:
            return []
        check_names(table)
        found = [data_file(self._relative(file.file_path), file) for file in self._live(table, state)]
        return sorted(found, key=lambda one: one.path)

    def layout_of(self, state: TableState | None = None) -> Layout | None:
        """Return the columns at a snapshot, or those of now; None where there is no table."""
        table = self._table()
        snapshot_id = None if state is None else state.version
        assert snapshot_id is None or isinstance(snapshot_id, int)
        return None if table is None else layout_of(table, snapshot_id)

    def referenced(self, since_ms: int) -> set[str]:
        """Return the files of all snapshots that the table keeps, however old: each of them can be read."""
        table = self._table()
        return set() if table is None else {self._relative(path) for path in paths_of_all_snapshots(table)}

    def evolve(self, state: TableState, layout: Layout) -> None:
        """Give the table more columns, more fields in them, or wider ones, in one commit onto the columns of now.

        A table that is not there is made.

        Raises:
            TableError: pyiceberg does not take them.
            UnknownOutcomeError: it may have gone through: look at the columns.
        """
        assert self._schema is not None, "it was opened to be read"
        table, schema = self._table(), marked(layout.archived_schema, layout.values)
        if table is None and state.version is not None:
            raise ConflictError(f"there is no table {self.identifier} any more, which was at {state.version}")
        if table is None:
            self._schema = schema
            self._create()
            return
        once = _Once(self._catalog())
        try:
            transaction = _copy(table, once).transaction()
            with transaction.update_schema() as update:
                update.union_by_name(schema)
            transaction.set_properties({VALUES: values_text(schema)})
            transaction.commit_transaction()
        except _RefusedError as error:
            raise ConflictError(f"{self.identifier}: another writer was first: {line_of(error)}") from error
        except Exception as error:
            if once.was_tried:
                raise UnknownOutcomeError(
                    f"the columns of {self.identifier} may be new, or not: {line_of(error)}"
                ) from error
            if isinstance(error, OSError):
                raise UnreadableError(f"nothing was committed to {self.identifier}: {line_of(error)}") from error
            raise TableError(f"{self.identifier} does not take these columns: {line_of(error)}") from error
        self._schema = schema

    def close(self) -> None:
        """Let the catalog's connections go. The table can be used again."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _commit(self, state: TableState, table: Table, fill: Any, commit_id: str) -> None:
        current = table.current_snapshot()
        if (None if current is None else current.snapshot_id) != state.version:
            raise ConflictError(f"{self.identifier} is not at snapshot {state.version} any more")
        once = _Once(self._catalog())
        try:
            transaction = _copy(table, once).transaction()
            fill(transaction)
            transaction.commit_transaction()
        except Exception as error:
            if not once.was_tried:
                raise UnreadableError(f"nothing was committed to {self.identifier}: {line_of(error)}") from error
            self._settle(error, commit_id)

    def _settle(self, error: Exception, commit_id: str) -> None:
        """Find out what became of a commit, of which the catalog has raised `error`."""
        try:
            table = self._catalog().load_table(self.identifier)
        except Exception as trouble:  # noqa: BLE001 - raised below, and it must not hide the first error
            raise UnknownOutcomeError(
                f"a commit to {self.identifier} may have gone through, or not: {line_of(error)}; and looking for it"
                f" failed: {line_of(trouble)}"
            ) from error
        summaries = (snapshot.summary for snapshot in reversed(table.snapshots()))
        if any(id_of_commit(summary.get(COMMIT)) == commit_id for summary in summaries if summary is not None):
            return
        if isinstance(error, _RefusedError):
            raise ConflictError(f"{self.identifier}: another writer was first: {line_of(error)}") from error
        raise UnknownOutcomeError(
            f"a commit to {self.identifier} is not there now, but a request may be under way: {line_of(error)}"
        ) from error

    def _catalog(self) -> Catalog:
        if self._opened is None:
            properties = self._properties
            if properties is None:
                Path(self.root).mkdir(parents=True, exist_ok=True)
                properties = {"type": "sql", "uri": f"sqlite:///{self.root}/catalog.db"}
            opened = self._open_catalog(properties.get("name", "barnabas"), _for_pyiceberg(properties))
            weakref.finalize(self, opened.close)
            self._opened = opened
        return self._opened

    def _open_catalog(self, name: str, properties: dict[str, str]) -> Catalog:
        try:
            # Of two who open a new SQL catalog at once, one fails, because the other has just made its tables.
            with contextlib.suppress(Exception):
                return load_catalog(name, **properties)
            return load_catalog(name, **properties)
        except Exception as error:
            raise UnreadableError(f"the catalog of {self.identifier} cannot be opened: {line_of(error)}") from error

    def _table(self) -> Table | None:
        """Return the table as it is now, or None if there is none."""
        if self._properties is None and not Path(self.root, "catalog.db").exists():
            return None
        try:
            table = self._catalog().load_table(self.identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except TableError:
            raise
        except Exception as error:
            raise UnreadableError(f"the Iceberg table {self.identifier} cannot be read: {line_of(error)}") from error
        if table.location().removeprefix("file://").rstrip("/") != self.root.removeprefix("file://"):
            raise TableError(f"the table {self.identifier} is at {table.location()}, and not at {self.root}")
        return table

    def _create(self) -> Table:
        """Create the table, without a snapshot, or return the one that another writer has created meanwhile."""
        catalog = self._catalog()
        try:
            catalog.create_namespace_if_not_exists(Catalog.namespace_from(self.identifier))
        except NamespaceAlreadyExistsError:
            pass
        except Exception as error:
            raise UnreadableError(f"nothing was committed to {self.identifier}: {line_of(error)}") from error
        transform = PARTITIONINGS[self._partition_by]
        assert self._schema is not None, "it was opened to be read"
        properties = {**NEW_TABLE, VALUES: text} if (text := values_text(self._schema)) != "{}" else NEW_TABLE
        try:
            creation = catalog.create_table_transaction(
                self.identifier, self._schema, location=self.root, properties=properties
            )
            if transform is not None:
                with creation.update_spec() as spec:
                    spec.add_field("timestamp", transform, self._partition_by)
            creation.commit_transaction()
        except (TableAlreadyExistsError, CommitFailedException):
            pass
        except Exception as error:
            raise UnreadableError(f"the table {self.identifier} cannot be created: {line_of(error)}") from error
        if (table := self._table()) is None:
            raise UnreadableError(f"the table {self.identifier} was created, and is gone")
        return table

    def _spans(self, table: Table) -> Mapping[PartitionKey, Sequence[Span]]:
        snapshot = table.current_snapshot()
        there = table.properties.get(SPANS)
        said = _nearest_spans(table)
        if there is None and said is None:
            if snapshot is not None:
                self._check_nothing_archived(table, TableState(snapshot.snapshot_id, {}))
            return {}
        if there is not None and there == said:
            return decode_spans(there)
        found = (None if snapshot is None else snapshot.snapshot_id, there)
        if self._adopt and self._adopted is None:
            self._adopted = found
        if self._adopted != found:
            raise TableError(
                f"{self.identifier}: {_why(there, said)}; if the table is as it should be, {_adopting(said)}"
            )
        return decode_spans(said if said is not None else str(there))

    def _live(self, table: Table, state: TableState) -> Iterator[IcebergDataFile]:
        if not isinstance(state.version, int) or table.snapshot_by_id(state.version) is None:
            raise TableError(f"the snapshot {state.version} of {self.identifier} has expired, or never was")
        for task in table.scan(snapshot_id=state.version).plan_files():
            if task.delete_files:
                raise TableError(
                    f"{self.identifier} has delete files: read it with a reader of Iceberg, not by its files"
                )
            yield task.file

    def _relative(self, path: str) -> str:
        bare = path.removeprefix("file://")
        return bare.removeprefix(f"{self.root.removeprefix('file://')}/")

    def _check_nothing_archived(self, table: Table, state: TableState) -> None:
        if found := [path for path in map(self._relative, _paths(table, state)) if is_archive_file(path)]:
            raise TableError(
                f"{self.identifier} has files of an archive ({found[0]}), but nothing says which offsets are in them:"
                f" neither a summary of a snapshot nor the property '{SPANS}'; restore one, or archive to another table"
            )

    def _check_columns(self, table: Table) -> None:
        if self._schema is None:
            return
        there = {field.name: field.type for field in schema_to_pyarrow(table.schema(), include_field_ids=False)}
        for field in self._schema:
            if field.name not in there:
                raise TableError(f"{self.identifier} has no column '{field.name}'; add it, or archive to another table")
            if _small(there[field.name]) != _small(field.type):
                raise TableError(
                    f"the column '{field.name}' of {self.identifier} is {there[field.name]}, and not {field.type}"
                )
        wanted = [self._partition_by] if self._partition_by else []
        found = [str(field.transform) for field in table.spec().fields]
        if found != wanted:
            raise TableError(
                f"{self.identifier} is partitioned by {found or 'nothing'}, and not by {wanted or 'nothing'}"
            )


class _RefusedError(Exception):
    """The catalog's refusal, under a name at which pyiceberg neither retries nor deletes."""


class _Once:
    """A catalog that commits once."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.was_tried = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, *args: Any, **named: Any) -> Any:
        assert not self.was_tried, "pyiceberg retries"
        self.was_tried = True
        try:
            return self._catalog.commit_table(*args, **named)
        except CommitFailedException as error:
            raise _RefusedError(str(error)) from error


def _copy(table: Table, once: _Once) -> Table:
    """Return our copy of a table, with properties that are for this commit only and are not written."""
    # Files of an archive have statistics of few columns, and pyiceberg warns of each other one in each file.
    bare = [name for name in table.schema().column_names if name not in WITH_STATISTICS]
    properties = {
        **{f"write.metadata.metrics.column.{name}": "none" for name in bare},
        **table.metadata.properties,
        "commit.retry.num-retries": "0",
    }
    metadata = table.metadata.model_copy(update={"properties": properties})
    return Table(table.name(), metadata, table.metadata_location, table.io, cast("Catalog", once))


def _nearest_spans(table: Table) -> str | None:
    """Return what the newest summary among the current snapshot and its ancestors says, or None."""
    by_id = {one.snapshot_id: one for one in table.metadata.snapshots}
    snapshot: Snapshot | None = table.current_snapshot()
    while snapshot is not None:
        said = None if snapshot.summary is None else snapshot.summary.get(SPANS)
        if said is not None:
            return said
        snapshot = by_id.get(snapshot.parent_snapshot_id or 0)
    return None


def _why(there: str | None, said: str | None) -> str:
    if there is None:
        return f"the property '{SPANS}' was removed, or the table was put back to a time before it had one"
    if said is None:
        return (
            f"no snapshot from the current one back says which offsets are in it, though the property '{SPANS}' does:"
            " snapshots have expired, or the table was rolled back to a time before it had any"
        )
    return (
        f"the current snapshot and the property '{SPANS}' say different offsets: the table was rolled back or restored,"
        " or the property was changed"
    )


def _adopting(said: str | None) -> str:
    if said is None:
        return "run once with --adopt, which believes the property"
    return "run once with --adopt, which goes on from the offsets of the current snapshot"


def _paths(table: Table, state: TableState) -> Iterator[str]:
    assert isinstance(state.version, int)
    return (task.file.file_path for task in table.scan(snapshot_id=state.version).plan_files())


def _small(kind: Any) -> str:
    """Return a type without the sizes of its values in memory and the names of lists' elements, which say nothing."""
    return str(kind).replace("large_", "").replace("<item: ", "<element: ")


def _for_pyiceberg(properties: Mapping[str, str]) -> dict[str, str]:
    return {STORE_OPTIONS.get(name, name): value for name, value in properties.items() if name != "name"}
