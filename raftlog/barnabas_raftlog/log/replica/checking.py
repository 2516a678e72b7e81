"""Lets the scrub check a log's sealed segments, one by one."""

from itertools import pairwise

from barnabas_raftlog.log.segments.check import SegmentCheck, SegmentPlace
from barnabas_raftlog.log.segments.segment import Segment

from .state import LogState

__all__ = ["begin_check", "mended", "segments_to_scrub"]


def segments_to_scrub(log: LogState) -> list[Segment]:
    """Return the segments that nothing is appended to any more, and that are wholly in their files."""
    if log.failed is not None or log.is_deleted:
        return []
    written_index = log.written.reached  # Entries that are still in the tail cache may be in the file, too.
    return [one for one, after in pairwise(log.segments) if after.first_index <= written_index + 1]


def begin_check(log: LogState, segment: Segment) -> SegmentCheck | None:
    """Return a check of a sealed segment as it is now; None: it is not part of the log any more."""
    if segment not in segments_to_scrub(log):
        return None
    following = log.segments[log.segments.index(segment) + 1]
    place = SegmentPlace(
        base_offset=segment.base_offset,
        first_index=segment.first_index,
        size_bytes=segment.size_bytes,
        end_offset=following.base_offset,
        end_index=following.first_index,
    )
    return SegmentCheck(place, log.leader_epochs.rows())


def mended(log: LogState, segment: Segment) -> None:
    """Trust a segment again that could not be read, and is whole now."""
    log.shared.suspects.pop((log, segment), None)
    log.checksums = {known: sums for known, sums in log.checksums.items() if known is not segment}
    log.may_be_read()
