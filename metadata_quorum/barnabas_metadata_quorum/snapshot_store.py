"""Where this node keeps its newest metadata snapshot: one file, replaced atomically.

The bytes go to a second file, which is synced and then renamed over the first; the directory is synced last. A crash
at any point leaves the old snapshot or the new one, never a torn one. Saving runs in storage's write worker, because
each of these steps may block; `replace_now` runs on the caller's thread, for the one case that cannot wait.

A failed save leaves the old snapshot in place. The log keeps what the old snapshot lacks, so nothing is lost; it is
tried again with the next snapshot.
"""

from collections.abc import Callable

from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.files import Files
from barnabas_raftlog.log.worker import Worker

from .snapshots import Snapshot, decode_snapshot, encode_snapshot

__all__ = ["SnapshotStore"]

FILE_NAME = "metadata.snapshot"


class SnapshotStore:
    """The snapshot file in `directory`. At most one save is under way; the owner sees to that."""

    def __init__(self, files: Files, directory: str, worker: Worker) -> None:
        self._files, self._directory, self._worker = files, directory, worker
        self._path = f"{directory}/{FILE_NAME}"

    def load(self) -> tuple[Snapshot, bytes] | None:
        """Return the newest snapshot with its bytes; None on a new node. Blocks: for the start of a node.

        Raises:
            StorageFailedError: the file cannot be read.
            MalformedMessageError: it is damaged.
            UnknownRecordError: a newer version wrote it.
        """
        try:
            if not self._files.exists(self._path):
                return None
            fd = self._files.open(self._path, create=False)
            try:
                data = bytes(self._files.read(fd, 0, self._files.size(fd)))
            finally:
                self._files.close(fd)
        except OSError as error:
            raise StorageFailedError(f"{self._path} cannot be read: {error}") from error
        return decode_snapshot(data), data

    def save(self, snapshot: Snapshot, done: Callable[[bytes | StorageFailedError], None]) -> None:
        """Encode and write in the worker; then call `done` on the loop, with the bytes or with what went wrong."""

        def job() -> bytes | StorageFailedError:
            data = encode_snapshot(snapshot)
            try:
                self.replace_now(data)
            except StorageFailedError as error:
                return error
            return data

        self._worker.submit(job, done)

    def replace_now(self, data: bytes) -> None:
        """Make `data` the snapshot; durable on return. Blocks.

        Raises:
            StorageFailedError: it could not be written; the old snapshot is untouched.
        """
        files, new_path = self._files, f"{self._path}.new"
        try:
            fd = files.open(new_path, create=True)
            try:
                files.truncate(fd, 0)
                files.write(fd, [data], 0)
                files.sync(fd)
            finally:
                files.close(fd)
            files.rename(new_path, self._path)
            files.sync_directory(self._directory)
        except OSError as error:
            raise StorageFailedError(f"{self._path} cannot be written: {error}") from error
