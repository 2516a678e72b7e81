"""Decides what a read by the name of a snapshot reads. Pure.

At the first use of a name the options are resolved as for any read, and the ranges are kept by the brokers: the
*vector*, with topic id, leader epoch, start and end of each partition, empty ranges included. From then on the vector
decides, and options about ends have no effect. Which of its topics are read is still a matter of `subscribe`, `assign`
and `subscribePattern`, so a snapshot of several topics gives one DataFrame for each. Partitions that a topic got later
are not in it.

*The same rows or an error.* A log that no longer contains the end that was seen has other rows at the same offsets:
that stops the read, whatever the options say. Rows that are gone (retention, a deleted topic, a topic created anew) are
told all together, and are an error unless `failOnDataLoss` is false. Compaction removes rows without a trace, so a
topic that is compacted is refused, also one that was made so later, unless `snapshotCompacted` is `best-effort`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas_clients.admin.snapshot_ranges import Left, NamedSnapshot, PinnedRange, RangeCheck
from barnabas_clients.topic_partition import TopicPartition as Key
from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.options.names import OptionError
from barnabas_spark.options.reads import EARLIEST, LATEST, Position, ReadOptions, Topics
from barnabas_spark.options.values import TopicPartition
from barnabas_spark.planning.plan import DataLossError, Split

__all__ = [
    "SnapshotDivergedError",
    "Vector",
    "check_compacted",
    "chosen",
    "left_of",
    "needless_options",
    "pinned_options",
    "vector_of",
]

NAMES_SHOWN = 10
_COMPACTED = "records may vanish from the snapshot, and nobody can tell which; set snapshotCompacted to best-effort"


class SnapshotDivergedError(BarnabasError):
    """A log no longer contains the end of a range: other rows may stand at its offsets, so nothing is read."""


class Vector(NamedTuple):
    """The ranges that one read takes from a snapshot, none of them empty, and the ids of their topics."""

    ranges: Mapping[Key, PinnedRange]
    topic_ids: Mapping[str, bytes]


def vector_of(ranges: Sequence[Split], end_epochs: Mapping[TopicPartition, int]) -> dict[bytes, dict[int, PinnedRange]]:
    """Return resolved ranges as the brokers keep them. `end_epochs` has the leader epoch of each log's end."""
    kept: dict[bytes, dict[int, PinnedRange]] = {}
    for one in ranges:
        assert one.topic_id is not None, "brokers with snapshots have topic ids"
        end_offset = max(one.start_offset, one.end_offset)
        pinned = PinnedRange(one.start_offset, end_offset, end_epochs[one.topic, one.partition])
        kept.setdefault(one.topic_id, {})[one.partition] = pinned
    return kept


def chosen(snapshot: NamedSnapshot, topics: Topics) -> NamedSnapshot:
    """Return the part of a snapshot that the options ask for.

    Raises:
        OptionError: something is asked for that is not in the snapshot.
    """
    by_name = {topic.name: topic for topic in snapshot.topics}
    assigned: dict[str, list[int]] = {}
    for assigned_topic, partition in topics.assign:
        assigned.setdefault(assigned_topic, []).append(partition)
    wanted: Sequence[str] = topics.subscribe or tuple(assigned)
    if topics.pattern:
        wanted = [name for name in by_name if re.fullmatch(topics.pattern, name)]
    missing = [name for name in wanted if name not in by_name]
    if missing or not wanted:
        what = f"no topic {missing[0]!r}" if missing else f"no topic that matches {topics.pattern!r}"
        raise OptionError("snapshot", f"{snapshot.name!r} holds {what}, but {_listed(sorted(by_name))}")
    parts = []
    for name in wanted:
        topic = by_name[name]
        partitions = assigned.get(name, list(topic.partitions))
        if absent := sorted(set(partitions) - set(topic.partitions)):
            raise OptionError("snapshot", f"{snapshot.name!r} does not hold partition {absent[0]} of topic {name!r}")
        parts.append(topic._replace(partitions={number: topic.partitions[number] for number in sorted(partitions)}))
    return snapshot._replace(topics=tuple(parts))


def check_compacted(snapshot: NamedSnapshot, options: ReadOptions) -> None:
    """Refuse topics that are compacted by now, unless best effort will do.

    Raises:
        OptionError: names the first one.
    """
    names = [topic.name for topic in snapshot.topics if topic.is_compacted]
    if names and not options.snapshot_best_effort:
        raise OptionError("snapshot", f"topic {names[0]!r} is compacted: {_COMPACTED}")


def left_of(
    snapshot: NamedSnapshot, checks: Mapping[Key, RangeCheck], options: ReadOptions
) -> tuple[Vector, list[str]]:
    """Return the ranges of which something is left, and warnings about what is not.

    Raises:
        SnapshotDivergedError: a log no longer contains the end of a range.
        DataLossError: rows are gone, and `failOnDataLoss` is true.
    """
    gone = [(key, check) for key, check in checks.items() if check.left is not Left.WHOLE]
    diverged = [(key, check) for key, check in gone if check.left is Left.DIVERGED]
    if diverged:
        raise SnapshotDivergedError(f"snapshot {snapshot.name!r} cannot be read again: {_told(diverged)}")
    if gone and options.fail_on_data_loss:
        raise DataLossError(f"snapshot {snapshot.name!r} is not whole any more: {_told(gone)}")
    # What is partly gone is told by the plan, which leaves it out.
    lost = [(key, check) for key, check in gone if check.left is not Left.PART]
    warnings = [
        f"snapshot {snapshot.name!r}: {key}: {check.reason}; failOnDataLoss is false, so it is left out"
        for key, check in lost
    ]
    without = {key for key, _ in lost}
    ranges = {
        key: pinned
        for topic in snapshot.topics
        for partition, pinned in topic.partitions.items()
        if (key := Key(topic.name, partition)) not in without and not pinned.is_empty
    }
    return Vector(ranges, {topic.name: topic.topic_id for topic in snapshot.topics}), warnings


def pinned_options(options: ReadOptions, vector: Vector) -> ReadOptions:
    """Return the options of a read of exactly these ranges."""
    keys: dict[TopicPartition, PinnedRange] = {(key.topic, key.partition): one for key, one in vector.ranges.items()}
    return options._replace(
        topics=Topics(assign=tuple(keys)),
        starting=Position("snapshot", EARLIEST, {key: one.start_offset for key, one in keys.items()}),
        ending=Position("snapshot", LATEST, {key: one.end_offset for key, one in keys.items()}),
    )


def needless_options(options: ReadOptions) -> list[str]:
    """Return the names of options about ends that were given, though the snapshot decides."""
    ends = (options.starting, options.ending)
    return [one.option for one in ends if (one.offsets, one.timestamp_ms, one.timestamps_ms) != (None, None, None)]


def _told(checks: Sequence[tuple[Key, RangeCheck]]) -> str:
    told = "; ".join(f"{key}: {check.reason}" for key, check in checks[:NAMES_SHOWN])
    more = len(checks) - NAMES_SHOWN
    return f"{told}; and {more} more partitions" if more > 0 else told


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:NAMES_SHOWN]))
    more = len(names) - NAMES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
