"""Decodes batches into Arrow's buffers with numpy: the twin of the compiled `arrow_columns`. Pure.

It is not with the walker's other twins because it needs numpy, which the clients do without.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .columns import Columns, Slices, decode, joined
from .walker.arrow_parts import TIMESTAMP_MS_MAX, ArrowParts, HeaderParts, Part, StringParts, Wanted

__all__ = ["arrow_columns"]

INT32_MAX = 2**31 - 1


def arrow_columns(parts: Sequence[Part], start_offset: int, end_offset: int, wanted: Wanted) -> ArrowParts:
    """Return the records of `parts` with offsets in [start_offset, end_offset) as columns.

    Raises:
        CorruptBatchError: a record is not sound, whether it was wanted or not.
        OverflowError: a column has 2 GiB or more.
    """
    arena, bases = joined(parts)
    columns = decode(arena, parts, bases, start_offset, end_offset, with_headers=wanted.headers)
    timestamps = np.clip(columns.timestamps, -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX) * 1000
    return ArrowParts(
        len(columns.offsets),
        bytearray(columns.offsets) if wanted.offsets else None,
        bytearray(timestamps) if wanted.timestamps else None,
        bytearray(columns.is_log_append.astype(np.int32)) if wanted.timestamp_types else None,
        _strings(columns.data, columns.keys) if wanted.keys else None,
        _strings(columns.data, columns.values) if wanted.values else None,
        _headers(columns) if wanted.headers else None,
    )


def _headers(columns: Columns) -> HeaderParts:
    assert columns.headers is not None
    names, values = (_strings(columns.data, strings) for strings in (columns.headers.names, columns.headers.values))
    return HeaderParts(bytearray(columns.headers.offsets.astype(np.int32)), names, values)


def _strings(data: memoryview, slices: Slices) -> StringParts:
    offsets, content, valid = slices.packed(data)
    if offsets[-1] > INT32_MAX:
        raise OverflowError(f"{offsets[-1]} bytes in one column; Arrow's offsets have 31 bits")
    return StringParts(bytearray(offsets.astype(np.int32)), content, *_validity(valid))


def _validity(valid: npt.NDArray[np.bool_]) -> tuple[bytearray | None, int]:
    null_count = len(valid) - int(np.count_nonzero(valid))
    return (bytearray(np.packbits(valid, bitorder="little")) if null_count else None), null_count
