"""Tables of both formats in a directory, and small files of rows for them."""

import datetime as dt
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from spark.lake.formats import contents

from barnabas_spark.lake import committing
from barnabas_spark.lake.formats.delta import DeltaFormat
from barnabas_spark.lake.formats.iceberg import IcebergFormat
from barnabas_spark.lake.ranges import CommittedRange, PartitionKey, Purpose, Span
from barnabas_spark.lake.table import DataFile, TableState

CLUSTER, TOPIC = "kAfKa-1", "5d1f0e1c-9f3a-4c57-8a2f-0d8f1f5f6a10"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
MOMENT = dt.datetime(2026, 11, 27, 4, 30, tzinfo=dt.UTC)
ROUNDS_MAX = 500  # without a pause between them


def key_of(partition: int) -> PartitionKey:
    return PartitionKey(CLUSTER, TOPIC, partition)


def range_of(partition: int, start: int, end: int, epoch: int = 3) -> CommittedRange:
    return CommittedRange(key_of(partition), start, end, epoch, "read_uncommitted", end - start, 17, "orders")


def rows_of(*ranges: tuple[int, int, int]) -> list[tuple[int, int, bytes]]:
    """Return the rows that a table has with these (partition, start, end)."""
    return sorted((one, offset, value_of(one, offset)) for one, start, end in ranges for offset in range(start, end))


def value_of(partition: int, offset: int) -> bytes:
    return f"{partition}:{offset}".encode()


def write_rows(path: Path, partition: int, start: int, end: int, moment: dt.datetime = MOMENT) -> int:
    """Write a file as a task of Spark's does; return its size."""
    offsets = range(start, end)
    columns = {
        "partition": [partition] * len(offsets),
        "offset": list(offsets),
        "timestamp": [moment] * len(offsets),
        "timestampType": [0] * len(offsets),
        "key": [b"k", None] * (len(offsets) // 2) + [b"k"] * (len(offsets) % 2),
        "value": [value_of(partition, offset) for offset in offsets],
        "headers": [[{"key": "h", "value": None}]] * len(offsets),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns, schema=SCHEMA), path)
    return path.stat().st_size


class Archive(ABC):
    """A directory for one table, opened as often as wanted: each time as another archiver would."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @abstractmethod
    def open(self, *, adopt: bool = False) -> DeltaFormat | IcebergFormat: ...

    @abstractmethod
    def live(self) -> list[str]:
        """Return the paths of the live files, by the table's bytes alone."""

    @abstractmethod
    def append_by_another(self) -> None:
        """Commit something that is no archive's: an append of no rows of ours."""

    @abstractmethod
    def go_back(self, version: object) -> None:
        """Put the table back to a version, as its format's own tools do."""

    def rows(self) -> list[tuple[int, int, bytes]]:
        return [row for row in contents.rows(self.live()) if row[0] >= 0]

    def write(self, partition: int, start: int, end: int) -> DataFile:
        path = f"data/barnabas-{uuid.uuid4().hex}.parquet"
        return DataFile(path, write_rows(self.root / path, partition, start, end), end - start)

    def add(self, *ranges: tuple[int, int, int], purpose: Purpose = Purpose.ARCHIVE, adopt: bool = False) -> TableState:
        """Archive ranges as a new archiver; return what the table says afterwards."""
        table = self.open(adopt=adopt)
        commit_ranges(table, [self.write(*one) for one in ranges], [range_of(*one) for one in ranges], purpose)
        return table.load()

    def partition_of(self, path: str) -> int:
        return int(pq.read_table(self.root / path, columns=["partition"]).column(0)[0].as_py())

    def spans(self, partition: int) -> list[tuple[int, int]]:
        found: Sequence[Span] = self.open().load().spans.get(key_of(partition), ())
        return [(span.start_offset, span.end_offset) for span in found]


class DeltaArchive(Archive):
    def open(self, *, adopt: bool = False) -> DeltaFormat:
        return DeltaFormat(str(self.root), SCHEMA, adopt=adopt)

    def live(self) -> list[str]:
        return contents.delta_files(self.root)

    def append_by_another(self) -> None:
        write_rows(self.root / "theirs.parquet", -1, 0, 1)
        write_deltalake(str(self.root), pq.read_table(self.root / "theirs.parquet"), mode="append")

    def go_back(self, version: object) -> None:
        assert isinstance(version, int)
        DeltaTable(str(self.root)).restore(version)


class IcebergArchive(Archive):
    def open(self, *, adopt: bool = False) -> IcebergFormat:
        return IcebergFormat(str(self.root), "lake.orders", SCHEMA, adopt=adopt)

    def live(self) -> list[str]:
        return contents.iceberg_files(self.root, "orders")

    def table(self) -> Table:
        return load_catalog("barnabas", type="sql", uri=f"sqlite:///{self.root}/catalog.db").load_table("lake.orders")

    def append_by_another(self) -> None:
        write_rows(self.root / "theirs.parquet", -1, 0, 1)
        table = self.table()
        table.append(pq.read_table(self.root / "theirs.parquet"))
        table.catalog.close()

    def go_back(self, version: object) -> None:
        assert isinstance(version, int)
        self.table().manage_snapshots().set_current_snapshot(version).commit()


ARCHIVES: dict[str, type[Archive]] = {"delta": DeltaArchive, "iceberg": IcebergArchive}


def commit_ranges(
    table: DeltaFormat | IcebergFormat, files: Sequence[DataFile], ranges: Sequence[CommittedRange], purpose: Purpose
) -> int:
    """Commit as the archive does, but without pauses, so that archivers which race lose many rounds."""
    return committing.commit_ranges(table, files, ranges, purpose, wait=lambda _: None, rounds_max=ROUNDS_MAX)
