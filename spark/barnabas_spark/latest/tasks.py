"""Runs the pieces of a round as tasks of Spark. No row comes back to the driver, only what was written."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from barnabas_spark.lake.archive import ArchiveError
from barnabas_spark.lake.compaction import Group, Rewritten
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.tasks import task_failure
from barnabas_spark.lake.writing import FileSettings, Unreadable

from .merging import merge_files
from .run import RunPieces
from .writing import ReadRange, Sifted, SiftedPiece, write_sifted

__all__ = ["merge_on_spark", "sift_on_spark"]


def sift_on_spark(spark: Any, read: ReadRange, location: Location, settings: FileSettings) -> RunPieces:
    """Return what runs pieces, one a task, and returns one result of each, in their order. Needs a classic session.

    The function raises `ArchiveError` if a task failed as often as Spark allows.
    """
    write = partial(write_sifted, read=read, location=location, settings=settings)

    def run(pieces: Sequence[SiftedPiece]) -> Sequence[Sifted | Unreadable]:
        return _collected(spark, pieces, write)

    return run


def _collected(spark: Any, items: Sequence[Any], function: Any) -> list[Any]:
    """Return what a function makes of each item, one a task; raises as `sift_on_spark`."""
    from py4j.protocol import (  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with PySpark
        Py4JJavaError,
    )

    try:
        results: list[Any] = spark.sparkContext.parallelize(items, len(items)).map(function).collect()
    except Py4JJavaError as error:
        raise ArchiveError(f"a task failed for good: {task_failure(str(error.java_exception))}") from error
    return results


def merge_on_spark(
    spark: Any, location: Location, settings: FileSettings
) -> Callable[[Sequence[Group]], Sequence[Rewritten]]:
    """Return what merges groups of files, one a task; it raises as the function of `sift_on_spark`."""
    write = partial(merge_files, location=location, settings=settings)

    def run(groups: Sequence[Group]) -> Sequence[Rewritten]:
        return _collected(spark, groups, write)

    return run
