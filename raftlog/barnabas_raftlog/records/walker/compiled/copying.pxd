# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""The only place with pointers: copies of bytes between memoryviews, and memory that is not zeroed first."""

from cpython.bytearray cimport PyByteArray_FromStringAndSize
from libc.stdint cimport uint8_t
from libc.string cimport memcpy


cdef inline bytearray unwritten(Py_ssize_t size):
    """Return memory with anything in it. Whoever asks writes all of it, and checks that before handing it on."""
    return PyByteArray_FromStringAndSize(NULL, size)


cdef inline int copy_bytes(
    uint8_t[::1] target, Py_ssize_t position, const uint8_t[::1] source, Py_ssize_t start, Py_ssize_t size
) except -1 nogil:
    """Copy `size` bytes. Both ends are looked at here, whatever a walk has said before."""
    if size <= 0:
        return 0
    if position < 0 or start < 0 or size > target.shape[0] - position or size > source.shape[0] - start:
        raise IndexError("a copy beyond its buffers")
    memcpy(&target[position], &source[start], size)
    return 0
