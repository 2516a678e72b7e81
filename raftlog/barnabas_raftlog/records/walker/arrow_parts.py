"""What the walker makes of batches for Arrow: the buffers of its columns, as Arrow lays them out. Pure."""

from typing import NamedTuple

__all__ = ["ArrowParts", "HeaderParts", "Part", "StringParts"]

Buffer = bytes | bytearray | memoryview


class Part(NamedTuple):
    """The plain body of one batch, with what its header says. `append_timestamp`: of all records, if not None."""

    body: Buffer
    record_count: int
    base_offset: int
    last_offset_delta: int
    base_timestamp: int
    append_timestamp: int | None


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
    """Columns of equal length. Offsets and timestamps (milliseconds) are int64; None: not asked for."""

    rows: int
    offsets: bytearray
    timestamps: bytearray
    keys: StringParts | None
    values: StringParts | None
    headers: HeaderParts | None
