"""Compares what a table has with the logs of its topic, and says what is to be read next. Pure.

Three things stop an archive, each with both offsets in its message:

* *a gap:* the log starts behind the end of the table, because retention was faster. Those offsets are gone for good.
  Only who says so (`--accept-gap`) goes on, and the gap itself is committed;
* *a log that lost what the table has:* it ends before the table, or what it has below the table's end was written in
  epochs that came later than those that the table saw. Brokers that lose acknowledged records come back so. To go on
  would put other rows behind those that the log does not have any more;
* *another topic:* the table has ranges of other topics and none of this one. A topic that was deleted and created again
  is another topic, whose offsets begin anew.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas_spark.planning.plan import Split

from .ranges import PartitionKey, Span, gaps
from .table import TableError

__all__ = [
    "Gap",
    "GapError",
    "Log",
    "LostLogError",
    "OtherTopicError",
    "Spans",
    "TopicLogs",
    "backfill_splits",
    "check_ends",
    "check_topic",
    "epochs_to_ask",
    "gaps_before",
    "holes_of",
    "missing_splits",
    "next_splits",
]

Spans = Mapping[PartitionKey, Sequence[Span]]


class Log(NamedTuple):
    """One partition: [start_offset, end_offset) can be read, all of it written in `leader_epoch` or before.

    `high_watermark` is where the log itself ends, if only committed records are read and an open transaction holds them
    back. A table that was made of all records may reach up to there.
    """

    start_offset: int
    end_offset: int
    leader_epoch: int
    high_watermark: int = -1

    @property
    def log_end_offset(self) -> int:
        return max(self.end_offset, self.high_watermark)


class TopicLogs(NamedTuple):
    """A topic at one moment. `topic_id` is text; `raw_id` is None where the cluster has no ids.

    `isolation_level` says what of the logs is read.
    """

    cluster_id: str
    topic: str
    raw_id: bytes | None
    partitions: Mapping[int, Log]
    isolation_level: str = "read_uncommitted"

    @property
    def topic_id(self) -> str:
        return self.topic if self.raw_id is None else str(uuid.UUID(bytes=self.raw_id))

    def key(self, partition: int) -> PartitionKey:
        return PartitionKey(self.cluster_id, self.topic_id, partition)


class Gap(NamedTuple):
    """Offsets [start_offset, end_offset) that a table lacks and the log does not have any more."""

    partition: int
    start_offset: int
    end_offset: int


def gaps_in_words(logs: "TopicLogs", gaps: Sequence[Gap]) -> str:
    """Return what a table lacks, for a message."""
    return "; ".join(
        f"{logs.topic}-{one.partition}: the table ends at {one.start_offset}, and the log starts at {one.end_offset}"
        for one in gaps
    )


class GapError(TableError):
    """The log starts behind the end of the table."""


class LostLogError(TableError):
    """The log does not contain the end of the table any more."""


class OtherTopicError(TableError):
    """The table has rows of other topics, and none of this one."""


def check_topic(stored: Spans, logs: TopicLogs) -> None:
    """Raise `OtherTopicError` if a table has ranges, and none of them is of this topic."""
    here = (logs.cluster_id, logs.topic_id)
    others = sorted({key[:2] for key in stored if stored[key]} - {here})
    if others and not any((key.cluster_id, key.topic_id) == here for key in stored):
        cluster, topic_id = others[0]
        where = f" of cluster {cluster}" if cluster != logs.cluster_id else ""
        raise OtherTopicError(
            f"the table has rows of the topic with id {topic_id}{where}, and {logs.topic} has id {logs.topic_id}: "
            "it is another topic, or it was deleted and created again; --restart-topic archives it from its start, "
            "into the same table"
        )


def gaps_before(stored: Spans, logs: TopicLogs) -> list[Gap]:
    """Return the offsets between the end of the table and the start of the log, by partition."""
    found = []
    for partition, log in sorted(logs.partitions.items()):
        spans = stored.get(logs.key(partition), ())
        if spans and spans[-1].end_offset < log.start_offset:
            found.append(Gap(partition, spans[-1].end_offset, log.start_offset))
    return found


def epochs_to_ask(stored: Spans, logs: TopicLogs) -> dict[int, int]:
    """Return the epoch in which the end of the table was written, for each partition where it is known."""
    newest = {partition: stored.get(logs.key(partition), ())[-1:] for partition in logs.partitions}
    return {
        partition: spans[0].leader_epoch for partition, spans in newest.items() if spans and spans[0].leader_epoch >= 0
    }


def check_ends(stored: Spans, logs: TopicLogs, epoch_ends: Mapping[int, int]) -> None:
    """Check that every log contains the end of the table. `epoch_ends` answers `epochs_to_ask`; -1: older than the log.

    Raises:
        LostLogError: it does not.
    """
    for partition, log in sorted(logs.partitions.items()):
        spans = stored.get(logs.key(partition), ())
        if not spans:
            continue
        end_offset, leader_epoch = spans[-1].end_offset, spans[-1].leader_epoch
        name = f"{logs.topic}-{partition}"
        if log.log_end_offset < end_offset:
            raise LostLogError(
                f"{name}: the table ends at {end_offset}, and the log at {log.log_end_offset}: the log lost records"
            )
        contained = epoch_ends.get(partition, end_offset)
        if max(contained, log.start_offset) < end_offset:
            raise LostLogError(
                f"{name}: the table ends at {end_offset} (epoch {leader_epoch}), and what the log has of that epoch "
                f"and before ends at {max(contained, log.start_offset)}: it lost records and has others in their place"
            )


def missing_splits(stored: Spans, logs: TopicLogs) -> list[Split]:
    """Return all that the table lacks of the logs: holes, and what lies before and behind what it has.

    Raises:
        GapError: a hole reaches below the start of its log.
    """
    found = []
    for partition, log in sorted(logs.partitions.items()):
        spans = stored.get(logs.key(partition), ())
        for hole in gaps(spans):
            if hole.start_offset < log.start_offset:
                raise GapError(
                    f"{logs.topic}-{partition}: the table lacks [{hole.start_offset}, {hole.end_offset}), and the log "
                    f"starts at {log.start_offset}: what lies before that is gone"
                )
        # Where only committed records are read, a table of all records may end behind them: nothing is missing then.
        ends = [log.start_offset, *(edge for span in spans for edge in span[:2]), log.end_offset]
        for start_offset, end_offset in zip(ends[::2], ends[1::2], strict=True):
            if start_offset < end_offset:
                found.append(Split(logs.topic, logs.raw_id, partition, log.leader_epoch, start_offset, end_offset))
    return found


def backfill_splits(stored: Spans, logs: TopicLogs, start_offset: int, end_offset: int) -> list[Split]:
    """Return the first hole of each partition within [start_offset, end_offset), as far as its log has it.

    What lies before the first range of a partition is a hole, too; what lies behind the last one is for the archive.
    """
    found = []
    for partition, log in sorted(logs.partitions.items()):
        spans = stored.get(logs.key(partition), ())
        if not spans:
            continue
        holes = [Span(0, spans[0].start_offset), *gaps(spans)]
        lowest = max(start_offset, log.start_offset)
        cut = [(max(one.start_offset, lowest), min(one.end_offset, end_offset, log.end_offset)) for one in holes]
        first = next(((start, end) for start, end in cut if start < end), None)
        if first is not None:
            found.append(Split(logs.topic, logs.raw_id, partition, log.leader_epoch, *first))
    return found


def holes_of(stored: Spans, logs: TopicLogs) -> list[tuple[int, Span, bool]]:
    """Return the holes of each partition, and whether its log still has all of them. Committed gaps are none."""
    found = []
    for partition, log in sorted(logs.partitions.items()):
        spans = stored.get(logs.key(partition), ())
        before = [Span(log.start_offset, spans[0].start_offset)] if spans else []
        holes = [hole for hole in [*before, *gaps(spans)] if hole.start_offset < hole.end_offset]
        found += [(partition, hole, hole.start_offset >= log.start_offset) for hole in holes]
    return found


def next_splits(stored: Spans, logs: TopicLogs) -> list[Split]:
    """Return what the table does not have yet of each log, from its own end on; what has most offsets first."""
    found = []
    for partition, log in logs.partitions.items():
        spans = stored.get(logs.key(partition), ())
        start_offset = spans[-1].end_offset if spans else log.start_offset
        if start_offset < log.end_offset:
            found.append(Split(logs.topic, logs.raw_id, partition, log.leader_epoch, start_offset, log.end_offset))
    return sorted(found, key=lambda one: (one.start_offset - one.end_offset, one.partition))
