"""Takes the columns of a sink out of Spark's Arrow batches, in pieces of a bounded size.

Spark's batches have a number of rows, ten thousand by default. Small ones are gathered, so that every partition gets
batches worth sending, and large ones are cut. A piece has at most `PIECE_BYTES`, unless one row alone is larger.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from .layout import Layout
from .rows import RecordColumns, row_sizes

__all__ = ["PIECE_BYTES", "Piece", "pieces"]

PIECE_BYTES: Final = 8 << 20
_HEADERS = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))


class Piece(NamedTuple):
    """Some rows in order, the first of which is row `first_row` of the task. `topics` and `partitions` may be None.

    `sizes` has about how many bytes the record of each row takes.
    """

    first_row: int
    columns: RecordColumns
    sizes: Any
    topics: Any
    partitions: Any


def pieces(batches: Iterable[Any], layout: Layout) -> Iterator[Piece]:
    """Yield the rows of `batches` in order."""
    first_row = 0
    gathered: list[Any] = []
    gathered_bytes = 0
    for batch in batches:
        for part, part_bytes in _parts(_chosen(batch, layout)):
            if gathered and gathered_bytes + part_bytes > PIECE_BYTES:
                piece = _piece(gathered, first_row)
                first_row += piece.columns.row_count
                gathered, gathered_bytes = [], 0
                yield piece
            gathered.append(part)
            gathered_bytes += part_bytes
    if gathered:
        yield _piece(gathered, first_row)


def _chosen(batch: Any, layout: Layout) -> Any:
    """Return the columns of the sink, in the types in which records have them, by name."""
    found = [(name, place) for name, place in layout._asdict().items() if place is not None]
    columns = [_cast(name, batch.column(place)) for name, place in found]
    return pa.RecordBatch.from_arrays(columns, names=[name for name, _ in found])


def _cast(name: str, column: Any) -> Any:
    match name:
        case "topic":
            return column.cast(pa.string())
        case "partition":
            return column.cast(pa.int32())
        case "headers":
            return column.cast(_HEADERS)
        case _:
            return column.cast(pa.binary())


def _parts(batch: Any) -> Iterator[tuple[Any, int]]:
    """Cut a batch of rows in parts that are no larger than a piece, and yield these with their sizes in bytes."""
    if not batch.num_rows:
        return
    ends = np.cumsum(row_sizes(_records(batch)))
    start = 0
    while start < batch.num_rows:
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + PIECE_BYTES, side="right")), start + 1)
        yield batch.slice(start, end - start), int(ends[end - 1]) - before
        start = end


def _records(batch: Any) -> RecordColumns:
    names = batch.schema.names
    columns = [batch.column(name) if name in names else None for name in ("key", "value", "headers")]
    # A column of nulls is none.
    return RecordColumns(
        batch.num_rows,
        *(None if column is None or column.null_count == batch.num_rows else column for column in columns),
    )


def _piece(parts: list[Any], first_row: int) -> Piece:
    batch = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    columns = _records(batch)
    topics, partitions = (batch.column(name) if name in batch.schema.names else None for name in ("topic", "partition"))
    return Piece(first_row, columns, row_sizes(columns), topics, partitions)
