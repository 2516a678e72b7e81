"""Times a topic's way into Parquet files in a Spark session, by both sources; `worker.py` runs it."""

import shutil
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Archives"]


class Archives:
    """Archives of one session, each into a folder of its own, which is deleted behind it."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def ours(self, bootstrap: str, topic: str, codec: str, level: int, row_group_bytes: int) -> dict[str, Any]:
        """Archive the topic into an empty Parquet table, as `barnabas-spark archive` does, its commits included."""
        from barnabas_spark.jobs.archiving import read_options  # noqa: PLC0415 - that of the checkout that is measured
        from barnabas_spark.lake.archive import ArchiveSettings, archive  # noqa: PLC0415 - see above
        from barnabas_spark.lake.formats.choosing import DATA_FOLDERS, open_table  # noqa: PLC0415 - see above
        from barnabas_spark.lake.layout import Layout  # noqa: PLC0415 - see above
        from barnabas_spark.lake.store import Location  # noqa: PLC0415 - see above
        from barnabas_spark.lake.tasks import run_on_spark  # noqa: PLC0415 - see above
        from barnabas_spark.lake.writing import FileSettings  # noqa: PLC0415 - see above

        with self._new_folder() as folder:
            began = time.perf_counter()
            options = read_options(bootstrap, topic)
            location = Location(str(folder))
            table = open_table("parquet", location, Layout(), adopt=False)
            table.load()
            settings = FileSettings(codec, level, row_group_bytes, folder=DATA_FOLDERS["parquet"])
            run = run_on_spark(self._spark, location, options, settings)
            archive(table, ArchiveSettings(topic, options), run)
            seconds = time.perf_counter() - began
            return {"seconds": seconds, **_files_of(folder)}

    def theirs(
        self, bootstrap: str, topic: str, codec: str, level: int, row_group_rows: int, options: dict[str, str]
    ) -> dict[str, Any]:
        """Write the topic with Spark's Kafka source and its Parquet sink, in row groups of so many rows."""
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true", **options}
        with self._new_folder() as folder:
            began = time.perf_counter()
            writer = self._spark.read.format("kafka").options(**given).load().write.mode("append")
            writer = writer.option("compression", codec).option(f"parquet.compression.codec.{codec}.level", level)
            # Only the number of rows ends a row group, so that they are those of the other side.
            writer = writer.option("parquet.block.size", 1 << 30)
            writer.option("parquet.block.row.count.limit", row_group_rows).parquet(str(folder / "rows"))
            seconds = time.perf_counter() - began
            return {"seconds": seconds, **_files_of(folder)}

    @contextmanager
    def _new_folder(self) -> Iterator[Path]:
        folder = self._folder / f"lake-{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _files_of(folder: Path) -> dict[str, Any]:
    """Return what the Parquet files have: rows, bytes, codec, and the most frequent size of their row groups."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - the session is started first

    rows = 0
    stored = 0
    groups = Counter[int]()
    codecs = set[str]()
    files = sorted(folder.rglob("*.parquet"))
    for file in files:
        found = pq.ParquetFile(file).metadata
        rows += found.num_rows
        stored += file.stat().st_size
        groups.update(found.row_group(number).num_rows for number in range(found.num_row_groups))
        codecs.add(found.row_group(0).column(0).compression.lower())
    return {
        "rows": rows,
        "stored_bytes": stored,
        "files": len(files),
        "group_rows": max(groups, key=lambda size: (groups[size], size)),
        "codecs": sorted(codecs),
    }
