"""Plans the ranges that tasks read, from a snapshot of the cluster. Pure.

A `Snapshot` is taken before anything is read (snapshot.py): every partition and its end, with all high watermarks
first. From it and the options follow fixed half-open ranges, so every query over one loaded DataFrame sees the same
records, whatever is written meanwhile. Spark's own source binds "latest" when each task runs.

*Data loss.* If the log does not have the offsets asked for, any more or yet, records are missing that somebody counted
on. That is an error, unless `failOnDataLoss` is false: then the range is cut to the offsets that exist, and a warning
names the others. An end before its start is always an error.

*Splitting.* First every range is cut into parts of at most `maxRecordsPerPartition`. While there are fewer parts than
`minPartitions`, the range with the largest parts is cut into one more. Parts of a range are equal but for one record.
Counts are offsets, which are an upper bound of records because of compaction and transaction markers. Empty ranges make
no split, but there is always at least one split: PySpark hands a reader whose list is empty a `None` instead.

Deliberately not here: cutting by bytes on batch boundaries, and packing of small ranges, which need sizes from the
brokers.
"""

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import EARLIEST, LATEST, Position, ReadOptions
from barnabas_spark.options.values import TopicPartition

__all__ = [
    "DataLossError",
    "PartitionState",
    "Plan",
    "Snapshot",
    "Split",
    "make_plan",
    "ranges_of",
    "timestamps_needed",
]

# A guard against a misplaced digit: Spark itself becomes unusable long before.
SPLITS_MAX = 1_000_000


class DataLossError(BarnabasError):
    """Records that were asked for are not there, and `failOnDataLoss` is true."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}. Set failOnDataLoss to false to read what is there")


class PartitionState(NamedTuple):
    """A partition at the moment of the snapshot. `log_start_offset` to `high_watermark` could be read.

    `end_epoch` is the leader epoch in which the log reached the high watermark; -1 if it is not known.
    """

    topic_id: bytes | None
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    end_epoch: int = -1


class Snapshot(NamedTuple):
    """All partitions. `starting` and `ending` have the offset at a timestamp, or None if no record is as late."""

    partitions: Mapping[TopicPartition, PartitionState]
    starting: Mapping[TopicPartition, int | None] = {}
    ending: Mapping[TopicPartition, int | None] = {}


class Split(NamedTuple):
    """The range of one task: [start_offset, end_offset) of a partition, led in `leader_epoch` when it was planned."""

    topic: str
    topic_id: bytes | None
    partition: int
    leader_epoch: int
    start_offset: int
    end_offset: int

    @property
    def is_empty(self) -> bool:
        return self.start_offset >= self.end_offset


class Plan(NamedTuple):
    """The splits, at least one, and warnings for the user."""

    splits: Sequence[Split]
    warnings: Sequence[str]


NOTHING = Split(topic="", topic_id=None, partition=0, leader_epoch=-1, start_offset=0, end_offset=0)


def timestamps_needed(position: Position, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the timestamp to look up for each partition; empty if `position` is not about time.

    Raises:
        OptionError: timestamps by partition do not name exactly the partitions that are read.
    """
    if position.timestamp_ms is not None:
        return dict.fromkeys(partitions, position.timestamp_ms)
    if position.timestamps_ms is not None:
        _check_named(position.option, position.timestamps_ms, partitions)
        return dict(position.timestamps_ms)
    return {}


def make_plan(options: ReadOptions, snapshot: Snapshot) -> Plan:
    """Resolve both ends of every partition and cut the ranges.

    Raises:
        OptionError, DataLossError: as `ranges_of`.
    """
    ranges, warnings = ranges_of(options, snapshot)
    splits = _cut([one for one in ranges if not one.is_empty], options)
    return Plan(splits or [ranges[0] if ranges else NOTHING], warnings)


