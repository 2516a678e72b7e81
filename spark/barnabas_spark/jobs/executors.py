"""Runs a function over items on Spark's executors, in waves, so that progress can be told."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from barnabas_spark.lake.tasks import named_failure

__all__ = ["in_waves"]

T = TypeVar("T")
R = TypeVar("R")

TASKS_A_CORE = 4
ITEMS_A_TASK = 4


def in_waves(spark: Any, items: Sequence[T], function: Callable[[T], R]) -> Iterator[list[R]]:
    """Yield the results of a wave of items, in their order. The function travels to executors. Classic sessions only.

    Raises:
        TaskFailedError: an item failed for good.
    """
    context = spark.sparkContext
    tasks = max(1, context.defaultParallelism * TASKS_A_CORE)
    for at in range(0, len(items), tasks * ITEMS_A_TASK):
        wave = items[at : at + tasks * ITEMS_A_TASK]
        yield named_failure(partial(_run, context, wave, min(len(wave), tasks), function))


def _run(context: Any, items: Sequence[T], tasks: int, function: Callable[[T], R]) -> list[R]:
    results: list[R] = context.parallelize(items, tasks).map(function).collect()
    return results
