"""Commits files and ranges of offsets to a Delta table, onto exactly the version that was compared.

deltalake writes version N+1 by creating its object, which one writer only can do. It is asked not to try again
(`max_commit_retries=0`): on its own it would go on to N+2, and check only what Delta calls a conflict. Two archivers of
different partitions are none, and a lower offset is none either.

Ranges stand in the table twice: as application transactions (`delta_entries`), which last, and as text beside the
commit (`userMetadata`, which `DESCRIBE HISTORY` shows), which is for people. The text has an id, too. Clients of stores
repeat a request whose answer was lost, and then report a conflict with what they themselves have written: so the commit
that is in the way is looked at before anybody is told that nothing was committed.

A RESTORE takes rows away and leaves the transactions. Since the newest one of ours says which version wrote it, the
commits after that version are looked through for one.
"""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaProtocolError, SchemaMismatchError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
from pyarrow.fs import FileSystem, PyFileSystem

from barnabas_spark.lake.layout import Layout, marked
from barnabas_spark.lake.ranges import CommittedRange, PartitionKey, Purpose, Span
from barnabas_spark.lake.table import ConflictError, DataFile, TableError, TableState, UnknownOutcomeError, check_rows

from .delta_entries import VERSION, changes, spans_of
from .delta_log import Restored, commit_info, entries_at, removed_since, restore_since
from .delta_options import delta_options
from .delta_reading import NO_PARTITION, check_plain, data_files, layout_of, live
from .delta_rules import broken_rule
from .errors import UnreadableError, line_of
from .vectors import COMPACTION, EVOLUTION, describe_commit, id_of_commit, is_archive_file, spans_after

__all__ = ["DeltaFormat"]

NEVER_TRIED = (DeltaProtocolError, SchemaMismatchError, TypeError, ValueError)


