"""Says which columns and files an Iceberg table has, as pyiceberg shows them."""

import json
from collections.abc import Mapping
from typing import Any

from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile as IcebergDataFile
from pyiceberg.table import Table

from barnabas_spark.lake.layout import FIELD, Layout
from barnabas_spark.lake.schemas import plain_schema
from barnabas_spark.lake.table import DataFile, TableError

__all__ = ["VALUES", "check_names", "data_file", "layout_of", "paths_of_all_snapshots", "values_text"]

VALUES = "barnabas.values"  # the property that says which columns are fields of the value


def values_text(schema: Any) -> str:
    """Return the text of that property for an Arrow schema, whose columns say it in their metadata."""
    marked = {
        one.name: one.metadata[FIELD.encode()].decode() for one in schema if FIELD.encode() in (one.metadata or {})
    }
    return json.dumps(marked, separators=(",", ":"))


def layout_of(table: Table, snapshot_id: int | None) -> Layout:
    """Return the columns at a snapshot; those of now at the current one.

    Raises:
        TableError: it is partitioned in a way that archives do not know.
    """
    snapshot = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    schema = table.schema()
    if snapshot is not None and snapshot != table.current_snapshot() and snapshot.schema_id is not None:
        schema = table.schemas()[snapshot.schema_id]
    columns = plain_schema(schema_to_pyarrow(schema, include_field_ids=False))
    fields: Mapping[str, str] = json.loads(table.properties.get(VALUES, "{}"))
    values = tuple((name, fields[name]) for name in columns.names if name in fields)
    transforms = [str(field.transform) for field in table.spec().fields]
    if len(transforms) > 1 or not {*transforms} <= {"day", "hour"}:
        raise TableError(f"the table is partitioned by {', '.join(transforms)}; only day and hour are known")
    return Layout(columns, "".join(transforms), values, is_hidden=True)


def check_names(table: Table) -> None:
    """Check that a column of a file is the table's column of that name.

    Raises:
        TableError: columns were renamed, or dropped and added again.
    """
    ids: dict[str, int] = {}
    names: dict[int, str] = {}
    for schema in table.schemas().values():
        for name in schema.column_names:
            field_id = schema.find_field(name).field_id
            if ids.setdefault(name, field_id) != field_id or names.setdefault(field_id, name) != name:
                raise TableError(
                    f"the column '{name}' of {'.'.join(table.name())} was renamed, or added again: read it with a"
                    " reader of Iceberg, not by its files"
                )


def data_file(path: str, file: IcebergDataFile) -> DataFile:
    """Return a live file with its size, rows, and the partition that its path says, which is that of an archive."""
    folders = path.split("/")[:-1]
    values = dict(part.split("=", 1) for part in folders if "=" in part)
    return DataFile(path, file.file_size_in_bytes, file.record_count, values)


def paths_of_all_snapshots(table: Table) -> set[str]:
    """Return the files that any snapshot has, of those that the table still keeps, on whatever branch."""
    manifests = {one.manifest_path: one for snapshot in table.snapshots() for one in snapshot.manifests(table.io)}
    return {
        entry.data_file.file_path
        for one in manifests.values()
        for entry in one.fetch_manifest_entry(table.io, discard_deleted=False)
    }
