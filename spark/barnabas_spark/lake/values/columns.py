"""Gives the rows of a file the columns that its table has now."""

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["widened", "with_columns"]


def with_columns(batch: Any, schema: Any) -> Any:
    """Return rows with the columns of a schema: what is missing is null, and what is narrower becomes wide."""
    return pa.RecordBatch.from_arrays([_column(batch, field) for field in schema], schema=schema)


def _column(batch: Any, field: Any) -> Any:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    return widened(batch.column(field.name), field.type)


def widened(column: Any, kind: Any) -> Any:
    """Return a column as one of a type that has all of its values; fields that its structs lack are null."""
    if column.type == kind:
        return column
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        names = [field.name for field in column.type]
        parts = [
            widened(column.field(one.name), one.type) if one.name in names else pa.nulls(len(column), one.type)
            for one in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind) and pa.types.is_list(column.type):
        # Of nulls, the offsets say that they have no elements.
        elements = widened(column.flatten(), kind.value_type)
        counts = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        is_null = np.append(column.is_null().to_numpy(zero_copy_only=False), False)
        offsets = pa.array(np.append(0, counts.cumsum()).astype(np.int32), mask=is_null)
        return pa.ListArray.from_arrays(offsets, elements, type=kind)
    return column.cast(kind)
