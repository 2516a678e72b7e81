# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Decodes batches into Arrow's buffers, compiled: with the GIL released, and without an object for a record.

Two walks over the records: the first finds what is wrong with them, and how large the columns are; the second fills
buffers of exactly that size. `records/arrow_numpy.py` has the same function in numpy.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memset

from .inline.memory cimport copy_bytes, unwritten
from .inline.walk cimport BEHIND, HEADER_NAME, HEADER_VALUE, NONE, OFFSET, Body, Cursor, Seen, skip_bytes, walk_record

from ..arrow_parts import ArrowParts, HeaderParts, StringParts
from ..faults import Fault, Walked, raise_fault

__all__ = ["arrow_columns"]

cdef int64_t TIMESTAMP_MS_MAX = INT64_MAX // 1000


cdef struct Totals:
    int64_t rows
    int64_t key_bytes
    int64_t null_keys
    int64_t value_bytes
    int64_t null_values
    int64_t headers
    int64_t name_bytes
    int64_t header_bytes
    int64_t null_headers


cdef struct Bounds:
    # What the header says, and which offsets are wanted.
    int64_t count
    int64_t base_offset
    int64_t last_offset_delta
    int64_t base_timestamp
    int64_t start_offset
    int64_t end_offset


cdef inline int64_t _microseconds(int64_t timestamp) noexcept nogil:
    return min(max(timestamp, -TIMESTAMP_MS_MAX), TIMESTAMP_MS_MAX) * 1000


cdef int _add_headers(Body body, Seen* seen, Cursor* at, Totals* totals) except -1 nogil:
    """Add the sizes of the headers of a record that is sound."""
    cdef Cursor inside
    cdef int32_t number
    inside.position = seen.headers_start
    inside.end = at.end
    inside.value = 0
    for number in range(seen.headers):
        skip_bytes(body, &inside, 0, HEADER_NAME)
        totals.name_bytes += inside.value
        skip_bytes(body, &inside, -1, HEADER_VALUE)
        if inside.value < 0:
            totals.null_headers += 1
        else:
            totals.header_bytes += inside.value
    totals.headers += seen.headers
    return 0


cdef int _measure(Body body, Bounds* bounds, Totals* totals, Cursor* at, int64_t* number) except -1 nogil:
    """Walk over a body, and add up how large the columns of the wanted records are; return the first fault."""
    cdef Seen seen
    cdef int fault
    cdef int64_t next_delta = 0, offset
    number[0] = 0
    at.position = at.end = 0
    at.value = 0
    while number[0] < bounds.count:
        fault = walk_record(body, at, bounds.base_timestamp, &seen)
        if fault:
            return fault
        if seen.offset_delta < next_delta or seen.offset_delta > bounds.last_offset_delta:
            return OFFSET
        next_delta = seen.offset_delta + 1
        number[0] += 1
        offset = bounds.base_offset + seen.offset_delta
        if offset < bounds.start_offset or offset >= bounds.end_offset:
            continue
        totals.rows += 1
        if seen.key_size < 0:
            totals.null_keys += 1
        else:
            totals.key_bytes += seen.key_size
        if seen.value_size < 0:
            totals.null_values += 1
        else:
            totals.value_bytes += seen.value_size
        if seen.headers:
            _add_headers(body, &seen, at, totals)
    return NONE if at.position == body.shape[0] else BEHIND


