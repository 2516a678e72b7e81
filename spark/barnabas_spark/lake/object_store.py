"""Keeps the files of a table in an object store: S3, Google or Azure, through `obstore`.

Its calls are the blocking ones. With those for asyncio a process that ends soon after one is aborted at times.

A request that failed is repeated inside the library. So a conditional write that went through, and whose answer was
lost, ends as `PresentError`: whoever cares reads what is there.
"""

import contextlib
import io
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from typing import IO, Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import from_url

from .store import Location, MissingError, NewFile, PresentError, StoredFile, StoreError

__all__ = ["ObjectStore"]

RETRIES_MAX = 5
RETRY_FOR = timedelta(seconds=60)
# At least so much is asked for at once.
READ_BYTES = 1 << 20
# Files up to this size never touch a disk on their way.
IN_MEMORY_BYTES = 64 << 20


class ObjectStore:
    """A bucket, or what lies behind a prefix of it. Options are those of obstore; AWS_* of the environment count."""

    def __init__(self, location: Location) -> None:
        options: dict[str, Any] = location.store_options
        plain_http = options.get("endpoint", options.get("aws_endpoint", "")).startswith("http://")
        self._url = location.url
        try:
            opened: Any = from_url  # whose types tell the stores apart, as this module does not
            self._store: Any = opened(
                location.url,
                config=options,
                client_options={"allow_http": plain_http},
                retry_config={"max_retries": RETRIES_MAX, "retry_timeout": RETRY_FOR},
            )
        except (BaseError, ValueError) as error:
            raise StoreError(f"{location.url}: {_first_line(error)}") from error

    def put(self, path: str, data: bytes) -> None:
        with self._named(path):
            obstore.put(self._store, path, data, use_multipart=False)

    def put_if_absent(self, path: str, data: bytes) -> None:
        with self._named(path):
            obstore.put(self._store, path, data, mode="create", use_multipart=False)

    def get(self, path: str) -> bytes:
        with self._named(path):
            return bytes(obstore.get(self._store, path).bytes())

    def open(self, path: str) -> IO[bytes]:
        with self._named(path):
            size_bytes = int(obstore.head(self._store, path)["size"])
        return io.BufferedReader(_ReadableObject(self, path, size_bytes), READ_BYTES)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        with self._named(path):
            return bytes(obstore.get_range(self._store, path, start=start, length=length))

    def list(self, folder: str, after: str = "") -> Iterator[StoredFile]:
        with self._named(folder):
            for chunk in obstore.list(self._store, folder, offset=after or None, chunk_size=1000):
                for one in chunk:
                    yield StoredFile(one["path"], one["size"], int(one["last_modified"].timestamp() * 1000))

    def delete(self, path: str) -> None:
        with contextlib.suppress(MissingError), self._named(path):
            obstore.delete(self._store, path)

    def create(self, path: str) -> NewFile:
        return _NewObject(self, path)

    def upload(self, path: str, file: IO[bytes]) -> None:
        """Write a file that may be large, in parts."""
        with self._named(path):
            obstore.put(self._store, path, file)

    @contextlib.contextmanager
    def _named(self, path: str) -> Iterator[None]:
        try:
            yield
        except (AlreadyExistsError, PreconditionError) as error:
            raise PresentError(f"{self._url}/{path} is there already") from error
        except (NotFoundError, FileNotFoundError) as error:
            raise MissingError(f"{self._url}/{path} is not there") from error
        except BaseError as error:
            raise StoreError(f"{self._url}/{path}: {_first_line(error)}") from error


class _ReadableObject(io.RawIOBase):
    """An object as a file. Closing it is nothing to the store."""

    def __init__(self, store: ObjectStore, path: str, size_bytes: int) -> None:
        self._store = store
        self._path = path
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._size_bytes - self._position)
        if length <= 0:
            return 0
        buffer[:length] = self._store.get_range(self._path, self._position, length)
        self._position += length
        return length


class _NewObject:
    def __init__(self, store: ObjectStore, path: str) -> None:
        self._store = store
        self._path = path
        self.stream: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115

    def finish(self) -> int:
        size_bytes = self.stream.tell()
        self.stream.seek(0)
        self._store.upload(self._path, self.stream)
        self.stream.close()
        return size_bytes

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.close()


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
