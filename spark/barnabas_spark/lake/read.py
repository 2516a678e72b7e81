"""Reads tables as DataFrames, alone or together with what the brokers have beyond them.

`read_lake` shows a table at one version. `read_all` adds the rest of the topic: of each partition, the rows of the
ranges that the table has come from its files, and those of all other offsets from the brokers, up to one watermark.
So no row is there twice, and none is missing. Values of the brokers' rows are decoded with the table's schema; one that
does not fit has nulls, as in the table. The version and the watermarks are fixed by the call, and every action on
the DataFrame shows them.

Files in directories are read by Spark itself. Files in object stores are read by Python workers through `obstore`,
because Spark would need jars for that; so are those of a Delta table whose paths do not say their partitions. All go by
the table's own list of files, and a table whose rows were deleted beside its files is refused.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas_spark.options.reads import ReadOptions, parse_read_options
from barnabas_spark.planning.plan import Split
from barnabas_spark.reading.reader import read_split

from .formats.choosing import open_table
from .layout import Layout
from .logs import ask_epoch_ends, ask_logs
from .opening import open_store
from .rounds import check_ends, check_topic, epochs_to_ask, gaps_before, missing_splits
from .schemas import schema_from_json, spark_schema
from .store import Location
from .table import DataFile, TableError, TableState
from .values.columns import widened
from .values.decoding import ValueColumns
from .writing import READ_COLUMNS, time_values, with_topic_id

__all__ = ["read_all", "read_lake"]

FILES_PER_TASK = 4
# The partition of nulls has no value, or is called so.
NULLS = (None, "", "__HIVE_DEFAULT_PARTITION__")


class _Opened(NamedTuple):
    table: Any
    location: Location
    state: TableState
    layout: Layout


def read_lake(
    spark: Any,
    location: str,
    *,
    table_format: str = "parquet",
    version: object = None,
    store_options: Mapping[str, str] | None = None,
) -> Any:
    """Return the rows of a table as a DataFrame: those of its newest version now, or of an older one.

    Raises:
        TableError: there is no table, or it cannot be trusted.
    """
    return _rows(spark, _open(location, table_format, store_options, version))


def read_all(
    spark: Any,
    topic: str,
    *,
    lake: str,
    bootstrap: str,
    table_format: str = "parquet",
    store_options: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> Any:
    """Return all rows of a topic as a DataFrame: those that a table has, and those of the brokers that it lacks.

    `options` are those of a read, such as `kafka.max.partition.fetch.bytes`.

    Raises:
        TableError: neither the table nor the brokers have some offsets, or the log is not the one that was archived.
    """
    reading = parse_read_options(
        {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true", **(options or {})}
    )
    # The table first: whatever is archived meanwhile is behind this version, and in the logs.
    opened = _open(lake, table_format, store_options)
    logs = ask_logs(reading, topic)
    stored = opened.state.spans
    check_topic(stored, logs)
    if gaps := gaps_before(stored, logs):
        raise TableError(
            f"{topic}-{gaps[0].partition}: the lake ends at {gaps[0].start_offset}, and the brokers begin at "
            f"{gaps[0].end_offset}: what lies between is gone"
        )
    check_ends(stored, logs, ask_epoch_ends(reading, topic, epochs_to_ask(stored, logs)))
    splits = missing_splits(stored, logs)
    rows = _rows(spark, opened)
    rows = rows.where(rows["topicId"] == logs.topic_id)
    return rows.unionByName(_tail(spark, splits, logs.topic_id, reading, opened.layout)) if splits else rows


def _open(location: str, table_format: str, store_options: Mapping[str, str] | None, version: object = None) -> _Opened:
    where = Location(location, dict(store_options or {}))
    table = open_table(table_format, where, None)
    state = table.load() if version is None else TableState(version, {})
    layout = table.layout_of(state)
    if layout is None or (state.version is None and not state.spans):
        raise TableError(f"there is no {table_format} table at {location}")
    return _Opened(table, where, state, layout)


def _rows(spark: Any, opened: _Opened) -> Any:
    layout, location = opened.layout, opened.location
    files: Sequence[DataFile] = opened.table.data_files(opened.state)
    schema = spark_schema(layout.table_schema)
    if not files:
        return spark.createDataFrame([], schema)
    if location.is_local and (folder := _folder(files, layout)) is not None:
        root = location.directory
        paths = [str(root / one.path) for one in files]
        reading = spark.read.schema(schema)
        return (reading.option("basePath", str(root / folder)) if folder else reading).parquet(*paths)
    listed = [(one.path, dict(one.partition_values)) for one in files]
    tasks = [json.dumps(listed[at : at + FILES_PER_TASK]) for at in range(0, len(files), FILES_PER_TASK)]
    # As Python workers hand it over: without the sizes in memory that a table may have.
    columns = schema_from_json(schema.jsonValue())
    return _from_tasks(spark, tasks, lambda task: _file_batches(location, json.loads(task), columns), schema)


def _folder(files: Sequence[DataFile], layout: Layout) -> str | None:
    """Return the folder below which the paths say the partitions, as Spark reads them, or None if they do not."""
    names = layout.partition_columns
    if not names or layout.is_hidden:
        return ""
    folders = set()
    for one in files:
        said = "".join(f"{name}={one.partition_values[name]}/" for name in names)
        before, found, rest = f"/{one.path}".partition(f"/{said}")
        if not found or "/" in rest:
            return None
        folders.add(before.removeprefix("/"))
    return folders.pop() if len(folders) == 1 else None


def _tail(spark: Any, splits: Sequence[Split], topic_id: str, options: ReadOptions, layout: Layout) -> Any:
    tasks = [str(number) for number in range(len(splits))]

    def read(task: str) -> Iterator[Any]:
        columns = ValueColumns(layout)
        for batch in read_split(splits[int(task)], options, READ_COLUMNS):
            yield from time_values(columns.decode(with_topic_id(batch, topic_id)).rows, layout)

    return _from_tasks(spark, tasks, read, spark_schema(layout.table_schema))


def _from_tasks(spark: Any, tasks: Sequence[str], read: Callable[[str], Iterator[Any]], schema: Any) -> Any:
    """Return a DataFrame of what a function yields for each of some texts, one a task."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from read(task)

    texts = spark.sparkContext.parallelize([(task,) for task in tasks], len(tasks))
    return spark.createDataFrame(texts, "task string").mapInArrow(run, schema)


def _file_batches(location: Location, files: Sequence[tuple[str, Mapping[str, str]]], schema: Any) -> Iterator[Any]:
    """Yield the rows of some files with the columns of a table; a column that a file lacks is null."""
    store = open_store(location)
    for path, values in files:
        with store.open(path) as stream:
            for batch in pq.ParquetFile(stream).iter_batches():
                yield pa.RecordBatch.from_arrays(
                    [_column(batch, field, values.get(field.name)) for field in schema], schema=schema
                )


def _column(batch: Any, field: Any, value: str | None) -> Any:
    if field.name in batch.schema.names:
        return widened(batch.column(field.name), field.type)
    if value in NULLS:
        return pa.nulls(batch.num_rows, field.type)
    return pa.array([value] * batch.num_rows, pa.string()).cast(field.type)
