"""Stands in for Spark where only its results count: tasks run here, one after the other."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import pyarrow as pa

from barnabas_spark.jobs.audit.files import UnitIndex
from barnabas_spark.jobs.audit.fragments import Fragment
from barnabas_spark.jobs.audit.merging import measure_sorted, rows_of
from barnabas_spark.lake.store import Location

__all__ = ["OneProcess", "merged_here"]


class OneProcess:
    """A session and its context in one, as far as `in_waves` uses them."""

    defaultParallelism = 2  # noqa: N815 - Spark's name

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self._items = list(items)

    @property
    def sparkContext(self) -> "OneProcess":  # noqa: N802 - Spark's name
        return self

    def parallelize(self, items: Iterable[Any], _tasks: int) -> "OneProcess":
        return OneProcess(items)

    def map(self, function: Callable[[Any], Any]) -> "OneProcess":
        return OneProcess(map(function, self._items))

    def collect(self) -> list[Any]:
        return self._items


def merged_here(
    _spark: Any, location: Location, paths: Sequence[str], wanted: Collection[int], index: UnitIndex
) -> dict[int, Fragment]:
    """Do what `merge_units` does, but for Spark's sort."""
    batches = [batch for path in paths for batch in rows_of(location, path, wanted, index)]
    table = pa.Table.from_batches(batches).sort_by([("unit", "ascending"), ("offset", "ascending")])
    return {one.unit: one for one in measure_sorted(iter(table.to_batches(max_chunksize=7)))}
