# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Encodes Arrow's columns as the records of batches, compiled: with the GIL released, and without an object for a row.

Two passes over the rows: the first cuts them into batches, and finds how large each record is; the second writes the
records into a buffer of exactly that size. `barnabas_spark.writing.joining` does the same with numpy and Arrow.
"""

from array import array

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from .inline.memory cimport copy_bytes, unwritten

from ..arrow_parts import PAIR_OVERHEAD_BYTES, RECORDS_MAX, ROW_OVERHEAD_BYTES, TIMESTAMP_BYTES_MAX, Cut

__all__ = ["arrow_records"]


@cython.final
cdef class _Strings:
    """A column of byte strings. `is_there` is false for one of nulls."""

    cdef const int32_t[::1] offsets
    cdef const uint8_t[::1] data
    cdef const uint8_t[::1] validity
    cdef bint is_there, has_nulls
    cdef int64_t first_bit

    def __cinit__(self, column):
        self.is_there = column is not None
        self.has_nulls = False
        if self.is_there:
            self.offsets = column.offsets
            self.data = column.data
            self.has_nulls = column.validity is not None
            if self.has_nulls:
                self.validity = column.validity
            self.first_bit = column.first_bit


cdef inline int64_t _size(_Strings strings, Py_ssize_t row) except -2 nogil:
    """Return the size of a string, -1 for null."""
    cdef Py_ssize_t bit
    if not strings.is_there:
        return -1
    if strings.has_nulls:
        bit = strings.first_bit + row
        if not strings.validity[bit >> 3] >> (bit & 7) & 1:
            return -1
    cdef int64_t size = <int64_t>strings.offsets[row + 1] - strings.offsets[row]
    if size < 0:
        raise IndexError("a string that ends before it begins")
    return size


cdef inline uint64_t _zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int _varint_size(int64_t value) noexcept nogil:
    cdef uint64_t left = _zigzag(value) >> 7
    cdef int size = 1
    while left:
        left >>= 7
        size += 1
    return size


@cython.final
cdef class _Records:
    """The rows, the cuts between batches, and the records as they are written."""

    cdef Py_ssize_t rows
    cdef _Strings keys, values, names, header_values
    cdef bint has_order, has_timestamps, has_headers
    cdef const int64_t[::1] order
    cdef const int64_t[::1] timestamps
    cdef const int64_t[::1] header_offsets
    cdef object bodies_buffer, starts_buffer
    cdef int32_t[::1] bodies  # of each record: its size without that of the varint before it
    cdef int32_t[::1] starts  # of each batch: its first row
    cdef Py_ssize_t batches
    cdef int64_t total_bytes
    cdef uint8_t[::1] data
    cdef Py_ssize_t position

    def __cinit__(self, rows):
        self.rows = rows.rows
        if self.rows > INT32_MAX:
            raise OverflowError(f"{self.rows} rows at once")
        self.keys = _Strings(rows.keys)
        self.values = _Strings(rows.values)
        self.names = _Strings(rows.header_names)
        self.header_values = _Strings(rows.header_values)
        self.has_order = rows.order is not None
        if self.has_order:
            self.order = rows.order
        self.has_timestamps = rows.timestamps is not None
        if self.has_timestamps:
            self.timestamps = rows.timestamps
        self.has_headers = rows.header_offsets is not None
        if self.has_headers:
            self.header_offsets = rows.header_offsets
        self.bodies_buffer = unwritten(4 * self.rows)
        self.bodies = memoryview(self.bodies_buffer).cast("i")
        self.starts_buffer = unwritten(4 * self.rows)
        self.starts = memoryview(self.starts_buffer).cast("i")
        self.batches = self.position = 0
        self.total_bytes = 0


cdef inline Py_ssize_t _at(_Records to, Py_ssize_t row) except -1 nogil:
    """Return where a row is in the columns."""
    if not to.has_order:
        return row
    cdef int64_t at = to.order[row]
    if at < 0 or at >= to.rows:
        raise IndexError("an order of other rows")
    return at


cdef inline int64_t _timestamp_delta(_Records to, Py_ssize_t row, Py_ssize_t start) except? -1 nogil:
    return to.timestamps[_at(to, row)] - to.timestamps[_at(to, start)] if to.has_timestamps else 0


cdef struct Sizes:
    int64_t record  # an estimate that does not depend on the place of the record in its batch, for the cuts
    int64_t body  # exact, without what does depend on that


cdef inline int _measure_row(_Records to, Py_ssize_t row, int64_t overhead, int64_t pair, Sizes* sizes) except -1 nogil:
    cdef int64_t size, number
    sizes.record = overhead
    sizes.body = 1
    size = _size(to.keys, row)
    sizes.body += _varint_size(size) + max(size, 0)
    sizes.record += max(size, 0)
    size = _size(to.values, row)
    sizes.body += _varint_size(size) + max(size, 0)
    sizes.record += max(size, 0)
    if not to.has_headers:
        sizes.body += 1
        return 0
    sizes.body += _varint_size(to.header_offsets[row + 1] - to.header_offsets[row])
    for number in range(to.header_offsets[row], to.header_offsets[row + 1]):
        size = _size(to.names, number)
        sizes.body += _varint_size(size) + max(size, 0)
        sizes.record += max(size, 0) + pair
        size = _size(to.header_values, number)
        sizes.body += _varint_size(size) + max(size, 0)
        sizes.record += max(size, 0)
    return 0


cdef int _measure(
    _Records to, const int64_t[::1] run_ends, int64_t room, int64_t header_bytes, int64_t overhead, int64_t pair,
    int64_t records_max,
) except -1 nogil:
    """Cut the rows into batches, and find the sizes of all records."""
    cdef Py_ssize_t row, run = 0, start = 0
    cdef int64_t used = 0, body
    cdef Sizes sizes
    for row in range(to.rows):
        _measure_row(to, _at(to, row), overhead, pair, &sizes)
        if row == 0 or row >= run_ends[run] or used + sizes.record > room or row - start >= records_max:
            while row >= run_ends[run]:
                run += 1
            to.starts[to.batches] = <int32_t>row
            to.batches += 1
            to.total_bytes += header_bytes
            start = row
            used = 0
        used += sizes.record
        body = sizes.body + _varint_size(row - start)
        body += _varint_size(_timestamp_delta(to, row, start))
        if body > INT32_MAX:
            raise OverflowError("a record of 2 GiB or more")
        to.bodies[row] = <int32_t>body
        to.total_bytes += _varint_size(body) + body
    return 0


cdef inline int _put_varint(_Records to, int64_t value) except -1 nogil:
    cdef uint64_t left = _zigzag(value)
    while left >= 0x80:
        to.data[to.position] = <uint8_t>(left & 0x7F | 0x80)
        to.position += 1
        left >>= 7
    to.data[to.position] = <uint8_t>left
    to.position += 1
    return 0


cdef inline int _put_string(_Records to, _Strings strings, Py_ssize_t row) except -1 nogil:
    cdef int64_t size = _size(strings, row)
    _put_varint(to, size)
    if size > 0:
        copy_bytes(to.data, to.position, strings.data, strings.offsets[row], size)
        to.position += size
    return 0


cdef int _put_row(_Records to, Py_ssize_t row, Py_ssize_t start) except -1 nogil:
    cdef int64_t number
    cdef Py_ssize_t at = _at(to, row)
    _put_varint(to, to.bodies[row])
    to.data[to.position] = 0  # the record's own attributes
    to.position += 1
    _put_varint(to, _timestamp_delta(to, row, start))
    _put_varint(to, row - start)
    _put_string(to, to.keys, at)
    _put_string(to, to.values, at)
    if not to.has_headers:
        to.data[to.position] = 0
        to.position += 1
        return 0
    _put_varint(to, to.header_offsets[at + 1] - to.header_offsets[at])
    for number in range(to.header_offsets[at], to.header_offsets[at + 1]):
        _put_string(to, to.names, number)
        _put_string(to, to.header_values, number)
    return 0


cdef int _fill(_Records to, Py_ssize_t start, Py_ssize_t end, int64_t header_bytes) except -1 nogil:
    """Write one batch, with zeros where its header will be."""
    cdef Py_ssize_t row
    cdef int64_t number
    for number in range(header_bytes):
        to.data[to.position] = 0
        to.position += 1
    for row in range(start, end):
        _put_row(to, row, start)
    return 0


def arrow_records(rows, run_ends, int64_t room_bytes, int64_t header_bytes):
    """Return a buffer with the batches one behind the other, and where each is.

    Args:
        rows: What is to be encoded.
        run_ends: Run i ends before row run_ends[i]; the last one with the last row. No batch has rows of two runs.
        room_bytes: A batch has records of about so many bytes at most, or one that is larger.
        header_bytes: So much is left free at the beginning of each batch.
    """
    cdef _Records to = _Records(rows)
    cdef const int64_t[::1] ends = array("q", run_ends)
    cdef int64_t overhead = ROW_OVERHEAD_BYTES + (TIMESTAMP_BYTES_MAX if to.has_timestamps else 0)
    cdef int64_t pair = PAIR_OVERHEAD_BYTES, records_max = RECORDS_MAX
    cdef Py_ssize_t number, start, end, first_byte, run = 0
    if not ends.shape[0] or ends[ends.shape[0] - 1] != to.rows:
        raise ValueError(f"runs that do not end with the last of {to.rows} rows")
    with nogil:
        _measure(to, ends, room_bytes, header_bytes, overhead, pair, records_max)
    buffer = unwritten(to.total_bytes)
    to.data = buffer
    cuts = []
    for number in range(to.batches):
        start = to.starts[number]
        end = to.starts[number + 1] if number + 1 < to.batches else to.rows
        first_byte = to.position
        with nogil:
            _fill(to, start, end, header_bytes)
        while start >= ends[run]:
            run += 1
        cuts.append(Cut(run, start, end, first_byte, to.position))
    if to.position != to.total_bytes:
        raise RuntimeError(f"{to.position} bytes were written, and {to.total_bytes} measured")
    to.data = None
    return buffer, cuts
