# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Finds records by their timestamps, compiled: with the GIL released, and without an object for a record."""

from libc.stdint cimport int64_t

from .inline.steps cimport Steps, begin, next_step
from .inline.walk cimport BEHIND, LENGTH, NONE, VARINT, Body, Cursor, read_varint

from ..faults import Fault
from ..key_parts import Timed

__all__ = ["TimeSearch"]

cdef enum:
    LENGTH_BYTES_MAX = 5


cdef class TimeSearch:
    """As `pure.timestamps.TimeSearch`."""

    cdef readonly bint is_done
    cdef readonly int64_t bytes_due
    cdef int problem
    cdef int64_t left, base_offset, append_timestamp, start_offset, wanted
    cdef bint is_appended, is_largest, is_found
    cdef int64_t offset, timestamp  # of the record that was found
    cdef Steps steps

    def __init__(
        self,
        *,
        int64_t count,
        int64_t base_offset,
        int64_t last_offset_delta,
        int64_t base_timestamp,
        append_timestamp,
        int64_t start_offset,
        wanted,
    ):
        self.is_done = self.is_found = False
        self.bytes_due = 1
        self.problem = NONE
        self.left = count
        self.base_offset = base_offset
        self.is_appended = append_timestamp is not None
        self.append_timestamp = append_timestamp if self.is_appended else 0
        self.start_offset = start_offset
        self.is_largest = wanted is None
        self.wanted = 0 if self.is_largest else wanted
        begin(&self.steps, base_timestamp, last_offset_delta)

    @property
    def fault(self):
        return Fault(self.problem)

    def feed(self, Body data) -> int:
        """Walk over the whole records that `data` begins with, and return their bytes."""
        cdef int64_t size
        cdef Py_ssize_t start = 0
        cdef int fault
        self.bytes_due = 1
        self.steps.at.position = 0
        with nogil:
            while self.left > 0 and not self.is_done:
                start = self.steps.at.position
                fault = self.size_at(data, start, &size)
                if not fault and size > data.shape[0] - start:
                    self.bytes_due = size
                    break
                self.steps.at.position = start
                if not fault:
                    fault = next_step(data, &self.steps)
                if fault:
                    self.fail(fault)
                else:
                    self.left -= 1
                    self.look()
            else:
                if not self.is_done and self.steps.at.position < data.shape[0]:
                    self.fail(BEHIND)
        return start if self.left > 0 and not self.is_done else self.steps.at.position

    def end(self, *, bint is_left):
        """Return the record; None if there is none, or the batch is not sound."""
        if not self.is_done and (self.left > 0 or is_left):
            self.fail(LENGTH if is_left else VARINT)
        return Timed(self.offset, self.timestamp) if self.is_found and not self.problem else None

    cdef void fail(self, int fault) noexcept nogil:
        self.is_done = True
        self.problem = fault

    cdef int size_at(self, Body data, Py_ssize_t start, int64_t* size) except -1 nogil:
        """Tell the bytes of the record at `start`, or how many more are due to tell."""
        cdef Cursor at
        at.position = start
        at.end = data.shape[0]
        at.value = 0
        if read_varint(data, &at, 32):
            if at.position == at.end and at.end - start < LENGTH_BYTES_MAX and (
                at.end == start or data[at.end - 1] >= 0x80
            ):
                size[0] = at.end - start + 1
                return NONE
            return VARINT
        if at.value < 0:
            return LENGTH
        size[0] = at.position - start + at.value
        return NONE

    cdef void look(self) noexcept nogil:
        """Look at the record that was walked over last."""
        cdef int64_t offset = self.base_offset + self.steps.seen.offset_delta
        cdef int64_t timestamp = self.append_timestamp if self.is_appended else self.steps.seen.timestamp
        if offset < self.start_offset:
            return
        if self.is_largest:
            if self.is_found and timestamp <= self.timestamp:
                return
        elif timestamp < self.wanted:
            return
        else:
            self.is_done = True
        self.is_found = True
        self.offset = offset
        self.timestamp = timestamp
