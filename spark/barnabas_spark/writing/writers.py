"""The writers that PySpark calls: `write` in every task, `commit` or `abort` on the driver when all have ended.

Writers are pickled into tasks, so they hold plain values. For a stream, PySpark makes a writer before the tasks of each
micro-batch, and another one behind them.
"""

import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.garbage import freeze_once, keep_pages
from barnabas_spark.options.writes import WriteOptions, parse_write_options

from .exactly_once.decisions import Decision, Vacant
from .exactly_once.names import attempt_id
from .exactly_once.plan import commit, give_up
from .exactly_once.requests import carry_out
from .exactly_once.starting import Beginning, check_batch, sink_of_stream
from .exactly_once.vacancies import Attempt, vacant_of
from .layout import Layout, layout_of
from .outcome import Batch, TaskOutcome

__all__ = ["BarnabasStreamWriter", "BarnabasWriter", "SaveModeError", "batch_writer", "stream_writer"]

logger = logging.getLogger(__name__)


class SaveModeError(BarnabasError, ValueError):
    """A write was asked for that does not append."""


class BarnabasWriter(DataSourceArrowWriter):
    """A checked write of a batch."""

    def __init__(self, options: WriteOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout
        once = options.exactly_once
        self._beginning = None if once is None else Beginning(check_batch(once), options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        once = self._options.exactly_once
        batch = None
        vacant: tuple[Vacant, ...] = ()
        if once is not None and self._beginning is not None:
            assert once.version is not None
            batch = Batch(self._beginning.sink, self._beginning.begun._replace(vacant=()), once.version)
            vacant = self._beginning.begun.vacant
        return _write(iterator, self._layout, self._options, batch, vacant)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _committed(messages, "a batch", self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _aborted(messages, "a batch", self._options)


class BarnabasStreamWriter(DataSourceStreamArrowWriter):
    """A checked write of one micro-batch."""

    def __init__(self, options: WriteOptions, layout: Layout) -> None:
        self._options = options
        self._layout = layout
        once = options.exactly_once
        self._beginning = None if once is None else Beginning(sink_of_stream(once), options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        batch = None
        vacant: tuple[Vacant, ...] = ()
        if self._beginning is not None:
            context = TaskContext.get()
            version = None if context is None else context.getLocalProperty("streaming.sql.batchId")
            query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
            assert version is not None and query is not None, "Spark tells each task of a stream both"  # noqa: PT018
            batch = Batch(self._beginning.sink, self._beginning.begun._replace(vacant=()), int(version), query)
            vacant = self._beginning.begun.vacant
        return _write(iterator, self._layout, self._options, batch, vacant)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's
        _committed(messages, f"micro-batch {batchId}", self._options)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - PySpark's
        _aborted(messages, f"micro-batch {batchId}", self._options)


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


def _write(
    iterator: Iterator[Any], layout: Layout, options: WriteOptions, batch: Batch | None, vacant: tuple[Vacant, ...] = ()
) -> TaskOutcome:
    if batch is not None and batch.is_done:
        return TaskOutcome(0, 0, None, batch)
    from .task import write_rows  # noqa: PLC0415 - a driver has no use for numpy and Arrow

    freeze_once("before a task")
    keep_pages()
    context = TaskContext.get()
    turn = random.getrandbits(31)
    try:
        if batch is None:
            return write_rows(iterator, layout, options, turn)
        assert context is not None
        partition = context.partitionId()
        name = attempt_id(batch.sink, partition, batch.begun.owner, context.taskAttemptId())
        attempt = Attempt(batch.sink, partition, name, vacant_of(batch.sink, vacant, partition))
        found = write_rows(iterator, layout, options, turn, attempt)
        # The driver that commits knows only what tasks tell it. One is enough for what all have been told.
        return replace(found, batch=batch, vacant=vacant if partition == 0 else ())
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


def _committed(messages: Sequence[WriterCommitMessage | None], what: str, options: WriteOptions) -> None:
    """Every task has ended well: end their transactions, if they have any."""
    outcomes = [message for message in messages if isinstance(message, TaskOutcome)]
    rows = sum(outcome.rows for outcome in outcomes)
    batch = _batch_of(outcomes)
    if options.exactly_once is None or batch is None:
        # A batch without a task has nothing to decide.
        logger.info("%s: %d rows in %d tasks", what, rows, len(outcomes))
        return
    prepared = tuple(outcome.prepared for outcome in outcomes if outcome.prepared is not None)
    vacant = tuple(one for outcome in outcomes for one in outcome.vacant)
    decision = Decision(batch.sink, batch.version, prepared, application=batch.application, vacant=vacant)
    if carry_out(commit(batch.begun, decision), options):
        logger.info("%s: %d rows in %d transactions", what, rows, len(prepared))
    else:
        logger.info("%s was written before: %s has everything up to %d", what, batch.sink, batch.begun.done)


def _aborted(messages: Sequence[WriterCommitMessage | None], what: str, options: WriteOptions) -> None:
    """A task has failed for good. Nothing can be taken back, and other tasks may still be writing.

    What they write exactly once is never committed. It is aborted here, or when the next batch begins.
    """
    outcomes = [message for message in messages if isinstance(message, TaskOutcome)]
    batch = _batch_of(outcomes)
    if options.exactly_once is not None:
        logger.warning("%s failed; none of it is committed", what)
        if batch is not None:
            carry_out(give_up(batch.begun, batch.sink), options)
        return
    ended = sum(message is not None for message in messages)
    logger.warning(
        "%s failed; %d tasks had ended well, and their rows stay written, as may rows of others", what, ended
    )


def _batch_of(outcomes: Sequence[TaskOutcome]) -> Batch | None:
    found = {outcome.batch for outcome in outcomes}
    assert len(found) <= 1, "the tasks of a batch have one writer"
    return found.pop() if found else None
