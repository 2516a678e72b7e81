# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Collects the records of a batch as bytes, and hashes their keys, compiled."""

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int64_t

from .inline.memory cimport Pen, close_page, hashed, open_page, put_byte, put_content, put_varint, varint_size

__all__ = ["OpenRecords", "murmur2", "partition_of"]

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


cdef class OpenRecords:
    """The records of a batch that still takes some; as `pure.OpenRecords`."""

    cdef public bytearray buffer
    cdef public Py_ssize_t limit_bytes
    cdef public int64_t count
    cdef public int64_t base_timestamp_ms
    cdef public int64_t max_timestamp_ms
    cdef Py_ssize_t reserved

    def __init__(self, Py_ssize_t limit_bytes, Py_ssize_t head_bytes):
        self.buffer = bytearray(head_bytes)
        self.limit_bytes = limit_bytes
        self.count = self.reserved = 0
        self.base_timestamp_ms = self.max_timestamp_ms = -1

    def add(self, int64_t timestamp_ms, key, value, headers):
        cdef int64_t number = self.count
        cdef int64_t delta = timestamp_ms - self.base_timestamp_ms if number else 0
        if number and (timestamp_ms < self.base_timestamp_ms) != (delta < 0):
            raise OverflowError("timestamps too far from each other for one batch")
        if not _append(self, delta, number, key, value, headers):
            return -1
        if not number:
            self.base_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        self.count = number + 1
        return number

    def trim(self):
        if self.reserved - len(self.buffer) > len(self.buffer) >> 3:
            self.buffer = bytearray(self.buffer)
            self.reserved = 0


cdef bint _append(
    OpenRecords batch, int64_t timestamp_delta, int64_t offset_delta, key, value, headers
) except -1:
    """Append a record, if there is room for it."""
    cdef Pen pen
    cdef bytearray buffer = batch.buffer
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
    if whole > batch.limit_bytes - len(buffer):
        return False
    open_page(&pen, buffer, whole, &batch.reserved, batch.limit_bytes)
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


def murmur2(data):
    """Return a hash; as `pure.murmur2`."""
    return hashed(data)


def partition_of(key, int64_t partition_count):
    """Return the partition of a key; as `pure.partition_of`."""
    if partition_count < 1:
        raise ValueError("no partitions")
    return (hashed(key) & 0x7FFFFFFF) % partition_count
