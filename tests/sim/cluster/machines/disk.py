"""A machine's disk and page cache, and `Files` on it: only synced bytes are safe.

*Process crash*: the page cache stays, so everything written stays. *Power cut*: of each file's dirty pages any subset
of 512-byte sectors reached the disk, and the file's length is the synced one, the newest one or one between; of each
directory's unsynced changes (create, rename, remove) some first part did, in order, as journaling file systems have it.
A directory entry is durable when its directory was synced, and only then: stricter than ext4, as POSIX allows.

*Failures*: a sync that fails says EIO and leaves its pages marked clean, as Linux does, so that syncing again succeeds
and means nothing. A full disk refuses growth with ENOSPC. A stuck disk keeps its workers waiting. Bits flip in synced
bytes. An *ambush* strikes between two calls of a job, or in the middle of a write: the process or the machine dies.

Not simulated: a disk that lies about a sync, sectors torn within, metadata lost out of order.
"""

import errno
import os
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeVar

from sim.cluster.world import WALL_MS, World

from .loop import VirtualLoop

T = TypeVar("T")

__all__ = ["PowerLostError", "VirtualDisk", "VirtualFiles"]

PAGE_BYTES = 4096
SECTOR_BYTES = 512
CALL_US = 4


class PowerLostError(BaseException):
    """The process, or its machine, died in the middle of a job, which is over wherever this is caught."""

    def __init__(self, *, is_power: bool) -> None:
        super().__init__("power lost" if is_power else "killed")
        self.is_power = is_power


class Inode:
    """A file: the bytes that everybody reads, and those on the disk."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced = bytearray()
        self.dirty = set[int]()
        self.is_cold = False
        self.written_us = 0

    def write(self, position: int, data: bytes | memoryview) -> None:
        end = position + len(data)
        if end > len(self.data):
            self.data.extend(bytes(end - len(self.data)))
        self.data[position:end] = data
        self.dirty.update(range(position // PAGE_BYTES, (end + PAGE_BYTES - 1) // PAGE_BYTES))

    def sync_pages(self, position: int, end: int) -> None:
        """Put only the pages of this range on the disk: the file's size, and other pages, stay as they are there."""
        assert end <= len(self.synced), "there is no such place on the disk yet"
        start = position // PAGE_BYTES
        stop = (end + PAGE_BYTES - 1) // PAGE_BYTES
        bounds = slice(start * PAGE_BYTES, min(stop * PAGE_BYTES, len(self.synced), len(self.data)))
        self.synced[bounds] = self.data[bounds]
        self.dirty.difference_update(range(start, stop))

    def sync(self) -> None:
        data = self.data
        synced = self.synced
        if len(synced) > len(data):
            del synced[len(data) :]
        elif len(synced) < len(data):
            synced.extend(bytes(len(data) - len(synced)))
        for page in self.dirty:
            start = page * PAGE_BYTES
            synced[start : start + PAGE_BYTES] = data[start : start + PAGE_BYTES]
        self.dirty.clear()

    def lose_power(self, rng: Random) -> int:
        """Become the file on the disk; return how many dirty pages did not all get there."""
        before = len(self.dirty)
        data = self.data
        synced = self.synced
        self.is_cold = True
        fate = rng.random()
        if not self.dirty and len(data) == len(synced):
            fate = 0.0
        if fate < 0.3:
            self.data = bytearray(synced)
        elif fate > 0.8:
            self.synced = bytearray(data)
        else:
            size = rng.choice((len(synced), len(data), rng.randrange(min(len(synced), len(data)), len(data) + 1)))
            kept = bytearray(synced[:size])
            kept.extend(bytes(size - len(kept)))
            for page in sorted(self.dirty):
                for start in range(page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, size), SECTOR_BYTES):
                    if rng.random() < 0.5:
                        end = min(start + SECTOR_BYTES, size)
                        kept[start:end] = data[start:end].ljust(end - start, b"\0")
            self.data = kept
            self.synced = bytearray(kept)
        self.dirty.clear()
        return before


