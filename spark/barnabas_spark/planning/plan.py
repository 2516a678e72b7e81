"""Plans the ranges that tasks read, from a snapshot of the cluster. Pure.

A `Snapshot` is taken before anything is read (snapshot.py): every partition and its end, with all high watermarks
first. From it and the options follow fixed half-open ranges, so every query over one loaded DataFrame sees the same
records, whatever is written meanwhile. Spark's own source binds "latest" when each task runs.

*Data loss.* If the log does not have the offsets asked for, any more or yet, records are missing that somebody counted
on. That is an error, unless `failOnDataLoss` is false: then the range is cut to the offsets that exist, and a warning
names the others. An end before its start is always an error.

Here each partition is one range. `splitting` cuts large ranges, and `packing` gives several small ones to one task.
Empty ranges make no split, but there is always at least one split: PySpark hands a reader whose list is empty a `None`
instead.
"""

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
    """A range: [start_offset, end_offset) of a partition, led in `leader_epoch` when it was planned.

    A task reads one, or several small ones one after the other. `size_bytes` is about its size, -1 if nobody knows.
    """

    topic: str
    topic_id: bytes | None
    partition: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    size_bytes: int = -1

    @property
    def offsets(self) -> int:
        """How many there are: an upper bound of its records, because of compaction and transaction markers."""
        return max(0, self.end_offset - self.start_offset)

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
    """Resolve both ends of every partition: the splits are whole ranges.

    Raises:
        OptionError, DataLossError: as `ranges_of`.
    """
    ranges, warnings = ranges_of(options, snapshot)
    splits = [one for one in ranges if not one.is_empty]
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
    warnings = [] if snapshot.partitions else ["no topic matches subscribePattern, so there are no rows"]
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
