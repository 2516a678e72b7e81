"""The writers that PySpark calls: `write` in every task, `commit` or `abort` on the driver when all have ended.

Writers are pickled into tasks, so they hold plain values. For a stream, PySpark makes a writer before the tasks of each
micro-batch, and another one behind them.
"""

import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.garbage import freeze_once, keep_pages
from barnabas_spark.options.writes import WriteOptions, parse_write_options

from .layout import Layout, layout_of
from .outcome import TaskOutcome

__all__ = ["BarnabasStreamWriter", "BarnabasWriter", "SaveModeError", "batch_writer", "stream_writer"]

logger = logging.getLogger(__name__)


class SaveModeError(BarnabasError, ValueError):
    """A write was asked for that does not append."""


class BarnabasWriter(DataSourceArrowWriter):
    """A checked write of a batch."""

    def __init__(self, options: WriteOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(iterator, self._layout, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _committed(messages, "a batch")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _aborted(messages, "a batch")


class BarnabasStreamWriter(DataSourceStreamArrowWriter):
    """A checked write of one micro-batch."""

    def __init__(self, options: WriteOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return _write(iterator, self._layout, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's
        _committed(messages, f"micro-batch {batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's
        _aborted(messages, f"micro-batch {batchId}")


def batch_writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BarnabasWriter:
    """Check a write of a batch.

    Raises:
        SaveModeError, OptionError, UnsuitableSchemaError: it cannot be done.
    """
    if overwrite:
        raise SaveModeError('a topic cannot be overwritten, only appended to; write mode("append")')
    options = _options(given)
    writer = BarnabasWriter(options, _layout(schema, options))
    freeze_once("write planned")
    return writer


def stream_writer(given: Mapping[str, str], schema: StructType) -> BarnabasStreamWriter:
    """Check a write of a stream.

    Raises:
        OptionError, UnsuitableSchemaError: it cannot be done.
    """
    options = _options(given)
    writer = BarnabasStreamWriter(options, _layout(schema, options))
    freeze_once("write planned")
    return writer


def _options(given: Mapping[str, str]) -> WriteOptions:
    options = parse_write_options(given)
    for name in options.ignored:
        _say_ignored(name)
    return options


@cache
def _say_ignored(name: str) -> None:
    """Say it once: a stream has a writer for each micro-batch."""
    if name.startswith("kafka."):
        logger.warning("option %s has no effect on this sink", name)


def _layout(schema: StructType, options: WriteOptions) -> Layout:
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return layout_of(fields, has_topic_option=options.topic is not None)


def _write(iterator: Iterator[Any], layout: Layout, options: WriteOptions) -> TaskOutcome:
    from .task import write_rows  # noqa: PLC0415 - a driver has no use for numpy and Arrow

    freeze_once("before a task")
    keep_pages()
    context = TaskContext.get()
    turn = random.getrandbits(31)
    try:
        return write_rows(iterator, layout, options, turn)
    except Exception:
        if context is not None:
            logger.warning(
                "attempt %d of Spark's task for its partition %d failed; some of its rows may have been written",
                context.attemptNumber(),
                context.partitionId(),
            )
        raise
    finally:
        freeze_once("behind a task")


def _committed(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """Every task has ended well. This is where transactions will be ended."""
    outcomes = [message for message in messages if isinstance(message, TaskOutcome)]
    logger.info("%s: %d rows in %d tasks", what, sum(outcome.rows for outcome in outcomes), len(outcomes))


def _aborted(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    """A task has failed for good. Nothing can be taken back, and other tasks may still be writing."""
    ended = sum(message is not None for message in messages)
    logger.warning(
        "%s failed; %d tasks had ended well, and their rows stay written, as may rows of others", what, ended
    )
