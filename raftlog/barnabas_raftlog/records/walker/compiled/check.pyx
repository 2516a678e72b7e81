# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Checks the records of a batch, compiled: with the GIL released, and without an object for a record."""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t

from .inline.walk cimport BEHIND, NONE, OFFSET, Body, Cursor, Seen, walk_record

from ..faults import Fault, Walked

__all__ = ["check"]

# Of a call that takes a microsecond, looking a fault up by its number takes a third, and `Walked()` another.
cdef tuple FAULTS = tuple(Fault)


def check(
    Body body, int64_t count, int64_t base_timestamp, int64_t last_offset_delta, *, bint is_dense
) -> Walked:
    """Walk over the `count` records of a plain body; as `pure.check`."""
    cdef Cursor at
    cdef Seen seen
    cdef int64_t number = 0, next_delta = 0, null_keys = 0
    cdef int64_t min_timestamp = INT64_MAX, max_timestamp = INT64_MIN
    cdef int fault = NONE
    at.position = at.end = 0
    at.value = 0
    with nogil:
        while number < count:
            fault = walk_record(body, &at, base_timestamp, &seen)
            if fault:
                break
            if seen.offset_delta < next_delta or seen.offset_delta > last_offset_delta or (
                is_dense and seen.offset_delta != next_delta
            ):
                fault = OFFSET
                break
            next_delta = seen.offset_delta + 1
            min_timestamp = min(min_timestamp, seen.timestamp)
            max_timestamp = max(max_timestamp, seen.timestamp)
            null_keys += seen.key_size < 0
            number += 1
        if not fault and at.position != body.shape[0]:
            fault = BEHIND
    if not number:
        return tuple.__new__(Walked, (FAULTS[fault], 0, at.position, -1, -1, 0))
    return tuple.__new__(Walked, (FAULTS[fault], number, at.position, min_timestamp, max_timestamp, null_keys))
