"""Opens a batch on the account of a broker: only within stated bounds. Pure.

A reader that asked for records pays for the work of opening them. A broker opens batches that others wrote, for
compaction and for look-ups by time, and a few kilobytes may say that they are millions of records. So it opens none
beyond `BatchBounds`; a caller treats such a batch like one that cannot be read, and its docstring says how.

One batch is held as plain bytes once, and no object is made of a record.
"""

from typing import NamedTuple

from barnabas_raftlog.errors import CorruptBatchError

from .header import HEADER_BYTES, TIMESTAMP_LOG_APPEND, BatchHeader
from .reader import INT64_MAX, batch_body
from .walker.arrow_parts import Part

__all__ = ["BatchBounds", "bounded_part"]


class BatchBounds(NamedTuple):
    """The most that one batch may hold to be opened: records by its header, bytes behind it, as sent and plain."""

    records_max: int
    bytes_max: int


def bounded_part(header: BatchHeader, frame: memoryview, bounds: BatchBounds) -> Part:
    """Return the plain records of a batch, for the walker; its body is that of `frame` if nothing is compressed.

    Raises:
        CorruptBatchError: they cannot be read, or are more than `bounds` allows.
    """
    size_bytes = len(frame) - HEADER_BYTES
    if header.record_count > bounds.records_max or size_bytes > bounds.bytes_max:
        raise CorruptBatchError(f"{header.record_count} records in {size_bytes} bytes are too much to be opened")
    if not 0 <= header.base_offset <= INT64_MAX - max(header.last_offset_delta, 0) - 1:
        raise CorruptBatchError(f"offset {header.base_offset} and delta {header.last_offset_delta} of a batch")
    return Part(
        body=batch_body(header, frame, bounds.bytes_max),
        record_count=header.record_count,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        append_timestamp=header.max_timestamp if header.attributes & TIMESTAMP_LOG_APPEND else None,
    )
