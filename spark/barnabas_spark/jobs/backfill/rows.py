"""Puts the rows of a table in the order in which they are written: by partitions of the target.

*Keeping partitions,* each has its rows in the order of their offsets. *By key,* a row goes where Kafka's own producer
would send its key; rows of several partitions meet there, ordered by offset, so that rows with one key keep their
order. Rows without a key take turns, `RUN_ROWS` offsets at a time. The order is the same each time.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from barnabas_spark.writing.partitioning import Keys, hashes
from barnabas_spark.writing.rows import data_of, places

__all__ = ["COLUMNS", "in_order", "targets_of"]

RUN_ROWS = 1024
COLUMNS = ("target", "partition", "offset", "timestamp", "key", "value", "headers")
_HEADERS = "array<struct<key: string, value: binary>>"
_DDL = f"target int, partition int, offset bigint, timestamp bigint, key binary, value binary, headers {_HEADERS}"


def in_order(rows: Any, *, by_key: bool, count: int) -> tuple[Any, Any]:
    """Return the rows of a table as they are to be written, unsorted and sorted, with the partition of the target.

    `timestamp` is in milliseconds since 1970. `count` is the number of partitions of the target.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415 - only who runs a job has Spark

    plain = rows.select(
        f.col("partition").alias("target"),
        "partition",
        "offset",
        f.unix_millis("timestamp").alias("timestamp"),
        "key",
        "value",
        "headers",
    )
    if by_key:

        def run(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                targets = pa.array(targets_of(batch, count), pa.int32())
                yield pa.RecordBatch.from_arrays([targets, *batch.columns[1:]], names=list(COLUMNS))

        plain = plain.mapInArrow(run, _DDL)
    order = ("target", "offset", "partition") if by_key else ("target", "offset")
    return plain, plain.repartition(count, "target").sortWithinPartitions(*order)


def targets_of(batch: Any, count: int) -> Any:
    """Return the partition of each row, chosen by its key."""
    keys = batch.column("key").cast(pa.binary())
    starts, sizes = places(keys)
    hashed = (hashes(Keys(data_of(keys), starts, sizes)) & np.uint32(0x7FFFFFFF)).astype(np.int64)
    offsets, partitions = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("offset", "partition"))
    turns = offsets // RUN_ROWS + partitions
    return (np.where(sizes < 0, turns, hashed) % count).astype(np.int32)
