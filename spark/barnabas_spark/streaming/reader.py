"""Answers the calls of PySpark about a stream. All thought is in stream.py.

PySpark makes two readers: one lives as long as the query and is asked for offsets; another goes to the tasks, as a
pickle, and reads. So a reader holds options until it is first asked.

*The end.* Spark ends the process of a query with SIGTERM, at which Python would end without a word. The query would
stay a member of its group for seconds, and the next run would have to wait for it. So in that process the signal calls
`stop`, which has `END_S` at most.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas_spark.options.streams import StreamOptions
from barnabas_spark.planning.plan import Split

from .stream import Stream

__all__ = ["BarnabasStreamReader", "Tasks"]

logger = logging.getLogger(__name__)

END_S = 8.0
RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


class Tasks(Protocol):
    """What a batch reader does for a stream: it packs splits for tasks, and reads them there."""

    def pack(self, tasks: Sequence[tuple[Split, ...]]) -> Sequence[InputPartition]: ...

    def read(self, partition: InputPartition) -> Iterator[Any]: ...


class BarnabasStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A checked stream."""

    def __init__(self, options: StreamOptions, tasks: Tasks) -> None:
        self._options = options
        self._tasks = tasks
        self._opened: Stream | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - PySpark's name
        self._stream().prepare()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        return self._stream().first()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - PySpark's name
        """Return a limit if there is any. Spark passes it back, or `ReadAllAvailable` if it wants no limit to count."""
        options = self._options
        if options.trigger_offsets_max is not None:
            return ReadMaxRows(options.trigger_offsets_max)
        if options.trigger_bytes_max is not None:
            return ReadMaxBytes(options.trigger_bytes_max)
        if options.trigger_offsets_min is not None:
            return ReadMinRows(options.trigger_offsets_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        return self._stream().latest(start, is_limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - PySpark's name
        return self._stream().report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._tasks.pack(self._stream().tasks(start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._tasks.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._stream().processed(end)

    def stop(self) -> None:
        stream, self._opened = self._opened, None
        if stream is not None:
            stream.close()

    def _stream(self) -> Stream:
        if self._opened is None:
            self._end_in_order()
            for name in self._options.read.ignored:
                logger.warning("option %s has no effect on this source", name)
            self._opened = Stream(self._options)
        return self._opened

    def _end_in_order(self) -> None:
        """Let SIGTERM call `stop` before it ends the process, if this is Spark's process for one query."""
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is not None and spec.name == RUNNER:
            signal.signal(signal.SIGTERM, self._end)

    def _end(self, _signal: int, _frame: FrameType | None) -> None:
        # Spark may send it twice, and the second one must not interrupt the goodbye.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # The signal may have come at a moment at which `stop` cannot do its work.
        watchdog = threading.Timer(END_S, os._exit, (1,))
        watchdog.daemon = True
        watchdog.start()
        try:
            self.stop()
        finally:
            # An orderly exit would have PySpark write to a JVM that does not listen any more, and complain.
            os._exit(0)