class DeltaFormat:
    """One Delta table at `root`: a path, or a URL that deltalake knows. The first commit creates it if it is absent.

    `schema` and `partition_by` are those of the files; without a schema, the table is only read.
    With `adopt`, what the first `load` finds wrong is taken as it is, as that method says; what goes wrong later is
    still refused.
    """

    def __init__(
        self,
        root: str,
        schema: pa.Schema | None,
        partition_by: Sequence[str] = (),
        storage_options: Mapping[str, str] | None = None,
        adopt: bool = False,
    ) -> None:
        self.root = root
        self._schema = None if schema is None else Schema.from_arrow(schema)
        self._partition_by = list(partition_by)
        self._options = delta_options(storage_options or {}) if "://" in root else dict(storage_options or {})
        self._adopt = adopt
        self._adopted: int | None = None  # the version up to which RESTOREs were adopted
        self._entries: tuple[int, dict[str, int]] | None = None  # of the version that was loaded last
        self._table_id = ""
        self._checked = -1  # up to this version there is no RESTORE that nobody has spoken of

    def load(self) -> TableState:
        """Return the newest version, with what it says of offsets.

        Adopting: after a RESTORE, the table has the ranges that it had at the version that was restored.

        Raises:
            TableError: it cannot be read, other columns stand in it, its ranges contradict one another or were lost, or
                a RESTORE since the last commit of ranges took some away.
        """
        try:
            table = self._open(None)
            if table is None:
                return TableState(None, {})
            version = table.version()
            if self._table_id != (table_id := str(table.metadata().id)):
                self._table_id, self._entries, self._checked = table_id, None, -1
            entries = self._entries_at(version)
            spans: Mapping[PartitionKey, Sequence[Span]] = spans_of(entries)
            restored = self._restored(entries, version)
            if restored is not None:
                spans = self._spans_after_restore(spans, entries[VERSION], version, restored)
            elif not entries:
                self._check_nothing_archived(table)
        except OSError as error:
            raise UnreadableError(f"the Delta table {self.root} cannot be read: {line_of(error)}") from error
        self._check_columns(table)
        self._entries = version, entries
        return TableState(version, spans)

    def commit(
        self, state: TableState, files: Sequence[DataFile], ranges: Sequence[CommittedRange], purpose: Purpose
    ) -> None:
        """Add `files` and what `ranges` say in one commit onto exactly `state.version`. `files` may be empty."""
        commit_id = uuid.uuid4().hex
        version = _version(state)
        spans = spans_after(state.spans, ranges, purpose)
        try:
            # A table that was not there is to be created, whatever is there now.
            entries = {} if version is None else self._entries_at(version)
            table = None if version is None else self._at(version)
        except OSError as error:
            raise UnreadableError(f"nothing was committed: {self.root} cannot be read: {line_of(error)}") from error
        new = 0 if version is None else version + 1
        properties = CommitProperties(
            custom_metadata={"userMetadata": describe_commit(commit_id, purpose.value, ranges)},
            max_commit_retries=0,
            app_transactions=[
                Transaction(name, number)
                for name, number in changes(entries, spans, [one.key for one in ranges], new).items()
            ],
        )
        self._write(table, new, [_add(file, is_change=True) for file in files], properties, commit_id)

    def rewrite(
        self, state: TableState, removed: Sequence[str], added: Sequence[DataFile], *, drops_rows: bool = False
    ) -> None:
        """Put `added` in the place of the live files `removed`, which have the same rows, onto exactly `state.version`.

        Readers of changes see none (`dataChange` is false). Ranges stay what they are. With `drops_rows`, the new files
        lack some of the rows, and `dataChange` is true.

        Raises:
            TableError: a file is not live, or the numbers of rows do not fit.
            ConflictError, UnknownOutcomeError: as of `commit`.
        """
        version = _version(state)
        if version is None:
            raise TableError(f"there was no table at {self.root}, so no file in it can be replaced")
        table = self._at(version)
        there = {action["path"]: action for action in live(table)}
        if missing := sorted(set(removed) - there.keys()):
            raise TableError(f"{self.root} has no live file '{missing[0]}', so it cannot be replaced")
        rows, rows_added = sum(there[path]["num_records"] or 0 for path in removed), sum(file.rows for file in added)
        check_rows(rows, rows_added, drops_rows=drops_rows)
        commit_id = uuid.uuid4().hex
        properties = CommitProperties(
            custom_metadata={"userMetadata": describe_commit(commit_id, COMPACTION)}, max_commit_retries=0
        )
        actions: list[AddAction | RemoveAction] = [
            *(_remove(there[path], table.metadata().partition_columns, drops_rows) for path in removed),
            *(_add(file, drops_rows) for file in added),
        ]
        self._write(table, version + 1, actions, properties, commit_id)

    def files(self, state: TableState) -> Sequence[str]:
        """Return the paths of the live files of a version, relative to the table, sorted."""
        version = _version(state)
        if version is None:
            return []
        table = self._at(version)
        check_plain(table, self.root)
        return sorted(action["path"] for action in live(table))

    def data_files(self, state: TableState) -> Sequence[DataFile]:
        """Return the live files with their sizes, rows and partitions, in the order of `files`."""
        version = _version(state)
        if version is None:
            return []
        table = self._at(version)
        check_plain(table, self.root)
        return data_files(table)

    def layout_of(self, state: TableState | None = None) -> Layout | None:
        """Return the columns at a version, or at the newest one; None where there is no table."""
        version = None if state is None else _version(state)
        table = self._open(None) if version is None else self._at(version)
        return None if table is None else layout_of(table)

    def referenced(self, since_ms: int) -> set[str]:
        """Return the files that the newest version has, and those that any version had since a time."""
        table = self._open(None)
        if table is None:
            return set()
        return {action["path"] for action in live(table)} | removed_since(self._log(), table.version(), since_ms)

    def evolve(self, state: TableState, layout: Layout) -> None:
        """Give the table more columns, or fields in those that it has, in one commit onto exactly `state.version`.

        A table that is not there is made.

        Raises:
            TableError: a column is to be wider.
            ConflictError, UnknownOutcomeError: as of `commit`.
        """
        version = _version(state)
        archived = layout._replace(schema=layout.archived_schema)
        schema = Schema.from_arrow(marked(archived.table_schema, layout.values))
        names = {name for name, _ in layout.values}
        properties = CommitProperties(
            custom_metadata={"userMetadata": describe_commit(commit_id := uuid.uuid4().hex, EVOLUTION)},
            max_commit_retries=0,
        )
        if version is None:
            self._schema = schema
            self._write(None, 0, [], properties, commit_id)
            return
        table = self._at(version)
        try:
            fields = [field for field in schema.fields if field.name in names]
            table.alter.add_columns(fields, commit_properties=properties)
        except Exception as error:
            if isinstance(error, SchemaMismatchError):
                raise TableError(
                    f"{self.root} does not take these columns: {line_of(error)}; a Delta table can have more columns,"
                    " but deltalake cannot make one wider: archive to another place"
                ) from error
            self._settle(error, version + 1, commit_id)
        self._schema = schema

    def _open(self, version: int | None) -> DeltaTable | None:
        """Return the table at a version, or the newest one, or None where there is no table."""
        try:
            return DeltaTable(self.root, version=version, storage_options=self._options)
        except TableNotFoundError:
            return None
        except Exception as error:
            at = "" if version is None else f" at version {version}"
            raise UnreadableError(f"the Delta table {self.root}{at} cannot be opened: {line_of(error)}") from error

    def _at(self, version: int) -> DeltaTable:
        """Return the table at a version that was loaded; a new table in its place has other versions."""
        table = self._open(version)
        if table is None or (self._table_id and self._table_id != str(table.metadata().id)):
            raise ConflictError(f"{self.root} was deleted, or replaced by another table, after it was looked at")
        return table

    def _log(self) -> FileSystem:
        return PyFileSystem(DeltaStorageHandler(self.root, self._options))

    def _entries_at(self, version: int) -> dict[str, int]:
        if self._entries is not None and self._entries[0] == version:
            return self._entries[1]
        return entries_at(self._log(), version, self._entries)

    def _write(
        self,
        table: DeltaTable | None,
        version: int,
        actions: list[AddAction | RemoveAction],
        properties: CommitProperties,
        commit_id: str,
    ) -> None:
        try:
            if table is None:
                assert self._schema is not None, "it was opened to be read"
                create_table_with_add_actions(
                    self.root,
                    self._schema,
                    [action for action in actions if isinstance(action, AddAction)],
                    mode="error",
                    partition_by=self._partition_by,
                    storage_options=self._options,
                    commit_properties=properties,
                )
            else:
                table.create_write_transaction(
                    actions,
                    mode="append",
                    schema=table.schema(),
                    partition_by=table.metadata().partition_columns,
                    commit_properties=properties,
                )
        except Exception as error:  # noqa: BLE001 - whatever it was, what became of the commit must be found out
            self._settle(error, version, commit_id)

    def _settle(self, error: Exception, version: int, commit_id: str) -> None:
        """Find out what became of the commit of `version`, of which deltalake has raised `error`."""
        try:
            info = commit_info(self._log(), version)
        except Exception as trouble:  # noqa: BLE001 - raised below, and it must not hide the first error
            raise UnknownOutcomeError(
                f"version {version} of {self.root} may have been committed, or not: {line_of(error)}; and looking for"
                f" it failed: {line_of(trouble)}"
            ) from error
        if info is None and isinstance(error, NEVER_TRIED):
            raise TableError(f"{self.root} does not take the commit: {line_of(error)}") from error
        if info is None:
            raise UnknownOutcomeError(
                f"version {version} of {self.root} is not there now, but a request may be under way: {line_of(error)}"
            ) from error
        if id_of_commit(info.get("userMetadata")) != commit_id:
            raise ConflictError(f"{self.root}: another writer has committed version {version}") from error

    def _restored(self, entries: Mapping[str, int], version: int) -> Restored | None:
        archived = entries.get(VERSION)
        if archived is None:
            return None
        if archived > version:
            raise TableError(
                f"{self.root} is at version {version}, but its offsets were committed in version {archived}: its log"
                " was cut or copied in part; bring it back, or archive to another place"
            )
        if (restored := restore_since(self._log(), max(archived, self._checked), version)) is None:
            self._checked = version
        return restored

    def _spans_after_restore(
        self, spans: Mapping[PartitionKey, Sequence[Span]], archived: int, version: int, restored: Restored
    ) -> Mapping[PartitionKey, Sequence[Span]]:
        """Return the spans whose rows are there after a RESTORE: `spans`, or others if those may be adopted."""
        if self._adopt and self._adopted is None:
            self._adopted = version
        is_adopted = self._adopted is not None and restored.version <= self._adopted
        try:
            found = self._restored_spans(restored)
        except TableError as error:
            if is_adopted:
                raise
            raise TableError(f"{_refusal(self.root, restored, archived)} ({error})") from error
        if found == spans:
            self._checked = version  # It was undone, or it took away nothing of the archive's.
        elif not is_adopted:
            raise TableError(_refusal(self.root, restored, archived))
        return spans if found is None else found

    def _restored_spans(self, restored: Restored) -> Mapping[PartitionKey, Sequence[Span]] | None:
        """Return the spans of the version that was restored, which may be a restored one itself. None: nobody knows."""
        if restored.target is None:
            return None
        target = self._target(restored.target)
        entries = entries_at(self._log(), target)
        again = restore_since(self._log(), entries[VERSION], target) if VERSION in entries else None
        return spans_of(entries) if again is None else self._restored_spans(again)

    def _target(self, noted: Mapping[str, Any]) -> int:
        if noted.get("version") is not None:
            return int(noted["version"])
        moment = noted.get("datetime") or noted.get("timestamp")
        table = self._open(None)
        if moment is None or table is None:
            raise TableError(f"{self.root}: the RESTORE does not say to which version; restore it to one by number")
        if str(moment).isdigit():
            moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(moment) / 1000))
        table.load_as_version(str(moment))
        return table.version()

    def _check_nothing_archived(self, table: DeltaTable) -> None:
        if found := [action["path"] for action in live(table) if is_archive_file(action["path"])]:
            raise TableError(
                f"{self.root} has files of an archive ({found[0]}), but nothing says which offsets are in them: the"
                " application transactions 'barnabas...' were lost; restore them with the table, or archive to another"
                " place"
            )

    def _check_columns(self, table: DeltaTable) -> None:
        metadata = table.metadata()
        if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
            raise TableError(f"{self.root} maps its columns to other names; files cannot be added to it as they are")
        if self._schema is None:
            return
        there = {field.name: json.loads(field.to_json())["type"] for field in table.schema().fields}
        for field in self._schema.fields:
            wanted = json.loads(field.to_json())["type"]
            if field.name not in there:
                raise TableError(f"{self.root} has no column '{field.name}'; add it, or archive to another place")
            if there[field.name] != wanted:
                raise TableError(f"the column '{field.name}' of {self.root} is {there[field.name]}, and not {wanted}")
        if rule := broken_rule(table, [field.name for field in self._schema.fields]):
            raise TableError(f"{self.root} {rule}; archive to another place")
        if list(metadata.partition_columns) != self._partition_by:
            raise TableError(
                f"{self.root} is partitioned by {list(metadata.partition_columns) or 'nothing'}, and not by"
                f" {self._partition_by or 'nothing'}"
            )


