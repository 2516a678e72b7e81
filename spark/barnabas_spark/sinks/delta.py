"""Lands the micro-batches of a stream in a Delta table, each exactly once.

    stream.writeStream.foreachBatch(DeltaSink("/lake/pages")).option("checkpointLocation", ...).start()

Spark's executors write the files. The driver commits them in one commit of the table, together with the application
transaction (id of the query, number of the batch). Spark runs a batch again if its driver died before the checkpoint
says that it is done; then the table knows that it has the batch, and nothing is written.

*The id of the query* stands in the checkpoint. A new checkpoint is a new query, which begins at its batch 0: it lands
all that it reads, and no batch is taken for one of another query's.

*The number of the batch* goes up by one each time. A table that is not at the batch before was put back, or replaced,
or another driver of the same checkpoint is ahead: that is an error, because rows would be missing or doubled.

*Two drivers of one checkpoint.* Of two commits of one batch, Delta refuses the second as long as both began before the
first: both name the same application. Other writers only cost another attempt, which deltalake makes by itself.

Deliberately absent: tables that are partitioned, evolution of columns (add them to the table first), and removing the
files of attempts that were not committed: `VACUUM` does that, in its own time.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.lake.formats.delta_options import delta_options
from barnabas_spark.lake.formats.delta_rules import broken_rule
from barnabas_spark.lake.opening import open_store, probe
from barnabas_spark.lake.store import Location

__all__ = ["DeltaSink", "DeltaSinkError", "WrittenFile", "check_batch"]

# Spark sets it for whatever a query runs; it is the id in the checkpoint, and stays the same after a restart.
QUERY_ID = "sql.streaming.queryId"
FILE_COLUMNS = "path string, size_bytes long, rows long"


class DeltaSinkError(BarnabasError):
    """The table does not take the batch; the message says why, and what to do."""


class WrittenFile(NamedTuple):
    """A finished file with rows. `path` is relative to the table."""

    path: str
    size_bytes: int
    rows: int


class DeltaSink:
    """Takes the micro-batches of one query into one table, which the first batch creates if it is not there.

    `url` is a directory or a URL such as `s3://bucket/prefix`, `store_options` are those of its store. The store is
    probed before the first batch: without conditional writes two drivers could commit one version.
    """

    def __init__(self, url: str, *, store_options: Mapping[str, str] | None = None, codec: str = "zstd") -> None:
        self._location = Location(url, dict(store_options or {}))
        self._codec = codec
        self._is_probed = False

    def __call__(self, rows: Any, batch_id: int) -> None:
        """Land one batch.

        Raises:
            DeltaSinkError: the table has other columns, or is not at the batch before.
            Exception: the commit was refused, or its outcome is unknown. The query ends, and its next start finds out.
        """
        if not self._is_probed:
            probe(open_store(self._location), self._location)
            self._is_probed = True
        application = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not application:
            raise DeltaSinkError("the batch is of no query that streams: give DeltaSink to foreachBatch")
        schema = _arrow_schema(rows)
        table = self._table(schema)
        if check_batch(self._location.url, table.transaction_version(application), batch_id):
            self._commit(table, self._written(rows, schema), application, batch_id)

    def _table(self, schema: Any) -> Any:
        """Return the table as it is now, and see to it that it takes files with the columns of the batch."""
        from deltalake import DeltaTable, Schema  # noqa: PLC0415 - the driver's alone; tasks import this module, too

        url, options = self._root, self._options
        wanted = Schema.from_arrow(schema)
        table = DeltaTable.create(url, wanted, mode="ignore", storage_options=options)
        metadata = table.metadata()
        if metadata.partition_columns:
            raise DeltaSinkError(
                f"{url} is partitioned by {metadata.partition_columns}: batches land in tables without"
            )
        if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
            raise DeltaSinkError(f"{url} maps its columns to other names; files cannot be added to it as they are")
        there = {field.name: json.loads(field.to_json())["type"] for field in table.schema().fields}
        for field in wanted.fields:
            kind = json.loads(field.to_json())["type"]
            if field.name not in there:
                raise DeltaSinkError(f"{url} has no column '{field.name}'; add it to the table, or leave it out")
            if there[field.name] != kind:
                raise DeltaSinkError(f"the column '{field.name}' of {url} is {there[field.name]}, and not {kind}")
        if rule := broken_rule(table, schema.names):
            raise DeltaSinkError(f"{url} {rule}; use another table")
        return table

    @property
    def _root(self) -> str:
        return str(self._location.directory) if self._location.is_local else self._location.url

    @property
    def _options(self) -> dict[str, str] | None:
        return None if self._location.is_local else delta_options(self._location.store_options)

    def _written(self, rows: Any, schema: Any) -> Sequence[WrittenFile]:
        """Let the executors write the rows; return the files of those attempts that Spark has taken."""
        location, codec = self._location, self._codec

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            if (file := _write(location, schema, codec, batches)) is not None:
                yield pa.RecordBatch.from_pylist([file._asdict()])

        return [WrittenFile(*one) for one in rows.mapInArrow(run, FILE_COLUMNS).collect()]

    def _commit(self, table: Any, files: Sequence[WrittenFile], application: str, batch_id: int) -> None:
        from deltalake import CommitProperties, Transaction  # noqa: PLC0415 - see above
        from deltalake.transaction import AddAction  # noqa: PLC0415 - see above

        now_ms = time.time_ns() // 1_000_000
        table.create_write_transaction(
            [
                AddAction(one.path, one.size_bytes, {}, now_ms, True, json.dumps({"numRecords": one.rows}))
                for one in files
            ],
            mode="append",
            schema=table.schema(),
            # Without a time, the transaction never expires.
            commit_properties=CommitProperties(app_transactions=[Transaction(application, batch_id)]),
        )


def check_batch(where: str, stored: int | None, batch_id: int) -> bool:
    """Tell whether a table, whose last batch of the query is `stored`, is to take this one: else it has it.

    Raises:
        DeltaSinkError: it is neither at this batch nor at the one before.
    """
    if stored == batch_id:
        return False
    if (-1 if stored is None else stored) == batch_id - 1:
        return True
    has = "no batch" if stored is None else f"batch {stored} as the last one"
    raise DeltaSinkError(
        f"{where} has {has} of this query, which is at batch {batch_id}: the table was put back or replaced, or another"
        " driver runs this checkpoint; bring the table back, or start with a new checkpoint and another table"
    )


def _arrow_schema(rows: Any) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - the driver's alone

    # Whether a column may be null is the query's to say, and changes with it: in the table each may.
    return pa.schema([field.with_nullable(True) for field in to_arrow_schema(rows.schema, timezone="UTC")])


def _write(location: Location, schema: Any, codec: str, batches: Iterator[Any]) -> WrittenFile | None:
    """Write the rows of one task into a file of its own; None if there are none."""
    first = next((batch for batch in batches if batch.num_rows), None)
    if first is None:
        return None
    path = f"part-{uuid.uuid4().hex}.parquet"
    file = open_store(location).create(path)
    try:
        count = 0
        with pq.ParquetWriter(
            file.stream, schema, compression=codec, store_schema=False, write_page_checksum=True
        ) as writer:
            for batch in (first, *batches):
                writer.write_table(pa.Table.from_batches([batch]).cast(schema))
                count += batch.num_rows
        return WrittenFile(path, file.finish(), count)
    except BaseException:
        file.abandon()
        raise
