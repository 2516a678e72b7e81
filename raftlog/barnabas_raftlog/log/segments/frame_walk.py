"""Finds frames in a stretch of a segment file, header by header. Pure.

Segment files hold frames back to back and nothing else, so the place of each follows from its predecessor, and so does
its base offset. That is checked, because checksums do not cover it (nor the term: `check_terms`). There are three
walks: `cut_range` selects the frames for a fetch, and `check_frames` checks those that come from a disk;
`split_entries` makes entries for Raft and for state machines; and `scan_tail` finds out how far a file is valid, and
`is_cut_short` whether it ends there because a write was under way.
"""

import re
import struct
from itertools import chain
from typing import NamedTuple

import msgspec

from barnabas_raftlog.errors import CorruptBatchError
from barnabas_raftlog.raft.messages import Buffer, Entry
from barnabas_raftlog.records.header import CRC_START, HEADER_BYTES, parse_header, verify
from barnabas_raftlog.wire.crc32c import crc32c

from .leader_epochs import LeaderEpochs

__all__ = [
    "FrameFields",
    "ManyFramesError",
    "Tail",
    "check_frames",
    "check_terms",
    "count_frames",
    "cut_range",
    "frame_size",
    "is_cut_short",
    "scan_tail",
    "split_entries",
]

_PLACE = struct.Struct(">qii7xi")  # base_offset, batch_length, leader_epoch, last_offset_delta
_OFFSET = struct.Struct(">q")
_COUNT = struct.Struct(">i")
_COUNT_POSITION = 57
SIZE_PREFIX_BYTES = 12


class ManyFramesError(Exception):
    """There are more frames than somebody wanted to pass by."""


class FrameFields(msgspec.Struct, gc=False):
    """The facts that a log notes of each frame that a tail scan found."""

    position: int
    size_bytes: int
    base_offset: int
    term: int
    end_offset: int
    max_timestamp: int


class Tail(NamedTuple):
    """The frames found; `end`: where in `data` the valid ones end; `needs`: 0, or the size to read to go on there."""

    frames: list[FrameFields]
    end: int
    needs: int


def frame_size(data: Buffer, position: int = 0) -> int:
    """Return the size of the frame at `position`, of which at least 12 bytes must be there."""
    length: int = struct.unpack_from(">i", data, position + 8)[0]
    return SIZE_PREFIX_BYTES + length


def count_frames(data: memoryview) -> int:
    """Return of how many whole frames `data` consists.

    Raises:
        CorruptBatchError: it consists of something else.
    """
    count = position = 0
    while position + SIZE_PREFIX_BYTES <= len(data):
        size = frame_size(data, position)
        if size < HEADER_BYTES:
            break
        count += 1
        position += size
    if position != len(data):
        raise CorruptBatchError(f"{len(data)} bytes are not whole frames")
    return count


def cut_range(
    data: memoryview, position: int, start_offset: int, end_offset: int, bytes_max: int, frames_max: int | None = None
) -> tuple[list[Buffer], int]:
    """Select data frames from `data`, which has a frame boundary at `position`.

    Returns the slices, without control frames and batches that compaction has emptied; and, if no frame was found
    because `data` is too short, how long it would have to be (else 0). Stops at the first frame that is not wholly in
    `data`, that goes beyond `end_offset`, or that would make more than `bytes_max` bytes; the first one is returned
    whatever its size.

    Raises:
        CorruptBatchError: a header makes no sense, or does not follow its predecessor.
        ManyFramesError: there are more than `frames_max`.
    """
    slices: list[Buffer] = []
    left = -1 if frames_max is None else frames_max
    due: int | None = None
    run_start = position  # of the frames since the last one that was left out
    total = needed = 0
    limit = len(data)
    while position + HEADER_BYTES <= limit:
        base_offset, length, _, delta = _PLACE.unpack_from(data, position)
        size = SIZE_PREFIX_BYTES + length
        if size < HEADER_BYTES or delta < -1:
            raise CorruptBatchError(f"a batch of {size} bytes and last delta {delta} at {position}")
        due = _next_offset(base_offset, delta, due, position)
        if base_offset + delta >= end_offset or base_offset >= end_offset:
            break
        if not left:
            raise ManyFramesError
        left -= 1
        is_empty = size == HEADER_BYTES and not _COUNT.unpack_from(data, position + _COUNT_POSITION)[0]
        if delta < 0 or base_offset + delta < start_offset or is_empty:
            if run_start < position:
                slices.append(data[run_start:position])
            run_start = position + size
        elif position + size > limit:
            needed = 0 if total else position + size
            break
        elif total and total + size > bytes_max:
            break
        else:
            total += size
        position += size
    else:
        needed = 0 if total else position + HEADER_BYTES
    if run_start < position:
        slices.append(data[run_start:position])
    return slices, needed


