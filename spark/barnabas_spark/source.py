"""The data source `format("barnabas")`, as PySpark calls it.

PySpark imports this module when it looks for any Python data source, in every planning process. So heavy modules are
imported by the methods that need them. PySpark calls in this order: `schema` when the DataFrame is loaded; `reader` and
`partitions` once at the first action, in a planning process, whose answer every later action over the same DataFrame
reuses; `read` in the executors' workers. `writer` is called once before the tasks of a write, `streamWriter` once
before those of each micro-batch and once more behind them.

For a stream it calls `streamReader` instead, in a process of the query (streaming/reader.py).

Filters are deliberately not pushed down: PySpark 4.3 keeps one plan for all uses of a DataFrame, and gives wrong rows
with a reader that takes filters. Ranges are options.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from barnabas_spark.garbage import freeze_once, keep_pages
from barnabas_spark.options.reads import ReadOptions, parse_read_options
from barnabas_spark.options.streams import check_either, parse_stream_options
from barnabas_spark.options.tables import with_those_of_table
from barnabas_spark.planning.plan import Split
from barnabas_spark.schemas import Projection, comments_of, declared, projection

__all__ = ["BarnabasDataSource", "BarnabasPartition", "BarnabasReader"]

logger = logging.getLogger(__name__)


class BarnabasDataSource(DataSource):
    """Topics of Barnabas, or of anything that speaks the Kafka protocol, as DataFrames."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType | str:
        """Check the options already here, so that a mistake shows at `load()` and not at the first action.

        Nobody says here whether it is a batch or a stream.
        """
        found = declared(check_either(self.options), self.options)
        freeze_once("loaded")
        return found

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read_options(with_those_of_table(self.options, comments_of(schema)))
        return BarnabasReader(options, projection(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        from barnabas_spark.streaming.reader import BarnabasStreamReader  # noqa: PLC0415 - see the module's first paragraph

        options = parse_stream_options(with_those_of_table(self.options, comments_of(schema)))
        return BarnabasStreamReader(options, BarnabasReader(options.read, projection(schema, options.read)))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from barnabas_spark.writing.writers import batch_writer  # noqa: PLC0415 - see the module's first paragraph

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - PySpark's
        from barnabas_spark.writing.writers import stream_writer  # noqa: PLC0415 - see the module's first paragraph

        # A stream whose output mode is complete asks to overwrite. As with Spark's Kafka sink, it appends.
        return stream_writer(self.options, schema)


class BarnabasPartition(InputPartition):
    """The splits of one task on their way to it."""

    def __init__(self, *splits: Split) -> None:
        super().__init__(splits)
        self.splits = splits


class BarnabasReader(DataSourceReader):
    """A checked read. It is pickled into every task, so it holds plain values only."""

    def __init__(self, options: ReadOptions, columns: Projection) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        from barnabas_spark.clusters import cluster_for, run  # noqa: PLC0415 - see the module's first paragraph
        from barnabas_spark.planning.plan import Plan, make_plan  # noqa: PLC0415
        from barnabas_spark.reading.measuring import make_tasks  # noqa: PLC0415
        from barnabas_spark.snapshots.store import Moment, moment_of  # noqa: PLC0415

        options = self._options

        async def make() -> tuple[Moment, Plan, Sequence[tuple[Split, ...]]]:
            cluster = await cluster_for(options, is_driver=True)
            found = await moment_of(cluster, options)
            plan = make_plan(found.options, found.snapshot)
            return found, plan, await make_tasks(cluster, found.options, plan.splits, found.snapshot.partitions)

        found, plan, tasks = run(make(), options.poll_timeout_ms / 1000)
        for name in options.ignored:
            logger.warning("option %s has no effect on this source", name)
        for warning in (*found.warnings, *plan.warnings):
            logger.warning("%s", warning)
        freeze_once("planned")
        return self.pack(tasks)

    def pack(self, tasks: Sequence[tuple[Split, ...]]) -> Sequence[InputPartition]:
        """Return what Spark sends to the tasks, which hand it to `read`."""
        return [BarnabasPartition(*splits) for splits in tasks]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from barnabas_spark.reading.reader import read_splits  # noqa: PLC0415 - see the module's first paragraph

        assert isinstance(partition, BarnabasPartition), partition
        freeze_once("before a task")
        keep_pages()
        try:
            yield from read_splits(partition.splits, self._options, self._columns.names, self._columns.value_type)
        finally:
            freeze_once("behind a task")
