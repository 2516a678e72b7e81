# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""The only place with pointers: copies, bytes made of a part of a body, a growing bytearray that is written, and hashes.

Both ends are looked at here, whatever the caller has found before.
"""

from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_GET_SIZE,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from .walk cimport Body


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


cdef struct Pen:
    uint8_t* page
    Py_ssize_t start
    Py_ssize_t position
    Py_ssize_t end


cdef inline bytes cut(Body body, Py_ssize_t start, Py_ssize_t size):
    """Return `size` bytes of a body from `start` on."""
    if size < 0 or start < 0 or size > body.shape[0] - start:
        raise IndexError("a cut beyond its body")
    if not size:
        return b""
    return PyBytes_FromStringAndSize(<const char*>&body[start], size)


cdef inline int open_page(Pen* pen, bytearray buffer, Py_ssize_t size, Py_ssize_t* reserved, Py_ssize_t limit) except -1:
    """Let a buffer grow by `size`, which the pen may write until anything else touches the buffer.

    By itself it would grow in steps of an eighth, and be copied each time. So memory is taken for twice its size, but not
    beyond `limit`; `reserved` is for how much there is.
    """
    cdef Py_ssize_t position = PyByteArray_GET_SIZE(buffer)
    if size < 0:
        raise IndexError("a page of a negative size")
    if position + size > reserved[0]:
        reserved[0] = min(2 * (position + size), max(limit, position + size))
        PyByteArray_Resize(buffer, reserved[0])
        # A bytearray keeps its memory as long as half of it is in use.
    PyByteArray_Resize(buffer, position + size)
    pen.page = <uint8_t*>PyByteArray_AS_STRING(buffer)
    pen.start = pen.position = position
    pen.end = position + size
    return 0


cdef inline int close_page(Pen* pen, bytearray buffer, bint is_whole) except -1:
    """Take back what was not written. A page that is not whole is taken back altogether."""
    if is_whole and pen.position == pen.end:
        return 0
    PyByteArray_Resize(buffer, pen.start)
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


cdef inline int varint_size(int64_t number) noexcept nogil:
    """Return how many bytes `put_varint` writes."""
    cdef uint64_t zigzag = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    cdef int size = 1
    while zigzag >= 0x80:
        size += 1
        zigzag >>= 7
    return size


cdef inline int put_content(Pen* pen, content, Py_ssize_t size) except -1:
    """Write bytes, or a buffer of bytes, which must be `size` of them."""
    cdef Body view
    if size < 0 or size > pen.end - pen.position:
        raise IndexError("bytes beyond their page")
    if PyBytes_CheckExact(content):
        if PyBytes_GET_SIZE(content) != size:
            raise IndexError("bytes of another size")
        memcpy(pen.page + pen.position, PyBytes_AS_STRING(content), size)
    else:
        view = content
        if view.shape[0] != size:
            raise IndexError("bytes of another size")
        if size:
            memcpy(pen.page + pen.position, &view[0], size)
    pen.position += size
    return 0


cdef inline uint32_t hashed(content) except? 0:
    """Return the hash murmur2 of bytes, or of a buffer of bytes, with the seed of Kafka's Java clients."""
    cdef Body view
    if PyBytes_CheckExact(content):
        return hashed_at(<const uint8_t*>PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))
    view = content
    return hashed_at(&view[0] if view.shape[0] else NULL, view.shape[0])


cdef inline uint32_t hashed_at(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995, mixed
    cdef uint32_t hash = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef Py_ssize_t at
    for at in range(0, size - 3, 4):
        mixed = data[at] | (<uint32_t>data[at + 1] << 8) | (<uint32_t>data[at + 2] << 16) | (<uint32_t>data[at + 3] << 24)
        mixed *= m
        hash = (hash * m) ^ ((mixed ^ (mixed >> 24)) * m)
    if size & 3:
        mixed = 0
        for at in range(size & ~<Py_ssize_t>3, size):
            mixed |= <uint32_t>data[at] << (8 * (at & 3))
        hash = (hash ^ mixed) * m
    hash = (hash ^ (hash >> 13)) * m
    return hash ^ (hash >> 15)