def _version(state: TableState) -> int | None:
    assert state.version is None or isinstance(state.version, int)
    return state.version


def _add(file: DataFile, is_change: bool) -> AddAction:
    values = {name: None if value in NO_PARTITION else value for name, value in file.partition_values.items()}
    statistics = json.dumps({"numRecords": file.rows})
    return AddAction(file.path, file.size_bytes, values, time.time_ns() // 1_000_000, is_change, statistics)


def _remove(live: Mapping[str, Any], partition_columns: Sequence[str], is_change: bool) -> RemoveAction:
    found = live["partition"] if partition_columns else {}
    values = {name: None if found[name] is None else str(found[name]) for name in partition_columns}
    return RemoveAction(live["path"], is_change, time.time_ns() // 1_000_000, live["size_bytes"], values)


def _refusal(root: str, restored: Restored, archived: int) -> str:
    if restored.target is None:
        return (
            f"the log of {root} no longer has the commit of version {restored.version}, so it cannot be known whether"
            f" the table was restored since offsets were committed (version {archived}); if it was not, run once with"
            " --adopt"
        )
    return (
        f"{root} was restored (version {restored.version}) after offsets were committed (version {archived}): rows may"
        " be gone that it says it has; undo the RESTORE, or run once with --adopt, which goes on from what was restored"
    )
