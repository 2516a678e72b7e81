"""The same rows give the same files, whatever batches they come in, and a piece ends at the row that fills it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas_spark.jobs.archiving import read_options
from barnabas_spark.lake import writing
from barnabas_spark.lake.store import DirectoryStore
from barnabas_spark.lake.writing import FileSettings, Piece, Written, write_to
from barnabas_spark.planning.plan import Split
from barnabas_spark.reading.arrow import ARROW_TYPES

ROWS = 200
HOUR_US = 3_600_000_000
SCHEMA = pa.schema([(name, ARROW_TYPES[name]) for name in writing.READ_COLUMNS])
OPTIONS = read_options("localhost:1", "t")


def batch() -> Any:
    rows = [
        {
            "topic": "t",
            "partition": 3,
            "offset": 1000 + 2 * number,
            "timestamp": 1_700_000_000_000_000 + number * 7 % 30 * HOUR_US,
            "timestampType": 0,
            "key": None if number % 3 else b"k",
            "value": b"v" * (number % 50),
            "headers": None,
        }
        for number in range(ROWS)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[Written, list[bytes]]]:
    """Return what writes the rows in batches of a size, and returns what was written and the bytes of its files."""

    def run(size: int, settings: FileSettings, bytes_max: int = 1 << 30) -> tuple[Written, list[bytes]]:
        def read(*_: Any) -> Iterator[Any]:
            yield from (batch().slice(at, size) for at in range(0, ROWS, size))

        monkeypatch.setattr(writing, "read_split", read)
        store = DirectoryStore(tmp_path)
        written = write_to(store, Piece(Split("t", None, 3, 0, 1000, 1400), "id", bytes_max), OPTIONS, settings)
        assert isinstance(written, Written)
        return written, [store.get(one.path) for one in written.files]

    return run


def unlike_names(written: Written) -> Sequence[Any]:
    return [(one.path.rpartition("-")[2], one.size_bytes, one.rows, one.partition_values) for one in written.files]


@pytest.mark.parametrize("bytes_max", [1 << 30, 5000])
def test_batches_do_not_change_the_files(write: Callable[..., tuple[Written, list[bytes]]], bytes_max: int) -> None:
    settings = FileSettings(row_group_bytes=1000, file_bytes=2000)
    first, data = write(ROWS, settings, bytes_max)
    assert len(data) > 1
    for size in (1, 7, 64):
        other, other_data = write(size, settings, bytes_max)
        assert other_data == data
        assert unlike_names(other) == unlike_names(first)
        assert other._replace(files=()) == first._replace(files=())


def test_a_piece_ends_behind_the_row_that_fills_it(write: Callable[..., tuple[Written, list[bytes]]]) -> None:
    written, _ = write(7, FileSettings(), 64 * 10 + 1)
    assert (written.start_offset, written.rows) == (1000, len(range(1000, written.end_offset, 2)))
    assert 64 * 10 + 1 <= written.plain_bytes < 64 * 12
    whole, _ = write(7, FileSettings())
    assert (whole.end_offset, whole.rows) == (1400, ROWS)  # offsets behind the last record are of the range, too


def test_rows_stand_in_the_folder_of_their_hour_in_the_order_of_offsets(
    write: Callable[..., tuple[Written, list[bytes]]],
) -> None:
    written, data = write(64, FileSettings(partition_by="hour"))
    rows = 0
    for one, content in zip(written.files, data, strict=True):
        table = pq.read_table(pa.BufferReader(content))
        assert f"date={one.partition_values['date']}/hour={one.partition_values['hour']}/" in one.path
        for at in table.column("timestamp").to_pylist():
            assert (at.date().isoformat(), str(at.hour)) == (
                one.partition_values["date"],
                one.partition_values["hour"],
            )
        offsets = table.column("offset").to_pylist()
        assert offsets == sorted(offsets)
        rows += one.rows
    assert rows == ROWS


def test_a_byte_that_changed_is_found_by_the_checksum_of_its_page(
    write: Callable[..., tuple[Written, list[bytes]]],
) -> None:
    _, (data,) = write(ROWS, FileSettings())
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    (column,) = (group.column(at) for at in range(group.num_columns) if group.column(at).path_in_schema == "value")
    changed = bytearray(data)
    changed[column.data_page_offset + column.total_compressed_size - 1] ^= 1
    file = pq.ParquetFile(pa.BufferReader(changed), page_checksum_verification=True)
    with pytest.raises(OSError, match="checksum"):
        file.read()


def test_an_attempt_that_fails_leaves_nothing(
    write: Callable[..., tuple[Written, list[bytes]]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def failing(*_: Any) -> Iterator[Any]:
        yield batch()
        raise OSError("the network")

    monkeypatch.setattr(writing, "read_split", failing)
    settings = FileSettings(row_group_bytes=1000, file_bytes=3000)
    with pytest.raises(OSError, match="the network"):
        write_to(DirectoryStore(tmp_path), Piece(Split("t", None, 3, 0, 0, 9), "id", 1 << 30), OPTIONS, settings)
    assert not [one for one in tmp_path.rglob("*") if one.is_file()]
