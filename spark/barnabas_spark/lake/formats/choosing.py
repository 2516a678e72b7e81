"""Opens a table in the format that was asked for. Libraries are loaded for that one only."""

from typing import Any

from barnabas_spark.lake.layout import Layout
from barnabas_spark.lake.opening import open_store, probe
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.table import TableError

__all__ = ["DATA_FOLDERS", "FORMATS", "open_table"]

FORMATS = ("parquet", "delta", "iceberg")
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
    raise TableError(f"'{kind}' is not a format of tables; write one of {', '.join(FORMATS)}")
