"""Writes and syncs a file without a thread, by Linux's asynchronous I/O.

The call is `io_submit`, with `IOCB_CMD_FDSYNC` since Linux 4.18. A sync that waits in a thread costs that thread's
turns at the interpreter's lock: before the write, after it, after the sync, and to wake the loop. Each may wait for the
loop, and asks for the lock meanwhile, which takes processor time from it. Here the kernel does the waiting: the loop
submits, goes on, and is woken by an eventfd. A node that syncs 900 times a second takes 37 % of a core instead of 50 %,
with 3,000 context switches a second instead of 12,000 (docs/adr/storage/0009-the-kernel-syncs-the-journal.md). To a
file that is open past the page cache the kernel writes, too, in the same request (`RWF_DSYNC`;
docs/adr/storage/0010-small-batches-go-past-the-page-cache.md).

The C library has no functions for these calls, so they are made by number. If they are missing or forbidden (another
system or processor, a sandbox, `fs.aio-max-nr` used up), `open_kernel_sync` returns None and a thread does the work. An
error means the same as with `fdatasync`: it is reported once, and the file must not be trusted again.
"""

import asyncio
import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from barnabas_raftlog.raft.messages import Buffer

from .format import aligned
from .sector_room import SectorRoom

__all__ = ["KernelSync", "Syncer", "open_kernel_sync"]


class Syncer(Protocol):
    """Puts a file's data on the disk while the loop goes on. One at a time."""

    def begin(self, fd: int, done: Callable[[OSError | None], None]) -> bool:
        """Begin to sync `fd`, and call `done` on the loop, never from here. False: not now, nothing was begun."""

    def begin_write(
        self, fd: int, buffers: Sequence[Buffer], position: int, done: Callable[[OSError | None], None]
    ) -> bool:
        """Begin to write to `fd`, which `Files.open_direct` gave, and to sync that; the rest as with `begin`.

        `position`, in bytes, is a multiple of `SECTOR_BYTES`. The buffers are copied, and filled up with zeros to a
        whole sector. After an error any part may be written.
        """

    def close(self) -> None:
        """Let go of memory and descriptors; nothing may be under way."""


class _Numbers(NamedTuple):
    setup: int
    destroy: int
    getevents: int
    submit: int


_NUMBERS = {
    "x86_64": _Numbers(206, 207, 208, 209),
    "aarch64": _Numbers(0, 1, 4, 2),
    "riscv64": _Numbers(0, 1, 4, 2),
}
# data, key, flags, opcode, priority, fd, buffer, size, offset, reserved, flags, eventfd (`struct iocb`, little-endian)
_IOCB = struct.Struct("<QIIHhIQQqQII")
_EVENT = struct.Struct("<QQqq")  # data, iocb, result, second result (`struct io_event`)
PWRITE = 1
FDSYNC = 3
DSYNC = 2  # `RWF_DSYNC`: done when it is on the disk
WITH_EVENTFD = 1
ROOM_BYTES = 288 << 10  # for the bytes of one request; touched as far as it is used


class KernelSync:
    """A `Syncer` owned by the loop. To make one raises `OSError` if this machine cannot do it.

    Limit: a write of more than `ROOM_BYTES` is refused (False).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        numbers = _NUMBERS.get(platform.machine())
        if sys.platform != "linux" or numbers is None or ctypes.sizeof(ctypes.c_void_p) != 8:
            raise OSError("no asynchronous I/O on this system")
        self._loop = loop
        self._numbers = numbers
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        self._context = ctypes.c_ulong(0)
        if self._call(ctypes.c_long(numbers.setup), ctypes.c_long(1), ctypes.byref(self._context)) < 0:
            raise _last_error()
        self._iocb = ctypes.create_string_buffer(_IOCB.size)
        self._event = ctypes.create_string_buffer(_EVENT.size)
        self._list = (ctypes.c_void_p * 1)(ctypes.addressof(self._iocb))
        self._submit = ctypes.c_long(numbers.submit)
        self._getevents = ctypes.c_long(numbers.getevents)
        self._one = ctypes.c_long(1)
        self._done: Callable[[OSError | None], None] | None = None
        self._expected = 0  # the answer of the request that is under way, if all is well
        self._room = SectorRoom(ROOM_BYTES)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._room.memory))
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self._eventfd, self._on_event)

    def begin(self, fd: int, done: Callable[[OSError | None], None]) -> bool:
        _IOCB.pack_into(self._iocb, 0, 0, 0, 0, FDSYNC, 0, fd, 0, 0, 0, 0, WITH_EVENTFD, self._eventfd)
        return self._begin(0, done)

    def begin_write(
        self, fd: int, buffers: Sequence[Buffer], position: int, done: Callable[[OSError | None], None]
    ) -> bool:
        assert self._done is None
        size = aligned(sum(map(len, buffers)))
        if size > ROOM_BYTES:
            return False
        (_,) = self._room.pieces(buffers)
        address = self._address
        flags = WITH_EVENTFD
        _IOCB.pack_into(self._iocb, 0, 0, 0, DSYNC, PWRITE, 0, fd, address, size, position, 0, flags, self._eventfd)
        return self._begin(size, done)

    def close(self) -> None:
        self._loop.remove_reader(self._eventfd)
        os.close(self._eventfd)
        self._call(ctypes.c_long(self._numbers.destroy), self._context)

    def _begin(self, expected: int, done: Callable[[OSError | None], None]) -> bool:
        assert self._done is None
        if self._call(self._submit, self._context, self._one, self._list) != 1:
            return False
        self._done = done
        self._expected = expected
        return True

    def _on_event(self) -> None:
        os.eventfd_read(self._eventfd)
        done = self._done
        self._done = None
        assert done is not None
        if self._call(self._getevents, self._context, self._one, self._one, self._event, None) != 1:
            # Nobody can tell whether it is on the disk, and nobody must wait for that for ever.
            done(OSError(errno.EIO, f"its outcome cannot be learned: {_last_error()}"))
            return
        result = _EVENT.unpack_from(self._event)[2]
        done(None if result == self._expected else _error(result))


def _last_error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


def _error(result: int) -> OSError:
    """Return the error of a request that answered `result`: an error number, negative, or how much it wrote."""
    if result < 0:
        return OSError(-result, os.strerror(-result))
    return OSError(errno.EIO, f"only {result} bytes were written")


def open_kernel_sync(loop: asyncio.AbstractEventLoop) -> Syncer | None:
    """Return a syncer that needs no thread, or None if a thread must do it."""
    try:
        syncer = KernelSync(loop)
    except (OSError, AttributeError):
        return None
    return syncer
