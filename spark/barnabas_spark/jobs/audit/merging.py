"""Merges the rows of units whose files are mixed: Spark sorts them by offset, and a task measures each unit.

Files are mixed if a table is partitioned by time, or if a row is there twice. The driver sees measures only.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from barnabas_spark.lake.store import Location

from .files import UnitIndex, file_batches, rows_by_unit
from .fragments import Fragment, Measuring, fragment_from_plain

__all__ = ["measure_sorted", "merge_units", "rows_of"]

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ROWS = pa.schema(
    [
        ("unit", pa.int64()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("timestampType", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
    ]
)
_DDL = (
    "unit bigint, offset bigint, timestamp bigint, timestampType int, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)


def merge_units(
    spark: Any, location: Location, paths: Sequence[str], wanted: Collection[int], index: UnitIndex
) -> dict[int, Fragment]:
    """Return what some files have of the units `wanted`, each offset counted once."""
    chosen = frozenset(wanted)

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                yield from rows_of(location, path, chosen, index)

    def measures(batches: Iterator[Any]) -> Iterator[Any]:
        texts = [json.dumps(one) for one in measure_sorted(batches)]
        yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["measure"])

    context = spark.sparkContext
    cores = context.defaultParallelism
    tasks = spark.createDataFrame(
        context.parallelize([(path,) for path in paths], min(len(paths), 4 * cores)), "path string"
    )
    found = (
        tasks.mapInArrow(rows, _DDL)
        .repartition(min(len(chosen), 4 * cores), "unit")
        .sortWithinPartitions("unit", "offset")
        .mapInArrow(measures, "measure string")
        .collect()
    )
    fragments = [fragment_from_plain(json.loads(row.measure)) for row in found]
    return {one.unit: one for one in fragments}


def rows_of(location: Location, path: str, chosen: Collection[int], index: UnitIndex) -> Iterator[Any]:
    """Yield the rows of a file that are of some units, with the number of their unit."""
    for _, batch in file_batches(location, path):
        for number, _, part in rows_by_unit(batch, index):
            if number in chosen:
                numbers = pa.array(np.full(part.num_rows, number, np.int64))
                columns = [numbers, *(_column(part, field) for field in list(_ROWS)[1:])]
                yield pa.RecordBatch.from_arrays(columns, schema=_ROWS)


def _column(batch: Any, field: Any) -> Any:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(field.name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return column.cast(field.type)


def measure_sorted(batches: Iterator[Any]) -> Sequence[Fragment]:
    """Measure rows that are sorted by `unit` and `offset`; of rows with one offset, the first one counts."""
    measuring = Measuring()
    last = (-1, -1)
    for batch in batches:
        if not batch.num_rows:
            continue
        units, offsets = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("unit", "offset"))
        before_units, before_offsets = np.insert(units[:-1], 0, last[0]), np.insert(offsets[:-1], 0, last[1])
        is_doubled = (units == before_units) & (offsets == before_offsets)
        last = (int(units[-1]), int(offsets[-1]))
        once = batch if not is_doubled.any() else batch.filter(pa.array(~is_doubled))
        kept = units[~is_doubled]
        ends = [*(np.flatnonzero(np.diff(kept)) + 1).tolist(), len(kept)] if len(kept) else []
        start = 0
        for end in ends:
            measuring.add(int(kept[start]), once.slice(start, end - start))
            start = end
        for unit in np.unique(units[is_doubled]).tolist():
            of_unit = offsets[is_doubled & (units == unit)]
            measuring.add_doubled(unit, len(of_unit), int(of_unit[0]))
    return measuring.fragments
