"""Names the rows that are to become records, and says where the strings of Arrow's columns are."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from barnabas_raftlog.records.walker.arrow_parts import PAIR_OVERHEAD_BYTES, ROW_OVERHEAD_BYTES, TIMESTAMP_BYTES_MAX

__all__ = ["Ints", "RecordColumns", "data_of", "offsets_of", "pairs_of", "places", "row_sizes"]

Ints = npt.NDArray[np.int64]


class RecordColumns(NamedTuple):
    """Rows that are to become records: Arrow columns of one length, each in one piece.

    `keys` and `values` are binary; None stands for a column of nulls. `headers` is a list of structs of a name (string)
    and a value (binary); None stands for no headers. `timestamps` are milliseconds since 1970, as integers of numpy;
    None: all records of a batch have the timestamp that its header gets as its base. `order` says which row comes when,
    if they are not in order already.
    """

    row_count: int
    keys: Any = None
    values: Any = None
    headers: Any = None
    timestamps: Any = None
    order: Any = None


def row_sizes(columns: RecordColumns) -> Ints:
    """Return how many bytes the record of each row takes, at most `ROW_OVERHEAD_BYTES` too many."""
    sizes = np.full(columns.row_count, ROW_OVERHEAD_BYTES, np.int64)
    for strings in (columns.keys, columns.values):
        if strings is not None:
            sizes += np.maximum(places(strings)[1], 0)
    if columns.timestamps is not None:
        sizes += TIMESTAMP_BYTES_MAX
    if columns.headers is not None:
        offsets, pairs = pairs_of(columns.headers)
        names, values = (np.maximum(places(pairs.field(side))[1], 0) for side in (0, 1))
        ends = np.zeros(len(names) + 1, np.int64)
        np.cumsum(names + values + PAIR_OVERHEAD_BYTES, out=ends[1:])
        sizes += ends[offsets[1:]] - ends[offsets[:-1]]
    return sizes


def places(strings: Any) -> tuple[Ints, Ints]:
    """Return where each string of an Arrow array begins in its third buffer, and its size; -1 for null."""
    offsets = offsets_of(strings)
    sizes = np.diff(offsets)
    if strings.null_count:
        sizes[strings.is_null().to_numpy(zero_copy_only=False)] = -1
    return offsets[:-1], sizes


def data_of(strings: Any) -> npt.NDArray[np.uint8]:
    """Return the bytes to which `places` points."""
    buffer = strings.buffers()[2]
    return np.zeros(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def offsets_of(strings: Any) -> Ints:
    """Return where the strings of an Arrow array begin and end in its third buffer: one more than there are."""
    buffer = strings.buffers()[1]
    if buffer is None or not buffer.size:
        return np.zeros(1, np.int64)
    return np.frombuffer(buffer, np.int32, len(strings) + 1, 4 * strings.offset).astype(np.int64)


def pairs_of(headers: Any) -> tuple[Ints, Any]:
    """Return n+1 offsets and the structs that they cut, without those that a null hides."""
    counts = headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets, headers.flatten()
