"""The pipeline at the demonstration's end: a stream counts the topic, `archive` lands it in a lake, an audit proves it.

Jobs are called in this process, in the Spark session that is there, with the words that a user would type.
"""

import importlib.util
import io
import json
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from barnabas_spark.jobs.cli import main
from barnabas_spark.lake.read import read_lake

BATCHES = 4  # of the stream, so that its limit is at work
SPACE = "[ \\t\\n\\r\\x0b\\f]+"  # what splits bytes into words in Python


class Counts(NamedTuple):
    """What a text has: lines without their ends, words between white space, bytes of the lines."""

    lines: int
    words: int
    size_bytes: int


class Streamed(NamedTuple):
    """What the stream counted in all its micro-batches."""

    counts: Counts
    batches: int
    took_s: float


class Landed(NamedTuple):
    """What the archive said and did; `counts` and `distinct_offsets` are of the table's rows."""

    report: str
    counts: Counts
    distinct_offsets: int
    took_s: float


class Audited(NamedTuple):
    """`wrong` is empty if table and topic have the same rows; `by` says who looked."""

    by: str
    wrong: list[str]
    report: str
    took_s: float


class JobFailedError(RuntimeError):
    """A job ended with another exit status than 0; the message is what it printed."""


def stream(spark: SparkSession, bootstrap: str, topic: str, records: int, directory: Path) -> Streamed:
    """Count the topic as a stream that ends with it, in micro-batches of a bounded size."""
    began = time.perf_counter()
    found: list[Counts] = []
    batches = 0

    def keep(frame: Any, _batch_id: int) -> None:
        nonlocal batches
        batches += 1
        found[:] = [Counts(*frame.first())]

    rows = (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .option("maxOffsetsPerTrigger", str(-(-records // BATCHES)))
        .load()
    )
    query = (
        rows.agg(*_counts())
        .writeStream.outputMode("complete")
        .foreachBatch(keep)
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return Streamed(found[0], batches, time.perf_counter() - began)


def _counts() -> list[Any]:
    # Each byte is one character there, whatever the encoding of the line.
    words = f.split(f.decode("value", "ISO-8859-1"), SPACE)
    return [
        f.count("*").alias("lines"),
        f.sum(f.size(f.array_remove(words, ""))).alias("words"),
        f.sum(f.octet_length("value")).alias("bytes"),
    ]


def job(*words: object) -> str:
    """Run `barnabas-spark` with these words; return what it prints.

    Raises:
        JobFailedError: its exit status is not 0.
    """
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        status = main([str(word) for word in words])
    if status:
        raise JobFailedError(printed.getvalue())
    return printed.getvalue()


def land(spark: SparkSession, bootstrap: str, topic: str, lake: Path) -> tuple[Landed, Any]:
    """Archive the topic twice, and count the table; return its rows as well.

    The second time there is nothing to do, and nothing may happen.
    """
    began = time.perf_counter()
    words = ("archive", topic, "--to", lake, "--bootstrap-server", bootstrap)
    report = job(*words)
    took_s = time.perf_counter() - began
    job(*words)
    rows = read_lake(spark, str(lake))
    *counts, distinct = rows.agg(
        *_counts(), f.count_distinct("topicId", "partition", "offset").alias("offsets")
    ).collect()[0]
    return Landed(report, Counts(*counts), distinct, took_s), rows


def audit(spark: SparkSession, bootstrap: str, topic: str, lake: Path, report: Path) -> Audited:
    """Compare the table with the topic: by the job `audit` if it is there, else by the hashes of all rows."""
    began = time.perf_counter()
    if importlib.util.find_spec("barnabas_spark.jobs.auditing") is None:
        return _compared(spark, bootstrap, topic, lake, began)
    try:
        told = job("audit", topic, "--lake", lake, "--bootstrap-server", bootstrap, "--report", report)
    except JobFailedError as failure:
        return Audited("barnabas-spark audit", str(failure).splitlines(), str(failure), time.perf_counter() - began)
    return Audited("barnabas-spark audit", [], told, time.perf_counter() - began)


def _compared(spark: SparkSession, bootstrap: str, topic: str, lake: Path, began: float) -> Audited:
    columns = ("partition", "offset", "timestamp", "key", "value")
    rows = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("columns", ",".join(columns))
        .load()
    )
    sides = [_fingerprints(frame.select(*columns)) for frame in (rows, read_lake(spark, str(lake)))]
    wrong = [
        f"partition {partition}: the topic has {sides[0].get(partition)}, the lake {sides[1].get(partition)}"
        for partition in sorted(sides[0].keys() | sides[1].keys())
        if sides[0].get(partition) != sides[1].get(partition)
    ]
    return Audited("a comparison of all rows' hashes", wrong, "", time.perf_counter() - began)


def _fingerprints(frame: Any) -> dict[int, str]:
    """Return, of each partition, what differs if a row is missing, twice there, or changed."""
    hashed = f.xxhash64(*frame.columns).cast("decimal(38,0)")
    found = frame.groupBy("partition").agg(f.count("*"), f.min("offset"), f.max("offset"), f.sum(hashed))
    return {row[0]: json.dumps([str(one) for one in row[1:]]) for row in found.collect()}
