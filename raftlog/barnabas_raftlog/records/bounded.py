"""Opens a batch on the account of a broker: only within stated bounds. Pure.

A reader that asked for records pays for the work of opening them. A broker opens batches that others wrote, for
compaction and for look-ups by time, and a few kilobytes may say that they are millions of records. So it opens none
beyond `BatchBounds`; a caller treats such a batch like one that cannot be read, and its docstring says how.

One batch is held as plain bytes once, twice for the moment of decompression. Records are yielded one by one.
"""

from collections.abc import Iterator
from typing import NamedTuple

from barnabas_raftlog.errors import CorruptBatchError

from .header import HEADER_BYTES, BatchHeader
from .reader import Record, batch_body, placed_records

__all__ = ["BatchBounds", "bounded_body", "bounded_records"]


class BatchBounds(NamedTuple):
    """The most that one batch may hold to be opened: records by its header, bytes behind it, as sent and plain."""

    records_max: int
    bytes_max: int


def bounded_body(header: BatchHeader, frame: memoryview, bounds: BatchBounds) -> bytes:
    """Return the plain records of a batch.

    Raises:
        CorruptBatchError: they cannot be read, or are more than `bounds` allows.
    """
    size_bytes = len(frame) - HEADER_BYTES
    if header.record_count > bounds.records_max or size_bytes > bounds.bytes_max:
        raise CorruptBatchError(f"{header.record_count} records in {size_bytes} bytes are too much to be opened")
    return bytes(batch_body(header, frame, bounds.bytes_max))


def bounded_records(header: BatchHeader, frame: memoryview, bounds: BatchBounds) -> Iterator[Record]:
    """Yield the records of a batch.

    Raises:
        CorruptBatchError: as above, or at the first record that cannot be read.
    """
    for record, _ in placed_records(header, bounded_body(header, frame, bounds)):
        yield record
