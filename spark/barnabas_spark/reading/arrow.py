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

*Byte strings without a loop.* Positions and sizes within one buffer become an Arrow array in which the wanted strings
and the bytes between them alternate. Arrow then takes every second element, and copies them in C++.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from barnabas_raftlog.records.columns import Columns, HeaderColumns, Slices

from .values import RAW, ValueDecoder

__all__ = ["ARROW_TYPES", "to_record_batch"]

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
# Microseconds since 1970 in 64 bits. Times beyond the year 294,247 are cut to it.
_TIMESTAMP_MS_MAX = (2**63 - 1) // 1000


def to_record_batch(
    columns: Columns, topic: str, partition: int, names: tuple[str, ...], values: ValueDecoder = RAW
) -> Any:
    """Return the columns called `names`, in this order, as a `pyarrow.RecordBatch` that shares no memory."""
    types = ARROW_TYPES | {"value": values.kind}
    arrays = [_column(columns, topic, partition, name) for name in names]
    if "value" in names:
        place = names.index("value")
        arrays[place] = values.decode(arrays[place])
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([(name, types[name]) for name in names]))


def _column(columns: Columns, topic: str, partition: int, name: str) -> Any:
    count = len(columns.offsets)
    match name:
        case "key":
            return _strings(columns.data, columns.keys, pa.binary())
        case "value":
            return _strings(columns.data, columns.values, pa.binary())
        case "topic":
            text = topic.encode()
            offsets = np.arange(count + 1, dtype=np.int32) * np.int32(len(text))
            return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text * count))
        case "partition":
            return pa.array(np.full(count, partition, np.int32))
        case "offset":
            return pa.array(columns.offsets)
        case "timestamp":
            bounded = np.clip(columns.timestamps, -_TIMESTAMP_MS_MAX, _TIMESTAMP_MS_MAX)
            return pa.array(bounded * 1000).cast(ARROW_TYPES[name])
        case "timestampType":
            return pa.array(columns.is_log_append.astype(np.int32))
        case _:
            assert columns.headers is not None, name
            return _headers(columns.data, columns.headers)


def _strings(data: memoryview, slices: Slices, kind: Any) -> Any:
    count = len(slices.starts)
    if not count:
        return pa.array([], kind)
    assert len(data) < 2**31, "an arena is bounded by a fetch and one decompressed batch"
    valid = slices.sizes >= 0
    edges = np.empty(2 * count + 1, np.int32)
    edges[0:-1:2] = slices.starts
    edges[1:-1:2] = slices.starts + np.maximum(slices.sizes, 0)
    edges[-1] = edges[-2]
    alternating = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    wanted = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=None if valid.all() else ~valid)
    return alternating.take(wanted)


def _headers(data: memoryview, headers: HeaderColumns) -> Any:
    names = _strings(data, headers.names, pa.binary())
    try:
        names = names.cast(pa.string())
    except pa.ArrowInvalid:
        # As in the Java client, a name that is not UTF-8 loses its odd bytes, and not the record.
        names = pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())
    pairs = pa.StructArray.from_arrays([names, _strings(data, headers.values, pa.binary())], fields=list(HEADER_TYPE))
    offsets = headers.offsets
    is_none = np.append(offsets[1:] == offsets[:-1], False)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32), mask=is_none), pairs)
