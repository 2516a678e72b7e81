"""Sums up what an audit has proved, partition by partition."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas_spark.lake.ranges import PartitionKey

from .evidence import Evidence
from .findings import Finding
from .fragments import Fragment, joined_fragments
from .units import NO_CLAIM

__all__ = ["PartitionSummary", "proved_by_claims", "proved_by_log", "summaries_of"]


class PartitionSummary(NamedTuple):
    """One partition of one topic id. None where nothing is known, or nobody asked.

    `claims_proved` of `claims` commits have the rows and the checksum that they say; `log_proved` of `log_units` pieces
    of the log have the rows and the checksum that the files have. `without_row` are offsets that never had a row, as
    far as that was proved: of control records, compacted ones, and accepted gaps. `lag` is how far the lake, or else
    the group, is behind the log.
    """

    topic_id: str
    partition: int
    start_offset: int | None
    end_offset: int | None
    rows: int
    without_row: int
    claims: int
    claims_proved: int
    log_units: int
    log_proved: int
    steps_back: int
    log_start: int | None
    log_end: int | None
    lag: int | None
    group_lag: int | None
    is_sound: bool


def summaries_of(seen: Evidence, findings: Sequence[Finding]) -> list[PartitionSummary]:
    """Return a summary of each partition that the lake or the topic has, sorted."""
    keys = set(seen.spans)
    if seen.logs is not None:
        keys |= {seen.logs.key(partition) for partition in seen.logs.partitions}
    proved = (proved_by_claims(seen), proved_by_log(seen))
    return [_summary(seen, findings, key, *proved) for key in sorted(keys)]


def _summary(
    seen: Evidence, findings: Sequence[Finding], key: PartitionKey, by_claims: set[int], by_log: set[int]
) -> PartitionSummary:
    numbers = [number for number, unit in enumerate(seen.units) if unit.key == key]
    is_current = seen.logs is not None and key == seen.logs.key(key.partition)
    log = seen.logs.partitions.get(key.partition) if seen.logs is not None and is_current else None
    source = seen.lake if seen.location else {number: one.fragment for number, one in seen.log.items()}
    measures = [one for one in (source.get(number) for number in numbers) if one is not None]
    spans = seen.spans.get(key, ())
    offsets = sum(seen.units[number].end_offset - seen.units[number].start_offset for number in numbers)
    rows = sum(one.rows for one in measures)
    claims = [at for at in range(len(seen.claims.kept)) if seen.claims.kept[at].said.key == key]
    bad = {(one.start_offset, one.end_offset) for one in findings if one.is_wrong and _is_of(one, key)}
    read_again = [number for number in numbers if number in seen.log]
    position = next((one.offset for one in seen.positions if one.partition == key.partition and is_current), None)
    # Where nothing is archived yet, all that the log has is lag.
    lake_end = spans[-1].end_offset if spans else None if log is None else log.start_offset
    return PartitionSummary(
        key.topic_id,
        key.partition,
        spans[0].start_offset if spans else None,
        spans[-1].end_offset if spans else None,
        rows,
        offsets - rows,
        len(claims),
        len(by_claims.intersection(claims)),
        len(read_again),
        len(by_log.intersection(read_again)),
        sum(one.steps_back for one in measures)
        + sum(other.first_us < one.last_us for one, other in pairwise(measures)),
        None if log is None else log.start_offset,
        None if log is None else log.end_offset,
        max(0, log.end_offset - lake_end) if log is not None and lake_end is not None and seen.location else None,
        max(0, log.end_offset - position) if log is not None and position is not None else None,
        not bad,
    )


def _is_of(one: Finding, key: PartitionKey) -> bool:
    return one.topic_id == key.topic_id and one.partition == key.partition


def proved_by_claims(seen: Evidence) -> set[int]:
    """Return the numbers of claims whose rows are there, once each, with the checksum that was committed."""
    parts: dict[int, list[int]] = {}
    for number, unit in enumerate(seen.units):
        if unit.claim != NO_CLAIM:
            parts.setdefault(unit.claim, []).append(number)
    proved = set()
    for claim, numbers in parts.items():
        said = seen.claims.kept[claim].said
        one = joined_fragments(seen.lake[number] for number in numbers if number in seen.lake)
        if one is None:
            is_proved = not said.rows
        else:
            is_proved = (one.rows, one.doubled) == (said.rows, 0) and one.checksum is not None
            is_proved = is_proved and one.checksum is not None and one.checksum.value == said.crc
        if is_proved:
            proved.add(claim)
    return proved


def proved_by_log(seen: Evidence) -> set[int]:
    """Return the numbers of units that the log has as the lake has them, or, without a lake, could be read whole."""
    proved = set()
    for number, found in seen.log.items():
        lake, log = seen.lake.get(number), found.fragment
        if found.trouble:
            continue
        if not seen.location or (lake is None and log is None) or _are_equal(lake, log):
            proved.add(number)
    return proved


def _are_equal(one: Fragment | None, other: Fragment | None) -> bool:
    if one is None or other is None or one.checksum is None or other.checksum is None:
        return False
    return (one.rows, one.checksum.value) == (other.rows, other.checksum.value)
