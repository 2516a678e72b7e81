"""Reads one split in a task, and yields Arrow batches.

The next request is under way while the last answer is decoded and consumed: one answer ahead, never more. So a task
holds at most two answers and the memory of one Arrow batch.

Batches have at least `TARGET_BYTES` of plain record bytes if the range has so many, and end with a record batch of the
log. A task that is ended early (LIMIT) leaves nothing running.
"""

import concurrent.futures
from collections.abc import Iterator
from typing import Any

from barnabas_clients.consumer.decoder import CorruptRecordsError
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.columns import Columns, read_columns
from barnabas_raftlog.records.reader import batches
from barnabas_spark.clusters import cluster_for, result, submit
from barnabas_spark.options.reads import ReadOptions
from barnabas_spark.planning.plan import Split

from .arrow import to_record_batch
from .fetching import Fetched, RangeFetcher
from .values import RAW, decoder_for

__all__ = ["read_split"]

TARGET_BYTES = 4 << 20


def read_split(split: Split, options: ReadOptions, names: tuple[str, ...], value_type: Any = None) -> Iterator[Any]:
    """Yield the records of `split` as `pyarrow.RecordBatch`es with the columns called `names`.

    `value_type` is the Arrow type of the column `value`, if it is not just bytes.

    Raises:
        CorruptRecordsError: a batch cannot be read; names the batch, and the offset behind it.
        DataLossError, ClientError, KafkaError, CorruptBatchError: as `RangeFetcher.fetch`.
    """
    if split.is_empty:
        return
    timeout_s = options.poll_timeout_ms / 1000
    fetcher = result(submit(_fetcher(split, options)), timeout_s)
    values = RAW if value_type is None else decoder_for(value_type)
    position = split.start_offset
    under_way: concurrent.futures.Future[Fetched] = submit(fetcher.fetch(position))
    try:
        while position < split.end_offset:
            fetched = result(under_way, timeout_s)
            if fetched.next_offset < split.end_offset:
                under_way = submit(fetcher.fetch(fetched.next_offset))
            rest = fetched.records
            while position < fetched.next_offset and rest:
                columns = _columns(split, rest, position, with_headers="headers" in names)
                if len(columns.offsets):
                    yield to_record_batch(columns, split.topic, split.partition, names, values)
                position = columns.next_offset
                rest = columns.rest
            position = fetched.next_offset
    finally:
        under_way.cancel()


def _columns(split: Split, data: memoryview, position: int, *, with_headers: bool) -> Columns:
    try:
        return read_columns(data, position, split.end_offset, with_headers=with_headers, target_bytes=TARGET_BYTES)
    except CorruptBatchError as error:
        raise _named(split, data, position, error, with_headers=with_headers) from None


def _named(
    split: Split, data: memoryview, position: int, error: CorruptBatchError, *, with_headers: bool
) -> CorruptBatchError:
    """Return the error for damage in `data`, which names the damaged batch, as in the consumer."""
    for header, frame in batches(data, check_crc=False):
        try:
            read_columns(frame, position, split.end_offset, with_headers=with_headers)
        except CorruptBatchError as found:
            offset = max(position, header.base_offset)
            return CorruptRecordsError(
                TopicPartition(split.topic, split.partition), offset, header.end_offset, str(found)
            )
    return error


async def _fetcher(split: Split, options: ReadOptions) -> RangeFetcher:
    return RangeFetcher(await cluster_for(options, is_driver=False), split, options)
