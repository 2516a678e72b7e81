"""Runs a batch read, a stream or a write on Spark, with a gate in the midst of its tasks.

    python -m spark.faults.programs PROGRAM --bootstrap-server HOST:PORT --topic NAME --to PATH --notes DIR [...]

A task that comes to the gate leaves a note that names its process, and waits behind its first rows until there is a
file `go`. So whoever kills something meanwhile knows what was under way.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from barnabas_spark.jobs.session import session

__all__ = ["PROGRAMS"]

_GATE_S = 240.0


def gate(notes: str, name: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return what lets Arrow batches through, the second one of each task only when it may go on."""

    def pass_through(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        task = f"{name}.{context.partitionId()}.{context.attemptNumber()}.{os.getpid()}"
        is_first = True
        for batch in batches:
            yield batch
            if is_first:
                is_first = False
                Path(notes, f"at-{task}").touch()
                deadline = time.monotonic() + _GATE_S
                while not Path(notes, "go").exists() and time.monotonic() < deadline:
                    time.sleep(0.01)

    return pass_through


def gated(frame: DataFrame, given: argparse.Namespace, name: str) -> DataFrame:
    if not given.gate:
        return frame
    return frame.mapInArrow(gate(given.notes, name), frame.schema)


def options(given: argparse.Namespace) -> dict[str, str]:
    return {"kafka.bootstrap.servers": given.bootstrap_server, "subscribe": given.topic, "includeHeaders": "true"}


def batch(spark: SparkSession, given: argparse.Namespace) -> None:
    """Read a topic as one DataFrame, into Parquet files."""
    frame = spark.read.format("barnabas").options(**options(given)).load()
    gated(frame, given, "batch").write.parquet(given.to)


def write(spark: SparkSession, given: argparse.Namespace) -> None:
    """Write rows of Parquet files to a topic."""
    frame = spark.read.parquet(given.rows).select("key", "value", "headers", "partition")
    sink = {"kafka.bootstrap.servers": given.bootstrap_server, "topic": given.topic}
    gated(frame.repartition(4), given, "write").write.format("barnabas").options(**sink).mode("append").save()


def stream_of(spark: SparkSession, given: argparse.Namespace) -> Any:
    limits = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(given.batch_rows)}
    if given.group:
        limits["consumerGroup"] = given.group
    return spark.readStream.format("barnabas").options(**options(given), **limits).load()


def run_to_end(writer: Any, given: argparse.Namespace) -> None:
    writer.option("checkpointLocation", given.checkpoint).trigger(availableNow=True).start().awaitTermination()


def stream(spark: SparkSession, given: argparse.Namespace) -> None:
    """Read a topic in micro-batches, each into a folder that is named for its id."""

    def keep(frame: DataFrame, batch_id: int) -> None:
        shown = gated(frame, given, f"batch-{batch_id}") if batch_id == 1 else frame
        shown.write.mode("overwrite").parquet(f"{given.to}/batch={batch_id}")
        Path(given.notes, f"batch-{batch_id}").touch()

    run_to_end(stream_of(spark, given).writeStream.foreachBatch(keep), given)


def stream_to_files(spark: SparkSession, given: argparse.Namespace) -> None:
    """Do the same with Spark's own sink of files."""
    run_to_end(stream_of(spark, given).writeStream.format("parquet").option("path", given.to), given)


def stream_to_topic(spark: SparkSession, given: argparse.Namespace) -> None:
    """Copy a topic to another one."""
    frame = stream_of(spark, given).select("key", "value", "headers", "partition")
    sink = {"kafka.bootstrap.servers": given.bootstrap_server, "topic": given.to}
    run_to_end(gated(frame, given, "copy").writeStream.format("barnabas").options(**sink), given)


PROGRAMS: dict[str, Callable[[SparkSession, argparse.Namespace], None]] = {
    "batch": batch,
    "write": write,
    "stream": stream,
    "stream-to-files": stream_to_files,
    "stream-to-topic": stream_to_topic,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", choices=sorted(PROGRAMS))
    for name in ("bootstrap-server", "topic", "to", "notes"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("rows", "checkpoint", "group"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--batch-rows", type=int, default=0)
    parser.add_argument("--gate", action="store_true")
    given = parser.parse_args()
    # Only with a number of failures does a local master try a task again.
    with session("faults", "local[2,4]") as spark:
        PROGRAMS[given.program](spark, given)


if __name__ == "__main__":
    main()
