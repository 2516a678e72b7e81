"""Shapes of what becomes of batches as columns: buffers as Arrow lays them out. Pure."""

from typing import NamedTuple, TypeAlias

__all__ = ["TIMESTAMP_MS_MAX", "ArrowParts", "Buffer", "HeaderParts", "Part", "StringParts", "Wanted"]

Buffer: TypeAlias = bytes | bytearray | memoryview

TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
"""Of what 64 bits of microseconds can say, to either side of 1970: other times are cut to it. The compiled one has it,
too: change both."""


class Part(NamedTuple):
    """The plain body of one batch, with what its header says. `append_timestamp`: of all records, if not None."""

    body: Buffer
    record_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_timestamp: int | None


class Wanted(NamedTuple):
    """The columns to build. What is not wanted is checked all the same."""

    offsets: bool = True
    timestamps: bool = True
    timestamp_types: bool = True
    keys: bool = True
    values: bool = True
    headers: bool = False


class StringParts(NamedTuple):
    """A column of n byte strings: n + 1 offsets (int32), the bytes, and which are not null (a bit each; None: all)."""

    offsets: bytearray
    data: bytearray
    validity: bytearray | None
    null_count: int


class HeaderParts(NamedTuple):
    """The headers of all records; record i has those from offsets[i] to offsets[i + 1] (int32)."""

    offsets: bytearray
    names: StringParts
    values: StringParts


class ArrowParts(NamedTuple):
    """Columns of equal length, in the processor's byte order; None: not wanted.

    Attributes:
        rows: How many records there are.
        offsets: int64 each.
        timestamps: int64 each, in microseconds since 1970, at most `TIMESTAMP_MS_MAX` milliseconds away from it.
        timestamp_types: int32 each; 1 where the broker has set the timestamp as it appended, else 0.
    """

    rows: int
    offsets: bytearray | None
    timestamps: bytearray | None
    timestamp_types: bytearray | None
    keys: StringParts | None
    values: StringParts | None
    headers: HeaderParts | None
