"""Reads record batches into Arrow's buffers: compiled where a compiler was, else with numpy. Pure.

Meaning, tolerance and errors are those of `columns.py`.
"""

from typing import TYPE_CHECKING, NamedTuple

from .columns import take_parts
from .compression import DECOMPRESSED_BYTES_MAX
from .reader import INT64_MAX
from .walker.arrow_parts import ArrowParts, Buffer, Wanted
from .walker.twins import IS_COMPILED

if TYPE_CHECKING or not IS_COMPILED:
    from .arrow_numpy import arrow_columns
else:
    from .walker.compiled.columns import arrow_columns

__all__ = ["RECORDS", "ArrowRead", "arrow_columns", "read_arrow"]

RECORDS = Wanted()
"""All columns but headers."""


class ArrowRead(NamedTuple):
    """Records as columns, where the batches ended, and the bytes that were not looked at; as in `Columns`."""

    columns: ArrowParts
    next_offset: int
    rest: memoryview


def read_arrow(
    data: Buffer,
    start_offset: int = 0,
    end_offset: int = INT64_MAX,
    wanted: Wanted = RECORDS,
    *,
    check_crc: bool = True,
    target_bytes: int = INT64_MAX,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> ArrowRead:
    """Decode the records of concatenated batches whose offset lies in [start_offset, end_offset).

    Arguments are those of `read_columns`. Records are checked whether their columns are wanted or not.

    Raises:
        CorruptBatchError: anything contradicts itself.
        OverflowError: a column has 2 GiB or more.
    """
    taken = take_parts(
        data, start_offset, end_offset, check_crc=check_crc, target_bytes=target_bytes, limit_bytes=limit_bytes
    )
    return ArrowRead(arrow_columns(taken.parts, start_offset, end_offset, wanted), taken.next_offset, taken.rest)
