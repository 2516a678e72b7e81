"""A file system in memory that fails on command, and a worker to be told.

It forgets, tears and runs full, and takes the difference between written and durable seriously. A file's data is
durable after `sync`, a name after `sync_directory`; until then a loss of power may take any part of it: single sectors
of a write, a truncation, a new name. A killed process loses nothing that it wrote.
"""

import errno
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar

from barnabas_raftlog.raft.messages import Buffer

T = TypeVar("T")
SECTOR = 512


class CrashError(Exception):
    """The process, or the machine, stops here."""


class Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.unsynced: list[tuple[int, bytes | None]] = []  # (position, bytes) or (size, None) for a truncation
        self.modified_ms = 0

    def write(self, position: int, data: bytes) -> None:
        self._apply(self.data, position, data)
        self.unsynced.append((position, data))

    def truncate(self, size: int) -> None:
        self._apply(self.data, size, None)
        self.unsynced.append((size, None))

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.unsynced.clear()

    def sync_last_write(self) -> None:
        """Put only the last write on the disk: the file's size, and other writes that wait, stay as they are there."""
        position, data = self.unsynced.pop()
        assert data is not None
        assert position + len(data) <= len(self.durable), "there is no such place on the disk yet"
        durable = bytearray(self.durable)
        self._apply(durable, position, data)
        self.durable = bytes(durable)

    def lose_power(self, rng: Random) -> None:
        data = bytearray(self.durable)
        for position, written in self.unsynced:
            if written is None:
                if rng.random() < 0.5:
                    self._apply(data, position, None)
                continue
            start = 0
            keep = rng.choice((0.0, 0.5, 1.0))
            while start < len(written):
                stop = min(len(written), start + SECTOR - (position + start) % SECTOR)
                if rng.random() < keep:
                    self._apply(data, position + start, written[start:stop])
                start = stop
        self.data = data
        self.sync()

    @staticmethod
    def _apply(data: bytearray, position: int, written: bytes | None) -> None:
        if len(data) < position:
            data.extend(bytes(position - len(data)))
        if written is None:
            del data[position:]
        else:
            data[position : position + len(written)] = written


def parent(path: str) -> str:
    return path.rpartition("/")[0]


def _forget(names: "dict[str, Inode | None]", path: str) -> None:
    names.pop(path, None)


