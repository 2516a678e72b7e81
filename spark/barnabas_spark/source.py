"""The data source `format("barnabas")`, as PySpark calls it.

PySpark imports this module when it looks for any Python data source, in every planning process. So heavy modules are
imported by the methods that need them. PySpark calls in this order: `schema` when the DataFrame is loaded; `reader` and
`partitions` once at the first action, in a planning process, whose answer every later action over the same DataFrame
reuses; `read` in the executors' workers. `writer` is called once before the tasks of a write, `streamWriter` once
before those of each micro-batch and once more behind them.

Reading streams is not built yet. The calls raise `NotBuiltError`.

Filters are deliberately not pushed down: PySpark 4.3 keeps one plan for all uses of a DataFrame, and gives wrong rows
with a reader that takes filters. Ranges are options.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.garbage import freeze_once
from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import ReadOptions, parse_read_options
from barnabas_spark.planning.plan import Split

__all__ = ["BarnabasDataSource", "BarnabasPartition", "BarnabasReader", "NotBuiltError"]

logger = logging.getLogger(__name__)

# As objects, because a DDL string is parsed by the JVM, which a planning process does not have.
HEADER_TYPE = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
HEADERS = StructField("headers", ArrayType(HEADER_TYPE))


class NotBuiltError(BarnabasError, NotImplementedError):
    """A feature that is not built yet. With its own class for that, PySpark would try something else first."""


class BarnabasDataSource(DataSource):
    """Topics of Barnabas, or of anything that speaks the Kafka protocol, as DataFrames."""

    @classmethod
    def name(cls) -> str:
        return "barnabas"

    def schema(self) -> StructType:
        """Check the options already here, so that a mistake shows at `load()` and not at the first action."""
        return _schema(parse_read_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_read_options(self.options)
        return BarnabasReader(options, _columns(schema, options))

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: N802 - PySpark's name
        _refuse("read streams")

    def simpleStreamReader(self, schema: StructType) -> NoReturn:  # noqa: N802 - PySpark's name
        _refuse("read streams")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from barnabas_spark.writing.writers import batch_writer  # noqa: PLC0415 - see the module's first paragraph

        return batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - PySpark's
        from barnabas_spark.writing.writers import stream_writer  # noqa: PLC0415 - see the module's first paragraph

        # A stream whose output mode is complete asks to overwrite. As with Spark's Kafka sink, it appends.
        return stream_writer(self.options, schema)


class BarnabasPartition(InputPartition):
    """One split on its way to a task."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)
        self.split = split


class BarnabasReader(DataSourceReader):
    """A checked read. It is pickled into every task, so it holds plain values only."""

    def __init__(self, options: ReadOptions, names: tuple[str, ...]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> Sequence[InputPartition]:
        from barnabas_spark.clusters import cluster_for, run  # noqa: PLC0415 - see the module's first paragraph
        from barnabas_spark.planning.plan import Snapshot, make_plan  # noqa: PLC0415
        from barnabas_spark.reading.snapshot import take_snapshot  # noqa: PLC0415

        options = self._options

        async def snapshot() -> Snapshot:
            return await take_snapshot(await cluster_for(options, is_driver=True), options)

        plan = make_plan(options, run(snapshot(), options.poll_timeout_ms / 1000))
        for name in options.ignored:
            logger.warning("option %s has no effect on this source", name)
        for warning in plan.warnings:
            logger.warning("%s", warning)
        return [BarnabasPartition(split) for split in plan.splits]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from barnabas_spark.reading.reader import read_split  # noqa: PLC0415 - see the module's first paragraph

        assert isinstance(partition, BarnabasPartition), partition
        freeze_once()
        return read_split(partition.split, self._options, self._names)


def _schema(options: ReadOptions) -> StructType:
    return StructType([*COLUMNS, HEADERS] if options.include_headers else list(COLUMNS))


def _columns(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """Return the columns to build: those of a schema that the user gave, or all.

    A user's schema must be a choice of the source's own columns. It is a projection: Spark cannot tell a Python source
    which columns a query uses.
    """
    own = {field.name: field for field in _schema(options).fields}
    for field in schema.fields:
        if field.name not in own:
            hint = "; set includeHeaders" if field.name == "headers" else ""
            raise OptionError("schema", f"unknown column {field.name}; the columns are {', '.join(own)}{hint}")
        if field != own[field.name]:
            expected = own[field.name].dataType.simpleString()
            raise OptionError("schema", f"column {field.name} is {expected} and nullable; cast it in a select")
    return tuple(field.name for field in schema.fields)


def _refuse(what: str) -> NoReturn:
    raise NotBuiltError(f"The barnabas data source cannot {what} yet: it reads batches, with spark.read")
