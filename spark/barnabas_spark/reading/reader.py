"""Reads the splits of a task, one after the other, and yields Arrow batches.

The next request is under way while the last answer is decoded and consumed, also when it is the first one of the next
split: one answer ahead, never more. So a task holds at most two answers and the memory of one Arrow batch.

Batches have at least `TARGET_BYTES` of plain record bytes if the range has so many, and end with a record batch of the
log. A task that is ended early (LIMIT) leaves nothing running.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

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

__all__ = ["read_split", "read_splits"]

TARGET_BYTES = 4 << 20


class _Answer(NamedTuple):
    """What a fetch at `position` of a split brought."""

    split: Split
    position: int
    fetched: Fetched


def read_split(split: Split, options: ReadOptions, names: tuple[str, ...], value_type: Any = None) -> Iterator[Any]:
    """Yield the records of one split, as `read_splits`."""
    return read_splits((split,), options, names, value_type)


def read_splits(
    splits: Sequence[Split], options: ReadOptions, names: tuple[str, ...], value_type: Any = None
) -> Iterator[Any]:
    """Yield the records of `splits`, in order, as `pyarrow.RecordBatch`es with the columns called `names`.

    `value_type` is the Arrow type of the column `value`, if it is not just bytes.

    Raises:
        CorruptRecordsError: a batch cannot be read; names the batch, and the offset behind it.
        DataLossError, ClientError, KafkaError, CorruptBatchError: as `RangeFetcher.fetch`.
    """
    values = RAW if value_type is None else decoder_for(value_type)
    for answer in _answers(splits, options):
        split, position, fetched = answer
        rest = fetched.records
        while position < fetched.next_offset and rest:
            columns = _columns(split, rest, position, with_headers="headers" in names)
            if len(columns.offsets):
                yield to_record_batch(columns, split.topic, split.partition, names, values)
            position = columns.next_offset
            rest = columns.rest


def _answers(splits: Sequence[Split], options: ReadOptions) -> Iterator[_Answer]:
    """Yield what every fetch brings. The next one is under way meanwhile."""
    # Longer than the deadline of a fetch by that of connecting, which comes before the first one.
    timeout_s = 2 * options.poll_timeout_ms / 1000
    fetches = _Fetches(splits, options)
    under_way = submit(fetches.next())
    try:
        while (answer := result(under_way, timeout_s)) is not None:
            under_way = submit(fetches.next())
            yield answer
    finally:
        under_way.cancel()


class _Fetches:
    """Fetches all of the splits, one fetch after the other. Lives on the loop of clusters.py."""

    def __init__(self, splits: Sequence[Split], options: ReadOptions) -> None:
        self._options = options
        self._left = [split for split in reversed(splits) if not split.is_empty]
        self._position = self._left[-1].start_offset if self._left else 0
        self._fetcher: RangeFetcher | None = None

    async def next(self) -> _Answer | None:
        """Fetch once more; None: all is there."""
        if not self._left:
            return None
        split = self._left[-1]
        if self._fetcher is None:
            self._fetcher = RangeFetcher(await cluster_for(self._options, is_driver=False), split, self._options)
        position = self._position
        fetched = await self._fetcher.fetch(position)
        self._position = fetched.next_offset
        if self._position >= split.end_offset:
            self._fetcher = None
            self._left.pop()
            self._position = self._left[-1].start_offset if self._left else 0
        return _Answer(split, position, fetched)


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