class MemoryFiles:
    """Implements `Files`. Faults: `crash_in`, `full_at_bytes`, `failing`."""

    def __init__(self) -> None:
        self.names: dict[str, Inode | None] = {}  # None: a directory
        self._durable_names: dict[str, Inode | None] = {}
        self._changed: list[tuple[str, Callable[[dict[str, Inode | None]], None]]] = []
        self._open: dict[int, str] = {}
        self._inodes: dict[int, Inode] = {}
        self._direct: set[int] = set()
        self._next_fd = 10
        self.locked: set[str] = set()
        self.crash_in: int | None = None  # calls until `CrashError`
        self.full_at_bytes: int | None = None
        self.failing: Callable[[str, str], int] = lambda call, path: 0  # an errno, or True for EIO
        self.has_syncfs = True
        self.has_direct = True
        self.cold = False  # nothing is in the page cache
        self.now_ms = 0  # what the kernel's clock says
        self.calls: list[tuple[str, str]] = []

    # Commands of tests.

    def kill(self) -> None:
        """End the process; its writes stay."""
        self._open.clear()
        self._inodes.clear()
        self.locked.clear()
        self.crash_in = None
        self.failing = lambda call, path: 0

    def lose_power(self, rng: Random) -> None:
        self.kill()
        names = dict(self._durable_names)
        by_directory: dict[str, list[Callable[[dict[str, Inode | None]], None]]] = {}
        for directory, change in self._changed:
            by_directory.setdefault(directory, []).append(change)
        for changes in by_directory.values():
            for change in changes[: rng.randrange(len(changes) + 1)]:
                change(names)
        self.names = {
            name: inode for name, inode in names.items() if parent(name) in names or parent(name) in {"", "data"}
        }
        for inode in self.names.values():
            if inode is not None:
                inode.lose_power(rng)
        self._durable_names = dict(self.names)
        self._changed.clear()

    def _call(self, call: str, path: str) -> None:
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                raise CrashError(call, path)
        self._may_fail(call, path)
        self.calls.append((call, path))
        del self.calls[:-1000]

    def _may_fail(self, call: str, path: str) -> None:
        if code := self.failing(call, path):
            raise OSError(errno.EIO if code is True else code, f"{call} failed on purpose", path)

    def _need_room(self, inode: Inode, end: int) -> None:
        more = end - len(inode.data)
        used = sum(len(known.data) for known in self.names.values() if known is not None)
        if self.full_at_bytes is not None and more > 0 and used + more > self.full_at_bytes:
            raise OSError(errno.ENOSPC, "full on purpose")

    def _change(self, directory: str, change: Callable[[dict[str, Inode | None]], None]) -> None:
        change(self.names)
        self._changed.append((directory, change))

    # `Files`.

    def open(self, path: str, *, create: bool) -> int:
        self._call("open", path)
        if path not in self.names:
            if not create or self.names.get(parent(path), 0) is not None:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            inode = Inode()
            self._change(parent(path), lambda names: names.__setitem__(path, inode))
        found = self.names[path]
        assert found is not None
        fd = self._next_fd
        self._next_fd += 1
        self._open[fd] = path
        self._inodes[fd] = found
        return fd

    def open_direct(self, path: str, unit_bytes: int) -> int | None:
        assert unit_bytes == SECTOR
        if not self.has_direct:
            return None
        self._call("open_direct", path)
        fd = self.open(path, create=False)
        self._direct.add(fd)
        return fd

    def close(self, fd: int) -> None:
        path = self._open.pop(fd, None)
        if path is not None:
            del self._inodes[fd]
            if path.endswith("/lock"):
                self.locked.discard(path)

    def size(self, fd: int) -> int:
        self._may_fail("size", self._open[fd])
        return len(self._inodes[fd].data)

    def written(self, fd: int) -> tuple[int, int]:
        self._call("written", self._open[fd])
        return len(self._inodes[fd].data), self._inodes[fd].modified_ms

    def read(self, fd: int, position: int, size_bytes: int) -> bytearray:
        self._call("read", self._open[fd])
        return self._inodes[fd].data[position : position + size_bytes]

    def read_cached(self, fd: int, position: int, size_bytes: int) -> bytearray | None:
        return None if self.cold else self.read(fd, position, size_bytes) or None

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> None:
        data = b"".join(buffers)
        inode = self._inodes[fd]
        inode.modified_ms = self.now_ms
        if fd in self._direct:
            assert position % SECTOR == len(data) % SECTOR == 0, "only whole sectors go past the page cache"
        try:
            self._call("write", self._open[fd])
            self._need_room(inode, position + len(data))
        except OSError:
            inode.write(position, data[: len(data) // 2])  # some of it may be there
            raise
        inode.write(position, data)

    def sync(self, fd: int) -> None:
        self._call("sync", self._open[fd])
        self._inodes[fd].sync()

    def write_and_sync(self, fd: int, data: bytes, position: int) -> None:
        """Write past the page cache, and sync nothing but that."""
        self.write(fd, [data], position)
        self._call("sync", self._open[fd])
        self._inodes[fd].sync_last_write()

    def sync_file_system(self, fd: int) -> bool:
        self._call("sync_file_system", self._open[fd])
        if not self.has_syncfs:
            return False
        for inode in self.names.values():
            if inode is not None:
                inode.sync()
        self._durable_names = dict(self.names)
        self._changed.clear()
        return True

    def start_write_back(self, fd: int, position: int, size_bytes: int) -> None: ...

    def preallocate(self, fd: int, position: int, size_bytes: int) -> None:
        self._call("preallocate", self._open[fd])
        inode = self._inodes[fd]
        self._need_room(inode, position + size_bytes)
        if len(inode.data) < position + size_bytes:
            inode.truncate(position + size_bytes)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._call("truncate", self._open[fd])
        self._inodes[fd].truncate(size_bytes)

    def rename(self, source: str, target: str) -> None:
        self._call("rename", source)
        file = self.names[source]  # None: a directory

        def change(names: dict[str, Inode | None]) -> None:
            if file is not None:
                # Also if the name that it had was not durable: this one is.
                names.pop(source, None)
                names[target] = file
                return
            for name in [name for name in names if name == source or name.startswith(f"{source}/")]:
                names[target + name[len(source) :]] = names.pop(name)

        # From one directory to another: what happens to the new name afterwards happens in this order.
        self._change(parent(target), change)

    def remove(self, path: str) -> None:
        self._call("remove", path)
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._change(parent(path), lambda names: _forget(names, path))

    def remove_tree(self, path: str) -> None:
        self._call("remove_tree", path)

        def change(names: dict[str, Inode | None]) -> None:
            for name in [name for name in names if name == path or name.startswith(f"{path}/")]:
                del names[name]

        self._change(parent(path), change)

    def exists(self, path: str) -> bool:
        self._may_fail("exists", path)
        return path in self.names

    def make_directory(self, path: str) -> None:
        self._call("make_directory", path)
        if path not in self.names:
            self._change(parent(path), lambda names: names.__setitem__(path, None))

    def list_directory(self, path: str) -> list[str]:
        self._may_fail("list_directory", path)
        return sorted(name.rpartition("/")[2] for name in self.names if parent(name) == path)

    def sync_directory(self, path: str) -> None:
        self._call("sync_directory", path)
        for directory, change in self._changed:
            if directory == path:
                change(self._durable_names)
        self._changed = [item for item in self._changed if item[0] != path]

    def run_all(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        return [job() for job in jobs]

    def lock(self, path: str) -> int:
        if path in self.locked:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        fd = self.open(path, create=True)
        self.locked.add(path)
        return fd


class ManualWorker:
    """A worker whose jobs run when the test says so; `run` has another one's done as well."""

    def __init__(self, *, inline: bool = False, other: "ManualWorker | None" = None) -> None:
        self.inline = inline
        self.other = other
        self._jobs: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        self._jobs.append(lambda: done(job()))
        if self.inline:
            self.run()

    def run_one(self) -> bool:
        """Do the oldest job, and report it; False if there is none."""
        if not self._jobs:
            return False
        self._jobs.pop(0)()
        return True

    def run(self) -> None:
        while self.run_one() or (self.other is not None and self.other.run_one()):
            pass

    def stop(self) -> None:
        self.run()


class ManualSyncer:
    """Syncs as the kernel does for the loop, when the test lets `worker` go on."""

    def __init__(self, files: MemoryFiles, worker: ManualWorker) -> None:
        self.files = files
        self.worker = worker
        self.is_busy = False  # it takes nothing
        self.syncs = 0  # with and without a write
        self.writes = 0

    def begin(self, fd: int, done: Callable[[OSError | None], None]) -> bool:
        if self.is_busy:
            return False
        self.syncs += 1
        self.worker.submit(lambda: self._outcome(partial(self.files.sync, fd)), done)
        return True

    def begin_write(
        self, fd: int, buffers: Sequence[Buffer], position: int, done: Callable[[OSError | None], None]
    ) -> bool:
        if self.is_busy:
            return False
        self.syncs += 1
        self.writes += 1
        data = b"".join(buffers)
        data += bytes(-len(data) % SECTOR)
        self.worker.submit(lambda: self._outcome(partial(self.files.write_and_sync, fd, data, position)), done)
        return True

    def close(self) -> None:
        """There is nothing to let go of."""

    def _outcome(self, request: Callable[[], None]) -> OSError | None:
        try:
            request()
        except OSError as error:
            return error
        return None
