"""Holds a named snapshot, and tells what is left of its ranges. Pure.

A snapshot keeps, for each partition, the offsets [start, end) and a leader epoch in which the log reached the end. It
keeps no records. So later three things may have happened to a range:

* retention, or somebody, has deleted records from its beginning;
* the log no longer contains its end: the leader epoch now ends before it (KIP-320), or the log itself does, because a
  majority of disks was lost. Other records stand at these offsets now, or none;
* the topic was deleted, and perhaps created anew; its id tells.

Compaction is a fourth one, and leaves no trace: so topics that are compacted are not whole whatever the log says.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from barnabas_clients.protocol.snapshot_states import SnapshotTopicState

__all__ = ["Left", "LogState", "NamedSnapshot", "PinnedRange", "RangeCheck", "SnapshotTopic", "checked"]


class PinnedRange(NamedTuple):
    """The range [start_offset, end_offset) of a partition. `leader_epoch` is -1 if it is not known."""

    start_offset: int
    end_offset: int
    leader_epoch: int = -1

    @property
    def is_empty(self) -> bool:
        return self.start_offset >= self.end_offset


class SnapshotTopic(NamedTuple):
    """A topic in a snapshot: its name of then, what became of it, and its ranges by partition."""

    name: str
    topic_id: bytes
    state: SnapshotTopicState
    is_compacted: bool
    partitions: Mapping[int, PinnedRange]


class NamedSnapshot(NamedTuple):
    """A snapshot as brokers keep it. In a list of all, `topics` are a few of them, without their ranges.

    `best_effort`: it was made of topics that were, or might have been, compacted. `created_at_ms` is wall-clock time.
    """

    name: str
    snapshot_id: bytes
    created_at_ms: int
    best_effort: bool
    topics_count: int
    partitions_count: int
    topics: tuple[SnapshotTopic, ...]


class LogState(NamedTuple):
    """The readable part of a partition now: `epoch_end_offset` is where a reader of the range's epoch must end."""

    log_start_offset: int
    high_watermark: int
    epoch_end_offset: int | None = None


class Left(Enum):
    """How much is left of a range."""

    WHOLE = "whole"
    PART = "part"
    NOTHING = "nothing"
    DIVERGED = "diverged"
    DELETED = "deleted"
    CREATED_ANEW = "created anew"


class RangeCheck(NamedTuple):
    """What is left of a range, and in words what is not; "" if it is whole."""

    left: Left
    reason: str = ""


TOPIC_GONE = {
    SnapshotTopicState.GONE: RangeCheck(Left.DELETED, "the topic was deleted"),
    SnapshotTopicState.CREATED_ANEW: RangeCheck(
        Left.CREATED_ANEW, "the topic was deleted; the one of that name now was created anew"
    ),
}


def checked(pinned: PinnedRange, log: LogState) -> RangeCheck:
    """Compare a range of a topic that is there with the partition's log."""
    start, end = pinned.start_offset, pinned.end_offset
    if pinned.is_empty:
        return RangeCheck(Left.WHOLE)
    if log.log_start_offset >= end:
        reason = f"offsets {start} to {end} are gone: the log starts at {log.log_start_offset}"
        return RangeCheck(Left.NOTHING, reason)
    epoch_end = log.epoch_end_offset
    if pinned.leader_epoch >= 0 and epoch_end is not None and epoch_end < end:
        now = f"ends at offset {epoch_end}" if epoch_end >= 0 else "is not known any more"
        reason = f"the log does not contain offset {end} of leader epoch {pinned.leader_epoch}: that epoch {now}"
        return RangeCheck(Left.DIVERGED, reason)
    if log.high_watermark < end:
        reason = f"the log does not contain offset {end}: it ends at offset {log.high_watermark}"
        return RangeCheck(Left.DIVERGED, reason)
    if log.log_start_offset > start:
        return RangeCheck(Left.PART, f"offsets {start} to {log.log_start_offset} are gone")
    return RangeCheck(Left.WHOLE)
