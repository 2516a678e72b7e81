"""Cuts the offsets that a table says it has into units, each of which is checked as one. Pure.

A table says twice what it has: as spans, which last, and with each commit, as ranges with the number of their rows and
their checksum. Commits of long ago may be forgotten (Delta and Iceberg expire them), so a unit may have no claim. Then
only the topic can prove its rows, as long as its log still has them.

A unit ends where a claim ends, and where the log begins: what lies before that can be compared with claims only.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas_spark.lake.ranges import CommittedRange, PartitionKey, Span
from barnabas_spark.lake.rounds import Spans, TopicLogs

__all__ = ["NO_CLAIM", "Claim", "Claims", "Unit", "check_claims", "spans_of_topic", "units_of"]

NO_CLAIM = -1


class Claim(NamedTuple):
    """What one commit says of a partition, and what the commit was for."""

    said: CommittedRange
    purpose: str


class Claims(NamedTuple):
    """Claims that do not overlap, sorted, and what is wrong with others.

    `twice` are claims of offsets that another claim has, `outside` those of offsets that no span has.
    """

    kept: Sequence[Claim]
    twice: Sequence[Claim]
    outside: Sequence[Claim]


class Unit(NamedTuple):
    """Offsets [start_offset, end_offset) of a partition. `claim` is the number of its claim; `is_in_log`: all of it."""

    key: PartitionKey
    start_offset: int
    end_offset: int
    claim: int = NO_CLAIM
    is_in_log: bool = False


def spans_of_topic(spans: Spans, claims: Sequence[Claim], topic: str, topic_id: str) -> dict[PartitionKey, list[Span]]:
    """Return the spans of a topic: those of its id, and those whose commits name no other topic."""
    others = {one.said.key.topic_id for one in claims if one.said.topic not in {"", topic}} - {topic_id}
    return {key: list(found) for key, found in sorted(spans.items()) if found and key.topic_id not in others}


def check_claims(claims: Iterable[Claim], spans: Spans) -> Claims:
    """Sort claims of the partitions in `spans`, and take out those that cannot be true beside the others."""
    kept: list[Claim] = []
    twice: list[Claim] = []
    outside: list[Claim] = []
    for one in sorted(claims, key=lambda one: one.said[:3]):
        said = one.said
        found = spans.get(said.key, ())
        before = kept[-1].said if kept and kept[-1].said.key == said.key else None
        if before is not None and before.end_offset > said.start_offset:
            twice.append(one)
        elif any(span.start_offset <= said.start_offset and said.end_offset <= span.end_offset for span in found):
            kept.append(one)
        else:
            outside.append(one)
    return Claims(kept, twice, outside)


def units_of(spans: Spans, claims: Sequence[Claim], logs: TopicLogs | None) -> list[Unit]:
    """Return all units of some spans, sorted. `claims` are those that were kept."""
    units: list[Unit] = []
    by_key: dict[PartitionKey, list[tuple[int, int, int]]] = {}
    for number, one in enumerate(claims):
        by_key.setdefault(one.said.key, []).append((one.said.start_offset, one.said.end_offset, number))
    for key, found in sorted(spans.items()):
        for span in found:
            position = span.start_offset
            inside = [
                part for part in by_key.get(key, ()) if span.start_offset <= part[0] and part[1] <= span.end_offset
            ]
            for start_offset, end_offset, number in inside:
                units += _cut(Unit(key, position, start_offset), logs)
                units += _cut(Unit(key, start_offset, end_offset, number), logs)
                position = end_offset
            units += _cut(Unit(key, position, span.end_offset), logs)
    return units


def _cut(unit: Unit, logs: TopicLogs | None) -> list[Unit]:
    """Cut a unit where its log begins and ends."""
    if unit.start_offset >= unit.end_offset:
        return []
    key = unit.key
    log = None if logs is None else _log(key, logs)
    if log is None:
        return [unit]
    inner = [edge for edge in log if unit.start_offset < edge < unit.end_offset]
    edges = [unit.start_offset, *inner, unit.end_offset]
    return [
        unit._replace(start_offset=start, end_offset=end, is_in_log=log[0] <= start and end <= log[1])
        for start, end in pairwise(edges)
        if start < end
    ]


def _log(key: PartitionKey, logs: TopicLogs) -> tuple[int, int] | None:
    log = logs.partitions.get(key.partition)
    if log is None or key != logs.key(key.partition):
        return None
    return log.start_offset, log.end_offset
