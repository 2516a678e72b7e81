# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""The walk from one record of a batch to the next, offsets in order."""

from libc.stdint cimport int64_t

from .walk cimport NONE, OFFSET, Body, Cursor, Seen, walk_record


cdef struct Steps:
    Cursor at
    Seen seen  # of the record that was walked over last
    int64_t base_timestamp
    int64_t next_delta  # the least that the next record may have
    int64_t last_delta


cdef inline void begin(Steps* steps, int64_t base_timestamp, int64_t last_delta) noexcept nogil:
    """Stand before the first record."""
    steps.at.position = steps.at.end = 0
    steps.at.value = 0
    steps.base_timestamp = base_timestamp
    steps.next_delta = 0
    steps.last_delta = last_delta


cdef inline int next_step(Body body, Steps* steps) except -1 nogil:
    """Walk over the next record; return what is wrong with it."""
    cdef int fault = walk_record(body, &steps.at, steps.base_timestamp, &steps.seen)
    if fault:
        return fault
    if steps.seen.offset_delta < steps.next_delta or steps.seen.offset_delta > steps.last_delta:
        return OFFSET
    steps.next_delta = steps.seen.offset_delta + 1
    return NONE
