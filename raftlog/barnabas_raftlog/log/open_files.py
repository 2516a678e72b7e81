"""The segment files that are open at this moment: a bounded number, the longest unused closed first.

A node with 10,000 replicas has more segment files than a process may have open. So a segment keeps a `FileHandle`,
which knows its path, and whoever needs the file borrows a descriptor for the length of one call. The loop, the write
worker and the read threads all borrow, hence the lock; a descriptor that somebody holds is never closed.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from .files import Files

__all__ = ["FileHandle", "OpenFiles"]


class FileHandle:
    """A file by its path. `fd` is -1 while it is closed; `users` counts who borrows it now."""

    __slots__ = ("fd", "is_stale", "path", "removed", "users")

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1
        self.users = 0
        self.removed = False
        self.is_stale = False  # another file has taken this one's place


class OpenFiles:
    """Borrows descriptors. Limit: `count_max` open files, exceeded only while more than that are borrowed at once."""

    def __init__(self, files: Files, count_max: int) -> None:
        self._files = files
        self._count_max = count_max
        self._lock = threading.Lock()
        self._idle_or_used: OrderedDict[FileHandle, None] = OrderedDict()

    def acquire(self, handle: FileHandle, *, create: bool = False) -> int:
        """Return a descriptor that stays open until `release`."""
        with self._lock:
            if handle.removed:
                raise FileNotFoundError(f"{handle.path} was removed")
            if handle.fd < 0:
                handle.fd = self._files.open(handle.path, create=create)
                self._idle_or_used[handle] = None
                handle.users += 1
                if len(self._idle_or_used) > self._count_max:
                    self._close_oldest()
            else:
                self._idle_or_used.move_to_end(handle)
                handle.users += 1
            return handle.fd

    def release(self, handle: FileHandle) -> None:
        with self._lock:
            handle.users -= 1
            if (handle.removed or handle.is_stale) and not handle.users:
                self._close(handle)

    @contextmanager
    def borrow(self, handle: FileHandle, *, create: bool = False) -> Iterator[int]:
        fd = self.acquire(handle, create=create)
        try:
            yield fd
        finally:
            self.release(handle)

    def forget(self, handle: FileHandle) -> None:
        """Close the file, as soon as nobody borrows it."""
        with self._lock:
            handle.removed = True
            if not handle.users:
                self._close(handle)

    def rename(self, handle: FileHandle, target: str) -> None:
        """Give the file another name. Whoever borrows it goes on with it."""
        with self._lock:
            if self._files.exists(handle.path):
                self._files.rename(handle.path, target)
            handle.path = target

    def renew(self, handle: FileHandle) -> None:
        """Another file has been renamed into the place of this one: whoever borrows it from now on gets that."""
        with self._lock:
            handle.is_stale = True
            if not handle.users:
                self._close(handle)

    def close_all(self) -> None:
        with self._lock:
            for handle in list(self._idle_or_used):
                assert not handle.users, handle.path
                self._close(handle)

    def _close_oldest(self) -> None:
        for handle in self._idle_or_used:
            if not handle.users:
                self._close(handle)
                return

    def _close(self, handle: FileHandle) -> None:
        handle.is_stale = False
        if handle.fd >= 0:
            fd, handle.fd = handle.fd, -1
            del self._idle_or_used[handle]
            self._files.close(fd)
