"""Writes the rows of a range into Parquet files: what a task of Spark does for the archive.

A task reads its range from the brokers and writes the files itself, so no row goes through the JVM. It stops at the
first row with which it has read `bytes_max`, and says where that was: the driver commits what was read, so a round is
bounded without knowing sizes before.

*Attempts.* Every attempt has an id of its own, in the names of its files. Spark may run a task twice, at once or after
a failure. The driver takes the one result that Spark hands over, and commits its files only; those of the others are
orphans. An attempt that fails deletes its own files, which nobody can know of.

*Values* are decoded here, into columns beside those of a record. Copies of records whose value does not fit go into
files of a second store (values/decoding.py), as part of the same attempt.

*The same rows give the same files,* whatever batches they come in. Row groups, files and the end of a range are cut at
rows, by the plain bytes of the rows before. In tables that are partitioned by time, only the rows and their order are
the same: which file is finished for another depends on the batches.

*Partitions by time.* Rows go to one file for each `date` and `hour`, in the order of their offsets. At most `OPEN_MAX`
files are open. To open another, the one that was written longest ago is finished.
"""

import contextlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from barnabas_clients.consumer.decoder import CorruptRecordsError
from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.options.reads import ReadOptions
from barnabas_spark.planning.plan import DataLossError, Split
from barnabas_spark.reading.reader import read_split

from .checksums import RowsChecksum
from .layout import PARTITIONINGS, RECORD_SCHEMA, Layout, partition_path
from .opening import open_store
from .store import Location, NewFile, Store
from .table import DataFile
from .values.decoding import REJECT_SCHEMA, Decoded, ValueColumns

__all__ = [
    "READ_COLUMNS",
    "FileSettings",
    "Piece",
    "Rejected",
    "Unreadable",
    "Written",
    "parquet_writer",
    "time_values",
    "with_topic_id",
    "write_piece",
    "write_to",
]

READ_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
# What a row counts for beside its key and value, in plain bytes.
ROW_BYTES = 64
OPEN_MAX = 8
_HOUR_US = 3_600_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IN_DICTIONARY = ["topic", "topicId", "partition", "timestampType"]
_DELTAS = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
_WITH_STATISTICS = ["topic", "topicId", "partition", "offset", "timestamp"]


class FileSettings(NamedTuple):
    """How files are written. Sizes are in bytes: of plain rows for a row group, of the file itself for a file.

    `schema` and `values` are those of a `Layout`.
    """

    codec: str = "zstd"
    level: int | None = None
    row_group_bytes: int = 32 << 20
    file_bytes: int = 256 << 20
    partition_by: str = ""
    folder: str = "_data/"
    schema: Any = RECORD_SCHEMA
    values: tuple[tuple[str, str], ...] = ()

    @property
    def of_rejects(self) -> "FileSettings":
        """The same for files of rejects."""
        return self._replace(schema=REJECT_SCHEMA, values=(), partition_by="")


class Piece(NamedTuple):
    """The range of one task, which may stop earlier, at the first row with which it has read `bytes_max`.

    `is_known` says that its rejects are in their table already, so that they are not written again.
    """

    split: Split
    topic_id: str
    bytes_max: int
    is_known: bool = False


class Rejected(NamedTuple):
    """What one attempt has written of records whose value does not fit."""

    rows: int = 0
    checksum: RowsChecksum = RowsChecksum()
    files: tuple[DataFile, ...] = ()


class Written(NamedTuple):
    """What one attempt has written: [start_offset, end_offset) of a partition, in finished files."""

    split: Split
    start_offset: int
    end_offset: int
    rows: int
    plain_bytes: int
    checksum: RowsChecksum
    files: tuple[DataFile, ...]
    is_known: bool = False
    rejected: Rejected = Rejected()


class Unreadable(NamedTuple):
    """A range that no other attempt would read either, and why."""

    split: Split
    reason: str


def write_piece(
    piece: Piece, location: Location, options: ReadOptions, settings: FileSettings, rejects: Location | None = None
) -> Written | Unreadable:
    """Read a range and write it. Another attempt may do the same at the same time.

    Raises:
        StoreError, ClientError, KafkaError: another attempt may succeed.
    """
    rejects_store = None if rejects is None else open_store(rejects)
    return write_to(open_store(location), piece, options, settings, rejects_store)


def write_to(
    store: Store, piece: Piece, options: ReadOptions, settings: FileSettings, rejects: Store | None = None
) -> Written | Unreadable:
    """Do the same in stores that are open. Without one for rejects, there are only the rows."""
    rejected = _Rejects(None if piece.is_known else rejects, piece, settings)
    files = _Files(store, piece, settings)
    try:
        return _write(files, rejected, piece, options)
    except (DataLossError, CorruptRecordsError) as error:
        rejected.abandon()
        files.abandon()
        return Unreadable(piece.split, str(error))
    except BaseException:
        rejected.abandon()
        files.abandon()
        raise


