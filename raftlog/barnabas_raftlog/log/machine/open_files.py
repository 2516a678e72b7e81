"""Keeps a bounded number of segment files open; the longest unused is closed first.

A node with 10,000 replicas has more segment files than a process may have open. So a segment keeps a `FileHandle`,
which knows its path, and code that needs the file borrows a descriptor for the length of one call. The loop, the write
worker and the read threads all borrow, hence the lock; a descriptor that somebody holds is never closed.

When another file is renamed into the place of one that is borrowed, its borrowers go on with the old one, and everybody
else gets the new one (`renew`).
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from .disk_errors import is_passing
from .files import Files

__all__ = ["FileHandle", "OpenFiles", "copy_over"]

COPIED_BYTES = 1 << 20  # in one piece
CLOSED_AT_ONCE = 8  # idle files, when the process has no descriptor left


class FileHandle:
    """A file by its path. `fd` is -1 while it is closed; `users` counts who borrows it now."""

    __slots__ = ("fd", "is_doubtful", "path", "removed", "users")

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1
        self.users = 0
        self.removed = False
        self.is_doubtful = False  # a sync of this file has failed, so it must not be synced again


class OpenFiles:
    """Borrows descriptors. Limit: `count_max` open files, exceeded only while more than that are borrowed at once."""

    def __init__(self, files: Files, count_max: int) -> None:
        self._files = files
        self._count_max = count_max
        self._lock = threading.Lock()
        self._idle_or_used: OrderedDict[FileHandle, None] = OrderedDict()
        self._former: dict[int, int] = {}  # descriptors of files that were replaced: how many still borrow each

    def acquire(self, handle: FileHandle, *, create: bool = False) -> int:
        """Return a descriptor that stays open until `release`."""
        with self._lock:
            if handle.removed:
                raise FileNotFoundError(f"{handle.path} was removed")
            if handle.fd < 0:
                handle.fd = self._open(handle.path, create=create)
                self._idle_or_used[handle] = None
                handle.users += 1
                if len(self._idle_or_used) > self._count_max:
                    self._close_oldest()
            else:
                self._idle_or_used.move_to_end(handle)
                handle.users += 1
            return handle.fd

    def release(self, handle: FileHandle, fd: int) -> None:
        """Give a descriptor back that `acquire` returned."""
        with self._lock:
            if fd != handle.fd:
                self._former[fd] -= 1
                if not self._former[fd]:
                    del self._former[fd]
                    self._files.close(fd)
                return
            handle.users -= 1
            if handle.removed and not handle.users:
                self._close(handle)

    @contextmanager
    def borrow(self, handle: FileHandle, *, create: bool = False) -> Iterator[int]:
        fd = self.acquire(handle, create=create)
        try:
            yield fd
        finally:
            self.release(handle, fd)

    def sync(self, handle: FileHandle) -> None:
        """Put the file on the disk, made if it is not there; if a sync of it has failed before, a copy of it.

        Nobody may write to the file meanwhile if it `is_doubtful`.
        """
        if handle.is_doubtful:
            copy_over(self._files, handle.path)
            self.renew(handle)
            return
        with self.borrow(handle, create=True) as fd:
            try:
                self._files.sync(fd)
            except OSError:
                handle.is_doubtful = True
                raise

    def forget(self, handle: FileHandle) -> None:
        """Close the file, as soon as nobody borrows it."""
        with self._lock:
            handle.removed = True
            if not handle.users:
                self._close(handle)

    def rename(self, handle: FileHandle, target: str) -> None:
        """Give the file another name. Its borrowers go on with it."""
        with self._lock:
            if self._files.exists(handle.path):
                self._files.rename(handle.path, target)
            handle.path = target

    def renew(self, handle: FileHandle) -> None:
        """Lend another file from now on, which is synced and has been renamed into the place of this one."""
        with self._lock:
            handle.is_doubtful = False
            if handle.users:
                self._former[handle.fd] = handle.users
                handle.users = 0
                del self._idle_or_used[handle]
                handle.fd = -1
            else:
                self._close(handle)

    def close_all(self) -> None:
        with self._lock:
            for handle in list(self._idle_or_used):
                assert not handle.users, handle.path
                self._close(handle)

    def _open(self, path: str, *, create: bool) -> int:
        try:
            return self._files.open(path, create=create)
        except OSError as error:
            if not is_passing(error):
                raise
        # Perhaps there was no descriptor left, and here are some that nobody needs now.
        for _ in range(CLOSED_AT_ONCE):
            self._close_oldest()
        return self._files.open(path, create=create)

    def _close_oldest(self) -> None:
        for handle in self._idle_or_used:
            if not handle.users:
                self._close(handle)
                return

    def _close(self, handle: FileHandle) -> None:
        if handle.fd >= 0:
            fd = handle.fd
            handle.fd = -1
            del self._idle_or_used[handle]
            self._files.close(fd)


def copy_over(files: Files, path: str) -> None:
    """Put a synced copy of a file in its place, the name synced, too; a crash leaves one or the other."""
    target = f"{path}.new"
    if files.exists(target):
        files.remove(target)  # Left by an attempt that failed, perhaps in its sync.
    source_fd = files.open(path, create=False)
    try:
        fd = files.open(target, create=True)
        try:
            position = 0
            while chunk := files.read(source_fd, position, COPIED_BYTES):
                files.write(fd, [chunk], position)
                position += len(chunk)
            files.sync(fd)
        finally:
            files.close(fd)
    finally:
        files.close(source_fd)
    files.rename(target, path)
    files.sync_directory(path.rpartition("/")[0])
