"""Hands out memory without zeroing it first, and gives freed memory back to the kernel.

A broker receives and reads in pieces of a megabyte. The zeros that `bytearray(size)` writes were a tenth of its
processor time while it answered consumers, and made a length that somebody only claimed cost real memory: pages that
nobody writes to stay the kernel's.

The C library keeps freed memory for later, if anything lies behind it: after a load that had waited for a slow disk, a
broker of 45 MiB kept 255. `give_back` returns such pages. Freed memory with nothing behind it goes back at once, all of
it together: as the last piece of a long answer was freed, the 90 MiB of the pieces before it went with it, which took
the thread that happened to free it 10 ms. So a process with a loop that calls `give_back` calls `keep_freed` first: an
answer of 100 MiB took a third less time then, because the next piece finds its pages where the one before it had them.
"""

import ctypes
import resource
import sys
from pathlib import Path
from typing import Any, cast

__all__ = ["give_back", "keep_freed", "resident_bytes", "spare_bytes", "unfilled"]

LARGE_BYTES = 32 << 10  # below, a call through ctypes costs more than the zeros
MAPPED_BYTES = 17 << 20
"""Larger pieces are no part of the heap, and returned when they are freed: the largest read from disk (16 MiB) comes so
often that its pages are better kept. glibc allows twice as much, with which requests of 30 MB left 200 MiB of holes."""
# As in glibc's <malloc.h>.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_NEVER = (1 << 31) - 1


def unfilled(size_bytes: int) -> bytearray:
    """Return so many bytes of anything: the caller fills them, or cuts off the rest, before they go on."""
    if size_bytes < LARGE_BYTES or _allocate is None:
        return bytearray(size_bytes)
    return cast("bytearray", _allocate(None, size_bytes))


def keep_freed() -> bool:
    """Have freed memory stay with this process until `give_back`; false where the C library is not glibc."""
    if _set_option is None:
        return False
    # Either of the two ends the library's own rule for both, which maps and returns ever larger pieces with each large
    # one that is freed.
    return bool(_set_option(_M_MMAP_THRESHOLD, MAPPED_BYTES) and _set_option(_M_TRIM_THRESHOLD, _NEVER))


def give_back() -> bool:
    """Return freed memory to the kernel; false where the C library has no such function (it is one of glibc's).

    For a thread: 400 MiB take 50 ms, in which nobody in the process gets memory of more than 512 bytes.
    """
    if _trim is None:
        return False
    _trim(0)
    return True


def resident_bytes() -> int | None:
    """Return how much memory of this process is in use, or None where the kernel does not say (no `/proc`)."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        return None
    return pages * resource.getpagesize()


def spare_bytes() -> int | None:
    """Return the bytes of this process that are in use beside those that the C library has handed out.

    Freed memory that it keeps is part of that, so it grows with it; so are code, stacks, and the interpreter's small
    objects. None as for `resident_bytes`. Takes 20 to 100 us.
    """
    resident = resident_bytes()
    if resident is None or _handed_out is None:
        return resident
    found = _handed_out()
    return resident - int(found.uordblks) - int(found.hblkhd)


class _Mallinfo2(ctypes.Structure):
    """glibc's struct of this name: bytes in use in the heap (`uordblks`) and mapped (`hblkhd`), and others."""

    _fields_ = [
        ("arena", ctypes.c_size_t),
        ("ordblks", ctypes.c_size_t),
        ("smblks", ctypes.c_size_t),
        ("hblks", ctypes.c_size_t),
        ("hblkhd", ctypes.c_size_t),
        ("usmblks", ctypes.c_size_t),
        ("fsmblks", ctypes.c_size_t),
        ("uordblks", ctypes.c_size_t),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    ]


def _load_of_glibc(name: str, *argument_types: "type[ctypes._SimpleCData[Any]]") -> "ctypes._NamedFuncPointer | None":
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim") or not hasattr(library, name):
        return None  # Other libraries have functions of these names that do something else, or nothing.
    function = library[name]
    function.argtypes = argument_types
    return function


def _load_allocate() -> "ctypes._NamedFuncPointer | None":
    if sys.implementation.name != "cpython":
        return None
    function = ctypes.pythonapi.PyByteArray_FromStringAndSize
    function.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
    function.restype = ctypes.py_object
    return function


_allocate = _load_allocate()
_trim = _load_of_glibc("malloc_trim", ctypes.c_size_t)
_set_option = _load_of_glibc("mallopt", ctypes.c_int, ctypes.c_int)
_handed_out = _load_of_glibc("mallinfo2")
if _handed_out is not None:
    _handed_out.restype = _Mallinfo2
