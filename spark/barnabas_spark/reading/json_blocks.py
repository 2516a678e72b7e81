"""Decodes blocks of JSON records into Arrow structs, with the reader of Arrow.

That reader takes many records at once, as lines, and is twice as fast as Spark's `from_json`; but it fails as a whole
because of one record, and a record that is no JSON object, or more than one, would move the rows behind it. So:

* Only records that look like an object on one line go to it. Each gets its number as a first field, under a name that
  nobody can know, and the numbers must come back. All others are decoded one by one (json_records.py).
* A block that fails is cut into halves until it passes, or is so small that its records are decoded one by one. So one
  bad record among thousands costs a few times what they cost without it. Where many are bad, cutting ends soon.

A block must not begin with `null`, for which Arrow's reader ends the process with a segmentation fault (24.0). The
first field of each record sees to it.
"""

import io
import os
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from .json_records import CORRUPT, RecordDecoder

__all__ = ["JsonDecoder"]

# Up to so many records are decoded one by one where one of them is bad.
SMALL = 128
# One bad record in a block of 4 MiB makes about seven blocks fail.
FAILED_BLOCKS_MAX = 24
# A field that no record can have by chance or on purpose.
NUMBER = f"number {os.urandom(12).hex()}"


class JsonDecoder:
    """Decodes values into structs of one Arrow type, whose fields are nullable. Has no state between blocks."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._records = RecordDecoder(kind)
        self._fields = [field for field in kind if field.name != CORRUPT]
        schema = pa.schema([pa.field(NUMBER, pa.int64()), *((one.name, _as_read(one.type)) for one in self._fields)])
        self._parse_options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def decode(self, values: Any) -> Any:
        """Return a struct array for a binary array, null where the value is null or blank."""
        is_plain = _is_plain(values)
        if is_plain.all():
            pieces = self._blocks(values)
            return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        others = np.flatnonzero(~is_plain)
        pieces = [*self._blocks(values.filter(pa.array(is_plain))), self._one_by_one(values.take(pa.array(others)))]
        places = np.empty(len(values), np.int64)
        places[np.append(np.flatnonzero(is_plain), others)] = np.arange(len(values))
        return pa.concat_arrays(pieces).take(pa.array(places))

    def _blocks(self, values: Any) -> list[Any]:
        """Return the structs of records that look plain, in order, in as many pieces as it took."""
        pieces = []
        failed = 0
        waiting = [values]
        while waiting:
            block = waiting.pop()
            found = self._block(block)
            if found is not None:
                pieces.append(found)
            elif len(block) <= SMALL or failed >= FAILED_BLOCKS_MAX:
                pieces.append(self._one_by_one(block))
            else:
                failed += 1
                half = len(block) // 2
                waiting += [block.slice(half), block.slice(0, half)]
        return pieces

    def _block(self, values: Any) -> Any:
        """Return the structs of a block, or None if it must be decoded with more care."""
        count = len(values)
        if not count:
            return pa.array([], self._kind)
        try:
            lines = _lines(values)
            reading = pj.ReadOptions(use_threads=False, block_size=len(lines) + 1)
            table = pj.read_json(io.BytesIO(lines), read_options=reading, parse_options=self._parse_options)
            if (
                table.num_rows != count
                or not (table[NUMBER].combine_chunks().to_numpy(False) == np.arange(count)).all()
            ):
                return None
            columns = {one.name: table[one.name].combine_chunks().cast(one.type) for one in self._fields}
        except pa.ArrowInvalid:
            return None
        nothing = pa.nulls(count, pa.string())
        return pa.StructArray.from_arrays(
            [columns.get(one.name, nothing) for one in self._kind], fields=list(self._kind)
        )

    def _one_by_one(self, values: Any) -> Any:
        return pa.array([self._records.decode(value) for value in values.to_pylist()], self._kind)


def _as_read(kind: Any) -> Any:
    """Return the type as which Arrow reads: dates are numbers of days to it, so they are read as text and cast."""
    if pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_as_read(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(one.name, _as_read(one.type)) for one in kind])
    return kind


def _is_plain(values: Any) -> Any:
    """Tell which values are there, begin as an object with a field, and are one line."""
    is_plain = pc.starts_with(values, '{"')
    data = memoryview(values.buffers()[2] or b"").tobytes()
    for line_end in (b"\n", b"\r"):
        if line_end in data:
            is_plain = pc.and_(is_plain, pc.invert(pc.match_substring(values, line_end)))
    return is_plain.fill_null(False).to_numpy(zero_copy_only=False)


def _lines(values: Any) -> Any:
    """Return the records as lines, each with its number.

    Raises:
        ArrowInvalid: something is not UTF-8.
    """
    texts = values.cast(pa.string())
    numbers = pa.array(np.arange(len(values))).cast(pa.string())
    numbered = pc.binary_join_element_wise(f'{{"{NUMBER}":', numbers, ",", pc.utf8_slice_codeunits(texts, 1), "\n", "")
    _, offsets, data = numbered.buffers()
    ends = np.frombuffer(offsets, np.int32)
    return memoryview(data)[ends[numbered.offset] : ends[numbered.offset + len(numbered)]]
