"""Decides which ranges of offsets may be committed to a table, after those that it has. Pure.

A table of the lake holds, for each partition of a topic, disjoint ranges of offsets. A range is named by the cluster,
the topic's id (a topic that was deleted and created again is another one) and the partition. Rows and ranges are
committed together, so what the ranges say is in the table exactly once.

*Archiving* goes on where the newest range of a partition ends: a start that is not that end is refused. So a writer
that was believed dead, a second one, or one that does not know that its commit went through neither loses nor doubles a
row.
*Back-filling* puts a range where the table has nothing: one that overlaps what is there is refused.
"""

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from barnabas_raftlog.errors import BarnabasError

__all__ = ["CommittedRange", "NotNextError", "PartitionKey", "Purpose", "Span", "after", "check_next", "gaps"]


class PartitionKey(NamedTuple):
    """A partition of a topic for all time. `topic_id` is a UUID as text, or the name where clusters have no ids."""

    cluster_id: str
    topic_id: str
    partition: int


class Span(NamedTuple):
    """Offsets [start_offset, end_offset) that a table has, the last of them written in `leader_epoch` (-1: unknown)."""

    start_offset: int
    end_offset: int
    leader_epoch: int = -1


class CommittedRange(NamedTuple):
    """What a commit says of a partition. `crc` is a CRC-32C over its rows, if it has any."""

    key: PartitionKey
    start_offset: int
    end_offset: int
    leader_epoch: int
    isolation_level: str
    rows: int
    crc: int
    topic: str = ""


class Purpose(Enum):
    """What a commit is for. `GAP` records that offsets are gone for good, without rows.

    `REJECTS` goes into the table of rejects, wherever it has nothing: it need not follow what is there.
    """

    ARCHIVE = "archive"
    BACKFILL = "backfill"
    GAP = "gap"
    REJECTS = "rejects"


class NotNextError(BarnabasError):
    """A range cannot be committed, because of what the table has already. `stored` are the spans of its partition."""

    def __init__(self, proposed: CommittedRange, stored: Sequence[Span], reason: str) -> None:
        where = f"{proposed.topic or proposed.key.topic_id}-{proposed.key.partition}"
        super().__init__(f"{where}: [{proposed.start_offset}, {proposed.end_offset}) was not committed: {reason}")
        self.proposed = proposed
        self.stored = stored
        self.reason = reason


def check_next(
    stored: Mapping[PartitionKey, Sequence[Span]], proposed: Iterable[CommittedRange], purpose: Purpose
) -> None:
    """Check that all of `proposed` may be committed to a table that has `stored`, whose spans are sorted and disjoint.

    Raises:
        NotNextError: of the first range that may not; nothing may be committed then.
    """
    seen: set[PartitionKey] = set()
    for one in proposed:
        spans = stored.get(one.key, ())
        if one.start_offset >= one.end_offset:
            raise NotNextError(one, spans, "it is empty")
        if one.key in seen:
            raise NotNextError(one, spans, "the commit has another range of this partition")
        seen.add(one.key)
        if purpose in {Purpose.BACKFILL, Purpose.REJECTS}:
            hit = [span for span in spans if span.start_offset < one.end_offset and one.start_offset < span.end_offset]
            if hit:
                raise NotNextError(one, spans, f"the table has [{hit[0].start_offset}, {hit[0].end_offset})")
        elif spans and spans[-1].end_offset != one.start_offset:
            raise NotNextError(one, spans, f"the table ends at {spans[-1].end_offset}")


def after(stored: Sequence[Span], start_offset: int, end_offset: int, leader_epoch: int) -> list[Span]:
    """Return the spans of a partition with one more, which touches or leaves alone those that are there."""
    spans: list[Span] = []
    found = list(stored)
    insort(found, Span(start_offset, end_offset, leader_epoch))
    for span in found:
        if spans and spans[-1].end_offset == span.start_offset:
            spans[-1] = Span(spans[-1].start_offset, span.end_offset, span.leader_epoch)
        else:
            spans.append(span)
    return spans


def gaps(stored: Sequence[Span]) -> list[Span]:
    """Return the holes between the spans of a partition, which a back-fill may fill."""
    return [
        Span(one.end_offset, other.start_offset)
        for one, other in pairwise(stored)
        if one.end_offset < other.start_offset
    ]
