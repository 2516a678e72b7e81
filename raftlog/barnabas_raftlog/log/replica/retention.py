"""Tells which of a log's segments have had their time. Pure.

A segment goes as a whole, and only if all of it may: every record below the high watermark, and every segment before
it gone too. Two limits are looked at, as Kafka does, and either is enough:

* *Age*: the newest record of the segment is older than `retention_ms` by its own timestamp. Segments go from the oldest
  on, up to the first that is young enough. Timestamps come from producers: if the largest one is missing or lies in the
  future, the segment is as old as its file, by the time when that was last written to. A segment whose file has not
  been looked at counts as young.
* *Size*: the other segments still have at least `retention_bytes`. So a log is kept a bit larger than the limit, never
  smaller.

The newest segment goes like the others, with everything in it, when it has no records that are not committed: a topic
that nobody writes to ends empty.

Not here: how the start of a log moves, and when files are deleted (`shortening`).
"""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Expiry", "SegmentSpan", "expired", "tells_age"]


class SegmentSpan(NamedTuple):
    """One segment: the records [base_offset, end_offset), and the largest timestamp among them, -1 for none.

    `modified_ms`: when its file was last written to; -1 if nobody has looked, or the file does not have it all yet.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int
    modified_ms: int


class Expiry(NamedTuple):
    """The log may start at `offset`: `segment_count` segments of `size_bytes` go, for a `cause`."""

    offset: int
    segment_count: int
    size_bytes: int
    cause: str


def tells_age(max_timestamp: int, now_ms: int) -> bool:
    """Tell whether a segment is as old as its largest timestamp says."""
    return 0 <= max_timestamp <= now_ms


def expired(
    segments: Sequence[SegmentSpan],
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
    *,
    retention_ms: int,
    retention_bytes: int,
) -> Expiry | None:
    """Return the part of a log that has expired, or None. `segments`: oldest first; a negative limit is none."""
    left = [span for span in segments if span.end_offset > log_start_offset]
    size_bytes = sum(span.size_bytes for span in left)
    offset = log_start_offset
    count = gone_bytes = by_age = by_size = by_file = 0
    for span in left:
        if span.end_offset > high_watermark:
            break
        if span.base_offset == span.end_offset:
            continue  # Control frames have no age, and keep nothing.
        is_told = tells_age(span.max_timestamp, now_ms)
        newest_ms = span.max_timestamp if is_told else span.modified_ms
        is_old = retention_ms >= 0 and 0 <= newest_ms < now_ms - retention_ms
        is_too_much = retention_bytes >= 0 and size_bytes - gone_bytes - span.size_bytes >= retention_bytes
        if not is_old and not is_too_much:
            break
        by_age += is_old
        by_file += is_old and not is_told
        by_size += is_too_much
        offset = span.end_offset
        count += 1
        gone_bytes += span.size_bytes
    if not count:
        return None
    causes = [f"{by_age} older than retention.ms={retention_ms}"] if by_age else []
    if by_file:
        causes[0] += f" ({by_file} by the time of the file)"
    if by_size:
        causes.append(f"{by_size} beyond retention.bytes={retention_bytes}")
    text = f"{count} segments ({gone_bytes} bytes): {', '.join(causes)}"
    return Expiry(offset, count, gone_bytes, text)
