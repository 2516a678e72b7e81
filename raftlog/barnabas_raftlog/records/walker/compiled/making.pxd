# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Makes bytes of a part of a body, and writes into a growing bytearray.

Pointers are used here and nowhere else; so both ends are looked at here, whatever the caller has found before.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from .walk cimport Body


cdef struct Pen:
    uint8_t* page
    Py_ssize_t position
    Py_ssize_t end


cdef inline bytes cut(Body body, Py_ssize_t start, Py_ssize_t size):
    """Return `size` bytes of a body from `start` on."""
    if size < 0 or start < 0 or size > body.shape[0] - start:
        raise IndexError("a cut beyond its body")
    if not size:
        return b""
    return PyBytes_FromStringAndSize(<const char*>&body[start], size)


cdef inline int open_page(Pen* pen, bytearray buffer, Py_ssize_t size) except -1:
    """Let a buffer grow by `size`, which the pen may write until anything else touches the buffer."""
    cdef Py_ssize_t position = PyByteArray_GET_SIZE(buffer)
    if size < 0:
        raise IndexError("a page of a negative size")
    PyByteArray_Resize(buffer, position + size)
    pen.page = <uint8_t*>PyByteArray_AS_STRING(buffer)
    pen.position = position
    pen.end = position + size
    return 0


cdef inline int put_byte(Pen* pen, uint8_t byte) except -1:
    if pen.position >= pen.end:
        raise IndexError("a byte beyond its page")
    pen.page[pen.position] = byte
    pen.position += 1
    return 0


cdef inline int put_varint(Pen* pen, int64_t number) except -1:
    """Write a zigzag varint."""
    cdef uint64_t zigzag = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    while zigzag >= 0x80:
        put_byte(pen, <uint8_t>(zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    return put_byte(pen, <uint8_t>zigzag)


cdef inline int put_bytes(Pen* pen, const uint8_t* start, Py_ssize_t size) except -1:
    """Write `size` bytes that begin at `start`, for which the caller answers."""
    if size < 0 or size > pen.end - pen.position:
        raise IndexError("bytes beyond their page")
    if size:
        memcpy(pen.page + pen.position, start, size)
    pen.position += size
    return 0