class Directory:
    """Names, the names that are on the disk, and the changes between them in their order."""

    def __init__(self) -> None:
        self.entries = dict[str, Inode | Directory]()
        self.synced = dict[str, Inode | Directory]()
        self._changes = list[tuple[tuple[str, Inode | Directory | None], ...]]()

    def change(self, *changes: "tuple[str, Inode | Directory | None]") -> None:
        """Make some changes that reach the disk together or not at all."""
        self._changes.append(changes)
        _apply(self.entries, changes)

    def sync(self) -> None:
        self.synced = dict(self.entries)
        self._changes.clear()

    def sync_all(self) -> None:
        """Sync everything below, too."""
        for node in self.entries.values():
            if isinstance(node, Directory):
                node.sync_all()
            else:
                node.sync()
        self.sync()

    def lose_power(self, rng: Random) -> int:
        kept = rng.choice((0, len(self._changes), rng.randrange(len(self._changes) + 1)))
        for changes in self._changes[:kept]:
            _apply(self.synced, changes)
        self._changes.clear()
        self.entries = dict(self.synced)
        return sum(node.lose_power(rng) for _, node in sorted(self.entries.items()))


def _apply(entries: dict[str, Inode | Directory], changes: tuple[tuple[str, Inode | Directory | None], ...]) -> None:
    for name, node in changes:
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


class VirtualDisk:
    """One machine's disk. `on_power_lost` is called when an ambush strikes."""

    def __init__(self, world: World, name: str, sync_us_max: int) -> None:
        self.world = world
        self.name = name
        self.sync_us_max = sync_us_max
        self.rng = world.chance(f"{name} disk")
        self.root = Directory()
        self.stuck_until_us = 0
        self.full_until_us = 0
        self.sync_errors = 0  # so many of the next calls fail
        self.read_errors = 0
        self.ambush: tuple[int, bool] | None = None  # so many calls from now; is it the power?
        self.locks = dict[Inode, VirtualFiles]()
        self.on_power_lost: Callable[[PowerLostError], None]

    def begin_us(self, rng: Random) -> int:
        return rng.randrange(10, 150)

    def mend(self) -> None:
        """End every fault that was armed or is under way."""
        self.stuck_until_us = 0
        self.full_until_us = 0
        self.sync_errors = 0
        self.read_errors = 0
        self.ambush = None

    def lose_power(self) -> None:
        torn = self.root.lose_power(self.rng)
        self.stuck_until_us = 0
        self.world.note(self.name, f"the disk lost its power with {torn} dirty pages")

    def replace(self) -> None:
        """Put an empty disk in its place, mounted where the old one was."""
        self.root = Directory()
        self.root.change(("data", Directory()))
        self.root.sync()

    def files_below(self, path: str) -> list[tuple[str, Inode]]:
        """Return every file in a directory and below, with its path, sorted."""
        found = list[tuple[str, Inode]]()
        node: Any = self.root
        for part in path.split("/")[1:]:
            node = node.entries.get(part, Directory()) if isinstance(node, Directory) else Directory()
        for name, child in sorted(node.entries.items()):
            if isinstance(child, Inode):
                found.append((f"{path}/{name}", child))
            else:
                found += self.files_below(f"{path}/{name}")
        return found

    def flip_bit(self, inode: Inode, position: int) -> bool:
        """Rot a bit on the disk and in memory, if it was synced."""
        if position // PAGE_BYTES in inode.dirty or position >= len(inode.data):
            return False
        bit = 1 << self.rng.randrange(8)
        inode.data[position] ^= bit
        inode.synced[position] ^= bit
        return True


