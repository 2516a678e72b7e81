"""Packs the ranges of offsets that a named snapshot keeps of one topic. Pure.

A snapshot may hold ten thousand partitions, and a cluster a thousand snapshots, on every node: as objects they would
take a gigabyte. So the ranges of a topic are one string of bytes, 24 for a partition, in the order of the partitions:

    i32 partition | i32 leader epoch | i64 start offset | i64 end offset

All are big endian. A range is half-open. The leader epoch is one in which the log reached the end, or -1 where none is
known.
"""

import struct
from collections.abc import Generator, Iterable, Iterator
from operator import itemgetter
from typing import NamedTuple

__all__ = ["RANGE_BYTES", "PinnedRange", "count_of", "packed", "partitions_in", "unpacked"]

_ROW = struct.Struct(">iiqq")
_BY_PARTITION = itemgetter(0)
RANGE_BYTES = _ROW.size
PIECE = 200  # ranges between two yields


class PinnedRange(NamedTuple):
    """The range [start_offset, end_offset) of a partition."""

    partition: int
    leader_epoch: int
    start_offset: int
    end_offset: int


def packed(ranges: Iterable[PinnedRange]) -> Generator[None, None, bytes]:
    """Return ranges as bytes; yields between small pieces of the work.

    Raises:
        ValueError: two ranges of a partition, or one that is not possible; the text is fit for a user.
    """
    ordered = sorted(ranges, key=_BY_PARTITION)
    yield
    rows: list[bytes] = []
    before = -1
    for one in ordered:
        if one.partition < 0 or one.leader_epoch < -1 or not 0 <= one.start_offset <= one.end_offset:
            raise ValueError(
                f"partition {one.partition}: offsets {one.start_offset} to {one.end_offset} "
                f"of leader epoch {one.leader_epoch} are not a range"
            )
        if one.partition == before:
            raise ValueError(f"partition {one.partition} is named twice")
        before = one.partition
        rows.append(_ROW.pack(*one))
        if not len(rows) % PIECE:
            yield
    return b"".join(rows)


def unpacked(ranges: bytes) -> Iterator[PinnedRange]:
    """Yield what was packed, in the order of the partitions."""
    return map(PinnedRange._make, _ROW.iter_unpack(ranges))


def count_of(ranges: bytes) -> int:
    """Return how many partitions are packed."""
    return len(ranges) // RANGE_BYTES


def partitions_in(ranges: bytes) -> tuple[int, int]:
    """Return the first and the last partition that are packed; there is at least one."""
    return _ROW.unpack_from(ranges)[0], _ROW.unpack_from(ranges, len(ranges) - RANGE_BYTES)[0]
