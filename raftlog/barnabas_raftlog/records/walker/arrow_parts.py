"""Shapes of what becomes of batches as columns, and of columns as batches: buffers as Arrow lays them out. Pure."""

from typing import NamedTuple, TypeAlias

__all__ = [
    "PAIR_OVERHEAD_BYTES",
    "RECORDS_MAX",
    "ROW_OVERHEAD_BYTES",
    "TIMESTAMP_BYTES_MAX",
    "TIMESTAMP_MS_MAX",
    "ArrowParts",
    "Buffer",
    "Cut",
    "HeaderParts",
    "Part",
    "RowParts",
    "StringColumn",
    "StringParts",
    "Wanted",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
"""Of what 64 bits of microseconds can say, to either side of 1970: other times are cut to it. The compiled one has it,
too: change both."""


ROW_OVERHEAD_BYTES = 24
"""More than the framing of any record: the varints of its length, place, key, value and headers, and two bytes."""
TIMESTAMP_BYTES_MAX = 8
"""Of the varint of the distance between two timestamps, as far as these fit in microseconds."""
PAIR_OVERHEAD_BYTES = 10
"""More than the framing of any header."""
RECORDS_MAX = 1 << 20
"""Of one batch that is built. Three bytes hold the place of each, and brokers count in 32 bits."""


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


class StringColumn(NamedTuple):
    """A column of Arrow's binary, as its buffers are.

    Attributes:
        offsets: int32 each, one more than there are rows.
        data: What they cut.
        validity: A bit a row, from `first_bit` on; None: nothing is null.
    """

    offsets: memoryview
    data: memoryview
    validity: memoryview | None
    first_bit: int


class RowParts(NamedTuple):
    """Rows that are to become records; None for a column of nulls.

    Attributes:
        rows: How many there are.
        order: int64 each: which row of the columns comes when; None: as they are.
        timestamps: int64 each, milliseconds; None: all records have the one of their batch.
        header_offsets: int64 each; row i has the headers from header_offsets[i] to header_offsets[i + 1].
    """

    rows: int
    order: memoryview | None
    keys: StringColumn | None
    values: StringColumn | None
    timestamps: memoryview | None
    header_offsets: memoryview | None
    header_names: StringColumn | None
    header_values: StringColumn | None


class Cut(NamedTuple):
    """A batch with the rows [start, end), of run number `run`; its frame is in [first_byte, end_byte) of a buffer."""

    run: int
    start: int
    end: int
    first_byte: int
    end_byte: int
