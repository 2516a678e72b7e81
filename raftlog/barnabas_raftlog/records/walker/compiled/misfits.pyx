# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Names the records of a batch that a topic does not take, compiled: an object only for those that it returns."""

from libc.stdint cimport int64_t

from .inline.walk cimport Body, Cursor, Seen, walk_record

__all__ = ["misfits"]


def misfits(
    Body body,
    int64_t count,
    int64_t base_timestamp,
    *,
    bint needs_key,
    int64_t timestamp_min,
    int64_t timestamp_max,
    Py_ssize_t limit,
) -> list:
    """Return the records that do not fit; as `pure.misfits`."""
    cdef Cursor at
    cdef Seen seen
    cdef int64_t number = 0
    cdef bint is_keyless = False, is_found
    cdef list found = []
    at.position = at.end = 0
    at.value = 0
    while len(found) < limit:
        is_found = False
        with nogil:
            while number < count:
                if walk_record(body, &at, base_timestamp, &seen):
                    break
                number += 1
                is_keyless = needs_key and seen.key_size < 0
                if is_keyless or (
                    seen.timestamp != -1 and (seen.timestamp < timestamp_min or seen.timestamp > timestamp_max)
                ):
                    is_found = True
                    break
        if not is_found:
            break
        found.append((number - 1, seen.timestamp, is_keyless))
    return found
