"""Says which columns and files a Delta table has at one version, as deltalake shows them."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from barnabas_spark.lake.layout import Layout
from barnabas_spark.lake.schemas import layout_from_json
from barnabas_spark.lake.table import DataFile, TableError

__all__ = ["NO_PARTITION", "check_plain", "data_files", "layout_of", "live"]

# How a partition of nulls is called.
NO_PARTITION = ("", "__HIVE_DEFAULT_PARTITION__")


def layout_of(table: DeltaTable) -> Layout:
    """Return the columns of a table.

    Raises:
        TableError: it is partitioned by other columns than archives are.
    """
    return layout_from_json(json.loads(table.schema().to_json()), tuple(table.metadata().partition_columns))


def live(table: DeltaTable) -> list[dict[str, Any]]:
    """Return the live files, their paths as they are in the store."""
    rows: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    return [{**row, "path": unquote(row["path"])} for row in rows]


def check_plain(table: DeltaTable, root: str) -> None:
    """Check that the live files have what the table has.

    Raises:
        TableError: they do not, because rows were deleted or columns renamed.
    """
    if pa.table(table.deletion_vectors().read_all()).num_rows:
        raise TableError(f"{root} has deletion vectors: read it with a reader of Delta, not by its files")
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise TableError(f"{root} maps its columns to other names; read it with a reader of Delta, not by its files")


def data_files(table: DeltaTable) -> list[DataFile]:
    """Return the live files with their sizes, rows and partitions, by path; -1 rows where nobody counted them."""
    found = [
        DataFile(
            one["path"],
            one["size_bytes"],
            -1 if one["num_records"] is None else one["num_records"],
            _values(one.get("partition") or {}),
        )
        for one in live(table)
    ]
    return sorted(found, key=lambda one: one.path)


def _values(found: Mapping[str, Any]) -> dict[str, str]:
    return {name: NO_PARTITION[1] if value is None else str(value) for name, value in found.items()}