def _write(files: "_Files", rejects: "_Rejects", piece: Piece, options: ReadOptions) -> Written:
    split = piece.split
    columns = ValueColumns(files.layout)
    checksum, rows, plain_bytes, end_offset = RowsChecksum(), 0, 0, split.end_offset
    batches = read_split(split, options, READ_COLUMNS)
    with contextlib.closing(batches):  # type: ignore[type-var]  # a generator, which leaves no request under way
        for batch in batches:
            taken, sizes = batch, _row_bytes(batch)
            fits = int(np.searchsorted(np.cumsum(sizes), piece.bytes_max - plain_bytes)) + 1
            if fits < batch.num_rows:
                taken, sizes = batch.slice(0, fits), sizes[:fits]
            checksum = checksum.extended(taken)
            rows += taken.num_rows
            plain_bytes += int(sizes.sum())
            decoded = columns.decode(with_topic_id(taken, piece.topic_id))
            files.add(decoded.rows, sizes)
            rejects.add(decoded, sizes)
            if plain_bytes >= piece.bytes_max:
                end_offset = taken.column("offset")[-1].as_py() + 1
                break
    rejected = rejects.finish()
    written = files.finish()
    return Written(
        split, split.start_offset, end_offset, rows, plain_bytes, checksum, written, piece.is_known, rejected
    )


def _row_bytes(batch: Any) -> Any:
    sizes = np.full(batch.num_rows, ROW_BYTES, np.int64)
    for name in ("key", "value"):
        column = batch.column(name)
        offsets = np.frombuffer(column.buffers()[1], np.int32, batch.num_rows + 1, column.offset * 4)
        sizes += np.diff(offsets)
    return sizes


def with_topic_id(batch: Any, topic_id: str) -> Any:
    """Return a batch of `READ_COLUMNS` with the columns of a table's files."""
    data = topic_id.encode()
    offsets = np.arange(batch.num_rows + 1, dtype=np.int32) * np.int32(len(data))
    ids = pa.StringArray.from_buffers(batch.num_rows, pa.py_buffer(offsets), pa.py_buffer(data * batch.num_rows))
    columns = [ids if name == "topicId" else batch.column(name) for name in RECORD_SCHEMA.names]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def parquet_writer(stream: Any, settings: FileSettings) -> Any:
    """Return pyarrow's writer of a file with the columns of `settings`."""
    values = [settings.schema.field(name) for name, _ in settings.values]
    return pq.ParquetWriter(
        stream,
        settings.schema,
        compression=settings.codec,
        compression_level=settings.level,
        use_dictionary=_IN_DICTIONARY + [one.name for one in values if pa.types.is_string(one.type)],
        column_encoding=_DELTAS,
        write_statistics=_WITH_STATISTICS + [one.name for one in values if pa.types.is_primitive(one.type)],
        store_schema=False,
        write_page_checksum=True,
    )


class _Files:
    """The files of one attempt, by the values of the columns that partition the table."""

    def __init__(self, store: Store, piece: Piece, settings: FileSettings) -> None:
        split = piece.split
        self._store = store
        self._settings = settings
        self._stem = f"barnabas-{split.topic}-{split.partition}-{split.start_offset:020}-{uuid.uuid4().hex}"
        self._open: dict[tuple[tuple[str, str], ...], _OneFile] = {}
        self._finished: list[DataFile] = []
        self._begun = 0

    @property
    def layout(self) -> Layout:
        return Layout(self._settings.schema, self._settings.partition_by, self._settings.values)

    def add(self, batch: Any, sizes: Any) -> None:
        for values, rows in _by_time(batch, self._settings.partition_by):
            part = batch if rows is None else batch.filter(pa.array(rows))
            self._add_to(values, part, sizes if rows is None else sizes[rows])

    def finish(self) -> tuple[DataFile, ...]:
        for values in list(self._open):
            self._finish(values)
        return tuple(self._finished)

    def abandon(self) -> None:
        """Delete what this attempt has written. Never raises."""
        for file in self._open.values():
            file.abandon()
        for one in self._finished:
            with contextlib.suppress(BarnabasError, OSError):
                self._store.delete(one.path)

    def _add_to(self, values: tuple[tuple[str, str], ...], batch: Any, sizes: Any) -> None:
        while batch.num_rows:
            file = self._open.pop(values, None) or self._begin(values)
            self._open[values] = file
            taken = file.add(batch, sizes)
            batch, sizes = batch.slice(taken), sizes[taken:]
            if file.size_bytes >= self._settings.file_bytes:
                self._finish(values)

    def _begin(self, values: tuple[tuple[str, str], ...]) -> "_OneFile":
        if len(self._open) >= OPEN_MAX:
            self._finish(next(iter(self._open)))
        path = f"{self._settings.folder}{partition_path(values)}{self._stem}-{self._begun}.parquet"
        self._begun += 1
        return _OneFile(self._store.create(path), path, self._settings)

    def _finish(self, values: tuple[tuple[str, str], ...]) -> None:
        # It stays among the open ones until it is finished: a failure here abandons it, too.
        self._finished.append(self._open[values].finish(dict(values)))
        del self._open[values]


