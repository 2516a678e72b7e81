"""Opens a batch on the account of a broker: only within stated bounds. Pure.

A reader that asked for records pays for the work of opening them. A broker opens batches that others wrote, for
compaction and for look-ups by time, and a few kilobytes may say that they are millions of records. So it opens none
beyond `BatchBounds`; a caller treats such a batch like one that cannot be read, and its docstring says how.

What is compressed comes out piece by piece (`pieces.py`), and each piece is walked over before the next is asked for:
garbage and bombs end at the first fault. No object is made of a record.
"""

from typing import NamedTuple

from barnabas_raftlog.errors import CorruptBatchError

from .header import COMPRESSION_MASK, HEADER_BYTES, TIMESTAMP_LOG_APPEND, BatchHeader
from .inside import check_due, check_pieces
from .pieces import plain_pieces
from .reader import INT64_MAX
from .walker.arrow_parts import Part
from .walker.faults import raise_fault
from .walker.key_parts import Timed
from .walker.twins import TimeSearch, check

__all__ = ["BatchBounds", "Found", "find_by_time", "sound_part"]

Buffer = bytes | bytearray | memoryview


class BatchBounds(NamedTuple):
    """The most that one batch may hold to be opened: records by its header, bytes behind it, as sent and plain."""

    records_max: int
    bytes_max: int


class Found(NamedTuple):
    """What a look into a batch has found.

    Attributes:
        is_sound: False if the batch cannot be read, or holds more than its bounds.
        record: None if there is none.
        plain_bytes: That came out of the batch for it.
    """

    is_sound: bool
    record: Timed | None
    plain_bytes: int


def sound_part(header: BatchHeader, frame: memoryview, bounds: BatchBounds) -> Part:
    """Return the plain records of a batch that is sound to its end.

    The body is that of `frame` if nothing is compressed, else a bytearray of the caller's.

    Raises:
        CorruptBatchError: it is not, or there are more than `bounds` allows.
    """
    _check_bounds(header, frame, bounds)
    body: Buffer = frame[HEADER_BYTES:]
    if not header.attributes & COMPRESSION_MASK:
        walked = check(body, header.record_count, header.base_timestamp, header.last_offset_delta, is_dense=False)
    else:
        plain = bytearray()
        walked = check_pieces(header, frame[HEADER_BYTES:], bounds.bytes_max, is_dense=False, plain=plain).walked
        body = plain
    raise_fault(walked, header.base_offset)
    return Part(
        body=body,
        record_count=header.record_count,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        append_timestamp=_append_timestamp(header),
    )


def find_by_time(
    header: BatchHeader, frame: memoryview, bounds: BatchBounds, *, start_offset: int, wanted_ms: int | None
) -> Found:
    """Return the first record of a batch at `wanted_ms` or later; None: the first with the largest timestamp.

    Records before `start_offset` do not count. Nothing is looked at behind a record that answers. What is held is a
    piece and a record.
    """
    search = TimeSearch(
        count=header.record_count,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        append_timestamp=_append_timestamp(header),
        start_offset=start_offset,
        wanted=wanted_ms,
    )
    plain_bytes = 0
    left = bytearray()
    codec_id = header.attributes & COMPRESSION_MASK
    try:
        _check_bounds(header, frame, bounds)
        if not codec_id:
            plain_bytes = len(frame) - HEADER_BYTES
            used = search.feed(frame[HEADER_BYTES:])
            record = search.end(is_left=used < plain_bytes)
            return Found(not search.fault, record, plain_bytes)
        for piece in plain_pieces(codec_id, frame[HEADER_BYTES:], bounds.bytes_max):
            plain_bytes += len(piece)
            left += piece
            if len(left) >= search.bytes_due:
                del left[: search.feed(left)]
            if search.is_done:
                break
            check_due(search.bytes_due, bounds.bytes_max)
    except CorruptBatchError:
        return Found(False, None, plain_bytes)
    record = search.end(is_left=bool(left))
    return Found(not search.fault, record, plain_bytes)


def _append_timestamp(header: BatchHeader) -> int | None:
    return header.max_timestamp if header.attributes & TIMESTAMP_LOG_APPEND else None


def _check_bounds(header: BatchHeader, frame: memoryview, bounds: BatchBounds) -> None:
    size_bytes = len(frame) - HEADER_BYTES
    if header.record_count > bounds.records_max or size_bytes > bounds.bytes_max:
        raise CorruptBatchError(f"{header.record_count} records in {size_bytes} bytes are too much to be opened")
    if not 0 <= header.base_offset <= INT64_MAX - max(header.last_offset_delta, 0) - 1:
        raise CorruptBatchError(f"offset {header.base_offset} and delta {header.last_offset_delta} of a batch")
