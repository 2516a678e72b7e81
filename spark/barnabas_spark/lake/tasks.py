"""Runs the pieces of a round as tasks of Spark. No row comes back to the driver, only what was written."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from barnabas_spark.options.reads import ReadOptions

from .archive import RunPieces
from .store import Location
from .writing import FileSettings, Piece, Unreadable, Written, write_piece

__all__ = ["run_on_spark"]


def run_on_spark(spark: Any, location: Location, options: ReadOptions, settings: FileSettings) -> RunPieces:
    """Return what runs pieces, one a task, and returns one result of each, in their order.

    Whatever attempts Spark makes of a task, it hands over the result of one. Needs a classic session.
    """
    context = spark.sparkContext
    write = partial(write_piece, location=location, options=options, settings=settings)

    def run(pieces: Sequence[Piece]) -> Sequence[Written | Unreadable]:
        results: list[Written | Unreadable] = context.parallelize(pieces, len(pieces)).map(write).collect()
        return results

    return run
