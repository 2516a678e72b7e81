"""Writes sorted rows into a topic, with their timestamps: what a task does.

A task has all rows of some partitions of the target, in their order. At the first row of a partition it asks how far
the log has grown since the marker was set: so many rows are there, and are left out. This holds for a back-fill that
goes on, and for another attempt of a task.

*What may be doubled.* A request of an attempt that was killed may arrive after the next attempt has asked. There are at
most `IN_FLIGHT_MAX` of these. The driver counts at the end, and says so.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas_clients.producer.delivery import BatchDelivery
from barnabas_clients.producer.encoded import EncodedBatch
from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.records.compression import Compression
from barnabas_spark.clusters import run
from barnabas_spark.garbage import freeze_once
from barnabas_spark.options.reads import ReadOptions
from barnabas_spark.options.writes import WriteOptions
from barnabas_spark.writing.batches import Built, build_batches
from barnabas_spark.writing.producers import close_producer, producer_for
from barnabas_spark.writing.rows import RecordColumns

from .target import end_of

__all__ = ["RESULT_DDL", "BackfillError", "Done", "Writing", "write_sorted"]

PIECE_ROWS = 8192
IN_FLIGHT_MAX = 5
RESULT_DDL = "partition int, skipped bigint, written bigint, plain_bytes bigint"


class BackfillError(BarnabasError):
    """Rows cannot be written, or the topic is not as it should be."""


class Done(NamedTuple):
    """What was done for a partition: rows that were there, and rows that were written."""

    partition: int
    skipped: int = 0
    written: int = 0
    plain_bytes: int = 0


class Writing(NamedTuple):
    """How rows are written. `begins` are where the logs ended when the marker was set."""

    topic: str
    writes: WriteOptions
    reads: ReadOptions
    begins: Mapping[int, int]


def write_sorted(batches: Iterator[Any], how: Writing) -> Iterator[Any]:
    """Write rows that are sorted by `target`, and yield what was done, as Arrow.

    Raises:
        BackfillError: brokers refused a batch, or the topic has more rows than the back-fill.
        ClientError, KafkaError: another attempt may succeed.
    """
    freeze_once("before a task")
    done: list[Done] = []
    partition: _Partition | None = None
    try:
        for target, rows in _by_target(batches):
            if partition is None or partition.done.partition != target:
                if partition is not None:
                    done.append(partition.finish())
                partition = _Partition(target, how)
            partition.write(rows)
        if partition is not None:
            done.append(partition.finish())
    except BaseException:
        if partition is not None:
            partition.abandon()
        raise
    columns = [pa.array(column, pa.int64()) for column in zip(*done, strict=True)] or [pa.array([], pa.int64())] * 4
    columns[0] = columns[0].cast(pa.int32())
    yield pa.RecordBatch.from_arrays(columns, names=list(Done._fields))


def _by_target(batches: Iterator[Any]) -> Iterator[tuple[int, Any]]:
    """Yield pieces of rows with one target, none too large."""
    for batch in batches:
        targets = batch.column("target").to_numpy(zero_copy_only=False)
        if not len(targets):
            continue
        start = 0
        for end in [*(np.flatnonzero(np.diff(targets)) + 1).tolist(), len(targets)]:
            for at in range(start, end, PIECE_ROWS):
                yield int(targets[at]), batch.slice(at, min(PIECE_ROWS, end - at))
            start = end


class _Partition:
    """One partition of the target that is being written. Used by one thread."""

    def __init__(self, target: int, how: Writing) -> None:
        self._how = how
        self._patience_s = (how.writes.delivery_timeout_ms + how.writes.request_timeout_ms) / 1000
        self._producer = run(producer_for(how.writes), how.writes.max_block_ms / 1000).producer
        self._left_out = end_of(how.reads, how.topic, target) - how.begins[target]
        if self._left_out < 0:
            raise BackfillError(f"{how.topic}-{target} ends before the back-fill began: it was created again")
        self._under_way: list[BatchDelivery] = []
        self._compression = Compression[how.writes.compression.upper()]
        self.done = Done(target, self._left_out)

    def write(self, rows: Any) -> None:
        """Put rows on their way, but for those that are there."""
        if self._left_out >= rows.num_rows:
            self._left_out -= rows.num_rows
            return
        rows, self._left_out = rows.slice(self._left_out), 0
        columns = _columns(rows)
        built = build_batches(columns, [rows.num_rows], self._compression, self._how.writes.batch_bytes)
        self._settle()
        for one in built:
            times = columns.timestamps[one.start : one.end]
            encoded = EncodedBatch(one.frame, one.end - one.start, int(times[0]), int(times.max()))
            sending = self._producer.send_batch(self._how.topic, self.done.partition, encoded, self._patience_s)
            self._under_way.append(run(sending, self._patience_s))
        self.done = self.done._replace(
            written=self.done.written + rows.num_rows, plain_bytes=self.done.plain_bytes + _plain_bytes(built)
        )

    def finish(self) -> Done:
        """Wait until all rows are acknowledged."""
        self._settle()
        if self._left_out:
            raise BackfillError(
                f"{self._how.topic}-{self.done.partition} has {self._left_out} records more than the back-fill has "
                "rows: somebody else writes to it, or rows were doubled"
            )
        return self.done

    def abandon(self) -> None:
        """Send nothing more."""
        run(close_producer(self._how.writes, self._producer), self._how.writes.request_timeout_ms / 1000)

    def _settle(self) -> None:
        for one in self._under_way:
            run(_wait(one), self._patience_s)
            if (failure := one.failure()) is not None:
                raise BackfillError(f"{self._how.topic}-{self.done.partition}: {failure[1]}") from failure[1]
        self._under_way = []


def _columns(rows: Any) -> RecordColumns:
    keys, values, headers = (rows.column(name) for name in ("key", "value", "headers"))
    pairs = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    found = [keys.cast(pa.binary()), values.cast(pa.binary()), headers.cast(pairs)]
    # A column of nulls is none.
    kept = [None if one.null_count == rows.num_rows else one for one in found]
    times = rows.column("timestamp").to_numpy(zero_copy_only=False).astype(np.int64)
    return RecordColumns(rows.num_rows, kept[0], kept[1], kept[2], times)


def _plain_bytes(built: list[Built]) -> int:
    return sum(one.plain_bytes for one in built)


async def _wait(delivery: BatchDelivery) -> None:
    await delivery