class VirtualFiles:
    """The `Files` of one process. When the process is dead, nothing it does reaches the disk."""

    def __init__(self, disk: VirtualDisk, loop: VirtualLoop, *, has_direct: bool) -> None:
        self.disk = disk
        self._loop = loop
        self._has_direct = has_direct
        self._open = dict[int, Inode]()
        self._next_fd = 3
        self.in_worker = False
        self.spent_us = 0
        self.lost: PowerLostError | None = None

    # Every call goes through here.

    def _call(self, *, changes: bool = False, spent_us: int = CALL_US) -> None:
        if self._loop.is_dead:
            raise OSError(errno.EIO, "this process is dead")
        if self.lost is not None:
            raise self.lost  # The cleanup of a job on its way out is not done either.
        self._spend(spent_us)
        disk = self.disk
        if changes and disk.ambush is not None and self.in_worker:
            left, is_power = disk.ambush
            if left <= 0:
                disk.ambush = None
                self.lost = PowerLostError(is_power=is_power)
                raise self.lost
            disk.ambush = (left - 1, is_power)

    def _spend(self, spent_us: int) -> None:
        if self.in_worker:
            self.spent_us += spent_us
        else:
            self._loop.occupy(spent_us)

    def _parent(self, path: str) -> tuple[Directory, str]:
        *parts, name = path.rstrip("/").split("/")[1:]
        node: Inode | Directory | None = self.disk.root
        for part in parts:
            node = node.entries.get(part) if isinstance(node, Directory) else None
        if not isinstance(node, Directory):
            raise _error(errno.ENOENT, path)
        return node, name

    def _find(self, path: str) -> Inode | Directory:
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if not isinstance(node, Directory):
            raise _error(errno.ENOTDIR, path)
        return node

    def _check_room(self) -> None:
        if self._loop.world.now_us < self.disk.full_until_us:
            self._loop.world.counts["full disk"] += 1
            raise OSError(errno.ENOSPC, "No space left on device")

    # Files.

    def open(self, path: str, *, create: bool) -> int:
        self._call()
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is None:
            if not create:
                raise _error(errno.ENOENT, path)
            self._call(changes=True)
            node = Inode()
            directory.change((name, node))
        if not isinstance(node, Inode):
            raise _error(errno.EISDIR, path)
        self._next_fd += 1
        self._open[self._next_fd] = node
        return self._next_fd

    def open_direct(self, path: str, unit_bytes: int) -> int | None:
        assert unit_bytes == SECTOR_BYTES
        return self.open(path, create=False) if self._has_direct else None

    def close(self, fd: int) -> None:
        self._call()
        node = self._open.pop(fd)
        if self.disk.locks.get(node) is self and node not in self._open.values():
            del self.disk.locks[node]

    def size(self, fd: int) -> int:
        self._call()
        return len(self._open[fd].data)

    def written(self, fd: int) -> tuple[int, int]:
        self._call()
        return len(self._open[fd].data), WALL_MS + self._open[fd].written_us // 1_000

    def read(self, fd: int, position: int, size_bytes: int) -> bytearray:
        self._call(spent_us=CALL_US + size_bytes // 500)
        if self.disk.read_errors:
            self.disk.read_errors -= 1
            self._loop.world.counts["read errors"] += 1
            raise OSError(errno.EIO, "Input/output error")
        node = self._open[fd]
        node.is_cold = False
        return node.data[position : position + size_bytes]

    def read_cached(self, fd: int, position: int, size_bytes: int) -> bytearray | None:
        self._call()
        node = self._open[fd]
        if node.is_cold:
            return None
        return node.data[position : position + size_bytes] or None

    def write(self, fd: int, buffers: Sequence[Any], position: int) -> None:
        data = b"".join(buffers)
        node = self._open[fd]
        if position + len(data) > len(node.data):
            self._check_room()
        try:
            self._call(changes=True, spent_us=CALL_US + len(data) // 1_000)
        except PowerLostError:
            written = self.disk.rng.randrange(len(data) + 1)
            if written < len(data):
                written = max(0, written - (position + written) % SECTOR_BYTES)  # No sector is half old, half new.
            node.write(position, data[:written])
            raise
        node.write(position, data)
        node.written_us = self._loop.world.now_us

    def sync(self, fd: int) -> None:
        self._sync(fd, self._open[fd].sync)

    def write_and_sync(self, fd: int, data: bytes, position: int) -> None:
        """Write past the page cache, and sync nothing but that."""
        self.write(fd, [data], position)
        self._sync(fd, lambda: self._open[fd].sync_pages(position, position + len(data)))

    def _sync(self, fd: int, sync: Callable[[], None]) -> None:
        disk = self.disk
        world = self._loop.world
        world.counts["syncs"] += 1
        self._call(changes=True, spent_us=disk.rng.randrange(100, disk.sync_us_max + 101))
        if disk.sync_errors:
            disk.sync_errors -= 1
            world.counts["failed syncs"] += 1
            world.note(disk.name, "a sync failed")
            self._open[fd].dirty.clear()
            raise OSError(errno.EIO, "Input/output error")
        sync()

    def sync_file_system(self, fd: int) -> bool:
        assert fd in self._open
        disk = self.disk
        world = self._loop.world
        world.counts["syncs of all"] += 1
        self._call(changes=True, spent_us=2 * disk.rng.randrange(100, disk.sync_us_max + 101))
        if disk.sync_errors:
            # The next sync of each file would say which one it was; here it is the first that is asked.
            world.note(disk.name, "a sync of all failed")
            raise OSError(errno.EIO, "Input/output error")
        disk.root.sync_all()
        return True

    def start_write_back(self, fd: int, position: int, size_bytes: int) -> None:
        del position, size_bytes
        self._call()
        node = self._open[fd]
        for page in sorted(node.dirty):
            # Some of it gets there, without a promise; the file's length does not move.
            if self.disk.rng.random() < 0.5 and (page + 1) * PAGE_BYTES <= len(node.synced):
                start = page * PAGE_BYTES
                node.synced[start : start + PAGE_BYTES] = node.data[start : start + PAGE_BYTES]
                node.dirty.discard(page)

    def preallocate(self, fd: int, position: int, size_bytes: int) -> None:
        self._check_room()
        self._call(changes=True)
        node = self._open[fd]
        if len(node.data) < position + size_bytes:
            node.data.extend(bytes(position + size_bytes - len(node.data)))

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._call(changes=True)
        node = self._open[fd]
        if len(node.data) > size_bytes:
            del node.data[size_bytes:]
        else:
            node.data.extend(bytes(size_bytes - len(node.data)))
        node.dirty = {page for page in node.dirty if page * PAGE_BYTES < size_bytes}
        if size_bytes % PAGE_BYTES:
            node.dirty.add(size_bytes // PAGE_BYTES)

    # Names.

    def rename(self, source: str, target: str) -> None:
        self._call(changes=True)
        node = self._find(source)
        (source_directory, source_name) = self._parent(source)
        (directory, name) = self._parent(target)
        if source_directory is directory:
            directory.change((source_name, None), (name, node))
        else:
            directory.change((name, node))
            source_directory.change((source_name, None))

    def remove(self, path: str) -> None:
        self._call(changes=True)
        self._find(path)
        directory, name = self._parent(path)
        directory.change((name, None))

    def remove_tree(self, path: str) -> None:
        directory = self._directory(path)
        for name, node in sorted(directory.entries.items()):
            if isinstance(node, Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self.remove(f"{path}/{name}")
        self._call(changes=True)
        parent, name = self._parent(path)
        parent.change((name, None))

    def exists(self, path: str) -> bool:
        self._call()
        try:
            self._find(path)
        except OSError:
            return False
        return True

    def make_directory(self, path: str) -> None:
        node = self.disk.root
        for part in path.rstrip("/").split("/")[1:]:
            child = node.entries.get(part)
            if child is None:
                self._call(changes=True)
                child = Directory()
                node.change((part, child))
            if not isinstance(child, Directory):
                raise _error(errno.EEXIST, path)
            node = child

    def list_directory(self, path: str) -> list[str]:
        self._call()
        return sorted(self._directory(path).entries)

    def sync_directory(self, path: str) -> None:
        self._call(changes=True, spent_us=self.disk.rng.randrange(50, self.disk.sync_us_max + 51))
        self._directory(path).sync()

    def run_all(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        return [job() for job in jobs]

    def lock(self, path: str) -> int:
        fd = self.open(path, create=True)
        node = self._open[fd]
        holder = self.disk.locks.get(node)
        if holder is not None and not holder._loop.is_dead:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        self.disk.locks[node] = self
        return fd


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
