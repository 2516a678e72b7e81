"""Runs streaming queries in a Spark session and tells when rows came to their sinks; `worker.py` runs them.

*The clock of a sink.* A query into `memory` has a column with the JVM's clock, read for each row as the sink's task
takes it, which costs least of all that can tell. A query into `kafka` has none: the timestamp of the record that
Spark's sink makes of a row is that clock.
"""

import time
import uuid
from pathlib import Path
from typing import Any

__all__ = ["Streams"]

CLOCK = "reflect('java.lang.System', 'currentTimeMillis')"
START_LIMIT_S = 60.0
STARTS_MAX = 3
BEGINNING = "Initializing"  # as its status says
LOOK_S = 0.05
EVERY_MICRO_BATCH = {"processingTime": "0 seconds"}


class Streams:
    """Streaming queries of one session; one at a time."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._query: Any = None
        self._name = ""
        self._sink_options: dict[str, str] = {}

    def backlog(self, source: str, options: dict[str, str], rows: int) -> dict[str, Any]:
        """Read what is there into `noop`, trigger every 0 s: seconds since `start()`, and of the batches by themselves.

        Raises:
            RuntimeError: it was another number of rows.
        """
        frame = self._spark.readStream.format(source).options(**options).load()
        writer = frame.writeStream.format("noop").trigger(**EVERY_MICRO_BATCH)
        began = time.perf_counter()
        query = writer.option("checkpointLocation", self._checkpoint()).start()
        try:
            query.processAllAvailable()
            seconds = time.perf_counter() - began
            batches = [one for one in query.recentProgress if one["numInputRows"]]
        finally:
            query.stop()
        found = sum(one["numInputRows"] for one in batches)
        if found != rows:
            raise RuntimeError(f"{found} rows came, not {rows}")
        return {
            "seconds": seconds,
            "batch_seconds": sum(one["durationMs"]["triggerExecution"] for one in batches) / 1000,
            "batches": len(batches),
        }

    def start(
        self, source: str, options: dict[str, str], sink: str, sink_options: dict[str, str], trigger: dict[str, str]
    ) -> dict[str, Any]:
        """Start a query whose sink tells when rows come; it is under way when this returns."""
        frame = self._spark.readStream.format(source).options(**options).load()
        writer = frame.selectExpr("unix_millis(timestamp) as sent_ms", f"cast({CLOCK} as long) as at_ms").writeStream
        self._name = f"arrivals_{uuid.uuid4().hex[:8]}"
        self._sink_options = sink_options
        if sink == "memory":
            writer = writer.format("memory").queryName(self._name)
        else:
            sent = frame.selectExpr("cast(unix_millis(timestamp) as string) as value")
            writer = sent.writeStream.format(sink).options(**sink_options)
            # The one output mode of real-time mode. Without an aggregate it is the same as append.
            writer = writer.outputMode("update")
        for attempt in range(STARTS_MAX):
            self._query = writer.option("checkpointLocation", self._checkpoint()).trigger(**trigger).start()
            if self._is_under_way():
                return {}
            if attempt < STARTS_MAX - 1:
                self._query.stop()
        raise RuntimeError(str(self._query.exception() or "the query did not begin"))

    def _is_under_way(self) -> bool:
        """Wait until the query has its sources; return whether it has. A load that begins before delays that itself.

        Spark gives a Python source ten seconds to start its process, which a busy machine may not have.
        """
        deadline = time.monotonic() + START_LIMIT_S
        while self._query.status["message"].startswith(BEGINNING):
            if self._query.exception() is not None or time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)
        return self._query.exception() is None

    def wait(self, rows: int, limit_s: float) -> dict[str, Any]:
        """Return when so many rows were read in micro-batches that are done.

        Raises:
            RuntimeError: they were not, in time.
        """
        deadline = time.monotonic() + limit_s
        while (found := sum(one["numInputRows"] for one in self._batches())) < rows:
            if self._query.exception() is not None:
                raise RuntimeError(str(self._query.exception()))
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} rows came in {limit_s:.0f} s, not {rows}")
            time.sleep(LOOK_S)
        return {}

    def stop(self) -> dict[str, Any]:
        """End the query; return what came, pairs of milliseconds.

        Also how many micro-batches had rows, and the median of their durations.
        """
        durations = sorted(one["durationMs"]["triggerExecution"] for one in self._batches())
        self._query.stop()
        middle = durations[len(durations) // 2] if durations else 0
        return {"arrivals": self._arrivals(), "batches": len(durations), "batch_ms": middle}

    def _batches(self) -> list[Any]:
        return [one for one in self._query.recentProgress if one["numInputRows"]]

    def _arrivals(self) -> list[list[int]]:
        if self._sink_options:
            frame = self._output().selectExpr("cast(cast(value as string) as long)", "unix_millis(timestamp)")
        else:
            frame = self._spark.table(self._name)
        columns = frame.toArrow().columns
        found = [list(pair) for pair in zip(columns[0].to_pylist(), columns[1].to_pylist(), strict=True)]
        if not self._sink_options:
            self._spark.catalog.dropTempView(self._name)
        return found

    def _output(self) -> Any:
        options = {"subscribe": self._sink_options["topic"]} | {
            "kafka.bootstrap.servers": self._sink_options["kafka.bootstrap.servers"]
        }
        return self._spark.read.format("kafka").options(**options).load()

    def _checkpoint(self) -> str:
        return str(self._folder / f"checkpoint-{uuid.uuid4().hex[:8]}")
