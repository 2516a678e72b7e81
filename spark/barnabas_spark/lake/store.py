"""Keeps the files of a table: what every store does, and a directory that does it.

`put_if_absent` is what commits rest on: of all who write one path, one succeeds, and the others get `PresentError`. Any
other failure of it may hide a success.

*A directory* gets whole files only. A file is written under a name of its own, made durable, and linked to its path,
which fails if something is there. A failed fsync is an error: what it was to make durable is not known to be.

Stores are given to tasks as a `Location`, which is plain values; `opening.py` opens it there.
"""

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from .table import TableError

__all__ = ["DirectoryStore", "Location", "MissingError", "NewFile", "PresentError", "Store", "StoreError", "StoredFile"]

# Names of files that are being written: they are no part of anything yet, and are orphans after a crash.
UNFINISHED = ".unfinished-"


class StoreError(TableError):
    """The store refuses or fails; the message names the path."""


class PresentError(StoreError):
    """Something is at this path already, so nothing was written."""


class MissingError(StoreError):
    """Nothing is at this path."""


CATALOG = "catalog."


class Location(NamedTuple):
    """Where a table is: a directory, or a URL such as `s3://bucket/prefix`.

    `options` are those of its store, and, with names that begin with `catalog.`, those of a catalog.
    """

    url: str
    options: Mapping[str, str] = {}

    @property
    def store_options(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if not name.startswith(CATALOG)}

    @property
    def catalog(self) -> dict[str, str]:
        """The options of a catalog, by their own names."""
        return {name.removeprefix(CATALOG): value for name, value in self.options.items() if name.startswith(CATALOG)}

    @property
    def is_local(self) -> bool:
        return "://" not in self.url or self.url.startswith("file://")

    @property
    def directory(self) -> Path:
        assert self.is_local, self.url
        return Path(self.url.removeprefix("file://")).absolute()


class StoredFile(NamedTuple):
    """A file that a store lists. `modified_ms` is the store's own time, in milliseconds since 1970."""

    path: str
    size_bytes: int
    modified_ms: int


class NewFile(Protocol):
    """A file that is being written. It is there once `finish` has returned, and never in part under its path."""

    @property
    def stream(self) -> IO[bytes]: ...

    def finish(self) -> int:
        """Make the file durable at its path; return its size in bytes."""

    def abandon(self) -> None:
        """Forget what was written. Never raises."""


class Store(Protocol):
    """Files by their paths, which have slashes and are relative to the table. Its methods block."""

    def put(self, path: str, data: bytes) -> None:
        """Write a whole file, over what is there."""

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write a whole file where nothing is.

        Raises:
            PresentError: something is there. After a failure, it may be what this call wrote.
            StoreError, OSError: it failed; the file may be there, or appear later.
        """

    def get(self, path: str) -> bytes:
        """Return a whole file, or raise `MissingError`."""

    def open(self, path: str) -> IO[bytes]:
        """Return a whole file to read from, at any place of it, or raise `MissingError`. The caller closes it."""

    def list(self, folder: str, after: str = "") -> Iterator[StoredFile]:
        """Yield the files in a folder and below, in any order; those behind a path only, if one is given."""

    def delete(self, path: str) -> None:
        """Delete a file; one that is not there is no error."""

    def create(self, path: str) -> NewFile:
        """Begin a large file at a path of its own, which nobody else writes."""


class DirectoryStore:
    """A directory of a file system with hard links, and with fsync for files and directories."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, path: str, data: bytes) -> None:
        target, unfinished = self._written(path, data)
        unfinished.replace(target)
        _sync(target.parent)

    def put_if_absent(self, path: str, data: bytes) -> None:
        target, unfinished = self._written(path, data)
        try:
            os.link(unfinished, target)
        except FileExistsError:
            raise PresentError(f"{target} is there already") from None
        finally:
            unfinished.unlink(missing_ok=True)
        _sync(target.parent)

    def get(self, path: str) -> bytes:
        try:
            return (self.root / path).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise MissingError(f"{self.root / path} is not there") from None

    def open(self, path: str) -> IO[bytes]:
        try:
            return (self.root / path).open("rb")
        except FileNotFoundError:
            raise MissingError(f"{self.root / path} is not there") from None

    def list(self, folder: str, after: str = "") -> Iterator[StoredFile]:
        for parent, _, names in os.walk(self.root / folder):
            for name in names:
                found = Path(parent, name)
                path = found.relative_to(self.root).as_posix()
                if path > after:
                    with contextlib.suppress(FileNotFoundError):
                        status = found.stat()
                        yield StoredFile(path, status.st_size, status.st_mtime_ns // 1_000_000)

    def delete(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)

    def create(self, path: str) -> NewFile:
        target = self.root / path
        _make(target.parent)
        return _NewLocalFile(target)

    def _written(self, path: str, data: bytes) -> tuple[Path, Path]:
        """Return a path, and that of a durable file with `data` beside it."""
        target = self.root / path
        _make(target.parent)
        unfinished = target.with_name(f"{UNFINISHED}{uuid.uuid4().hex}")
        try:
            with unfinished.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        return target, unfinished


class _NewLocalFile:
    def __init__(self, target: Path) -> None:
        self._target = target
        self._unfinished = target.with_name(f"{UNFINISHED}{target.name}")
        self.stream: IO[bytes] = self._unfinished.open("xb")

    def finish(self) -> int:
        self.stream.flush()
        os.fsync(self.stream.fileno())
        size_bytes = self.stream.tell()
        self.stream.close()
        self._unfinished.rename(self._target)
        _sync(self._target.parent)
        return size_bytes

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.close()
        with contextlib.suppress(OSError):
            self._unfinished.unlink(missing_ok=True)


def _make(folder: Path) -> None:
    """Make a folder and those above it, each of them durable in its own parent."""
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
