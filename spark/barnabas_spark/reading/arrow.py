"""Turns decoded columns into Arrow record batches, in the schema of Spark's Kafka source.

| column | type | |
| --- | --- | --- |
| key, value | binary | null where the record has none; `valueFormat` makes text or a struct of values |
| topic | string | |
| partition | int | |
| offset | long | |
| timestamp | timestamp | microseconds in Arrow, milliseconds in the log |
| timestampType | int | 0: set by the producer, 1: by the broker when it appended |
| headers | array<struct<key string, value binary>> | with `includeHeaders`; null where there are none |

A column that was not asked for is not built.

*No copies.* The buffers in which records were decoded are those of the Arrow arrays.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from barnabas_raftlog.records.walker.arrow_parts import ArrowParts, HeaderParts, StringParts, Wanted

from .values import RAW, ValueDecoder

__all__ = ["ARROW_TYPES", "to_record_batch", "wanted_of"]

HEADER_TYPE = pa.struct([("key", pa.string()), ("value", pa.binary())])
ARROW_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(HEADER_TYPE),
}


def wanted_of(names: Collection[str]) -> Wanted:
    """Return which columns must be decoded for those called `names`."""
    return Wanted(
        offsets="offset" in names,
        timestamps="timestamp" in names,
        timestamp_types="timestampType" in names,
        keys="key" in names,
        values="value" in names,
        headers="headers" in names,
    )


def to_record_batch(
    columns: ArrowParts, topic: str, partition: int, names: tuple[str, ...], values: ValueDecoder = RAW
) -> Any:
    """Return the columns called `names`, in this order, as a `pyarrow.RecordBatch`, which keeps the buffers."""
    types = ARROW_TYPES | {"value": values.kind}
    arrays = [_column(columns, topic, partition, name) for name in names]
    if "value" in names:
        place = names.index("value")
        arrays[place] = values.decode(arrays[place])
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([(name, types[name]) for name in names]))


def _column(columns: ArrowParts, topic: str, partition: int, name: str) -> Any:
    count = columns.rows
    match name:
        case "key":
            return _strings(columns.keys, count)
        case "value":
            return _strings(columns.values, count)
        case "topic":
            text = topic.encode()
            offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(text))
            return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text * count))
        case "partition":
            return pa.array(np.full(count, partition, np.int32))
        case "offset":
            return _numbers(name, columns.offsets, count)
        case "timestamp":
            return _numbers(name, columns.timestamps, count)
        case "timestampType":
            return _numbers(name, columns.timestamp_types, count)
        case _:
            return _headers(columns.headers, count)


def _numbers(name: str, buffer: bytearray | None, count: int) -> Any:
    assert buffer is not None, name
    return pa.Array.from_buffers(ARROW_TYPES[name], count, [None, pa.py_buffer(buffer)], 0)


def _strings(strings: StringParts | None, count: int) -> Any:
    assert strings is not None
    validity = None if strings.validity is None else pa.py_buffer(strings.validity)
    buffers = [validity, pa.py_buffer(strings.offsets), pa.py_buffer(strings.data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers, strings.null_count)


def _headers(headers: HeaderParts | None, count: int) -> Any:
    assert headers is not None
    offsets = np.frombuffer(headers.offsets, np.int32)
    pair_count = int(offsets[-1])
    names = _strings(headers.names, pair_count)
    try:
        names = names.cast(pa.string())
    except pa.ArrowInvalid:
        # As in the Java client, a name that is not UTF-8 loses its odd bytes, and not the record.
        names = pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
    pairs = pa.StructArray.from_arrays([names, _strings(headers.values, pair_count)], fields=list(HEADER_TYPE))
    is_none = np.append(offsets[1:] == offsets[:-1], False)
    return pa.ListArray.from_arrays(pa.array(offsets, mask=is_none), pairs)
