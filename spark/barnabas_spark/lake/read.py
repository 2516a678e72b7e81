"""Reads tables as DataFrames, alone or together with what the brokers have beyond them.

`read_lake` shows a table at one version. `read_all` adds the rest of the topic: of each partition, the rows of the
ranges that the table has come from its files, and those of all other offsets from the brokers, up to one watermark.
So no row is there twice, and none is missing. The version and the watermarks are fixed by the call, and every action on
the DataFrame shows them.

Files in directories are read by Spark itself. Files in object stores are read by Python workers through `obstore`,
because Spark would need jars for that. Both choose files by the table's own list.
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
from .schemas import spark_schema
from .store import Location
from .table import TableError, TableState
from .writing import READ_COLUMNS, time_values, with_topic_id

__all__ = ["read_all", "read_lake"]

FILES_PER_TASK = 4


class _Opened(NamedTuple):
    table: Any
    location: Location
    state: TableState

    @property
    def layout(self) -> Layout:
        layout: Layout = getattr(self.table, "layout", Layout())
        return layout


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
    opened = _open(location, table_format, store_options)
    if version is not None:
        opened = opened._replace(state=TableState(version, {}))
    return _rows(spark, opened)


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


def _open(location: str, table_format: str, store_options: Mapping[str, str] | None) -> _Opened:
    where = Location(location, dict(store_options or {}))
    table = open_table(table_format, where, Layout(), is_probed=False)
    state = table.load()
    if not state.version and not state.spans:
        raise TableError(f"there is no {table_format} table at {location}")
    return _Opened(table, where, state)


def _rows(spark: Any, opened: _Opened) -> Any:
    layout, location = opened.layout, opened.location
    files = list(opened.table.files(opened.state))
    schema = spark_schema(layout.table_schema)
    if not files:
        return spark.createDataFrame([], schema)
    if location.is_local:
        root = location.directory
        folder = root / files[0].split("/", 1)[0]
        paths = [str(root / path) for path in files]
        return spark.read.schema(schema).option("basePath", str(folder)).parquet(*paths)
    tasks = [json.dumps(files[at : at + FILES_PER_TASK]) for at in range(0, len(files), FILES_PER_TASK)]
    return _from_tasks(
        spark, tasks, lambda task: _file_batches(location, json.loads(task), layout.table_schema), schema
    )


def _tail(spark: Any, splits: Sequence[Split], topic_id: str, options: ReadOptions, layout: Layout) -> Any:
    tasks = [str(number) for number in range(len(splits))]

    def read(task: str) -> Iterator[Any]:
        for batch in read_split(splits[int(task)], options, READ_COLUMNS):
            yield from time_values(with_topic_id(batch, topic_id), layout)

    return _from_tasks(spark, tasks, read, spark_schema(layout.table_schema))


def _from_tasks(spark: Any, tasks: Sequence[str], read: Callable[[str], Iterator[Any]], schema: Any) -> Any:
    """Return a DataFrame of what a function yields for each of some texts, one a task."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from read(task)

    texts = spark.sparkContext.parallelize([(task,) for task in tasks], len(tasks))
    return spark.createDataFrame(texts, "task string").mapInArrow(run, schema)


def _file_batches(location: Location, paths: Sequence[str], schema: Any) -> Iterator[Any]:
    """Yield the rows of some files with the columns of a table; a column that a file lacks is null."""
    store = open_store(location)
    for path in paths:
        values = dict(part.split("=", 1) for part in path.split("/") if "=" in part)
        with store.open(path) as stream:
            file = pq.ParquetFile(stream)
            for batch in file.iter_batches():
                yield pa.RecordBatch.from_arrays(
                    [_column(batch, field, values.get(field.name)) for field in schema], schema=schema
                )


def _column(batch: Any, field: Any, value: str | None) -> Any:
    if field.name in batch.schema.names:
        return batch.column(field.name).cast(field.type)
    if value is None:
        return pa.nulls(batch.num_rows, field.type)
    return pa.array([value] * batch.num_rows, pa.string()).cast(field.type)
