"""Runs the pieces of a round as tasks of Spark. No row comes back to the driver, only what was written."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from barnabas_spark.lake.compaction import Group, Rewritten
from barnabas_spark.lake.store import Location
from barnabas_spark.lake.tasks import collected
from barnabas_spark.lake.writing import FileSettings, Unreadable

from .merging import merge_files
from .run import RunPieces
from .writing import ReadRange, Sifted, SiftedPiece, write_sifted

__all__ = ["merge_on_spark", "sift_on_spark"]


def sift_on_spark(spark: Any, read: ReadRange, location: Location, settings: FileSettings) -> RunPieces:
    """Return what runs pieces, one a task, and returns one result of each, in their order. Needs a classic session.

    The function raises `TaskFailedError`.
    """
    write = partial(write_sifted, read=read, location=location, settings=settings)

    def run(pieces: Sequence[SiftedPiece]) -> Sequence[Sifted | Unreadable]:
        return collected(spark.sparkContext, pieces, write)

    return run


def merge_on_spark(
    spark: Any, location: Location, settings: FileSettings
) -> Callable[[Sequence[Group]], Sequence[Rewritten]]:
    """Return what merges groups of files, one a task; it raises as the function of `sift_on_spark`."""
    write = partial(merge_files, location=location, settings=settings)

    def run(groups: Sequence[Group]) -> Sequence[Rewritten]:
        return collected(spark.sparkContext, groups, write)

    return run
