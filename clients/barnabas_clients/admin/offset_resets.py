"""Plans resets of a group's positions: the targets, and the new offsets. Pure.

A reset names one target for all of its partitions. `planned` turns it into a new offset for each, from the offsets that
were looked up. The rules are those of Kafka's own tool, so that both give the same plan:

- a target before the start of a partition's log becomes the start, one after the end becomes the end;
- a time after the last record is the end, where the next record, which is later, will be;
- a shift counts from the committed offset, and is an error if none is committed.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, Self

from barnabas_clients.arguments import INT64_MAX, whole_number
from barnabas_clients.topic_partition import TopicPartition

__all__ = ["OffsetChange", "ResetKind", "ResetTo", "planned"]


class ResetKind(Enum):
    """The meaning of `ResetTo.value`; `EARLIEST` and `LATEST` have none."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    AGO = "ago"
    OFFSET = "offset"
    SHIFT = "shift"


class ResetTo(NamedTuple):
    """A target for a group's positions; make one with the methods below."""

    kind: ResetKind
    value: int = 0

    @classmethod
    def earliest(cls) -> Self:
        """Return the target that is the start of the log."""
        return cls(ResetKind.EARLIEST)

    @classmethod
    def latest(cls) -> Self:
        """Return the target that is the end of the log, so that only new records are read."""
        return cls(ResetKind.LATEST)

    @classmethod
    def time(cls, timestamp_ms: int) -> Self:
        """Return the target that is the first record at or after a time, in ms since 1970 (UTC)."""
        return cls(ResetKind.TIME, whole_number("timestamp_ms", timestamp_ms, 0))

    @classmethod
    def ago(cls, duration_ms: int) -> Self:
        """Return the target that is the first record not older than `duration_ms`, from 0 up."""
        return cls(ResetKind.AGO, whole_number("duration_ms", duration_ms, 0))

    @classmethod
    def offset(cls, offset: int) -> Self:
        """Return the target that is an offset, from 0 up, the same in every partition."""
        return cls(ResetKind.OFFSET, whole_number("offset", offset, 0))

    @classmethod
    def shift(cls, by: int) -> Self:
        """Return the target that is `by` records on from the committed offset, or back if negative."""
        return cls(ResetKind.SHIFT, whole_number("by", by, -INT64_MAX))

    def timestamp_ms(self, now_ms: int) -> int | None:
        """Return the time to look up, if it is `now_ms` now; None if none is needed."""
        if self.kind is ResetKind.TIME:
            return self.value
        return max(0, now_ms - self.value) if self.kind is ResetKind.AGO else None


class OffsetChange(NamedTuple):
    """The change of one partition's position. `before` is None if nothing was committed."""

    before: int | None
    after: int


def planned(
    target: ResetTo,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    committed: Mapping[TopicPartition, int],
    at_time: Mapping[TopicPartition, int],
) -> dict[TopicPartition, OffsetChange]:
    """Return the change for every partition of `ranges`, its log's [start, end).

    Args:
        target: the target of the reset.
        ranges: the partitions to reset.
        committed: the committed offsets, of those partitions that have one.
        at_time: for a target in time, the first offset at or after it; -1 if no record is that late.

    Raises:
        ValueError: a shift of a partition with no committed offset; names it.
    """
    plan = {}
    for partition, (start, end) in sorted(ranges.items()):
        assert 0 <= start <= end, (partition, start, end)
        before = committed.get(partition)
        match target.kind:
            case ResetKind.EARLIEST:
                wanted = start
            case ResetKind.LATEST:
                wanted = end
            case ResetKind.TIME | ResetKind.AGO:
                wanted = at_time[partition] if at_time[partition] >= 0 else end
            case ResetKind.OFFSET:
                wanted = target.value
            case _:
                assert target.kind is ResetKind.SHIFT
                if before is None:
                    raise ValueError(f"{partition} cannot be shifted: the group has committed nothing there")
                wanted = before + target.value
        plan[partition] = OffsetChange(before, min(max(wanted, start), end))
    return plan
