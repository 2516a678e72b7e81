# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Finds records by their timestamps, compiled: with the GIL released, and without an object for a record."""

from libc.stdint cimport INT64_MIN, int64_t

from .steps cimport Steps, begin, next_step
from .walk cimport BEHIND, NONE, Body

from ..faults import Fault
from ..key_parts import Timed

__all__ = ["first_at", "largest_timestamp"]


def first_at(part, int64_t timestamp_ms, int64_t start_offset) -> Timed:
    """Return the first record at or after `timestamp_ms`, from an offset on; as `pure.first_at`."""
    return found(part, timestamp_ms, start_offset, False)


def largest_timestamp(part, int64_t start_offset) -> Timed:
    """Return the first record with the largest timestamp, from an offset on; as `pure.largest_timestamp`."""
    return found(part, INT64_MIN, start_offset, True)


cdef object found(part, int64_t wanted, int64_t start_offset, bint is_largest):
    """Return the first record that is at `wanted` or later; of all of them, if `is_largest`, the one that is latest."""
    cdef Body body = part.body
    cdef Steps steps
    cdef int64_t records = part.record_count, base_offset = part.base_offset
    cdef bint is_appended = part.append_timestamp is not None
    cdef int64_t append_timestamp = part.append_timestamp if is_appended else 0
    cdef int64_t number, timestamp, offset = -1, latest = -1
    cdef int fault = NONE
    begin(&steps, part.base_timestamp, part.last_offset_delta)
    with nogil:
        for number in range(records):
            fault = next_step(body, &steps)
            if fault:
                break
            timestamp = append_timestamp if is_appended else steps.seen.timestamp
            if timestamp < wanted or base_offset + steps.seen.offset_delta < start_offset:
                continue
            if offset >= 0 and timestamp <= latest:
                continue
            offset = base_offset + steps.seen.offset_delta
            latest = timestamp
            if not is_largest:
                break
        else:
            if steps.at.position != body.shape[0]:
                fault = BEHIND
    return Timed(Fault(fault), -1, -1) if fault else Timed(Fault.NONE, offset, latest)
