"""Memory that is about to be filled: without the zeros that `bytearray(size)` writes into it first.

A broker receives and reads in pieces of a megabyte. Zeros beforehand were a tenth of its processor time while it
answered consumers, and made a length that somebody only claimed cost real memory: pages that nobody writes to stay the
kernel's.
"""

import ctypes
import sys
from typing import cast

__all__ = ["unfilled"]

LARGE_BYTES = 32 << 10  # below, a call through ctypes costs more than the zeros


def unfilled(size_bytes: int) -> bytearray:
    """Return so many bytes of anything: the caller fills them, or cuts off what it has not, before they go on."""
    if size_bytes < LARGE_BYTES or _allocate is None:
        return bytearray(size_bytes)
    return cast("bytearray", _allocate(None, size_bytes))


def _load() -> "ctypes._NamedFuncPointer | None":
    if sys.implementation.name != "cpython":
        return None
    function = ctypes.pythonapi.PyByteArray_FromStringAndSize
    function.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
    function.restype = ctypes.py_object
    return function


_allocate = _load()
