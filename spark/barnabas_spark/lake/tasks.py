"""Runs the pieces of a round as tasks of Spark. No row comes back to the driver, only what was written."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from barnabas_spark.options.reads import ReadOptions

from .archive import ArchiveError, RunPieces
from .compaction import Group, Rewritten, rewrite_group
from .store import Location
from .writing import FileSettings, Piece, Unreadable, Written, write_piece

__all__ = ["TaskFailedError", "collected", "named_failure", "rewrite_on_spark", "run_on_spark", "task_failure"]

R = TypeVar("R")


class TaskFailedError(ArchiveError):
    """A task failed as often as Spark allows."""


def run_on_spark(
    spark: Any, location: Location, options: ReadOptions, settings: FileSettings, rejects: Location | None = None
) -> RunPieces:
    """Return what runs pieces, one a task, and returns one result of each, in their order.

    Whatever attempts Spark makes of a task, it hands over the result of one. Needs a classic session.

    The function raises `TaskFailedError`.
    """
    context = spark.sparkContext
    write = partial(write_piece, location=location, options=options, settings=settings, rejects=rejects)

    def run(pieces: Sequence[Piece]) -> Sequence[Written | Unreadable]:
        return collected(context, pieces, write)

    return run


def rewrite_on_spark(
    spark: Any, location: Location, settings: FileSettings, groups: Sequence[Group]
) -> list[Rewritten]:
    """Rewrite groups of files, one a task; raises as the function of `run_on_spark`."""
    write = partial(rewrite_group, location=location, settings=settings)
    return collected(spark.sparkContext, groups, write)


def collected(context: Any, items: Sequence[Any], function: Any) -> list[Any]:
    """Return what a function makes of each item, one a task, in their order; raises `TaskFailedError`."""
    return named_failure(lambda: context.parallelize(items, len(items)).map(function).collect())


def named_failure(work: Callable[[], R]) -> R:
    """Do some work of Spark's, and name what fails in a task.

    Raises:
        TaskFailedError: a task failed for good, or the JVM has ended.
    """
    from py4j.protocol import (  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with PySpark
        Py4JError,
        Py4JJavaError,
    )
    from pyspark.errors import PySparkException  # noqa: PLC0415 - see above

    try:
        return work()
    except Py4JJavaError as error:
        raise TaskFailedError(f"a task failed for good: {task_failure(str(error.java_exception))}") from error
    except PySparkException as error:
        # What a task raised in Python comes so, if there is a SparkSession and not a context only.
        raise TaskFailedError(f"a task failed for good: {task_failure(str(error))}") from error
    except (Py4JError, ConnectionError) as error:
        raise TaskFailedError("Spark's JVM has ended") from error


def task_failure(text: str) -> str:
    """Return what went wrong in a task, out of what Spark's JVM says: the exception of Python, if there is one."""
    raised = re.findall(r"^(?:[a-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt)): (.+)$", text, re.MULTILINE)
    if raised:
        return f"{raised[-1][1]} ({raised[-1][0]})"
    return text.strip().split("\n", 1)[0]
