# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""The quick way over headers: a record may be millions of empty ones, which compress to nothing."""

from libc.stdint cimport uint8_t

from .walk cimport Body, Cursor


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
