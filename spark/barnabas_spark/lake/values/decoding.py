"""Decodes the values of records into the columns of a table, and tells which of them do not fit, and why.

A value that does not fit gives nulls in all of its columns: a row is decoded as a whole, or not at all. The record
stays in the table, with its raw value, and a copy of it with the reason is a *reject*. A value that is null is no
reject: it deletes a key. What "fits" means is what reads with `valueFormat=json` say of a record
(reading/json_records.py).
"""

import json
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas_spark.lake.layout import RECORD_SCHEMA, Layout
from barnabas_spark.reading.json_blocks import JsonDecoder
from barnabas_spark.reading.json_records import CORRUPT, RecordDecoder

__all__ = ["REJECT_SCHEMA", "Decoded", "ValueColumns", "reason_of"]

REJECT_SCHEMA = pa.schema([*RECORD_SCHEMA, pa.field("reason", pa.string())])
SHOWN_MAX = 80


class Decoded(NamedTuple):
    """Rows with all columns of their files, and rejects: which of the rows they are, and their own rows."""

    rows: Any
    is_reject: Any = None
    rejects: Any = None


class ValueColumns:
    """The columns of a layout that come from the value. Keeps nothing from batch to batch."""

    def __init__(self, layout: Layout) -> None:
        self._schema = layout.schema
        fields = dict(layout.values)
        self._kind = pa.struct([(fields[one.name], one.type) for one in layout.schema if one.name in fields])
        self._places = {one.name: at for at, one in enumerate(each for each in layout.schema if each.name in fields)}
        decoded = pa.struct([*self._kind, pa.field(CORRUPT, pa.string())])
        self._decoder = JsonDecoder(decoded) if fields else None

    def decode(self, batch: Any) -> Decoded:
        """Return rows with the columns of `RECORD_SCHEMA` as those of the layout; a column of others is null."""
        if self._decoder is None:
            return Decoded(self._batch(batch, ()))
        values = batch.column("value")
        found = self._decoder.decode(values)
        *columns, corrupt = found.flatten()
        is_reject = pc.or_(corrupt.is_valid(), pc.and_(found.is_null(), values.is_valid()))
        if not pc.any(is_reject).as_py():
            return Decoded(self._batch(batch, columns))
        mask = is_reject.to_numpy(zero_copy_only=False)
        kept = pa.array(np.arange(batch.num_rows), mask=mask)
        rejects = batch.filter(is_reject)
        reasons = [reason_of(value, self._kind) for value in rejects.column("value").to_pylist()]
        copies = pa.RecordBatch.from_arrays([*rejects.columns, pa.array(reasons, pa.string())], schema=REJECT_SCHEMA)
        return Decoded(self._batch(batch, [one.take(kept) for one in columns]), mask, copies)

    def _batch(self, batch: Any, columns: Any) -> Any:
        return pa.RecordBatch.from_arrays(
            [self._column(batch, columns, one) for one in self._schema], schema=self._schema
        )

    def _column(self, batch: Any, columns: Any, field: Any) -> Any:
        if field.name in self._places:
            return columns[self._places[field.name]]
        if field.name in RECORD_SCHEMA.names:
            return batch.column(field.name).cast(field.type)
        return pa.nulls(batch.num_rows, field.type)


def reason_of(value: bytes, kind: Any) -> str:
    """Return why a value does not fit a struct type."""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return f"it is not UTF-8 at byte {error.start}"
    if not text.strip():
        return "it is empty"
    try:
        found = json.JSONDecoder().raw_decode(text.strip())[0]
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    if not isinstance(found, dict):
        return "it is JSON, but not an object"
    for field in kind:
        alone = RecordDecoder(pa.struct([field, pa.field(CORRUPT, pa.string())])).decode(value)
        if alone is not None and alone[CORRUPT] is not None:
            shown = json.dumps(found.get(field.name), ensure_ascii=False)
            shown = shown if len(shown) <= SHOWN_MAX else f"{shown[:SHOWN_MAX]}..."
            return f"field '{field.name}' is not {field.type}: {shown}"
    return "it does not fit the schema"
