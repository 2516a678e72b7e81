"""Encodes rows as record batches: whole columns at once, and no Python for a single row.

A record on the wire is a few varints, its key, its value and its headers, one behind the other. So a column of records
is the element-wise concatenation of five columns: the varints up to the key, keys, the varint of the value's size,
values, and headers. numpy makes the columns of varints, and Arrow joins the columns in C++. What it returns lies in one
buffer, in order: a batch is a slice of that, behind a header. `barnabas_raftlog.records.builder` does the same record
by record, and is the model in the tests.

`build_batches` reads its arguments and nothing else, and has no state: another builder can take its place.

*Sizes.* A batch holds at most `batch_bytes` before compression, unless one record alone is larger. Cuts are found with
sizes that may be a few bytes too large, because the exact ones depend on the cuts.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barnabas_raftlog.records.compression import Compression, compress
from barnabas_raftlog.records.header import HEADER_BYTES

__all__ = ["ROW_OVERHEAD_BYTES", "Built", "RecordColumns", "build_batches", "data_of", "places", "row_sizes"]

Ints = npt.NDArray[np.int64]

ROW_OVERHEAD_BYTES: Final = 24
"""More than the framing of any record: the varints of its length, place, key, value and headers, and two bytes."""
RECORDS_MAX: Final = 1 << 20
"""Of one batch. Three bytes hold the place of each, and brokers count in 32 bits."""
_VARINT_BYTES_MAX: Final = 5
_LONG_VARINT_BYTES_MAX: Final = 8
"""Of the distance between two timestamps, as far as these fit in microseconds."""


class RecordColumns(NamedTuple):
    """Rows that are to become records, in order: Arrow columns of one length, each in one piece.

    `keys` and `values` are binary; None stands for a column of nulls. `headers` is a list of structs of a name (string)
    and a value (binary); None stands for no headers. `timestamps` are milliseconds since 1970, as integers of numpy;
    None: all records of a batch have the timestamp that its header gets as its base.
    """

    row_count: int
    keys: Any = None
    values: Any = None
    headers: Any = None
    timestamps: Any = None


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
    sizes = row_sizes(columns)
    starts, ends, runs = _cuts(sizes, run_ends, batch_bytes)
    records = _records(columns, starts, ends)
    offsets = _offsets_of(records)
    data = memoryview(records.buffers()[2])
    assert not data.readonly, "Arrow has just made it"
    built = []
    for run, start, end in zip(runs, starts.tolist(), ends.tolist(), strict=True):
        frame: bytearray | memoryview = data[offsets[start] : offsets[end]]
        plain_bytes = len(frame) - HEADER_BYTES
        if compression is not Compression.NONE:
            content = compress(compression, frame[HEADER_BYTES:])
            frame = bytearray(HEADER_BYTES)
            frame += content
        built.append(Built(run, start, end, frame, plain_bytes))
    return built


def row_sizes(columns: RecordColumns) -> Ints:
    """Return how many bytes the record of each row takes, at most `ROW_OVERHEAD_BYTES` too many."""
    sizes = np.full(columns.row_count, ROW_OVERHEAD_BYTES, np.int64)
    for strings in (columns.keys, columns.values):
        if strings is not None:
            sizes += np.maximum(places(strings)[1], 0)
    if columns.timestamps is not None:
        sizes += _LONG_VARINT_BYTES_MAX
    if columns.headers is not None:
        offsets, pairs = _pairs(columns.headers)
        names, values = (np.maximum(places(pairs.field(side))[1], 0) for side in (0, 1))
        ends = np.zeros(len(names) + 1, np.int64)
        np.cumsum(names + values + 2 * _VARINT_BYTES_MAX, out=ends[1:])
        sizes += ends[offsets[1:]] - ends[offsets[:-1]]
    return sizes


def places(strings: Any) -> tuple[Ints, Ints]:
    """Return where each string of an Arrow array begins in its third buffer, and its size; -1 for null."""
    offsets = _offsets_of(strings)
    sizes = np.diff(offsets)
    if strings.null_count:
        sizes[strings.is_null().to_numpy(zero_copy_only=False)] = -1
    return offsets[:-1], sizes


def data_of(strings: Any) -> npt.NDArray[np.uint8]:
    """Return the bytes to which `places` points."""
    buffer = strings.buffers()[2]
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def _offsets_of(strings: Any) -> Ints:
    buffer = strings.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(1, np.int64)
    return np.frombuffer(buffer, np.int32, len(strings) + 1, 4 * strings.offset).astype(np.int64)


def _cuts(sizes: Ints, run_ends: Sequence[int], batch_bytes: int) -> tuple[Ints, Ints, list[int]]:
    """Return where batches start and end, and their runs."""
    ends_bytes = np.cumsum(sizes)
    room = max(batch_bytes - HEADER_BYTES, 1)
    starts: list[int] = []
    runs: list[int] = []
    start = 0
    for run, run_end in enumerate(run_ends):
        while start < run_end:
            starts.append(start)
            runs.append(run)
            before = int(ends_bytes[start - 1]) if start else 0
            fitting = int(np.searchsorted(ends_bytes, before + room, side="right"))
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
    offsets, pairs = _pairs(headers)
    names, values = pairs.field(0).cast(pa.binary()), pairs.field(1)
    name_sizes, value_sizes = places(names)[1], places(values)[1]
    encoded = _joined([_varints([name_sizes]), names, _varints([value_sizes]), values])
    # All headers lie in one buffer, in order. Those of a row are a piece of it, which needs other offsets only.
    ends = _offsets_of(encoded)[offsets].astype(np.int32)
    of_rows = pa.Array.from_buffers(
        pa.binary(), len(headers), [None, pa.py_buffer(ends), encoded.buffers()[2] or pa.py_buffer(b"")]
    )
    return _joined([_varints([np.diff(offsets)]), of_rows])


def _pairs(headers: Any) -> tuple[Ints, Any]:
    """Return n+1 offsets and the structs that they cut, without those that a null hides."""
    counts = headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets, headers.flatten()


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
    for place in range(1, _LONG_VARINT_BYTES_MAX):
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
        encoded.append((zigzag, next(n for n in range(1, _LONG_VARINT_BYTES_MAX + 1) if most < 1 << 7 * n)))
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
