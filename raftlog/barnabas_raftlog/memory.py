"""Memory that is about to be filled, without the zeros that `bytearray(size)` writes into it first; and given back.

A broker receives and reads in pieces of a megabyte. Zeros beforehand were a tenth of its processor time while it
answered consumers, and made a length that somebody only claimed cost real memory: pages that nobody writes to stay the
kernel's.

What was freed the C library keeps for later, if anything lies behind it: after a load that had waited for a slow disk,
a broker of 45 MiB kept 255. `give_back` returns such pages.
"""

import ctypes
import resource
import sys
from pathlib import Path
from typing import cast

__all__ = ["give_back", "resident_bytes", "unfilled"]

LARGE_BYTES = 32 << 10  # below, a call through ctypes costs more than the zeros


def unfilled(size_bytes: int) -> bytearray:
    """Return so many bytes of anything: the caller fills them, or cuts off what it has not, before they go on."""
    if size_bytes < LARGE_BYTES or _allocate is None:
        return bytearray(size_bytes)
    return cast("bytearray", _allocate(None, size_bytes))


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


def _load_trim() -> "ctypes._NamedFuncPointer | None":
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if function is not None:
        function.argtypes = (ctypes.c_size_t,)
    return cast("ctypes._NamedFuncPointer | None", function)


def _load_allocate() -> "ctypes._NamedFuncPointer | None":
    if sys.implementation.name != "cpython":
        return None
    function = ctypes.pythonapi.PyByteArray_FromStringAndSize
    function.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
    function.restype = ctypes.py_object
    return function


_allocate = _load_allocate()
_trim = _load_trim()
