"""Finds out how old segments are.

Retention asks that, and so does the owner who ends segments that are old. The timestamps of the batches say it, if
there are some and they do not lie in the future. Else the file says when it was last written to, or the segment is as
old as the first look at it.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.log.segments.segment import Segment
from barnabas_raftlog.records.header import BatchHeader

from .reading import bytes_in_file
from .retention import tells_age
from .state import LogState

__all__ = ["begun_ms", "first_timestamp", "look_at_files"]


async def begun_ms(log: LogState, now_ms: int) -> int | None:
    """Return when the newest segment got its first batch; None: it has none.

    That batch says so, unless its timestamp is missing or lies in the future: then it was when this was first asked
    of the segment.
    """
    segment = log.active
    timestamp = await first_timestamp(log)
    if segment.base_offset == log.log_end_offset or segment is not log.active:
        return None
    if timestamp is not None and tells_age(timestamp, now_ms):
        return timestamp
    if not 0 <= segment.seen_ms <= now_ms:
        segment.seen_ms = now_ms
    return segment.seen_ms


async def first_timestamp(log: LogState) -> int | None:
    """Return the largest timestamp of the first batch in the newest segment; None: it has none, or is unknown.

    From memory, but for the first time after a start.
    """
    segment = log.active
    if segment.first_timestamp is None:
        size_bytes = bytes_in_file(log, segment)
        timestamps: list[int] = []

        def note(_: int, header: BatchHeader) -> bool:
            timestamps.append(header.max_timestamp)
            return header.record_count > 0

        cold = log.shared.cold
        seek = partial(cold.seek, segment, None, size_bytes, note)
        # A file that cannot be read is found bad by a reader of its entries.
        with suppress(OSError, CorruptBatchError):
            if await cold.run(lambda blocking: seek(blocking=blocking)) is not None:
                segment.first_timestamp = timestamps[-1]
    timestamp = segment.first_timestamp
    return None if timestamp is None or timestamp < 0 else timestamp


async def look_at_files(log: LogState, now_ms: int) -> None:
    """Find out for `spans` when files were last written to, if no timestamp tells how old a segment is."""
    asked = [
        segment
        for segment in log.segments
        if segment.modified_ms < 0 < segment.size_bytes and not tells_age(segment.newest_ms, now_ms)
    ]
    if asked:
        written = await log.shared.cold.in_thread(partial(_files_written, log, asked))
        for segment, found in zip(asked, written, strict=True):
            segment.written = found


def _files_written(log: LogState, segments: Sequence[Segment]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for segment in segments:
        try:
            with log.shared.opened.borrow(segment.log) as fd:
                found.append(log.shared.files.written(fd))
        except OSError:  # It is not made yet, gone by now, or found bad by a reader of its entries.
            found.append((-1, -1))
    return found