@cython.final
cdef class _Strings:
    """One column of byte strings, as it is filled. Views are of buffers that the caller gets."""

    cdef object offsets_buffer, data_buffer, validity_buffer
    cdef int32_t[::1] offsets
    cdef uint8_t[::1] data
    cdef uint8_t[::1] validity
    cdef bint has_nulls
    cdef int64_t null_count
    cdef Py_ssize_t count  # so far
    cdef Py_ssize_t position

    def __cinit__(self, int64_t count, int64_t size, int64_t null_count):
        if size > INT32_MAX or count >= INT32_MAX:
            raise OverflowError(f"{count} strings of {size} bytes in one column; Arrow's offsets have 31 bits")
        self.offsets_buffer = unwritten(4 * (count + 1))
        self.offsets = memoryview(self.offsets_buffer).cast("i")
        self.offsets[0] = 0
        self.data_buffer = unwritten(size)
        self.data = self.data_buffer
        self.has_nulls = null_count > 0
        self.null_count = null_count
        self.validity_buffer = bytearray((count + 7) // 8) if null_count else None
        if self.has_nulls:
            self.validity = self.validity_buffer
        self.count = self.position = 0

    cdef object parts(self):
        if self.count + 1 != self.offsets.shape[0] or self.position != self.data.shape[0]:
            raise RuntimeError(f"{self.count} strings of {self.position} bytes were filled in, and others measured")
        return StringParts(self.offsets_buffer, self.data_buffer, self.validity_buffer, self.null_count)


cdef inline int _add(_Strings to, Body body, Py_ssize_t start, int64_t size) except -1 nogil:
    """Add a string, or null if `size` is negative."""
    if size >= 0:
        if to.has_nulls:
            to.validity[to.count >> 3] |= <uint8_t>(1 << (to.count & 7))
        copy_bytes(to.data, to.position, body, start, size)
        to.position += size
    to.count += 1
    to.offsets[to.count] = <int32_t>to.position
    return 0


@cython.final
cdef class _Filling:
    """The columns, as they are filled; None: not wanted."""

    cdef int64_t rows
    cdef Py_ssize_t row  # the next one
    cdef Py_ssize_t header
    cdef object offsets_buffer, timestamps_buffer, types_buffer, header_offsets_buffer
    cdef int64_t[::1] offsets
    cdef int64_t[::1] timestamps
    cdef int32_t[::1] types
    cdef int32_t[::1] header_offsets
    cdef _Strings keys, values, names, header_values
    cdef bint with_offsets, with_timestamps, with_types, with_keys, with_values, with_headers

    def __cinit__(self, wanted, int64_t rows):
        self.rows = rows
        self.row = self.header = 0
        self.with_offsets = wanted.offsets
        self.with_timestamps = wanted.timestamps
        self.with_types = wanted.timestamp_types
        self.with_keys = wanted.keys
        self.with_values = wanted.values
        self.with_headers = wanted.headers
        if self.with_offsets:
            self.offsets_buffer = unwritten(8 * rows)
            self.offsets = memoryview(self.offsets_buffer).cast("q")
        if self.with_timestamps:
            self.timestamps_buffer = unwritten(8 * rows)
            self.timestamps = memoryview(self.timestamps_buffer).cast("q")
        if self.with_types:
            self.types_buffer = unwritten(4 * rows)
            self.types = memoryview(self.types_buffer).cast("i")

    cdef int make_strings(self, Totals totals) except -1:
        if self.with_keys:
            self.keys = _Strings(self.rows, totals.key_bytes, totals.null_keys)
        if self.with_values:
            self.values = _Strings(self.rows, totals.value_bytes, totals.null_values)
        if self.with_headers:
            self.names = _Strings(totals.headers, totals.name_bytes, 0)
            self.header_values = _Strings(totals.headers, totals.header_bytes, totals.null_headers)
            self.header_offsets_buffer = unwritten(4 * (self.rows + 1))
            self.header_offsets = memoryview(self.header_offsets_buffer).cast("i")
            self.header_offsets[0] = 0
        return 0

    cdef object parts(self):
        if self.row != self.rows:
            raise RuntimeError(f"{self.row} records were filled in, and {self.rows} measured")
        headers = None
        if self.with_headers:
            headers = HeaderParts(self.header_offsets_buffer, self.names.parts(), self.header_values.parts())
        return ArrowParts(
            self.rows,
            self.offsets_buffer,
            self.timestamps_buffer,
            self.types_buffer,
            self.keys.parts() if self.with_keys else None,
            self.values.parts() if self.with_values else None,
            headers,
        )


cdef int _fill_headers(_Filling to, Body body, Seen* seen, Cursor* at) except -1 nogil:
    cdef Cursor inside
    cdef int32_t number
    inside.position = seen.headers_start
    inside.end = at.end
    inside.value = 0
    for number in range(seen.headers):
        skip_bytes(body, &inside, 0, HEADER_NAME)
        _add(to.names, body, inside.position - inside.value, inside.value)
        skip_bytes(body, &inside, -1, HEADER_VALUE)
        _add(to.header_values, body, inside.position - max(inside.value, 0), inside.value)
    to.header += seen.headers
    to.header_offsets[to.row] = <int32_t>to.header
    return 0


cdef int _fill(
    _Filling to, Body body, Bounds* bounds, bint is_appended, int64_t append_timestamp
) except -1 nogil:
    """Add the records of a part that was measured."""
    cdef Cursor at
    cdef Seen seen
    cdef int64_t offset, number
    at.position = at.end = 0
    at.value = 0
    for number in range(bounds.count):
        if walk_record(body, &at, bounds.base_timestamp, &seen):
            break  # It was measured: there is no such record.
        offset = bounds.base_offset + seen.offset_delta
        if offset < bounds.start_offset or offset >= bounds.end_offset:
            continue
        if to.with_offsets:
            to.offsets[to.row] = offset
        if to.with_timestamps:
            to.timestamps[to.row] = _microseconds(append_timestamp if is_appended else seen.timestamp)
        if to.with_types:
            to.types[to.row] = is_appended
        if to.with_keys:
            _add(to.keys, body, seen.key_start, seen.key_size)
        if to.with_values:
            _add(to.values, body, seen.value_start, seen.value_size)
        to.row += 1
        if to.with_headers:
            _fill_headers(to, body, &seen, &at)
    return 0


cdef Bounds _bounds(part, int64_t start_offset, int64_t end_offset):
    cdef Bounds bounds
    bounds.count = part.record_count
    bounds.base_offset = part.base_offset
    bounds.last_offset_delta = part.last_offset_delta
    bounds.base_timestamp = part.base_timestamp
    bounds.start_offset = start_offset
    bounds.end_offset = end_offset
    return bounds


cdef Totals _measured(parts, int64_t start_offset, int64_t end_offset):
    """Return how large the columns are; raises CorruptBatchError for the first part with a fault."""
    cdef Totals totals
    cdef Bounds bounds
    cdef Cursor at
    cdef Body body
    cdef int64_t number = 0
    cdef int fault
    memset(&totals, 0, sizeof(totals))
    for part in parts:
        body = part.body
        bounds = _bounds(part, start_offset, end_offset)
        with nogil:
            fault = _measure(body, &bounds, &totals, &at, &number)
        if fault:
            raise_fault(Walked(Fault(fault), number, at.position, -1, -1, 0), bounds.base_offset)
    return totals


def arrow_columns(parts, int64_t start_offset, int64_t end_offset, wanted):
    """Return the records of `parts` with offsets in [start_offset, end_offset) as columns; as that of numpy."""
    cdef Totals totals = _measured(parts, start_offset, end_offset)
    cdef _Filling to
    cdef Bounds bounds
    cdef Body body
    cdef bint is_appended
    cdef int64_t append_timestamp
    if not (wanted.offsets or wanted.timestamps or wanted.timestamp_types or wanted.keys or wanted.values or wanted.headers):
        return ArrowParts(totals.rows, None, None, None, None, None, None)
    to = _Filling(wanted, totals.rows)
    to.make_strings(totals)
    for part in parts:
        body = part.body
        bounds = _bounds(part, start_offset, end_offset)
        is_appended = part.append_timestamp is not None
        append_timestamp = part.append_timestamp if is_appended else 0
        with nogil:
            _fill(to, body, &bounds, is_appended, append_timestamp)
    return to.parts()
