# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Appends records to a batch, and hashes their keys, compiled."""

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t

from .making cimport Pen, close_page, open_page, put_byte, put_content, put_varint, varint_size
from .walk cimport Body

__all__ = ["append_record", "murmur2"]

cdef Py_ssize_t _NULL = -1


cdef inline Py_ssize_t _size(content) except -2:
    if content is None:
        return _NULL
    if PyBytes_CheckExact(content):
        return PyBytes_GET_SIZE(content)
    return len(content)


cdef inline Py_ssize_t _framed(Py_ssize_t size):
    """Return the size of a byte string of this size with what says so."""
    return varint_size(size) + (size if size > 0 else 0)


cdef inline int _put(Pen* pen, content, Py_ssize_t size) except -1:
    put_varint(pen, size)
    if size > 0:
        put_content(pen, content, size)
    return 0


def append_record(
    bytearray buffer,
    Py_ssize_t limit_bytes,
    int64_t timestamp_delta,
    int64_t offset_delta,
    key,
    value,
    headers,
):
    """Append a record if the buffer has room for it; as `pure.append_record`."""
    cdef Pen pen
    cdef Py_ssize_t key_size = _size(key), value_size = _size(value)
    cdef Py_ssize_t size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
    cdef Py_ssize_t whole
    cdef list encoded = None
    size += _framed(key_size) + _framed(value_size)
    if headers:
        encoded = [(name.encode(), content) for name, content in headers]
        size += varint_size(len(encoded))
        for name, content in encoded:
            size += _framed(_size(name)) + _framed(_size(content))
    else:
        size += 1
    whole = varint_size(size) + size
    if whole > limit_bytes - len(buffer):
        return False
    open_page(&pen, buffer, whole)
    cdef bint is_whole = False
    try:
        put_varint(&pen, size)
        put_byte(&pen, 0)
        put_varint(&pen, timestamp_delta)
        put_varint(&pen, offset_delta)
        _put(&pen, key, key_size)
        _put(&pen, value, value_size)
        if encoded is None:
            put_byte(&pen, 0)
        else:
            put_varint(&pen, len(encoded))
            for name, content in encoded:
                _put(&pen, name, _size(name))
                _put(&pen, content, _size(content))
        is_whole = True
    finally:
        close_page(&pen, buffer, is_whole)
    return True


def murmur2(Body data):
    """Return a hash; as `pure.murmur2`."""
    cdef uint32_t m = 0x5BD1E995
    cdef Py_ssize_t size = data.shape[0], at = 0
    cdef uint32_t hashed = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t mixed
    while size - at >= 4:
        mixed = data[at] | (<uint32_t>data[at + 1] << 8) | (<uint32_t>data[at + 2] << 16) | (<uint32_t>data[at + 3] << 24)
        mixed *= m
        hashed = (hashed * m) ^ ((mixed ^ (mixed >> 24)) * m)
        at += 4
    if at < size:
        mixed = data[at]
        if size - at > 1:
            mixed |= <uint32_t>data[at + 1] << 8
        if size - at > 2:
            mixed |= <uint32_t>data[at + 2] << 16
        hashed = (hashed ^ mixed) * m
    hashed = (hashed ^ (hashed >> 13)) * m
    return hashed ^ (hashed >> 15)
