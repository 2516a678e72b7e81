"""Writes and reads the batches that end transactions. Pure.

A *marker* says that everything which a producer has written to a partition since its transaction began there is
committed, or aborted. It is a batch of one control record, that takes an offset as any record does and is never shown
to an application. The layout is Kafka's: the record's key is a version and the type (0: abort, 1: commit), its value a
version and the *coordinator epoch*, which is the term of the transaction coordinator that sent the marker. The header
carries the producer's id and epoch, and no sequence.

Versions above 0 of key and value may have more fields behind these, which are ignored.

A *spent* marker is what compaction leaves of one that commits, when it is of no more use to readers: a header without a
record, which has the coordinator epoch in the place of the sequence. So it still says all that it said, to a replica
that gets it only now and has the transaction's records. One that aborts is never spent: readers who are told of
an aborted transaction look for its end. A spent marker is never served to clients.
"""

import struct
from typing import NamedTuple

from barnabas_raftlog.errors import CorruptBatchError

from .builder import NewRecord, build_batch, write_header
from .header import COMPRESSION_MASK, CONTROL, HEADER_BYTES, TRANSACTIONAL, BatchHeader
from .reader import read_batch

__all__ = [
    "ABORT",
    "COMMIT",
    "EndMarker",
    "is_marker",
    "is_spent",
    "marker_batch",
    "marker_type",
    "read_marker",
    "spent_header",
]

Buffer = bytes | bytearray | memoryview

ABORT = 0
COMMIT = 1
MARKER_BYTES_MAX = 1024
"""A marker that is larger, decompressed, is not read: ours have some twenty bytes behind the header."""

_BOTH = CONTROL | TRANSACTIONAL
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class EndMarker(NamedTuple):
    """The end of one producer's transaction in one partition."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


def is_marker(header: BatchHeader) -> bool:
    """Tell whether a batch can be a marker: the control batches of Raft and of others' snapshots are none."""
    return header.attributes & _BOTH == _BOTH and (header.record_count == 1 or is_spent(header))


def is_spent(header: BatchHeader) -> bool:
    """Tell whether a batch is a spent marker."""
    return header.attributes & _BOTH == _BOTH and header.record_count == 0 and header.last_offset_delta == 0


def marker_batch(marker: EndMarker, timestamp_ms: int) -> bytearray:
    """Return the batch that says so, to be stamped and appended. `timestamp_ms`: milliseconds since 1970."""
    key = _KEY.pack(0, COMMIT if marker.is_commit else ABORT)
    frame = build_batch([NewRecord(key, _VALUE.pack(0, marker.coordinator_epoch), timestamp_ms)])
    write_header(
        frame,
        attributes=CONTROL | TRANSACTIONAL,
        record_count=1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )
    return frame


def spent_header(header: BatchHeader, marker: EndMarker) -> BatchHeader:
    """Return the header, of a batch without a body, of what is left of a marker that commits when it is spent."""
    assert marker.is_commit, header
    return header._replace(
        attributes=header.attributes & ~COMPRESSION_MASK,
        base_timestamp=header.max_timestamp,
        base_sequence=marker.coordinator_epoch,
        record_count=0,
    )


def marker_type(key: Buffer | None) -> int:
    """Return the type in a control record's key, which may be one that means nothing to us.

    Raises:
        CorruptBatchError: the key is too short to say.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptBatchError("a transaction marker without a type")
    found: int = _KEY.unpack_from(key)[1]
    return found


def read_marker(header: BatchHeader, frame: memoryview) -> EndMarker | None:
    """Return what a batch says for which `is_marker` is true; None if it is a control record of another type.

    Raises:
        CorruptBatchError: it cannot be read.
    """
    if is_spent(header):
        return EndMarker(header.producer_id, header.producer_epoch, True, header.base_sequence)
    if len(frame) > HEADER_BYTES + MARKER_BYTES_MAX:
        raise CorruptBatchError(f"a control record of {len(frame)} bytes at offset {header.base_offset}")
    (record,) = read_batch(header, frame, limit_bytes=MARKER_BYTES_MAX)
    found = marker_type(record.key)
    if found not in {ABORT, COMMIT}:
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptBatchError(f"a transaction marker without a coordinator epoch at offset {header.base_offset}")
    coordinator_epoch: int = _VALUE.unpack_from(record.value)[1]
    return EndMarker(header.producer_id, header.producer_epoch, found == COMMIT, coordinator_epoch)
