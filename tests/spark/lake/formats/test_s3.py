"""Tables in an object store: two archivers race, and requests are cut off before they arrive or after."""

import contextlib
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from spark.lake.formats import contents
from spark.lake.formats.archives import SCHEMA, Archive, DeltaArchive, IcebergArchive, rows_of, write_rows
from spark.lake.formats.cutting import KEYS, Bucket, Cutter, s3_behind_a_cutter
from spark.lake.formats.racing import archive_up_to

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.lake.formats.delta import DeltaFormat
from barnabas_spark.lake.formats.iceberg import IcebergFormat
from barnabas_spark.lake.table import DataFile

pytestmark = pytest.mark.slow

END = 6
# One request in so many is cut off in each test run; with 1, all of them take minutes.
EVERY = 11
# deltalake's own: else it repeats a request for minutes.
PATIENCE = {"max_retries": "2", "retry_timeout": "5s", "backoff_config.init_backoff": "1ms"}


@pytest.fixture(scope="module")
def server() -> Iterator[Cutter]:
    with s3_behind_a_cutter() as server:
        yield server


class Remote(Archive):
    """An archive whose table is in a bucket; `root` is for files on their way, and for copies."""

    def __init__(self, root: Path, server: Cutter) -> None:
        super().__init__(root)
        self.bucket = Bucket(server)
        self.url = f"s3://{self.bucket.name}/lake"
        self.options = {"endpoint": server.url, **KEYS}

    def write(self, partition: int, start: int, end: int) -> DataFile:
        path = f"data/barnabas-{uuid.uuid4().hex}.parquet"
        size = write_rows(self.root / "written.parquet", partition, start, end)
        self.bucket.upload(self.root / "written.parquet", f"lake/{path}")
        return DataFile(path, size, end - start)

    def copied(self) -> Path:
        copy = Path(tempfile.mkdtemp(dir=self.root))
        self.bucket.download(copy)
        return copy / "lake"


class RemoteDelta(Remote, DeltaArchive):
    def open(self, *, adopt: bool = False) -> DeltaFormat:
        return DeltaFormat(self.url, SCHEMA, storage_options={**self.options, **PATIENCE}, adopt=adopt)

    def live(self) -> list[str]:
        return contents.delta_files(self.copied())


class RemoteIceberg(Remote, IcebergArchive):
    def open(self, *, adopt: bool = False) -> IcebergFormat:
        catalog = {"type": "sql", "uri": f"sqlite:///{self.root}/catalog.db", **self.options}
        return IcebergFormat(self.url, "lake.orders", SCHEMA, catalog=catalog, adopt=adopt)

    def live(self) -> list[str]:
        return contents.iceberg_files(self.root, "orders", {self.url: str(self.copied())})


@pytest.fixture(params=[RemoteDelta, RemoteIceberg], ids=["delta", "iceberg"])
def archive(request: pytest.FixtureRequest, tmp_path: Path, server: Cutter) -> Iterator[Remote]:
    archive: Remote = request.param(tmp_path, server)
    yield archive
    archive.bucket.close()


def test_two_archivers_race_in_a_bucket_and_each_row_is_there_once(archive: Remote, tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def race(folder: str) -> None:
        try:
            racer = type(archive).__new__(type(archive))
            racer.__dict__.update(archive.__dict__)
            racer.write = _writer(archive, tmp_path / folder)  # type: ignore[method-assign]
            archive_up_to(racer, (0, 1), END)
        except BaseException as error:  # noqa: BLE001 - told to the test below
            failures.append(error)

    threads = [threading.Thread(target=race, args=(folder,)) for folder in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert archive.rows() == rows_of((0, 0, END), (1, 0, END))
    assert (archive.spans(0), archive.spans(1)) == ([(0, END)], [(0, END)])


def _writer(archive: Remote, folder: Path):  # type: ignore[no-untyped-def]
    def write(partition: int, start: int, end: int) -> DataFile:
        path = f"data/barnabas-{uuid.uuid4().hex}.parquet"
        size = write_rows(folder / "written.parquet", partition, start, end)
        archive.bucket.upload(folder / "written.parquet", f"lake/{path}")
        return DataFile(path, size, end - start)

    return write


@pytest.mark.parametrize("is_after", [False, True], ids=["before it arrives", "after it was carried out"])
def test_requests_that_are_cut_off_neither_lose_nor_double_a_row(
    archive: Remote, server: Cutter, is_after: bool
) -> None:
    """The client repeats a request by itself, also the one that writes a version: then it meets what it has written.

    In turns, one request is cut off, and all from one on.
    """
    archive.add((0, 0, 3))
    before = server.count()
    archive.add((0, 3, 4))
    count, end = server.count() - before, 4
    for number, at in enumerate(range(1 + 4 * is_after, count + 1, EVERY)):
        first = server.count() + at
        server.cut(range(first, first + (5 if number % 2 else 1)), is_after=is_after)
        with contextlib.suppress(BarnabasError, OSError):
            archive_up_to(archive, (0,), end + 1)
        server.cut((), is_after=False)
        end += 1
        archive_up_to(archive, (0,), end)
    assert archive.rows() == rows_of((0, 0, end))
    assert archive.spans(0) == [(0, end)]
