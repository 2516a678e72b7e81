"""Writes the latest record of each key of a range: what a task of Spark does for a table of latest records.

A task reads its range in the order of offsets, keeps the latest record of each key, and writes one file. It stops
behind the first batch with which it has read `bytes_max`, and says where that was. Superseded records are thrown away
as soon as `SIFT_BYTES` of them may have gathered, so its memory is that of what is left, and some.

Attempts are as in the archive: each has an id of its own in the name of its file, and only what the driver commits is
in the table.
"""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barnabas_clients.consumer.decoder import CorruptRecordsError
from barnabas_spark.lake.checksums import RowsChecksum
from barnabas_spark.lake.opening import open_store
from barnabas_spark.lake.store import Location, Store
from barnabas_spark.lake.table import DataFile
from barnabas_spark.lake.writing import FileSettings, Unreadable, with_topic_id
from barnabas_spark.options.reads import ReadOptions
from barnabas_spark.planning.plan import DataLossError, Split
from barnabas_spark.reading.reader import read_split

from .choosing import LATEST_SCHEMA, latest_of, marked

__all__ = ["ReadRange", "ReadTopic", "Sifted", "SiftedPiece", "latest_writer", "sift", "write_rows", "write_sifted"]

COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
SIFT_BYTES = 32 << 20
_IN_DICTIONARY = ["topic", "topicId", "partition", "timestampType"]


class SiftedPiece(NamedTuple):
    """The range of one task. `source` is what its reader needs beside it, such as places in files of an archive."""

    split: Split
    topic_id: str
    bytes_max: int
    source: object = None


ReadRange = Callable[[SiftedPiece], Iterator[Any]]


class Sifted(NamedTuple):
    """What one attempt has written: of [start_offset, end_offset), the latest record of each key.

    `read` are all records of the range, `kept` those in the files, `deleted` the tombstones among them. Records with
    null keys, `null_keys`, belong to no key and are left out.
    """

    split: Split
    start_offset: int
    end_offset: int
    read: int = 0
    kept: int = 0
    deleted: int = 0
    null_keys: int = 0
    plain_bytes: int = 0
    crc: int = 0
    files: tuple[DataFile, ...] = ()


class ReadTopic:
    """Reads the range of a piece from the brokers."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options

    def __call__(self, piece: SiftedPiece) -> Iterator[Any]:
        for batch in read_split(piece.split, self._options, COLUMNS):
            yield with_topic_id(batch, piece.topic_id)


def write_sifted(
    piece: SiftedPiece, read: ReadRange, location: Location, settings: FileSettings
) -> Sifted | Unreadable:
    """Read a range and write what is left of it. Another attempt may do the same at the same time.

    Raises:
        StoreError, ClientError, KafkaError: another attempt may succeed.
    """
    try:
        done, rows = sift(piece, read(piece))
    except (DataLossError, CorruptRecordsError) as error:
        return Unreadable(piece.split, str(error))
    if not rows.num_rows:
        return done
    split = piece.split
    stem = f"barnabas-{split.topic}-{split.partition}-{split.start_offset:020}-{uuid.uuid4().hex}"
    path = f"{settings.folder}{stem}-0.parquet"
    file = write_rows(open_store(location), path, rows, settings)
    return done._replace(crc=RowsChecksum().extended(rows).value, files=(file,))


def sift(piece: SiftedPiece, batches: Iterator[Any]) -> tuple[Sifted, Any]:
    """Return the latest records of a range, as a table in the order of offsets, and what was counted on the way."""
    split = piece.split
    kept = LATEST_SCHEMA.empty_table()
    waiting: list[Any] = []
    read = null_keys = plain_bytes = waiting_bytes = 0
    end_offset = split.end_offset
    with contextlib.closing(batches):  # type: ignore[type-var]  # a generator, which leaves no request under way
        for batch in batches:
            read += batch.num_rows
            plain_bytes += batch.nbytes
            waiting_bytes += batch.nbytes
            keys = batch.column("key")
            null_keys += keys.null_count
            waiting.append(marked(batch.filter(keys.is_valid()) if keys.null_count else batch))
            if waiting_bytes >= SIFT_BYTES:
                kept = _sifted(kept, waiting)
                waiting, waiting_bytes = [], 0
            if plain_bytes >= piece.bytes_max:
                end_offset = batch.column("offset")[-1].as_py() + 1
                break
    kept = _sifted(kept, waiting)
    deleted = pc.sum(kept.column("deleted")).as_py() or 0
    done = Sifted(split, split.start_offset, end_offset, read, kept.num_rows, deleted, null_keys, plain_bytes)
    return done, kept


def _sifted(kept: Any, waiting: list[Any]) -> Any:
    # Within one partition of one topic the key alone tells rows apart.
    return latest_of(pa.concat_tables([kept, pa.Table.from_batches(waiting, LATEST_SCHEMA)]), ("key",))


def write_rows(store: Store, path: str, rows: Any, settings: FileSettings) -> DataFile:
    """Write a table of `LATEST_SCHEMA` into one file, which is there as a whole or not at all."""
    file = store.create(path)
    group_rows = max(1, rows.num_rows * settings.row_group_bytes // max(1, rows.nbytes))
    try:
        with latest_writer(file.stream, settings) as writer:
            writer.write_table(rows, row_group_size=group_rows)
        return DataFile(path, file.finish(), rows.num_rows)
    except BaseException:
        file.abandon()
        raise


def latest_writer(stream: Any, settings: FileSettings) -> Any:
    """Return pyarrow's writer of a file with the columns of `LATEST_SCHEMA`."""
    return pq.ParquetWriter(
        stream,
        LATEST_SCHEMA,
        compression=settings.codec,
        compression_level=settings.level,
        use_dictionary=_IN_DICTIONARY,
        write_statistics=[*_IN_DICTIONARY, "offset", "timestamp"],
        store_schema=False,
        write_page_checksum=True,
    )
