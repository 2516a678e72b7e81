"""Calls that fail: wrappers around a store and a table, which count what goes through them, and strike once.

`Strike(k, how)` strikes at the k-th call. The call is not made, or made first; then it fails as a machine does, or the
driver dies there: `DriverKilledError` is no `Exception`, so nothing but a `finally` sees it.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import IO, Any, TypeVar

from barnabas_spark.lake.layout import Layout
from barnabas_spark.lake.ranges import CommittedRange, Purpose
from barnabas_spark.lake.store import DirectoryStore, NewFile, Store, StoredFile
from barnabas_spark.lake.table import DataFile, TableFormat, TableState, UnknownOutcomeError

__all__ = ["DriverKilledError", "FaultyStore", "FaultyTable", "Forgetful", "How", "Strike"]

T = TypeVar("T")


class DriverKilledError(BaseException):
    """The driver is dead here."""


class How(Enum):
    """What happens at the call."""

    FAILS_BEFORE = "fails before it"
    FAILS_AFTER = "fails after its success"
    DIES_BEFORE = "kills the driver before it"
    DIES_AFTER = "kills the driver after its success"


class Strike:
    """Counts calls, and strikes at one of them. `calls` is how many there were. A dead driver makes no more."""

    def __init__(self, at: int, how: How) -> None:
        self.at = at
        self.how = how
        self.calls = 0
        self.struck = ""
        self.is_dead = False

    def call(self, name: str, function: Callable[[], T], error: Callable[[str], Exception] | None = None) -> T:
        """Make a call, unless it is the one. `error` makes what this kind of call fails with; else EIO."""
        if self.is_dead:
            raise DriverKilledError(name)
        self.calls += 1
        if self.calls != self.at:
            return function()
        self.struck = name
        made = function() if self.how in {How.FAILS_AFTER, How.DIES_AFTER} else None
        if (stream := getattr(made, "stream", None)) is not None:
            stream.close()  # Nobody gets it, so nobody else does.
        if self.how in {How.DIES_BEFORE, How.DIES_AFTER}:
            self.is_dead = True
            raise DriverKilledError(name)
        raise error(name) if error else OSError(errno.EIO, "struck", name)


class Forgetful(DirectoryStore):
    """A store that takes the condition and ignores it."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        self.put(path, data)


class FaultyStore:
    """A store whose calls may fail."""

    def __init__(self, store: Store, strike: Strike) -> None:
        self._store = store
        self._strike = strike

    def put(self, path: str, data: bytes) -> None:
        self._strike.call(f"put {path}", lambda: self._store.put(path, data))

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._strike.call(f"put_if_absent {path}", lambda: self._store.put_if_absent(path, data))

    def get(self, path: str) -> bytes:
        return self._strike.call(f"get {path}", lambda: self._store.get(path))

    def open(self, path: str) -> IO[bytes]:
        return self._strike.call(f"open {path}", lambda: self._store.open(path))

    def list(self, folder: str, after: str = "") -> Iterator[StoredFile]:
        return iter(self._strike.call(f"list {folder}", lambda: [*self._store.list(folder, after)]))

    def delete(self, path: str) -> None:
        self._strike.call(f"delete {path}", lambda: self._store.delete(path))

    def create(self, path: str) -> NewFile:
        return _FaultyFile(self._strike.call(f"create {path}", lambda: self._store.create(path)), path, self._strike)


class _FaultyFile:
    def __init__(self, file: NewFile, path: str, strike: Strike) -> None:
        self._file = file
        self._path = path
        self._strike = strike

    @property
    def stream(self) -> IO[bytes]:
        return self._file.stream

    def finish(self) -> int:
        return self._strike.call(f"finish {self._path}", self._file.finish)

    def abandon(self) -> None:
        if self._strike.is_dead:
            self._file.stream.close()
        else:
            self._file.abandon()


class FaultyTable:
    """A table whose calls may fail. What its own calls to a store do, the store's wrapper decides."""

    def __init__(self, table: TableFormat, strike: Strike) -> None:
        self._table: Any = table
        self._strike = strike

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def load(self) -> TableState:
        state: TableState = self._strike.call("load", self._table.load)
        return state

    def commit(
        self, state: TableState, files: Sequence[DataFile], ranges: Sequence[CommittedRange], purpose: Purpose
    ) -> None:
        self._strike.call("commit", lambda: self._table.commit(state, files, ranges, purpose), UnknownOutcomeError)

    def evolve(self, state: TableState, layout: Layout) -> None:
        self._strike.call("evolve", lambda: self._table.evolve(state, layout), UnknownOutcomeError)

    def layout_of(self, state: TableState | None = None) -> Layout | None:
        found: Layout | None = self._strike.call("layout_of", lambda: self._table.layout_of(state))
        return found

    def files(self, state: TableState) -> Sequence[str]:
        paths: Sequence[str] = self._strike.call("files", lambda: self._table.files(state))
        return paths
