"""Reads the topic back with Spark, hashes every file, asks questions about the code, and runs the pipeline."""

import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import SparkContext
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from .pipeline import Audited, Landed, Streamed, audit, land, stream

HASHES = "file string, lines long, sha256 string"


class SparkResult(NamedTuple):
    """What was read and done. `files` and `lake_files` have the lines and the hash of each file, from brokers and lake.

    `imports` and `packages` are the rows of the two tables.
    """

    rows: int
    files: dict[str, tuple[int, str]]
    imports: list[tuple[Any, ...]]
    packages: list[tuple[Any, ...]]
    took_s: float
    streamed: Streamed
    landed: Landed
    lake_files: dict[str, tuple[int, str]]
    audited: Audited


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the standard error of Spark's processes, and show it only if something goes wrong."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as kept:
        before = os.dup(2)
        os.dup2(kept.fileno(), 2)
        try:
            yield
        except BaseException:
            kept.seek(0)
            os.write(before, kept.read())
            raise
        finally:
            os.dup2(before, 2)
            os.close(before)


def session() -> SparkSession:
    """Start Spark on two cores, quietly, and on loopback only."""
    # Spark's JVM looks for data sources with the Python of this variable, otherwise with the `python3` of the path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("barnabas-demo")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.log.level": "ERROR",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # `hash_files` runs in Spark's Python workers, which have no such module: its code travels with it.
    register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]  # untyped there
    return spark


def end_jvm() -> None:
    """Wait until Spark's JVM is gone, with its temporary files; by itself it would outlive this process by a second."""
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=30)


def hash_files(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hash rows that arrive sorted by file and offset. A file never spans two Spark partitions."""
    name = None
    count = 0
    digest = hashlib.sha256()
    found: list[tuple[str, int, str]] = []
    for batch in batches:
        for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
            if key != name:
                if name is not None:
                    found.append((name.decode(), count, digest.hexdigest()))
                name = key
                count = 0
                digest = hashlib.sha256()
            count += 1
            digest.update(b"%d:" % len(value))
            digest.update(value)
    if name is not None:
        found.append((name.decode(), count, digest.hexdigest()))
    columns = [[row[k] for row in found] for k in range(3)]
    yield pa.RecordBatch.from_arrays(
        [pa.array(columns[0], pa.string()), pa.array(columns[1], pa.int64()), pa.array(columns[2], pa.string())],
        names=["file", "lines", "sha256"],
    )


def imported(lines: DataFrame) -> DataFrame:
    """Count the imports of modules, by lines and by files."""
    module = f.regexp_extract("line", r"^\s*(?:import|from)\s+([A-Za-z_][A-Za-z0-9_]*)", 1)
    return (
        lines.select("file", module.alias("module"))
        .where("module != ''")
        .groupBy("module")
        .agg(f.count("*").alias("lines"), f.countDistinct("file").alias("files"))
        .orderBy(f.desc("lines"))
        .limit(10)
    )


def packages(lines: DataFrame) -> DataFrame:
    """Say of the largest packages how many of their lines are comments or blank, and how long they get."""
    package = f.regexp_extract("file", r"(?:site-packages|python3\.\d+)/(?!site-packages)([A-Za-z0-9_]+)", 1)
    return (
        lines.withColumn("package", package)
        .groupBy("package")
        .agg(
            f.count("*").alias("lines"),
            f.sum(f.expr("int(line rlike '^\\\\s*#')")).alias("comments"),
            f.sum(f.expr("int(trim(line) = '')")).alias("blanks"),
            f.max(f.length("line")).alias("longest"),
        )
        .orderBy(f.desc("lines"))
        .limit(10)
    )


def read_back(bootstrap: str, topic: str, records: int, directory: Path) -> SparkResult:
    """Read the whole topic in each way: a batch, a stream, and a lake in `directory` that it lands in."""
    with quiet():
        spark = session()
        try:
            return _read_back(spark, bootstrap, topic, records, directory)
        finally:
            spark.stop()
            end_jvm()


def _read_back(spark: SparkSession, bootstrap: str, topic: str, records: int, directory: Path) -> SparkResult:
    began = time.perf_counter()
    rows = (
        spark.read.format("barnabas")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value", "partition", "offset")
        .persist()
    )
    count = rows.count()
    took_s = time.perf_counter() - began
    files = hashes(rows)
    lines = rows.select(f.col("key").cast("string").alias("file"), f.col("value").cast("string").alias("line"))
    answers = [[tuple(row) for row in ask(lines).collect()] for ask in (imported, packages)]
    rows.unpersist()
    streamed = stream(spark, bootstrap, topic, records, directory)
    landed, lake_rows = land(spark, bootstrap, topic, directory / "lake")
    return SparkResult(
        rows=count,
        files=files,
        imports=answers[0],
        packages=answers[1],
        took_s=took_s,
        streamed=streamed,
        landed=landed,
        lake_files=hashes(lake_rows),
        audited=audit(spark, bootstrap, topic, directory / "lake", directory / "audit.html"),
    )


def hashes(rows: DataFrame) -> dict[str, tuple[int, str]]:
    """Return the number of lines and the hash of each file."""
    found = (
        rows.repartition(4, "key")
        .sortWithinPartitions("key", "partition", "offset")
        .select("key", "value")
        .mapInArrow(hash_files, HASHES)
        .collect()
    )
    return {row.file: (row.lines, row.sha256) for row in found}
