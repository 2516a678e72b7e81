"""Encodes rows as record batches: compiled where a compiler was, else whole columns at once (`joining.py`).

`barnabas_raftlog.records.builder` does the same record by record, and is the model in the tests.

`build_batches` reads its arguments and nothing else, and has no state.

*Sizes.* A batch holds at most `batch_bytes` before compression, unless one record alone is larger. Cuts are found with
sizes that may be a few bytes too large, because the exact ones depend on the cuts.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from barnabas_raftlog.records.compression import Compression, compress
from barnabas_raftlog.records.header import HEADER_BYTES
from barnabas_raftlog.records.walker.arrow_parts import Cut, RowParts, StringColumn
from barnabas_raftlog.records.walker.twins import IS_COMPILED

from .joining import joined_records
from .rows import RecordColumns, pairs_of

if TYPE_CHECKING or IS_COMPILED:
    from barnabas_raftlog.records.walker.compiled.arrow_records import arrow_records

__all__ = ["Built", "build_batches", "compiled_records"]


class Built(NamedTuple):
    """A batch with the rows [start, end), of run number `run`.

    The first 61 bytes of `frame` are left free for the header, and may be written. Without compression the frame is a
    view of memory that all batches of one call share. `plain_bytes` is its size without header and compression.
    """

    run: int
    start: int
    end: int
    frame: bytearray | memoryview
    plain_bytes: int


def build_batches(
    columns: RecordColumns, run_ends: Sequence[int], compression: Compression, batch_bytes: int
) -> list[Built]:
    """Return the rows as batches, in order. No batch holds rows of two runs.

    Without timestamps of their own, the records have the one that their header gets as its base. With them, that must
    be the timestamp of the first row. Run i ends before row `run_ends[i]`; the last run ends with the last row. Runs
    may be empty.
    """
    if not columns.row_count:
        return []
    encode = compiled_records if IS_COMPILED else joined_records
    data, cuts = encode(columns, run_ends, max(batch_bytes - HEADER_BYTES, 1))
    built = []
    for cut in cuts:
        frame: bytearray | memoryview = data[cut.first_byte : cut.end_byte]
        plain_bytes = len(frame) - HEADER_BYTES
        if compression is not Compression.NONE:
            content = compress(compression, frame[HEADER_BYTES:])
            frame = bytearray(HEADER_BYTES)
            frame += content
        built.append(Built(cut.run, cut.start, cut.end, frame, plain_bytes))
    return built


def compiled_records(columns: RecordColumns, run_ends: Sequence[int], room_bytes: int) -> tuple[memoryview, list[Cut]]:
    """Return what `joined_records` does. There must be a compiled walker."""
    offsets = names = values = None
    if columns.headers is not None:
        found, pairs = pairs_of(columns.headers)
        offsets = found.data
        names, values = _strings(pairs.field(0)), _strings(pairs.field(1))
    timestamps = None
    if columns.timestamps is not None:
        timestamps = np.ascontiguousarray(columns.timestamps, np.int64).data
    rows = RowParts(
        rows=columns.row_count,
        order=None if columns.order is None else np.ascontiguousarray(columns.order, np.int64).data,
        keys=_strings(columns.keys),
        values=_strings(columns.values),
        timestamps=timestamps,
        header_offsets=offsets,
        header_names=names,
        header_values=values,
    )
    data, cuts = arrow_records(rows, run_ends, room_bytes, HEADER_BYTES)
    return memoryview(data), cuts


def _strings(strings: Any) -> StringColumn | None:
    """Return the buffers of an Arrow array of bytes or text; None for no column."""
    if strings is None:
        return None
    validity, offsets, data = strings.buffers()
    cuts = memoryview(b"\0\0\0\0").cast("i")
    if offsets is not None and offsets.size:
        cuts = memoryview(offsets)[4 * strings.offset : 4 * (strings.offset + len(strings) + 1)].cast("i")
    content = memoryview(b"") if data is None else memoryview(data).cast("B")
    is_there = memoryview(validity).cast("B") if strings.null_count else None
    return StringColumn(cuts, content, is_there, strings.offset)
