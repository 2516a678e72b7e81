"""Computes the checksum over the rows of a range, which can be computed again from a table and from a topic.

It is a CRC-32C over the columns of the rows in the order of their offsets, column after column, so neither batches nor
files nor row groups change it. Each column is one or more streams of little-endian integers and bytes:

| column | streams |
| --- | --- |
| offset | int64 |
| timestamp | int64, microseconds |
| timestampType | int32 |
| key, value | int32: the sizes, -1 for null; the bytes of all of them |
| headers | int32: how many a row has, 0 for null; then names and values, as keys are |

Each stream has a CRC-32C. The checksum of the rows is the CRC-32C of these twelve as little-endian integers of 32 bits.
The partition and the topic are not part of it: they stand beside it. The CRC-32C of no bytes is 0.

CRCs of two streams give that of one behind the other (`combined`). So parts of a range may be read by several tasks.
"""

import struct
from collections.abc import Iterable
from functools import cache, reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from barnabas_raftlog.wire.crc32c import crc32c

__all__ = ["CHECKED_COLUMNS", "RowsChecksum", "combined"]

CHECKED_COLUMNS = ("offset", "timestamp", "timestampType", "key", "value", "headers")
STREAMS = 12
_POLYNOMIAL = 0x82F63B78


class Stream(NamedTuple):
    """The CRC of the bytes so far, and how many they are."""

    crc: int = 0
    size_bytes: int = 0

    def extended(self, data: Any) -> "Stream":
        return Stream(crc32c(data, self.crc), self.size_bytes + len(data)) if len(data) else self

    def followed_by(self, other: "Stream") -> "Stream":
        return Stream(_shifted(self.crc, other.size_bytes) ^ other.crc, self.size_bytes + other.size_bytes)


class RowsChecksum(NamedTuple):
    """The checksum of the rows so far."""

    streams: tuple[Stream, ...] = (Stream(),) * STREAMS

    def extended(self, batch: Any) -> "RowsChecksum":
        """Return it with the rows of a batch, which has at least the checked columns, behind the others."""
        data = [part for name in CHECKED_COLUMNS for part in _parts(batch.column(name))]
        return RowsChecksum(tuple(one.extended(part) for one, part in zip(self.streams, data, strict=True)))

    @property
    def value(self) -> int:
        return crc32c(struct.pack(f"<{STREAMS}I", *(one.crc for one in self.streams)))


def combined(parts: Iterable[RowsChecksum]) -> RowsChecksum:
    """Return the checksum of rows that follow each other, from those of its parts."""

    def both(first: RowsChecksum, second: RowsChecksum) -> RowsChecksum:
        pairs = zip(first.streams, second.streams, strict=True)
        return RowsChecksum(tuple(one.followed_by(other) for one, other in pairs))

    return reduce(both, parts, RowsChecksum())


def _parts(column: Any) -> list[memoryview]:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pa.types.is_timestamp(kind):
        return [_integers(column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), np.int64)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = column.flatten()
        counts = column.value_lengths().fill_null(0).cast(pa.int32())
        keys, values = (items.field(name) for name in ("key", "value"))
        return [_integers(counts, np.int32), *_strings(keys), *_strings(values)]
    if pa.types.is_integer(kind):
        return [_integers(column, np.int64 if kind == pa.int64() else np.int32)]
    return _strings(column)


def _integers(column: Any, kind: Any) -> memoryview:
    return _bytes(column.to_numpy(zero_copy_only=False), np.dtype(kind).newbyteorder("<"))


def _strings(column: Any) -> list[memoryview]:
    plain = column.cast(pa.binary())
    if not len(plain):
        return [_NONE, _NONE]
    valid = plain.is_valid().to_numpy(zero_copy_only=False) if plain.null_count else None
    if plain.null_count:
        plain = plain.fill_null(b"")
    _, offset_buffer, data = plain.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(plain) + 1, plain.offset * 4)
    sizes = np.diff(offsets)
    if valid is not None:
        sizes[~valid] = -1
    joined = memoryview(data)[offsets[0] : offsets[-1]] if data is not None else _NONE
    return [_bytes(sizes, np.dtype("<i4")), joined]


def _bytes(values: Any, kind: Any) -> memoryview:
    plain: Any = np.ascontiguousarray(values, kind)
    return memoryview(plain).cast("B") if len(plain) else _NONE


_NONE = memoryview(b"")


def _shifted(crc: int, size_bytes: int) -> int:
    """Return what a CRC becomes behind so many more bytes, the rest of which is the CRC of those bytes alone.

    A bit that is shifted in is a linear map on 32 bits: so are eight of them, and 2^k times as many.
    """
    power = 0
    while size_bytes and crc:
        if size_bytes & 1:
            crc = _times(_shift(power), crc)
        size_bytes >>= 1
        power += 1
    return crc


@cache
def _shift(power: int) -> list[int]:
    """Return the map of 2^power bytes, as the images of the 32 bits."""
    if power:
        half = _shift(power - 1)
        return [_times(half, column) for column in half]
    matrix = [_POLYNOMIAL, *(1 << bit for bit in range(31))]  # one bit
    for _ in range(3):
        matrix = [_times(matrix, column) for column in matrix]
    return matrix


def _times(matrix: list[int], vector: int) -> int:
    result = 0
    for column in matrix:
        if not vector:
            break
        if vector & 1:
            result ^= column
        vector >>= 1
    return result
