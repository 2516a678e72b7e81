"""Runs queries in a Spark session and times them: a process that is asked on standard input, a line a measurement.

A question is ``{"call": NAME, "arguments": {...}}``; the answer is one line of JSON, ``{"error": ...}`` if it failed.
The process ends when its standard input does.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.pipeline import archive_queries, queries, streams

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.memory": "2g",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}


def session(slots: int, jars: str) -> Any:
    """Start the session. What it needs of the environment is there before the JVM is: workers get it from there."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second, and is loaded with that environment

    builder: Any = SparkSession.builder.master(f"local[{slots}]")
    for name, value in {**SETTINGS, "spark.driver.extraClassPath": jars}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def calls_of(spark: Any, folder: Path) -> dict[str, Callable[..., dict[str, Any]]]:
    """Return what can be asked for, by name."""
    reading = queries.Queries(spark)
    streaming = streams.Streams(spark, folder)
    archiving = archive_queries.Archives(spark, folder)
    return {
        "versions": lambda: {"spark": spark.version},
        "read": reading.read,
        "count": reading.count,
        "keep": reading.keep,
        "read_kept": reading.read_kept,
        "read_json": reading.read_json,
        "write": reading.write,
        "backlog": streaming.backlog,
        "start": streaming.start,
        "wait": streaming.wait,
        "stop": streaming.stop,
        "archive_ours": archiving.ours,
        "archive_theirs": archiving.theirs,
    }


def reason_of(error: Exception) -> str:
    """Return one line that says what failed: of an exception of the JVM, its first line that says anything."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])[:600]}"


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # What the JVM prints is no answer.
    spark = session(int(sys.argv[1]), sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="spark-bench-") as folder:
        calls = calls_of(spark, Path(folder))
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                answer = calls[asked["call"]](**asked["arguments"])
            except Exception as error:  # noqa: BLE001 - whoever asked gets to know it
                answer = {"error": reason_of(error)}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        spark.stop()


if __name__ == "__main__":
    main()
