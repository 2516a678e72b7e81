# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""The walk over one record, which every compiled function here does: inline, with the GIL released.

Each access to a body is checked twice: by the walk, which knows where records end and says what is wrong, and by
Cython's own check of bounds, which would make a mistake of the walk an IndexError.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t

ctypedef const uint8_t[::1] Body

# The numbers of `faults.Fault`.
cdef enum:
    NONE = 0
    VARINT = 1
    LENGTH = 2
    OFFSET = 3
    TIMESTAMP = 4
    KEY = 5
    VALUE = 6
    HEADER_COUNT = 7
    HEADER_NAME = 8
    HEADER_VALUE = 9
    LONGER = 10
    BEHIND = 11

# As in `faults`; a test finds out if it is another one.
cdef enum:
    HEADERS_MAX = 65_536


cdef struct Cursor:
    Py_ssize_t position
    Py_ssize_t end  # of the record
    int64_t value  # of the varint that was read last


cdef struct Seen:
    Py_ssize_t key_start
    int32_t key_size
    Py_ssize_t value_start
    int32_t value_size
    Py_ssize_t headers_start  # behind their number
    int32_t headers
    int64_t offset_delta
    int64_t timestamp


cdef inline int read_varint(Body body, Cursor* at, int bits) except -1 nogil:
    """Read a zigzag varint into `at.value`; return VARINT if it is cut off, or of more bits."""
    cdef uint64_t value = 0
    cdef uint8_t byte
    cdef int shift = 0
    while at.position < at.end and shift < bits:
        byte = body[at.position]
        at.position += 1
        if shift + 7 > bits and (byte & 0x7F) >> (bits - shift):
            return VARINT
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            at.value = <int64_t>(value >> 1) ^ -<int64_t>(value & 1)
            return NONE
        shift += 7
    return VARINT


cdef inline int skip_bytes(Body body, Cursor* at, int size_min, int fault) except -1 nogil:
    """Pass over a byte string, whose size is in `at.value` then."""
    if read_varint(body, at, 32):
        return VARINT
    if at.value < size_min or at.value > at.end - at.position:
        return fault
    if at.value > 0:
        at.position += at.value
    return NONE


cdef inline bint pass_short_header(Body body, Cursor* at) except -1 nogil:
    """Pass over a header if its two sizes are a byte each, and it ends before `at.end`; else stay, and return False."""
    cdef Py_ssize_t position = at.position
    cdef uint8_t size
    if at.end - position < 2:
        return False
    size = body[position]
    if size == 0 and body[position + 1] <= 1:  # an empty name and value, or none: foreseen, it takes a quarter of the time
        at.position = position + 2
        return True
    if size & 0x81:  # longer than a byte, or negative
        return False
    position += 1 + (size >> 1)
    if position >= at.end:
        return False
    size = body[position]
    if size & 0x81 and size != 1:  # 1 is null
        return False
    position += 1 + (size >> 1)
    if position > at.end:
        return False
    at.position = position
    return True


cdef inline int walk_record(Body body, Cursor* at, int64_t base_timestamp, Seen* seen) except -1 nogil:
    """Walk over one record; return what is wrong with it."""
    cdef Py_ssize_t start = at.position
    cdef int fault
    cdef int32_t number
    at.end = body.shape[0]
    if read_varint(body, at, 32):
        at.position = start
        return VARINT
    if at.value < 0 or at.value > at.end - at.position:
        return LENGTH
    at.end = at.position + at.value
    if at.position >= at.end:
        return VARINT
    at.position += 1  # the record's own attributes, which mean nothing yet
    if read_varint(body, at, 64):
        return VARINT
    if (at.value > 0 and base_timestamp > INT64_MAX - at.value) or (
        at.value < 0 and base_timestamp < INT64_MIN - at.value
    ):
        return TIMESTAMP
    seen.timestamp = base_timestamp + at.value
    if read_varint(body, at, 32):
        return VARINT
    seen.offset_delta = at.value
    fault = skip_bytes(body, at, -1, KEY)
    if fault:
        return fault
    seen.key_size = <int32_t>at.value
    seen.key_start = at.position - (at.value if at.value > 0 else 0)
    fault = skip_bytes(body, at, -1, VALUE)
    if fault:
        return fault
    seen.value_size = <int32_t>at.value
    seen.value_start = at.position - (at.value if at.value > 0 else 0)
    if read_varint(body, at, 32):
        return VARINT
    # A header is at least two sizes.
    if at.value < 0 or at.value > HEADERS_MAX or at.value > (at.end - at.position) // 2:
        return HEADER_COUNT
    seen.headers = <int32_t>at.value
    seen.headers_start = at.position
    for number in range(seen.headers):
        if pass_short_header(body, at):
            continue
        fault = skip_bytes(body, at, 0, HEADER_NAME)
        if fault:
            return fault
        fault = skip_bytes(body, at, -1, HEADER_VALUE)
        if fault:
            return fault
    return NONE if at.position == at.end else LONGER