def ranges_of(options: ReadOptions, snapshot: Snapshot) -> tuple[list[Split], list[str]]:
    """Resolve both ends of every partition: return one split for each, perhaps empty, and warnings.

    Raises:
        OptionError: offsets that name other partitions, contradict each other, or a timestamp without a record.
        DataLossError: the log lacks a part of a range.
    """
    for position in (options.starting, options.ending):
        if position.offsets is not None:
            _check_named(position.option, position.offsets, snapshot.partitions)
    warnings: list[str] = []
    ranges: list[Split] = []
    for key in sorted(snapshot.partitions):
        state = snapshot.partitions[key]
        start_offset = _start(options, snapshot, key)
        end_offset = _end(options, snapshot, key)
        if start_offset > end_offset and start_offset <= state.high_watermark:
            raise OptionError(
                options.ending.option,
                f"{_name(key)} would be read from {start_offset} ({options.starting.option}) to {end_offset}",
            )
        for problem in _losses(state, start_offset, end_offset):
            text = f"{_name(key)}: {problem}"
            if options.fail_on_data_loss:
                raise DataLossError(text)
            warnings.append(f"{text}; failOnDataLoss is false, so it is left out")
        ranges.append(
            Split(
                topic=key[0],
                topic_id=state.topic_id,
                partition=key[1],
                leader_epoch=state.leader_epoch,
                start_offset=min(max(start_offset, state.log_start_offset), state.high_watermark),
                end_offset=max(min(end_offset, state.high_watermark), state.log_start_offset),
            )
        )
    return ranges, warnings


def _name(key: TopicPartition) -> str:
    return f"{key[0]}-{key[1]}"


def _check_named(option: str, named: Iterable[TopicPartition], partitions: Collection[TopicPartition]) -> None:
    """Raise unless JSON keeps Spark's rule: it names every partition that is read and no other."""
    missing = sorted(set(partitions) - set(named))
    extra = sorted(set(named) - set(partitions))
    if missing:
        raise OptionError(option, f"must name every partition; missing: {', '.join(map(_name, missing[:10]))}")
    if extra:
        raise OptionError(option, f"names partitions that are not read: {', '.join(map(_name, extra[:10]))}")


def _start(options: ReadOptions, snapshot: Snapshot, key: TopicPartition) -> int:
    position = options.starting
    state = snapshot.partitions[key]
    if key in snapshot.starting:
        offset = snapshot.starting[key]
        if offset is None and options.starting_strategy == "error":
            raise OptionError(
                position.option,
                f"{_name(key)} has no record that late; "
                "set startingOffsetsByTimestampStrategy to latest to read nothing from it",
            )
        # The record may have been written after the snapshot of high watermarks, and does not belong to it.
        return state.high_watermark if offset is None else min(offset, state.high_watermark)
    offset = position.everywhere if position.offsets is None else position.offsets[key]
    return state.log_start_offset if offset == EARLIEST else offset


def _end(options: ReadOptions, snapshot: Snapshot, key: TopicPartition) -> int:
    position = options.ending
    state = snapshot.partitions[key]
    if key in snapshot.ending:
        offset = snapshot.ending[key]
        return state.high_watermark if offset is None else min(offset, state.high_watermark)
    offset = position.everywhere if position.offsets is None else position.offsets[key]
    return state.high_watermark if offset == LATEST else offset


def _losses(state: PartitionState, start_offset: int, end_offset: int) -> list[str]:
    losses = []
    if start_offset < state.log_start_offset:
        losses.append(f"offsets {start_offset} to {state.log_start_offset} are gone, the log starts behind them")
    if (wanted := max(start_offset, end_offset)) > state.high_watermark:
        losses.append(f"offsets {state.high_watermark} to {wanted} are not there, the log ends before them")
    return losses


def _cut(ranges: Sequence[Split], options: ReadOptions) -> list[Split]:
    sizes = [one.end_offset - one.start_offset for one in ranges]
    most = options.partition_records_max
    parts = [1 if most is None else -(-size // most) for size in sizes]
    total = sum(parts)
    if options.partitions_min is not None:
        # The range with the largest parts gets the next part; equal ones in their order.
        heap = [(-size / part, at) for at, (size, part) in enumerate(zip(sizes, parts, strict=True)) if size > part]
        heapq.heapify(heap)
        while heap and total < min(options.partitions_min, SPLITS_MAX):
            _, at = heapq.heappop(heap)
            parts[at] += 1
            total += 1
            if sizes[at] > parts[at]:
                heapq.heappush(heap, (-sizes[at] / parts[at], at))
    if total > SPLITS_MAX:
        raise OptionError("maxRecordsPerPartition", f"{most} makes {total} partitions, more than {SPLITS_MAX}")
    return [
        one._replace(
            start_offset=one.start_offset + size * part // count,
            end_offset=one.start_offset + size * (part + 1) // count,
        )
        for one, size, count in zip(ranges, sizes, parts, strict=True)
        for part in range(count)
    ]
