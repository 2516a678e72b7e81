"""Judges what an audit has found out: what is wrong, what is worth knowing, and what was proved.

*Wrong* is whatever means that a row is not where it should be, or is not what it was. *Noted* is what somebody has
accepted before, or what cannot be known. Lag is neither.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas_spark.lake.ranges import PartitionKey, gaps
from barnabas_spark.lake.rounds import LostLogError, check_ends

from .evidence import Evidence
from .fragments import HOLES_MAX, Fragment, joined_fragments
from .units import NO_CLAIM, Claim

__all__ = ["Finding", "findings_of", "missing_ranges"]


class Finding(NamedTuple):
    """One thing that was found. Offsets are [start_offset, end_offset); -1 where there is none, as with `partition`."""

    kind: str
    is_wrong: bool
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    text: str


def findings_of(seen: Evidence) -> list[Finding]:
    """Return all findings, what is wrong first."""
    found = [
        *_of_topic(seen),
        *_of_files(seen),
        *_of_claims(seen),
        *_of_rows(seen),
        *_of_log(seen),
        *_of_spans(seen),
        *_of_ends(seen),
        *_of_group(seen),
    ]
    return sorted(found, key=lambda one: (not one.is_wrong, one.partition, one.start_offset))


def missing_ranges(one: Fragment | None, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
    """Return the offsets of [start_offset, end_offset) that have no row, as ranges; the first `HOLES_MAX` of them."""
    if one is None:
        return [(start_offset, end_offset)]
    edges = [(start_offset, one.first_offset), *one.holes, (one.last_offset + 1, end_offset)]
    return [(start, end) for start, end in edges if start < end][:HOLES_MAX]


def _wrong(kind: str, key: PartitionKey, start_offset: int, end_offset: int, text: str) -> Finding:
    return Finding(kind, True, key.topic_id, key.partition, start_offset, end_offset, text)


def _noted(kind: str, key: PartitionKey, start_offset: int, end_offset: int, text: str) -> Finding:
    return Finding(kind, False, key.topic_id, key.partition, start_offset, end_offset, text)


def _of_topic(seen: Evidence) -> Iterator[Finding]:
    if seen.logs is None or not seen.spans:
        return
    ids = {key.topic_id for key in seen.spans}
    here = seen.logs.topic_id
    if here not in ids:
        others = ", ".join(sorted(ids))
        text = f"the lake has rows of the topic with id {others}, and {seen.topic} has id {here}: it was created again"
        yield Finding("another topic", True, here, -1, -1, -1, text)
    elif len(ids) > 1:
        others = ", ".join(sorted(ids - {here}))
        text = f"the lake also has rows of earlier topics of this name, with id {others}; no log can prove them"
        yield Finding("earlier topic", False, here, -1, -1, -1, text)


def _of_files(seen: Evidence) -> Iterator[Finding]:
    for file in seen.files:
        rows = seen.expected.get(file.path, file.rows)
        if file.is_missing:
            yield Finding("missing file", True, "", -1, -1, -1, f"{file.path} is not there")
        elif file.trouble:
            yield Finding("unreadable file", True, "", -1, -1, -1, f"{file.path} cannot be read: {file.trouble}")
        elif rows != file.rows:
            text = f"{file.path} has {file.rows} rows, and the table says {rows}"
            yield Finding("other file", True, "", -1, -1, -1, text)
        for one in file.strange:
            key = PartitionKey("", one.topic_id, one.partition)
            text = f"{_rows(one.rows)} in {file.path} whose offsets no commit covers"
            yield _wrong("stray rows", key, one.first_offset, one.last_offset + 1, text)


def _of_claims(seen: Evidence) -> Iterator[Finding]:
    for one in seen.claims.twice:
        yield _wrong("range said twice", *_place(one), "another commit says that it has some of these offsets, too")
    for one in seen.claims.outside:
        text = "a commit says that the table has these offsets, and the table says that it has not"
        yield _wrong("range lost", *_place(one), text)
    for one in seen.claims.kept:
        if one.purpose == "gap":
            text = "gone from the log before they were archived; a commit accepted that"
            yield _noted("accepted gap", *_place(one), text)


def _place(one: Claim) -> tuple[PartitionKey, int, int]:
    return one.said.key, one.said.start_offset, one.said.end_offset


def _of_rows(seen: Evidence) -> Iterator[Finding]:
    """Compare the files with what commits say of them."""
    by_claim: dict[int, list[Fragment]] = {}
    for number, unit in enumerate(seen.units):
        measured = seen.lake.get(number)
        if unit.claim != NO_CLAIM:
            by_claim.setdefault(unit.claim, []).extend([measured] if measured else [])
        elif seen.location:
            yield from _of_unclaimed(seen, number, measured)
    for claim, parts in sorted(by_claim.items()):
        one = seen.claims.kept[claim]
        yield from _of_claim(one, joined_fragments(parts))


def _of_claim(claim: Claim, measured: Fragment | None) -> Iterator[Finding]:
    said = claim.said
    key, start_offset, end_offset = _place(claim)
    rows = 0 if measured is None else measured.rows
    if measured is not None and measured.doubled:
        text = f"{_rows(measured.doubled)} twice or more; offset {measured.doubled_offset} is the first"
        yield _wrong("doubled rows", key, start_offset, end_offset, text)
    if rows < said.rows:
        places = _shown(missing_ranges(measured, start_offset, end_offset))
        text = f"{_rows(said.rows - rows)} of {said.rows} are gone; no row at {places}"
        yield _wrong("lost rows", key, start_offset, end_offset, text)
    elif rows > said.rows:
        text = f"{_rows(rows)}, and the commit says {said.rows}"
        yield _wrong("extra rows", key, start_offset, end_offset, text)
    elif measured is not None and measured.checksum is None:
        text = "the files lack columns of the record, so the checksum cannot be computed again"
        yield _noted("no checksum", key, start_offset, end_offset, text)
    elif measured is not None and measured.checksum is not None and measured.checksum.value != said.crc:
        text = (
            f"as many rows as were committed, with other content: CRC {measured.checksum.value:08x}, not {said.crc:08x}"
        )
        yield _wrong("changed rows", key, start_offset, end_offset, text)


def _of_unclaimed(seen: Evidence, number: int, measured: Fragment | None) -> Iterator[Finding]:
    unit = seen.units[number]
    place = (unit.key, unit.start_offset, unit.end_offset)
    if measured is not None and measured.doubled:
        text = f"{_rows(measured.doubled)} twice or more; offset {measured.doubled_offset} is the first"
        yield _wrong("doubled rows", *place, text)
    if number not in seen.log:
        missing = unit.end_offset - unit.start_offset - (0 if measured is None else measured.rows)
        also = f"; {missing} offsets have no row" if missing else ""
        text = f"no commit that the table still knows says what is in these offsets, and no log was read{also}"
        yield _noted("not proved", *place, text)


def _of_log(seen: Evidence) -> Iterator[Finding]:
    """Compare the files with the log, where it was read; without a lake, look at the log alone."""
    for number, in_log in sorted(seen.log.items()):
        unit = seen.units[number]
        place = (unit.key, unit.start_offset, unit.end_offset)
        if in_log.trouble:
            yield _wrong("unreadable log", *place, in_log.trouble)
            continue
        if in_log.fragment is not None and not in_log.fragment.is_sorted:
            yield _wrong("unordered log", *place, "offsets of the log go back")
        if seen.location:
            yield from _of_both(seen, place, seen.lake.get(number), in_log.fragment)


def _of_both(
    seen: Evidence, place: tuple[PartitionKey, int, int], lake: Fragment | None, log: Fragment | None
) -> Iterator[Finding]:
    rows, in_log = (0 if one is None else one.rows for one in (lake, log))
    if rows != in_log:
        text = f"the lake has {_rows(rows)}, and the log {_rows(in_log)}"
        if seen.is_compacted and in_log < rows:
            yield _noted("compacted", *place, f"{text}: compaction has removed the others since")
        else:
            holes = missing_ranges(lake, *place[1:]) if rows < in_log else []
            also = f"; no row in the lake at {_shown(holes)}" if holes else ""
            yield _wrong("unlike the log", *place, f"{text}{also}")
    elif lake is not None and log is not None and lake.checksum is not None and log.checksum is not None:
        crc, crc_of_log = lake.checksum.value, log.checksum.value
        if crc != crc_of_log:
            text = f"the rows of the lake are not those of the log: CRC {crc:08x}, and {crc_of_log:08x}"
            yield _wrong("unlike the log", *place, text)


def _of_spans(seen: Evidence) -> Iterator[Finding]:
    for key, spans in seen.spans.items():
        log = None if seen.logs is None or key != seen.logs.key(key.partition) else seen.logs.partitions[key.partition]
        holes = list(gaps(spans))
        if log is not None and log.start_offset < spans[0].start_offset:
            holes.insert(0, spans[0]._replace(start_offset=log.start_offset, end_offset=spans[0].start_offset))
        for hole in holes:
            if log is None:
                advice = "nobody knows whether the log still has them"
            elif hole.start_offset >= log.start_offset:
                advice = "the log has them: archive --from-offset fills the hole"
            else:
                advice = f"the log starts at {log.start_offset}"
            count = hole.end_offset - hole.start_offset
            text = f"the lake lacks {count} offsets before what it has; {advice}"
            yield _wrong("hole", key, hole.start_offset, hole.end_offset, text)


def _of_ends(seen: Evidence) -> Iterator[Finding]:
    """Compare where the lake ends with the logs."""
    if seen.logs is None:
        return
    for partition, log in sorted(seen.logs.partitions.items()):
        key = seen.logs.key(partition)
        spans = seen.spans.get(key, ())
        if not spans or not seen.location:
            continue
        end_offset = spans[-1].end_offset
        if end_offset < log.start_offset:
            text = f"the lake ends at {end_offset}, and the log starts at {log.start_offset}: what lies between is gone"
            yield _wrong("gap", key, end_offset, log.start_offset, text)
        try:
            alone = seen.logs._replace(partitions={partition: log})
            check_ends(seen.spans, alone, seen.epoch_ends)
        except LostLogError as error:
            yield _wrong("lake ahead of the log", key, min(log.end_offset, end_offset), end_offset, str(error))


def _of_group(seen: Evidence) -> Iterator[Finding]:
    if seen.logs is None:
        return
    for partition, offset in seen.positions:
        log = seen.logs.partitions.get(partition)
        if offset is None or log is None:
            continue
        key = seen.logs.key(partition)
        if offset < log.start_offset:
            text = f"group {seen.group} is at {offset}, and the log starts at {log.start_offset}: it never reads them"
            yield _wrong("lost to the group", key, offset, log.start_offset, text)
        elif offset > log.log_end_offset:
            text = f"group {seen.group} is at {offset}, and the log ends at {log.log_end_offset}"
            yield _wrong("group ahead of the log", key, log.log_end_offset, offset, text)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _shown(ranges: Sequence[tuple[int, int]]) -> str:
    texts = [str(start) if end == start + 1 else f"[{start}, {end})" for start, end in ranges[:5]]
    return ", ".join(texts) + (", ..." if len(ranges) > 5 else "")