def _next_offset(base_offset: int, delta: int, due: int | None, position: int) -> int:
    """Check the offset of a frame against the one that is due, None for any; return the one that is due behind it."""
    if due is not None and base_offset != due:
        raise CorruptBatchError(f"a batch at {position} begins with offset {base_offset}, where {due} is due")
    return base_offset + delta + 1


def split_entries(data: memoryview, position: int, index: int, bytes_max: int) -> list[Entry]:
    """Return the whole frames from `position` on as entries from `index` on: at least one if one is there.

    Raises:
        CorruptBatchError: a header or a checksum is wrong, or a batch does not follow its predecessor.
    """
    entries: list[Entry] = []
    total = 0
    due = None
    while position + HEADER_BYTES <= len(data):
        base_offset, length, term, delta = _PLACE.unpack_from(data, position)
        size = SIZE_PREFIX_BYTES + length
        if position + size > len(data) and size >= HEADER_BYTES:
            break
        if entries and total + size > bytes_max:
            break
        frame = data[position : position + size]
        verify(frame)
        due = _next_offset(base_offset, delta, due, position)
        entries.append(Entry(index, term, frame))
        total += size
        position += size
        index += 1
    return entries


def check_terms(entries: list[Entry], epochs: list[tuple[int, int, int]]) -> None:
    """Compare the terms of entries with the rows of the log's table of terms.

    Raises:
        CorruptBatchError: one differs.
    """
    table = LeaderEpochs.from_rows(epochs)
    for entry in entries:
        if entry.term != (due := table.term_at(entry.index)):
            raise CorruptBatchError(f"entry {entry.index} has term {entry.term}, where {due} is due")


def check_frames(runs: list[Buffer]) -> None:
    """Check the checksums of runs of whole frames, as `cut_range` returns them.

    Raises:
        CorruptBatchError: one is wrong.
    """
    for run in runs:
        view = memoryview(run)
        position = 0
        while position < len(view):
            end = position + frame_size(view, position)
            verify(view[position:end])
            position = end


def scan_tail(data: memoryview, base_offset: int, term: int) -> Tail:
    """Return the valid frames at the start of `data`: the first at `base_offset`, none of a term below `term`.

    A frame is valid if its header makes sense, follows its predecessor without a gap, and its checksum is right.
    """
    frames: list[FrameFields] = []
    position = 0
    while position < len(data):
        if position + HEADER_BYTES > len(data):
            return Tail(frames, position, HEADER_BYTES)
        size = frame_size(data, position)
        if size < HEADER_BYTES:
            break
        if position + size > len(data):
            return Tail(frames, position, size)
        try:
            header = verify(data[position : position + size])
        except CorruptBatchError:
            break
        if header.base_offset != base_offset or header.leader_epoch < term:
            break
        base_offset = header.end_offset
        term = header.leader_epoch
        frames.append(
            FrameFields(
                position=position,
                size_bytes=size,
                base_offset=header.base_offset,
                term=term,
                end_offset=base_offset,
                max_timestamp=header.max_timestamp,
            )
        )
        position += size
    return Tail(frames, position, 0)


def is_cut_short(data: memoryview, base_offset: int) -> bool:
    """Tell whether `data`, with which a file ends, is the beginning of a frame that was not written to its end.

    Otherwise it is a frame whose length is damaged, perhaps with others behind it: no checksum covers that, but the one
    of the frame fits up to where it really ends. That is the end of the file, or where the next offset stands.
    """
    if len(data) < HEADER_BYTES:
        return True
    try:
        header = parse_header(data)
    except CorruptBatchError:
        return False
    if header.base_offset != base_offset:
        return False
    # A next frame begins with that offset, and has its magic behind length and term.
    following = re.compile(re.escape(_OFFSET.pack(header.end_offset)) + rb"(?=.{8}\x02)", re.DOTALL)
    crc, begin = 0, CRC_START
    for end in chain((found.start() for found in following.finditer(data, HEADER_BYTES)), (len(data),)):
        crc = crc32c(data[begin:end], crc)
        if crc == header.crc:
            return False
        begin = end
    return True
