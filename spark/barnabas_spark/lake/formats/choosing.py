"""Opens a table in the format that was asked for. Libraries are loaded for that one only."""

from collections.abc import Mapping
from typing import Any

from barnabas_spark.lake.layout import Layout, marked
from barnabas_spark.lake.opening import open_store
from barnabas_spark.lake.store import CATALOG, Location, StoreError
from barnabas_spark.lake.table import TableError
from barnabas_spark.lake.values.decoding import REJECT_SCHEMA
from barnabas_spark.lake.values.evolving import evolved

__all__ = ["DATA_FOLDERS", "FORMATS", "TABLE", "open_archive", "open_as_it_is", "open_rejects", "open_table"]

FORMATS = ("parquet", "delta", "iceberg")
# The option that names a table in its catalog: "namespace.table".
TABLE = f"{CATALOG}table"
# Below the table. Readers of directories leave out what begins with _, as they should with a table of manifests.
DATA_FOLDERS = {"parquet": "_data/", "delta": "data/", "iceberg": "data/"}


def open_table(kind: str, location: Location, layout: Layout | None, *, adopt: bool = False) -> Any:
    """Return the `TableFormat` at a location, whose store a caller that commits has probed (`opening.probe`).

    Without a layout the table is opened to be read, whatever columns it has.

    Raises:
        StoreError: the location or its options make no sense.
        TableError: the format is not known.
    """
    _check_options(kind, location)
    if kind == "parquet":
        from .parquet import ParquetFormat  # noqa: PLC0415 - see the module's sentence

        return ParquetFormat(open_store(location), layout or Layout())
    root = str(location.directory) if location.is_local else location.url
    if kind == "delta":
        from .delta import DeltaFormat  # noqa: PLC0415

        schema = None if layout is None else marked(layout.table_schema, layout.values)
        partition_columns = () if layout is None else layout.partition_columns
        return DeltaFormat(root, schema, partition_columns, location.store_options, adopt)
    if kind == "iceberg":
        from .iceberg import IcebergFormat  # noqa: PLC0415

        catalog = location.catalog
        name = catalog.pop("table", f"lake.{root.rstrip('/').rpartition('/')[2]}")
        if catalog.keys() - {"name"}:
            catalog = {**location.store_options, **catalog}
        schema = None if layout is None else marked(layout.schema, layout.values)
        partition_by = "" if layout is None else layout.partition_by
        return IcebergFormat(root, name, schema, partition_by, catalog or None, adopt)
    raise TableError(f"'{kind}' is not a format of tables; write one of {', '.join(FORMATS)}")


def open_archive(kind: str, location: Location) -> Any:
    """Return the table of an archive for reading only, by whatever time it is partitioned; raises as `open_table`."""
    stored: Layout | None = open_table(kind, location, None).layout_of()
    partition_by = "" if stored is None else stored.partition_by
    return open_table(kind, location, Layout(partition_by=partition_by))


def open_as_it_is(
    kind: str,
    location: Location,
    partition_by: str,
    given: Mapping[str, Any] | None = None,
    prefix: str = "",
    *,
    adopt: bool = False,
) -> tuple[Any, Layout]:
    """Return the table at a location, and its layout: that of now, or the one with which it will be made.

    A table that is there does not get the columns of the schema `given` here, but by `evolve_table`; that it could is
    checked.

    Raises:
        SchemaChangeError: the schema does not fit the table.
        TableError: as `open_table`.
    """
    stored: Layout | None = open_table(kind, location, None).layout_of()
    if stored is None:
        layout, _ = evolved(Layout(partition_by=partition_by), given, prefix)
    else:
        evolved(stored, given, prefix)
        layout = stored
        if partition_by not in {"", stored.partition_by}:
            raise TableError(
                f"{location.url} is partitioned by {stored.partition_by or 'nothing'}, and not by {partition_by}: leave"
                " --partition-by out, or archive to another place"
            )
    archived = layout._replace(schema=layout.archived_schema)
    return open_table(kind, location, archived, adopt=adopt), layout


def open_rejects(kind: str, location: Location, *, adopt: bool = False) -> Any:
    """Return the table of rejects at a location; raises as `open_table`."""
    return open_table(kind, location, Layout(REJECT_SCHEMA), adopt=adopt)


def _check_options(kind: str, location: Location) -> None:
    """Refuse options that nothing would look at."""
    if location.is_local and location.store_options:
        name = next(iter(location.store_options))
        raise StoreError(
            f"{location.url} is a directory, and has no option '{name}'; those of a catalog are catalog.{name}"
        )
    if kind != "iceberg" and location.catalog:
        raise TableError(f"a {kind} table has no catalog: leave '{CATALOG}{next(iter(location.catalog))}' out")
