"""Reads the splits of a task, one after the other, and yields Arrow batches.

The next request is under way while the last answer is decoded and consumed, also when it is the first one of the next
split: one answer ahead. So a task holds at most two answers and the memory of one Arrow batch.

*Small splits.* The first requests of up to `AHEAD_MAX` next splits, each of which is known to have `AHEAD_BYTES` at
most, are under way, too: a task with many of them does not wait for a round trip for each.

Batches have at least `TARGET_BYTES` of plain record bytes if the answer has so many, and end with a record batch of the
log. Where neither keys, values nor headers are wanted they have `NARROW_TARGET_BYTES`: each batch costs the same on its
way through Spark, however little it holds. A task that is ended early (LIMIT) leaves nothing running.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from barnabas_clients.consumer.decoder import CorruptRecordsError
from barnabas_clients.topic_partition import TopicPartition
from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.records.arrow import ArrowRead, read_arrow
from barnabas_raftlog.records.reader import batches
from barnabas_raftlog.records.walker.arrow_parts import Wanted
from barnabas_spark.clusters import cluster_for, result, submit
from barnabas_spark.options.reads import ReadOptions
from barnabas_spark.planning.plan import Split

from .arrow import to_record_batch, wanted_of
from .fetching import Fetched, RangeFetcher
from .values import RAW, decoder_for

__all__ = ["read_split", "read_splits"]

TARGET_BYTES = 4 << 20
NARROW_TARGET_BYTES = 16 << 20
AHEAD_MAX = 8
AHEAD_BYTES = 64 << 10
_NOTHING = Wanted(offsets=False, timestamps=False, timestamp_types=False, keys=False, values=False)


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
    wanted = wanted_of(names)
    is_narrow = not (wanted.keys or wanted.values or wanted.headers)
    target_bytes = NARROW_TARGET_BYTES if is_narrow else TARGET_BYTES
    for answer in _answers(splits, options):
        split, position, fetched = answer
        rest = fetched.records
        while position < fetched.next_offset and rest:
            read = _read(split, rest, position, wanted, target_bytes)
            if read.columns.rows:
                yield to_record_batch(read.columns, split.topic, split.partition, names, values)
            position = read.next_offset
            rest = read.rest


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
    except BaseException:  # Also if the task is ended early. Behind the last answer nothing is under way.
        under_way.cancel()
        submit(fetches.close())
        raise


class _Fetches:
    """Fetches all of the splits, one fetch after the other. Lives on the loop of clusters.py."""

    def __init__(self, splits: Sequence[Split], options: ReadOptions) -> None:
        self._options = options
        self._left = deque(split for split in splits if not split.is_empty)
        self._position = self._left[0].start_offset if self._left else 0
        # The next fetch of each of the first splits that are left.
        self._under_way: deque[tuple[RangeFetcher, asyncio.Task[Fetched]]] = deque()

    async def next(self) -> _Answer | None:
        """Fetch once more; None: all is there."""
        if not self._left:
            return None
        await self._begin()
        split, position = self._left[0], self._position
        fetcher, under_way = self._under_way.popleft()
        fetched = await under_way
        self._position = fetched.next_offset
        if self._position < split.end_offset:
            self._under_way.appendleft((fetcher, _fetch(fetcher, self._position)))
        else:
            self._left.popleft()
            self._position = self._left[0].start_offset if self._left else 0
        return _Answer(split, position, fetched)

    async def close(self) -> None:
        """End what is under way."""
        for _, under_way in self._under_way:
            under_way.cancel()

    async def _begin(self) -> None:
        """Begin the first split that is left, and with it the small ones behind it."""
        for split in islice(self._left, len(self._under_way), AHEAD_MAX + 1):
            if self._under_way and not 0 < split.size_bytes <= AHEAD_BYTES:
                return
            fetcher = RangeFetcher(await cluster_for(self._options, is_driver=False), split, self._options)
            self._under_way.append((fetcher, _fetch(fetcher, split.start_offset)))


def _fetch(fetcher: RangeFetcher, position: int) -> "asyncio.Task[Fetched]":
    task = asyncio.create_task(fetcher.fetch(position))
    # Whoever waits for it gets its error. If nobody does any more, nobody is to hear of it.
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return task


def _read(split: Split, data: memoryview, position: int, wanted: Wanted, target_bytes: int) -> ArrowRead:
    try:
        return read_arrow(data, position, split.end_offset, wanted, target_bytes=target_bytes)
    except CorruptBatchError as error:
        raise _named(split, data, position, error) from None


def _named(split: Split, data: memoryview, position: int, error: CorruptBatchError) -> CorruptBatchError:
    """Return the error for damage in `data`, which names the damaged batch, as in the consumer."""
    for header, frame in batches(data, check_crc=False):
        try:
            read_arrow(frame, position, split.end_offset, _NOTHING)
        except CorruptBatchError as found:
            offset = max(position, header.base_offset)
            return CorruptRecordsError(
                TopicPartition(split.topic, split.partition), offset, header.end_offset, str(found)
            )
    return error
