"""The job `windows`: runs the query over a topic, and shows which windows closed and what came too late.

The query's checkpoint has its positions and the windows that are still open, so a restart goes on.
"""

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.lake.tasks import task_failure
from barnabas_spark.windows.progress import Counted, Watched
from barnabas_spark.windows.query import WindowSettings, closed_windows
from barnabas_spark.windows.sink import WindowSink

from .output import print_table, say, say_json
from .session import session
from .stopping import at_sigterm

__all__ = ["WindowsError", "WindowsJob", "run_windows"]

_LOOK_S = 1.0


class WindowsError(BarnabasError):
    """The query failed; the message says why."""


class WindowsJob(NamedTuple):
    """What the command line says. `interval_s` is the time between batches; None: what is there now, and no more."""

    query: WindowSettings
    to: str = ""
    checkpoint: str = ""
    interval_s: float | None = None
    limit: int = 1000
    state_partitions: int = 0
    master: str = ""
    as_json: bool = False


def run_windows(job: WindowsJob) -> int:
    """Run it; return the exit status."""
    with session("windows", job.master) as spark, tempfile.TemporaryDirectory() as nowhere:
        if spark.sparkContext.appName.startswith("barnabas-spark"):
            # Ours: what goes wrong is said in one line, and not in Spark's hundreds.
            spark.sparkContext.setLogLevel("OFF")
        sink = WindowSink(job.to, job.limit)
        watched = Watched()
        checkpoint = job.checkpoint or (f"{job.to.rstrip('/')}/_checkpoint" if job.to else nowhere)
        _check_results(job.to, checkpoint)
        began = time.monotonic()
        with _state_partitions(spark, job.state_partitions):
            query = _started(spark, job, sink, checkpoint)
        # The next run repeats a batch that is under way. A thread stops it: the main one may be in a call to the JVM,
        # on the same connection.
        with at_sigterm(lambda: threading.Thread(target=query.stop, daemon=True).start()):
            try:
                _wait(query, watched, sink, job)
            finally:
                query.stop()
        _show(job, sink, watched.counted._replace(windows=sink.windows), time.monotonic() - began)
    return 0


def _started(spark: Any, job: WindowsJob, sink: WindowSink, checkpoint: str) -> Any:
    """Start the query.

    Raises:
        WindowsError: the options, or the checkpoint, are not right.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - see above

    try:
        writer = closed_windows(spark, job.query).writeStream.outputMode("append").foreachBatch(sink)
        writer = writer.queryName(f"windows {job.query.topic}").option("checkpointLocation", checkpoint)
        trigger: dict[str, Any] = {"availableNow": True}
        if job.interval_s is not None:
            trigger = {"processingTime": f"{max(1, round(job.interval_s * 1000))} milliseconds"}
        return writer.trigger(**trigger).start()
    except PySparkException as error:
        raise WindowsError(_reason(error)) from error


def _wait(query: Any, watched: Watched, sink: WindowSink, job: WindowsJob) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - see above

    has_ended = False
    while not has_ended:
        try:
            has_ended = query.awaitTermination(_LOOK_S)
        except PySparkException as error:
            raise WindowsError(_reason(error)) from error
        # Spark keeps the last hundred, and a second has not so many.
        if watched.take(json.loads(one.json) for one in query.recentProgress):
            counted = watched.counted
            say(
                f"{_batches(counted)}: {counted.records:,} records, {sink.windows:,} windows closed, "
                f"{counted.open_windows:,} open, {counted.late:,} late"
            )
        if job.interval_s is not None and not job.to:
            _print_windows(job, sink)


def _show(job: WindowsJob, sink: WindowSink, counted: Counted, took_s: float) -> None:
    """Print the windows, or of a run that has written them what it did."""
    if not job.to:
        _print_windows(job, sink, is_last=True)
    elif job.as_json:
        say_json([counted._asdict()])
    else:
        print_table([name.replace("_", " ") for name in Counted._fields], [tuple(counted)])
    not_shown = sink.windows - len(sink.shown) if not job.to and job.interval_s is None else 0
    more = f" ({not_shown:,} not shown: --limit)" if not_shown else ""
    say(
        f"{counted.records:,} records in {_batches(counted)}, {took_s:.1f} s: "
        f"{sink.windows:,} windows closed{more}, {counted.open_windows:,} still open; "
        f"{counted.late:,} late, {counted.without_time:,} without a time; watermark {counted.watermark or 'none yet'}"
    )


def _batches(counted: Counted) -> str:
    return "1 batch" if counted.batches == 1 else f"{counted.batches} batches"


def _print_windows(job: WindowsJob, sink: WindowSink, *, is_last: bool = False) -> None:
    rows = list(sink.shown)
    if job.interval_s is not None:
        del sink.shown[: len(rows)]
    if job.as_json:
        say_json(rows)
    elif rows or (is_last and job.interval_s is None):
        names = job.query.columns
        print_table(names, ([row[name] for name in names] for row in rows))


def _check_results(to: str, checkpoint: str) -> None:
    """Refuse to begin anew where results are: batches of the same numbers would take their place."""
    if not to or "://" in to or "://" in checkpoint:
        return
    if any(Path(to).glob("batch=*")) and not any(Path(checkpoint).glob("offsets/*")):
        raise WindowsError(
            f"{to} has windows of another checkpoint than {checkpoint}; give that one with --checkpoint, "
            "or write to another place"
        )


@contextmanager
def _state_partitions(spark: Any, count: int) -> Iterator[None]:
    """Let a new query keep its windows in so many parts; an old one goes on with those of its checkpoint."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, str(count or spark.sparkContext.defaultParallelism))
    try:
        yield
    finally:
        spark.conf.set(name, before)


def _reason(error: Exception) -> str:
    """Return what went wrong in a query, in one line: the exception of Python if there is one, else Spark's message."""
    text = str(error)
    if "Traceback (most recent call last)" in text:
        return task_failure(text)
    return text.strip().split("\n", 1)[0].rpartition(" terminated with exception: ")[2]
