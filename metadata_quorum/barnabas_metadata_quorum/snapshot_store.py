"""Keeps this node's newest metadata snapshot: a file named after the snapshot's last Raft entry.

A snapshot goes to `metadata-<index>.snapshot.new`, which is synced, then renamed, then the directory is synced; only
then are older ones removed. A crash at any point leaves the old snapshot or the new one whole. Two saves may overlap
(our own in the worker, one from the leader on the loop): they are different files, and the higher index counts.

Saving runs in storage's write worker, because each of these steps may block; `replace_now` runs on the caller's
thread, for the one case that cannot wait. A failed save leaves the old snapshot in place, and the log still has the
later entries, so nothing is lost; the next snapshot tries again.
"""

from collections.abc import Callable

from barnabas_metadata_quorum.image.snapshots import Snapshot, decode_snapshot, encode_snapshot
from barnabas_raftlog.errors import StorageFailedError
from barnabas_raftlog.log.machine.files import Files
from barnabas_raftlog.log.machine.worker import Worker

__all__ = ["SnapshotStore"]

PREFIX = "metadata-"
SUFFIX = ".snapshot"
NEW = ".new"
INDEX_DIGITS = 20  # of 2^64, so that names sort as their indexes do


class SnapshotStore:
    """The snapshots in `directory`, which exists. Normally one; two while the older one is being removed."""

    def __init__(self, files: Files, directory: str, worker: Worker) -> None:
        self._files = files
        self._directory = directory
        self._worker = worker

    def load(self) -> tuple[Snapshot, bytes] | None:
        """Return the newest snapshot with its bytes; None on a new node. Blocks: for the start of a node.

        Raises:
            StorageFailedError: the file cannot be read.
            MalformedMessageError: it is damaged.
            UnknownRecordError: a newer version wrote it.
        """
        path = self._directory
        try:
            for name in self._names(SUFFIX + NEW):
                self._files.remove(f"{self._directory}/{name}")
            names = self._names(SUFFIX)
            if not names:
                return None
            path = f"{self._directory}/{names[-1]}"
            fd = self._files.open(path, create=False)
            try:
                data = bytes(self._files.read(fd, 0, self._files.size(fd)))
            finally:
                self._files.close(fd)
        except OSError as error:
            raise StorageFailedError(f"{path} cannot be read: {error}") from error
        return decode_snapshot(data), data

    def save(self, snapshot: Snapshot, done: Callable[[bytes | StorageFailedError], None]) -> None:
        """Encode and write in the worker; then call `done` on the loop, with the bytes or with the error."""

        def job() -> bytes | StorageFailedError:
            data = encode_snapshot(snapshot)
            try:
                self.replace_now(snapshot.raft_index, data)
            except StorageFailedError as error:
                return error
            return data

        self._worker.submit(job, done)

    def replace_now(self, raft_index: int, data: bytes) -> None:
        """Make `data` durable as the snapshot at `raft_index`, and remove older ones. Blocks.

        Raises:
            StorageFailedError: it could not be written; the snapshot before it is untouched.
        """
        files = self._files
        name = f"{PREFIX}{raft_index:0{INDEX_DIGITS}}{SUFFIX}"
        path = f"{self._directory}/{name}"
        try:
            fd = files.open(path + NEW, create=True)
            try:
                files.truncate(fd, 0)
                files.write(fd, [data], 0)
                files.sync(fd)
            finally:
                files.close(fd)
            files.rename(path + NEW, path)
            files.sync_directory(self._directory)
            for other in self._names(SUFFIX):
                if other < name:
                    files.remove(f"{self._directory}/{other}")
        except OSError as error:
            raise StorageFailedError(f"{path} cannot be written: {error}") from error

    def remove(self) -> None:
        """Forget every snapshot. Blocks.

        Raises:
            StorageFailedError: a file could not be removed.
        """
        try:
            for name in self._names(SUFFIX):
                self._files.remove(f"{self._directory}/{name}")
            self._files.sync_directory(self._directory)
        except OSError as error:
            raise StorageFailedError(f"{self._directory}: a snapshot cannot be removed: {error}") from error

    def _names(self, suffix: str) -> list[str]:
        names = self._files.list_directory(self._directory)
        return sorted(name for name in names if name.startswith(PREFIX) and name.endswith(suffix))
