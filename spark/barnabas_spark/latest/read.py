"""Reads tables of latest records as DataFrames: one row a key, without the keys that were deleted."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq

from barnabas_spark.lake.formats.choosing import open_table
from barnabas_spark.lake.opening import open_store
from barnabas_spark.lake.schemas import spark_schema
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.table import TableError, TableState

from .choosing import IDENTITY, LATEST_LAYOUT, LATEST_SCHEMA, has_latest

__all__ = ["read_latest"]

FILES_PER_TASK = 4


def read_latest(
    spark: Any,
    location: str,
    *,
    table_format: str = "parquet",
    version: object = None,
    store_options: Mapping[str, str] | None = None,
    with_deleted: bool = False,
) -> Any:
    """Return the latest record of each key as a DataFrame, at one version of a table: the newest one, or an older one.

    A key has one row for each partition in which it stands. Keys whose latest record is a tombstone are left out, or,
    with `with_deleted`, have `deleted` and no value.

    Raises:
        TableError: there is no such table, or it cannot be trusted.
    """
    where = Location(location, dict(store_options or {}))
    table = open_table(table_format, where, LATEST_LAYOUT)
    state = table.load()
    if not state.version and not state.spans:
        raise TableError(f"there is no {table_format} table at {location}")
    if not has_latest(getattr(table, "layout", LATEST_LAYOUT)):
        raise TableError(f"the table at {location} is not one of latest records; read it with read_lake")
    files = list(table.files(state if version is None else TableState(version, {})))
    rows = _latest(_rows(spark, where, files))
    return rows if with_deleted else rows.where("not deleted").drop("deleted")


def _latest(rows: Any) -> Any:
    from pyspark.sql import functions as f  # noqa: PLC0415 - only who has a session needs it

    others = [name for name in LATEST_SCHEMA.names if name not in IDENTITY]
    chosen = rows.groupBy(*IDENTITY).agg(f.max_by(f.struct(*others), "offset").alias("row"))
    columns = [name if name in IDENTITY else f"row.{name}" for name in LATEST_SCHEMA.names]
    return chosen.select(*columns)


def _rows(spark: Any, location: Location, files: Sequence[str]) -> Any:
    schema = spark_schema(LATEST_SCHEMA)
    if not files:
        return spark.createDataFrame([], schema)
    if location.is_local:
        return spark.read.schema(schema).parquet(*(str(location.directory / path) for path in files))
    tasks = [(json.dumps(files[at : at + FILES_PER_TASK]),) for at in range(0, len(files), FILES_PER_TASK)]

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        store = open_store(location)
        for batch in batches:
            for path in (path for task in batch.column(0).to_pylist() for path in json.loads(task)):
                with store.open(path) as stream:
                    for found in pq.ParquetFile(stream).iter_batches():
                        yield found.select(LATEST_SCHEMA.names).cast(LATEST_SCHEMA)

    texts = spark.sparkContext.parallelize(tasks, len(tasks))
    return spark.createDataFrame(texts, "task string").mapInArrow(read, schema)
