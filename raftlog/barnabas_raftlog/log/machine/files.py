"""Makes every call of storage to the operating system; no other module makes one.

The rest of the log is written against `Files`; `OsFiles` is the real one. Tests and the simulator bring their own,
which loses and tears bytes that were not synced. Nothing here retries, logs or remembers: an `OSError` goes to the
caller, who decides whose failure it is. Paths are strings, because they are built once per segment and compared often.

Calls that only Linux has stand behind a fallback: RWF_NOWAIT (without it, cold reads always go to a thread), fdatasync
(fsync), posix_fallocate (zeros are not written; the file grows as it is written), sync_file_range (nothing), syncfs
(the caller syncs file by file), O_DIRECT and the facts of it in statx since 6.1 (the page cache). Calls that Python's
`os` lacks are made in the C library.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import struct
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from barnabas_raftlog.memory import unfilled
from barnabas_raftlog.raft.messages import Buffer

__all__ = ["Files", "OsFiles", "read_file"]

BUFFERS_PER_CALL = 1024  # IOV_MAX of Linux and macOS
SYNC_FILE_RANGE_WRITE = 2
AT_EMPTY_PATH = 0x1000
STATX_DIOALIGN = 0x2000
STATX_BYTES = 256
# Fields of `struct statx`; the second one: alignment of memory, then of position and length.
_MASK = struct.Struct("=I")
_DIRECT_ALIGNMENT = struct.Struct("=II")
_DIRECT_ALIGNMENT_AT = 0x98
JOBS_AT_ONCE = 8
T = TypeVar("T")


class Files(Protocol):
    """All storage calls. Each may raise `OSError`; sizes and positions are bytes, `fd` is the result of `open`."""

    def open(self, path: str, *, create: bool) -> int: ...
    def open_direct(self, path: str, unit_bytes: int) -> int | None:
        """Open a file for writes past the page cache, of whole units at multiples of `unit_bytes`.

        None if that cannot be done, or if such a write may go through the page cache after all.
        """

    def close(self, fd: int) -> None: ...
    def size(self, fd: int) -> int: ...
    def written(self, fd: int) -> tuple[int, int]:
        """Return the file's size, and when it was last written to, in milliseconds since 1970. May block."""

    def read(self, fd: int, position: int, size_bytes: int) -> bytearray:
        """Read `size_bytes`, or fewer at the end of the file. May block."""

    def read_cached(self, fd: int, position: int, size_bytes: int) -> bytearray | None:
        """Read the bytes from `position` on that are in memory, perhaps fewer than asked; None if there are none."""

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers, one after the other, from `position` on. After an error any part may be written."""

    def sync(self, fd: int) -> None:
        """Put the file's data, and its size, on the disk."""

    def sync_file_system(self, fd: int) -> bool:
        """Put everything on the disk that was written to the file system of this file: data, sizes and names.

        Raises `OSError` if any of it may be missing since `fd` was opened, also of other writers; only syncs one by one
        can tell which file it was. False, and nothing is done, if this machine has no such call, or one that keeps
        failures to itself.
        """

    def start_write_back(self, fd: int, position: int, size_bytes: int) -> None:
        """Let the disk begin with this range; nothing is said about when it is there."""

    def preallocate(self, fd: int, position: int, size_bytes: int) -> None:
        """Reserve room; the file is at least `position + size_bytes` long afterwards. ENOSPC if there is none."""

    def truncate(self, fd: int, size_bytes: int) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def exists(self, path: str) -> bool:
        """Tell whether something has this name. Raises `OSError` if that cannot be told: a guess may cost the data."""

    def make_directory(self, path: str) -> None: ...
    def list_directory(self, path: str) -> list[str]: ...
    def sync_directory(self, path: str) -> None: ...

    def run_all(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Carry out independent jobs, and let them wait for the disk together; raise what one raises.

        A file system syncs for many that wait together in one go: a thousand small files one after the other cost a
        thousand commits of its journal, side by side a fraction of them.
        """

    def lock(self, path: str) -> int:
        """Lock the file for this process until `close`. `BlockingIOError` if another process has it."""


def read_file(files: Files, path: str) -> bytearray | None:
    """Return the contents of a small file; None if it does not exist."""
    if not files.exists(path):
        return None
    fd = files.open(path, create=False)
    try:
        return files.read(fd, 0, files.size(fd))
    finally:
        files.close(fd)


def _c_function(name: str, *argument_types: "type[ctypes._SimpleCData[Any]]") -> "ctypes._NamedFuncPointer | None":
    """Return a function of the C library that answers an int; None if there is none of that name."""
    try:
        function = ctypes.CDLL(None, use_errno=True)[name]
    except (AttributeError, OSError):
        return None
    function.argtypes = argument_types
    function.restype = ctypes.c_int
    return function


def _has_honest_syncfs() -> bool:
    # Before Linux 5.8 it waits for the write-back, and does not say that some of it failed.
    release = os.uname().release.split(".")
    return sys.platform == "linux" and [int(part) for part in release[:2] if part.isdecimal()] >= [5, 8]


def _direct_unit(fd: int) -> int:
    """Return the unit in bytes for writes to the file past the page cache; 0 if there are none, or nobody knows."""
    if _statx is None:
        return 0
    answer = ctypes.create_string_buffer(STATX_BYTES)
    if _statx(fd, b"", AT_EMPTY_PATH, STATX_DIOALIGN, answer) or not _MASK.unpack_from(answer)[0] & STATX_DIOALIGN:
        return 0
    memory, offset = _DIRECT_ALIGNMENT.unpack_from(answer, _DIRECT_ALIGNMENT_AT)
    return offset if memory <= mmap.PAGESIZE else 0


_statx = _c_function("statx", ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p)
_sync_file_range = _c_function("sync_file_range", ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
_syncfs = _c_function("syncfs", ctypes.c_int) if _has_honest_syncfs() else None
_sync_data = getattr(os, "fdatasync", os.fsync)
_direct: int = getattr(os, "O_DIRECT", 0)
_no_wait: int = getattr(os, "RWF_NOWAIT", 0)


class OsFiles:
    """The file system of this machine."""

    def open(self, path: str, *, create: bool) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)

    def open_direct(self, path: str, unit_bytes: int) -> int | None:
        if not _direct:
            return None
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | _direct)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return None
            raise
        unit = _direct_unit(fd)
        if unit and unit_bytes % unit == 0:
            return fd
        os.close(fd)
        return None

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def written(self, fd: int) -> tuple[int, int]:
        status = os.fstat(fd)
        return status.st_size, status.st_mtime_ns // 1_000_000

    def read(self, fd: int, position: int, size_bytes: int) -> bytearray:
        size_bytes = max(0, min(size_bytes, os.fstat(fd).st_size - position))
        data = unfilled(size_bytes)
        view = memoryview(data)
        done = 0
        while done < size_bytes:
            count = os.preadv(fd, [view[done:]], position + done)
            if not count:
                break
            done += count
        view.release()
        del data[done:]
        return data

    def read_cached(self, fd: int, position: int, size_bytes: int) -> bytearray | None:
        if not _no_wait:
            return None
        data = unfilled(size_bytes)
        try:
            count = os.preadv(fd, [data], position, _no_wait)
        except OSError as error:
            if error.errno in {errno.EAGAIN, errno.EOPNOTSUPP}:
                return None
            raise
        del data[count:]
        return data if count else None

    def write(self, fd: int, buffers: Sequence[Buffer], position: int) -> None:
        for first in range(0, len(buffers), BUFFERS_PER_CALL):
            part = buffers[first : first + BUFFERS_PER_CALL] if len(buffers) > BUFFERS_PER_CALL else buffers
            size = sum(map(len, part))
            count = os.pwritev(fd, part, position)
            while count < size:
                # A short write is rare (a signal, a nearly full disk), so this copies.
                rest = b"".join(part)
                count += os.pwrite(fd, memoryview(rest)[count:], position + count)
            position += size

    def sync(self, fd: int) -> None:
        _sync_data(fd)

    def sync_file_system(self, fd: int) -> bool:
        if _syncfs is None:
            return False
        if _syncfs(fd):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return True

    def start_write_back(self, fd: int, position: int, size_bytes: int) -> None:
        if _sync_file_range is not None:
            _sync_file_range(fd, position, size_bytes, SYNC_FILE_RANGE_WRITE)

    def preallocate(self, fd: int, position: int, size_bytes: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, position, size_bytes)
        elif os.fstat(fd).st_size < position + size_bytes:
            os.ftruncate(fd, position + size_bytes)

    def truncate(self, fd: int, size_bytes: int) -> None:
        os.ftruncate(fd, size_bytes)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)  # noqa: PTH104 - paths are strings here

    def remove(self, path: str) -> None:
        os.unlink(path)  # noqa: PTH108 - as above

    def remove_tree(self, path: str) -> None:
        from shutil import rmtree  # noqa: PLC0415 - with archives that nothing here opens: 0.5 MiB in every broker

        rmtree(path)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)  # noqa: PTH116 - as above
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103 - as above

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))  # noqa: PTH208 - as above

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def run_all(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        if len(jobs) <= 1:
            return [job() for job in jobs]
        with ThreadPoolExecutor(min(len(jobs), JOBS_AT_ONCE), "files") as pool:
            return list(pool.map(lambda job: job(), jobs))

    def lock(self, path: str) -> int:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd
