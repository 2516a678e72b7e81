"""Strikes at every call that a format makes: at the files of the log, of metadata and manifests, and at the catalog.

Each time a table is archived, back-filled and compacted, with one strike at call k = 1, 2, ... until a run has no such
call. After it the same is simply run again, by a new driver. Then every row is in the live files once, as DuckDB reads
them, and the table says the offsets, each once.

    python tests/spark/lake/formats/sweep.py [delta|iceberg]
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast
from unittest import mock

from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import create_table_with_add_actions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from spark.lake.formats.archives import ARCHIVES, Archive, commit_ranges, key_of, range_of, rows_of
from spark.lake.formats.racing import archive_up_to

from barnabas_raftlog.errors import BarnabasError
from barnabas_spark.lake.formats import delta, iceberg
from barnabas_spark.lake.ranges import NotNextError, Purpose

T = TypeVar("T")

START, END = 3, 9
HOWS = ("fails before it", "fails after its success", "kills the driver before it", "kills the driver after success")


class DriverKilledError(BaseException):
    """The driver is dead here. It is no `Exception`, so nothing but a `finally` sees it."""


class Strike:
    """Counts calls, and strikes at one of them."""

    def __init__(self, at: int, how: str) -> None:
        self.at, self.how = at, how
        self.calls = 0
        self.struck = ""

    def call(self, name: str, function: Callable[[], T]) -> T:
        self.calls += 1
        if self.calls != self.at:
            return function()
        self.struck = name
        if "after" in self.how:
            made = function()
            if hasattr(made, "close"):
                made.close()
        if "kills" in self.how:
            raise DriverKilledError(name)
        raise OSError(f"struck: {name}")


class Swept(NamedTuple):
    """The number of calls of a run, and what was wrong after which strike."""

    calls: int
    wrong: list[str]


def sweep(kind: str, how: str, first: int = 1, every: int = 1) -> Swept:
    """Strike at call `first`, and at each `every`-th behind it, until a run has no such call."""
    wrong, at = [], first
    while True:
        with tempfile.TemporaryDirectory(prefix="sweep-") as folder:
            archive, strike = ARCHIVES[kind](Path(folder, "table")), Strike(at, how)
            with striking(strike):
                try:
                    archived(archive)
                except (DriverKilledError, BarnabasError, OSError):
                    assert strike.struck, "it failed by itself"
                    archived(archive)
            if problem := judged(archive):
                wrong.append(f"call {at}, {strike.struck}: {problem}")
        if not strike.struck:
            return Swept(strike.calls, wrong)
        at += every


def archived(archive: Archive) -> None:
    """Bring the table to what it should be, from whatever it is: as one driver does."""
    table = archive.open()
    if key_of(0) not in table.load().spans:
        commit_ranges(table, [archive.write(0, START, START + 1)], [range_of(0, START, START + 1)], Purpose.ARCHIVE)
    archive_up_to(archive, (0, 1), END)
    if table.load().spans[key_of(0)][0].start_offset:
        try:
            commit_ranges(table, [archive.write(0, 0, START)], [range_of(0, 0, START)], Purpose.BACKFILL)
        except NotNextError as error:
            assert "the table has [0, " in str(error)  # noqa: PT017 - by the commit whose outcome was unknown
    state = table.load()
    small = [path for path in table.files(state) if archive.partition_of(path) == 0]
    if len(small) > 1:
        table.rewrite(state, small, [archive.write(0, 0, END)])


def judged(archive: Archive) -> str:
    """Return what is wrong with the table, or ""."""
    found, wanted = archive.rows(), rows_of((0, 0, END), (1, 0, END))
    if found != wanted:
        return f"{len(set(wanted) - set(found))} rows are lost, {len(found) - len(wanted)} more than there were"
    if (spans := [archive.spans(0), archive.spans(1)]) != [[(0, END)], [(0, END)]]:
        return f"the ranges are {spans}"
    return "" if len(archive.live()) > 1 else "nothing was archived"


@contextmanager
def striking(strike: Strike) -> Iterator[None]:
    """Let the formats' own calls go through `strike`."""

    class Table(DeltaTable):
        def __init__(self, *args: Any, **named: Any) -> None:
            strike.call("open the table", lambda: DeltaTable.__init__(self, *args, **named))

        def create_write_transaction(self, *args: Any, **named: Any) -> None:
            strike.call("write the commit", lambda: DeltaTable.create_write_transaction(self, *args, **named))

    class Log(DeltaStorageHandler):
        def open_input_file(self, path: str) -> Any:
            return strike.call(f"read {path}", lambda: DeltaStorageHandler.open_input_file(self, path))

        def get_file_info(self, paths: list[str]) -> Any:
            return strike.call(f"look for {paths}", lambda: DeltaStorageHandler.get_file_info(self, paths))

    def created(*args: Any, **named: Any) -> None:
        strike.call("create the table", lambda: create_table_with_add_actions(*args, **named))

    def opened(name: str, **properties: str) -> Any:
        catalog = strike.call(
            "open the catalog",
            lambda: load_catalog(name, **properties, **{"py-io-impl": f"{__name__}.StrikingFiles"}),
        )
        return StrikingCatalog(catalog, strike)

    StrikingFiles.strike = strike
    with (
        mock.patch.object(delta, "DeltaTable", Table),
        mock.patch.object(delta, "DeltaStorageHandler", Log),
        mock.patch.object(delta, "create_table_with_add_actions", created),
        mock.patch.object(iceberg, "load_catalog", opened),
    ):
        yield


class StrikingCatalog:
    """A catalog whose calls go through a strike; those that pyiceberg makes of it as well."""

    def __init__(self, catalog: Catalog, strike: Strike) -> None:
        self._catalog, self._strike = catalog, strike

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def load_table(self, identifier: str) -> Any:
        return self._strike.call("load the table", lambda: self._catalog.load_table(identifier))

    def create_namespace_if_not_exists(self, namespace: Any) -> None:
        self._strike.call("make the namespace", lambda: self._catalog.create_namespace_if_not_exists(namespace))

    def create_table_transaction(self, *args: Any, **named: Any) -> Any:
        creation = self._strike.call("begin the table", lambda: self._catalog.create_table_transaction(*args, **named))
        creation._table.catalog = cast("Catalog", self)
        return creation

    def commit_table(self, *args: Any) -> Any:
        return self._strike.call("commit", lambda: self._catalog.commit_table(*args))


class StrikingFiles(PyArrowFileIO):
    """Files of metadata, manifests and rows, whose calls go through a strike."""

    strike = Strike(0, "")

    def new_input(self, location: str) -> PyArrowFile:
        file = super().new_input(location)
        file.__class__ = _StrikingFile
        return file

    def new_output(self, location: str) -> PyArrowFile:
        file = super().new_output(location)
        file.__class__ = _StrikingFile
        return file


class _StrikingFile(PyArrowFile):
    def open(self, seekable: bool = True) -> Any:
        return StrikingFiles.strike.call(f"read {self.location}", lambda: PyArrowFile.open(self, seekable))

    def create(self, overwrite: bool = False) -> Any:
        return StrikingFiles.strike.call(f"write {self.location}", lambda: PyArrowFile.create(self, overwrite))


def main() -> int:
    failed = 0
    for kind in sys.argv[1:] or sorted(ARCHIVES):
        for how in HOWS:
            calls, wrong = sweep(kind, how)
            print(f"{kind}: {calls} calls, each {how}: {len(wrong)} tables wrong", *wrong, sep="\n  ", flush=True)  # noqa: T201
            failed += len(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