class _Rejects:
    """The files of the rejects of one attempt, if there is a store for them."""

    def __init__(self, store: Store | None, piece: Piece, settings: FileSettings) -> None:
        self._files = None if store is None else _Files(store, piece, settings.of_rejects)
        self._checksum, self._rows = RowsChecksum(), 0

    def add(self, decoded: Decoded, sizes: Any) -> None:
        if self._files is not None and decoded.rejects is not None:
            self._checksum = self._checksum.extended(decoded.rejects)
            self._rows += decoded.rejects.num_rows
            self._files.add(decoded.rejects, sizes[decoded.is_reject])

    def finish(self) -> Rejected:
        return Rejected() if self._files is None else Rejected(self._rows, self._checksum, self._files.finish())

    def abandon(self) -> None:
        if self._files is not None:
            self._files.abandon()


class _OneFile:
    """One Parquet file, and the rows of its next row group."""

    def __init__(self, file: NewFile, path: str, settings: FileSettings) -> None:
        self._file = file
        self._path = path
        self._settings = settings
        self._rows = 0
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._writer = parquet_writer(file.stream, settings)

    @property
    def size_bytes(self) -> int:
        """The size of the row groups that are written."""
        return self._file.stream.tell()

    def add(self, batch: Any, sizes: Any) -> int:
        """Take rows up to the end of a row group, at least one; return how many."""
        ends = np.cumsum(sizes)
        missing = self._settings.row_group_bytes - self._waiting_bytes
        taken = min(int(np.searchsorted(ends, missing)) + 1, len(ends))
        self._waiting.append(batch.slice(0, taken))
        self._waiting_bytes += int(ends[taken - 1])
        if self._waiting_bytes >= self._settings.row_group_bytes:
            self._write_group()
        return taken

    def finish(self, partition_values: Mapping[str, str]) -> DataFile:
        self._write_group()
        self._writer.close()
        return DataFile(self._path, self._file.finish(), self._rows, partition_values)

    def abandon(self) -> None:
        with contextlib.suppress(OSError, ValueError, pa.ArrowException):
            self._writer.close()
        self._file.abandon()

    def _write_group(self) -> None:
        if self._waiting:
            # In one piece, else the pages of a file would end where batches did.
            group = pa.Table.from_batches(self._waiting).combine_chunks()
            self._writer.write_table(group, row_group_size=group.num_rows)
            self._rows += group.num_rows
            self._waiting, self._waiting_bytes = [], 0


def time_values(batch: Any, layout: Layout) -> Iterator[Any]:
    """Yield the rows of such a batch with the columns of the table, those by which it is partitioned, too."""
    schema = layout.table_schema
    if layout.is_hidden:
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        return
    for values, rows in _by_time(batch, layout.partition_by):
        part = batch if rows is None else batch.filter(pa.array(rows))
        columns = [
            pa.array([value] * part.num_rows, pa.string()).cast(schema.field(name).type) for name, value in values
        ]
        yield pa.RecordBatch.from_arrays([*part.columns, *columns], schema=schema)


def _by_time(batch: Any, partition_by: str) -> Iterator[tuple[tuple[tuple[str, str], ...], Any]]:
    """Yield the values of the partitioning columns, and which rows have them; None stands for all rows."""
    if not partition_by:
        yield (), None
        return
    hours = batch.column("timestamp").cast(pa.int64()).to_numpy() // _HOUR_US
    if partition_by == "day":
        hours = hours // 24 * 24
    found = np.unique(hours)
    for hour in found.tolist():
        yield _partition_values(hour, PARTITIONINGS[partition_by]), None if len(found) == 1 else hours == hour


def _partition_values(hour: int, columns: Sequence[str]) -> tuple[tuple[str, str], ...]:
    try:
        at = _EPOCH + timedelta(hours=hour)
    except OverflowError:
        # Beyond the years that dates have: the nearest day that there is.
        at = datetime.max.replace(tzinfo=UTC) if hour > 0 else datetime.min.replace(tzinfo=UTC)
    values = {"date": at.date().isoformat(), "hour": str(at.hour)}
    return tuple((name, values[name]) for name in columns)
