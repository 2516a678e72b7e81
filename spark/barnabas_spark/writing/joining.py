"""Encodes rows as records with numpy and Arrow, whole columns at once: the twin of the compiled `arrow_records`.

A record on the wire is a few varints, its key, its value and its headers, one behind the other. So a column of records
is the element-wise concatenation of five columns: the varints up to the key, keys, the varint of the value's size,
values, and headers. numpy makes the columns of varints, and Arrow joins the columns in C++. What it returns lies in one
buffer, in order.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas_raftlog.records.header import HEADER_BYTES
from barnabas_raftlog.records.walker.arrow_parts import RECORDS_MAX, TIMESTAMP_BYTES_MAX, Cut

from .rows import Ints, RecordColumns, offsets_of, pairs_of, places, row_sizes

__all__ = ["joined_records"]


def joined_records(columns: RecordColumns, run_ends: Sequence[int], room_bytes: int) -> tuple[memoryview, list[Cut]]:
    """Return a buffer with the batches one behind the other, with place for a header before each, and where they are.

    A batch has records of about `room_bytes` at most, or one that is larger, and no rows of two runs.
    """
    columns = _ordered(columns)
    starts, ends, runs = _cuts(row_sizes(columns), run_ends, room_bytes)
    records = _records(columns, starts, ends)
    offsets = offsets_of(records).tolist()
    data = memoryview(records.buffers()[2])
    assert not data.readonly, "Arrow has just made it"
    cuts = zip(runs, starts.tolist(), ends.tolist(), strict=True)
    return data, [Cut(run, start, end, offsets[start], offsets[end]) for run, start, end in cuts]


def _ordered(columns: RecordColumns) -> RecordColumns:
    """Return the columns in the order that they are to have."""
    if columns.order is None:
        return columns
    order = pa.array(columns.order)
    keys, values, headers = (
        None if column is None else column.take(order) for column in (columns.keys, columns.values, columns.headers)
    )
    return RecordColumns(
        columns.row_count,
        keys,
        values,
        headers,
        timestamps=None if columns.timestamps is None else columns.timestamps[columns.order],
    )


def _cuts(sizes: Ints, run_ends: Sequence[int], room_bytes: int) -> tuple[Ints, Ints, list[int]]:
    """Return where batches start and end, and their runs."""
    ends_bytes = np.cumsum(sizes)
    starts: list[int] = []
    runs: list[int] = []
    start = 0
    for run, run_end in enumerate(run_ends):
        while start < run_end:
            starts.append(start)
            runs.append(run)
            before = int(ends_bytes[start - 1]) if start else 0
            fitting = int(np.searchsorted(ends_bytes, before + room_bytes, side="right"))
            start = min(max(fitting, start + 1), start + RECORDS_MAX, run_end)
    assert start == len(sizes), (start, len(sizes))
    return np.array(starts, np.int64), np.array([*starts[1:], len(sizes)], np.int64), runs


def _records(columns: RecordColumns, starts: Ints, ends: Ints) -> Any:
    """Return the record of each row, whole, as an Arrow array of bytes; before that of a first row, place for a header.

    A batch can be sent from there: nothing is copied again.
    """
    count = columns.row_count
    deltas = np.arange(count) - np.repeat(starts, ends - starts)
    key_sizes = np.full(count, -1) if columns.keys is None else places(columns.keys)[1]
    value_sizes = np.full(count, -1) if columns.values is None else places(columns.values)[1]
    if columns.headers is None:
        tail: Any = pa.scalar(b"\0", pa.binary())
        tail_sizes: Any = 1
    else:
        tail = _headers(columns.headers)
        tail_sizes = places(tail)[1]
    zeros = np.zeros(count, np.int64)
    times = zeros
    if columns.timestamps is not None:
        times = columns.timestamps - np.repeat(columns.timestamps[starts], ends - starts)
    bodies = 1 + _varint_sizes(times) + _varint_sizes(deltas) + tail_sizes
    for sizes in (key_sizes, value_sizes):
        bodies += _varint_sizes(sizes) + np.maximum(sizes, 0)
    before_key = [bodies, zeros, times, deltas, key_sizes]
    if columns.keys is None:
        pieces = [_varints([*before_key, value_sizes], starts)]
    else:
        pieces = [_varints(before_key, starts), columns.keys, _varints([value_sizes])]
    if columns.values is not None:
        pieces.append(columns.values)
    return _joined([*pieces, tail])


def _headers(headers: Any) -> Any:
    """Return the headers of each row, their number included, as an Arrow array of bytes."""
    offsets, pairs = pairs_of(headers)
    names, values = pairs.field(0).cast(pa.binary()), pairs.field(1)
    name_sizes, value_sizes = places(names)[1], places(values)[1]
    encoded = _joined([_varints([name_sizes]), names, _varints([value_sizes]), values])
    # All headers lie in one buffer, in order. Those of a row are a piece of it, which needs other offsets only.
    ends = offsets_of(encoded)[offsets].astype(np.int32)
    of_rows = pa.Array.from_buffers(
        pa.binary(), len(headers), [None, pa.py_buffer(ends), encoded.buffers()[2] or pa.py_buffer(b"")]
    )
    return _joined([_varints([np.diff(offsets)]), of_rows])


def _joined(pieces: Sequence[Any]) -> Any:
    nothing = pa.scalar(b"", pa.binary())
    return pc.binary_join_element_wise(*pieces, nothing, null_handling="replace", null_replacement="")


def _zigzag(values: Ints) -> Ints:
    return (values << 1) ^ (values >> 63)


def _varint_sizes(values: Ints) -> Ints:
    """Return how many bytes the zigzag varint of each value takes; values have 54 bits and a sign."""
    zigzag = _zigzag(values)
    sizes = np.ones(len(values), np.int64)
    most = int(zigzag.max(initial=0))
    for place in range(1, TIMESTAMP_BYTES_MAX):
        if most < 1 << 7 * place:
            break
        sizes += zigzag >= 1 << 7 * place
    return sizes


def _varints(columns: Sequence[Ints], first_rows: Ints | None = None) -> Any:
    """Return the zigzag varints of each row of some columns, one behind the other, as an Arrow array of bytes.

    Before those of `first_rows` there is place for the header of a batch.
    """
    count = len(columns[0])
    encoded: list[tuple[Ints, int]] = []
    for values in columns:
        zigzag = _zigzag(values)
        most = int(zigzag.max(initial=0))
        encoded.append((zigzag, next(n for n in range(1, TIMESTAMP_BYTES_MAX + 1) if most < 1 << 7 * n)))
    width = sum(each for _, each in encoded)
    table = np.empty((count, width), np.uint8)
    is_there = np.ones((count, width), np.bool_)
    column = 0
    for zigzag, most_bytes in encoded:
        for place in range(most_bytes):
            byte = zigzag >> 7 * place & 0x7F
            if place + 1 < most_bytes:
                byte |= (zigzag >= 1 << 7 * (place + 1)) * 0x80
            if place:
                is_there[:, column] = zigzag >= 1 << 7 * place
            table[:, column] = byte
            column += 1
    sizes = is_there.sum(axis=1)
    content = table[is_there]
    if first_rows is not None:
        ends = np.cumsum(sizes)
        content = np.insert(content, np.repeat((ends - sizes)[first_rows], HEADER_BYTES), 0)
        sizes[first_rows] += HEADER_BYTES
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(content)])
