"""Lends sealed segments as whole files, to a transfer to another replica.

Only segments that never change again are lent: those that are sealed, wholly in their files, and committed. While a
transfer reads them they are *pinned*: `log_start_offset` moves as it should, but their files stay until the last pin is
gone, and compaction leaves them alone. A pin does not outlive the process, and a log that is itself replaced takes its
files with it: a reader of one then gets `SegmentGoneError`.

Checksums of files are computed once, a few MiB at a time in the read threads, and remembered while the file is part of
the log. They say nothing about whether the bytes are right (the frames' own checksums do); only that they are the same.
"""

from collections.abc import Sequence
from itertools import pairwise

from barnabas_raftlog.errors import BarnabasError
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.log.transfer.manifest import Manifest, SegmentFile
from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.wire.crc32c import crc32c

from .reading import offset_after
from .shortening import drop_unneeded
from .state import LogState

__all__ = [
    "SegmentGoneError",
    "checksum_more",
    "file_of",
    "manifest",
    "pin",
    "read_file",
    "sealed_segment",
    "sealed_segments",
    "suspect",
    "unpin",
]

CHECKSUM_BYTES = 4 << 20  # read and checksummed in one go


class SegmentGoneError(BarnabasError):
    """That segment is not, or not any more, a sealed part of this log."""


def sealed_segments(log: LogState, commit_index: int) -> list[Segment]:
    """Return the segments that never change again, oldest first; none of them is the last one."""
    index = min(commit_index, log.durable_index, log.written.reached)
    return [one for one, after in pairwise(log.segments) if after.first_index <= index + 1]


def sealed_segment(log: LogState, base_offset: int, first_index: int, commit_index: int) -> Segment:
    """Return one of them by its name.

    Raises:
        SegmentGoneError: there is none.
    """
    for segment in sealed_segments(log, commit_index):
        if (segment.base_offset, segment.first_index) == (base_offset, first_index):
            return segment
    raise SegmentGoneError(f"{log.name} has no sealed segment {base_offset}.{first_index}")


def pin(log: LogState, segments: Sequence[Segment]) -> None:
    """Keep the files of `segments` until `unpin`. Pins add up."""
    log.pins = {**log.pins, **{segment: log.pins.get(segment, 0) + 1 for segment in segments}}


def unpin(log: LogState, segments: Sequence[Segment]) -> None:
    """Take one pin from each; segments that were kept only for their sake go."""
    pins = {**log.pins, **{segment: log.pins[segment] - 1 for segment in segments}}
    log.pins = {segment: count for segment, count in pins.items() if count}
    if not log.is_deleted and log.log_start_offset > log.base_offset:
        drop_unneeded(log)


async def checksum_more(log: LogState, segment: Segment) -> int | None:
    """Go on with the checksum of a sealed segment; return it when it is known, None for: call again.

    Cancellation: the part that was computed counts. Raises the errors of `read_file`.
    """
    position, checksum = log.checksums.get(segment, (0, 0))
    if position < segment.size_bytes:
        data = await read_file(log, segment, position, min(CHECKSUM_BYTES, segment.size_bytes - position))
        checksum = crc32c(data, checksum)
        position += len(data)
        known = {one: found for one, found in log.checksums.items() if one in log.segments}
        log.checksums = {**known, segment: (position, checksum)}
    return checksum if position == segment.size_bytes else None


async def read_file(log: LogState, segment: Segment, position: int, size_bytes: int) -> memoryview:
    """Read exactly so much of the file of a sealed segment.

    Raises:
        SegmentGoneError: it is not part of this log any more.
        OSError: the disk says so.
    """
    _check_has(log, segment)
    cold = log.shared.cold
    try:
        return await cold.run(lambda blocking: cold.read_all(segment.log, position, size_bytes, blocking=blocking))
    except OSError:
        _check_has(log, segment)
        raise


def _check_has(log: LogState, segment: Segment) -> None:
    if log.is_deleted or segment not in log.segments:
        raise SegmentGoneError(f"{segment.log.path} is not part of the log any more")


def suspect(log: LogState, segment: Segment, cause: str) -> None:
    """Have the file of a sealed segment checked, and mended if it is damaged."""
    log.shared.suspect(log, segment, cause)


def file_of(log: LogState, segment: Segment, checksum: int) -> SegmentFile:
    """Return the entry of a manifest for a sealed segment."""
    after = log.segments[log.segments.index(segment) + 1]
    return SegmentFile(
        base_offset=segment.base_offset,
        first_index=segment.first_index,
        end_offset=after.base_offset,
        last_index=after.first_index - 1,
        size_bytes=segment.size_bytes,
        crc32c=checksum,
        max_timestamp=segment.max_timestamp,
        max_timestamp_offset=segment.max_timestamp_offset,
    )


def manifest(log: LogState, files: Sequence[SegmentFile], state: Buffer, configuration: bytes = b"") -> Manifest:
    """Return the snapshot that consists of `files`, which are this log's oldest; without any: of nothing."""
    start = files[0].first_index - 1 if files else log.first_index - 1
    index = files[-1].last_index if files else start
    end_offset = files[-1].end_offset if files else offset_after(log, index)
    term = log.term_at(index)
    assert term is not None, (index, log.first_index)
    base_offset = files[0].base_offset if files else end_offset
    return Manifest(
        snapshot_index=index,
        snapshot_term=term,
        end_offset=end_offset,
        start_index=start,
        log_start_offset=min(max(log.log_start_offset, base_offset), end_offset),
        epochs=tuple(row for row in log.epochs() if row[1] <= index),
        files=tuple(files),
        configuration=configuration or log.configuration_at(index).encode(),
        state=bytes(state),
    )
