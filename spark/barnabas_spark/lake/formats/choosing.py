"""Opens a table in the format that was asked for. Libraries are loaded for that one only."""

from typing import Any

from barnabas_spark.lake.layout import Layout
from barnabas_spark.lake.opening import open_store, probe
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.table import TableError

__all__ = ["DATA_FOLDERS", "FORMATS", "open_table"]

FORMATS = ("parquet", "delta", "iceberg")
# Options of a location that are not options of Iceberg's catalog: the name of the table in it.
NAMED = ("table",)
# Below the table. Readers of directories leave out what begins with _, as they should with a table of manifests.
DATA_FOLDERS = {"parquet": "_data/", "delta": "data/", "iceberg": "data/"}


def open_table(kind: str, location: Location, layout: Layout, *, adopt: bool = False, is_probed: bool = True) -> Any:
    """Return the `TableFormat` at a location, whose store is probed first, unless only reading is wanted.

    Raises:
        StoreError: the store does not do what commits need.
        TableError: the format is not known.
    """
    if is_probed:
        probe(open_store(location), location)
    if kind == "parquet":
        from .parquet import ParquetFormat  # noqa: PLC0415 - see the module's sentence

        return ParquetFormat(open_store(location), layout)
    root = str(location.directory) if location.is_local else location.url
    if kind == "delta":
        from .delta import DeltaFormat  # noqa: PLC0415

        return DeltaFormat(root, layout.table_schema, layout.partition_columns, dict(location.options), adopt)
    if kind == "iceberg":
        from .iceberg import IcebergFormat  # noqa: PLC0415

        catalog = {name: value for name, value in location.options.items() if name not in NAMED}
        name = location.options.get("table", f"lake.{root.rstrip('/').rpartition('/')[2]}")
        return IcebergFormat(root, name, layout.schema, layout.partition_by, catalog or None, adopt)
    raise TableError(f"'{kind}' is not a format of tables; write one of {', '.join(FORMATS)}")
