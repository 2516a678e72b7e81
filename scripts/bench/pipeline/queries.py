"""Times batch reads and writes in a Spark session; `worker.py` runs them."""

import tempfile
import time
from pathlib import Path
from typing import Any

from bench.pipeline import ceiling

__all__ = ["Queries"]

WRITTEN_PARTITIONS = 4
# Where there is room in memory, the rows of the ceiling are not written to a disk.
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of a random name is made in it


class Queries:
    """Queries of one session. Each returns its `seconds`, from `load()` or `save()` on, until Spark is done."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._written: tuple[int, int, Any] | None = None
        self._kept: tempfile.TemporaryDirectory[str] | None = None

    def read(self, source: str, options: dict[str, str]) -> dict[str, Any]:
        """Read a topic into the sink `noop`, with all columns that the options ask for."""
        began = time.perf_counter()
        frame = self._spark.read.format(source).options(**options).load()
        frame.write.format("noop").mode("overwrite").save()
        return {"seconds": time.perf_counter() - began}

    def count(self, source: str, options: dict[str, str]) -> dict[str, Any]:
        """Count the records of a topic, with Spark's own `count()`."""
        began = time.perf_counter()
        rows = self._spark.read.format(source).options(**options).load().count()
        return {"rows": rows, "seconds": time.perf_counter() - began}

    def keep(self, options: dict[str, str]) -> dict[str, Any]:
        """Keep the rows of a topic in memory, in place of those kept before, for `read_kept`."""
        self._spark.dataSource.register(ceiling.Ceiling)
        if self._kept is not None:
            self._kept.cleanup()
        self._kept = tempfile.TemporaryDirectory(prefix="spark-bench-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
        return {"rows": ceiling.keep(options, Path(self._kept.name))}

    def read_kept(self) -> dict[str, Any]:
        """Read the rows that were kept, as `read` does."""
        assert self._kept is not None
        return self.read("ceiling", {"path": self._kept.name})

    def read_json(self, source: str, options: dict[str, str], schema: str) -> dict[str, Any]:
        """Read values as JSON of `schema`: by the source itself if the options say so, else by `from_json`."""
        from pyspark.sql import functions  # noqa: PLC0415 - the session is started first

        began = time.perf_counter()
        frame = self._spark.read.format(source).options(**options).load()
        if "valueFormat" in options:
            frame = frame.select("value")
        else:
            frame = frame.select(functions.from_json(frame.value.cast("string"), schema).alias("value"))
        frame.write.format("noop").mode("overwrite").save()
        return {"seconds": time.perf_counter() - began}

    def write(self, sink: str, options: dict[str, str], rows: int, value_bytes: int) -> dict[str, Any]:
        """Write rows that are in memory already, with keys."""
        frame = self._rows(rows, value_bytes)
        began = time.perf_counter()
        frame.write.format(sink).options(**options).mode("append").save()
        return {"seconds": time.perf_counter() - began}

    def _rows(self, rows: int, value_bytes: int) -> Any:
        if self._written is None or self._written[:2] != (rows, value_bytes):
            if self._written is not None:
                self._written[2].unpersist()
            # Half of a value differs from row to row.
            half = value_bytes // 2
            value = (
                f"rpad(substr(repeat(sha2(cast(id as string), 512), {half // 128 + 1}), 1, {half}), {value_bytes}, '.')"
            )
            frame = self._spark.range(0, rows, 1, WRITTEN_PARTITIONS)
            frame = frame.selectExpr("cast(id as string) as key", f"{value} as value").cache()
            frame.count()
            self._written = (rows, value_bytes, frame)
        return self._written[2]
