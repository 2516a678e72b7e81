# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Makes an object of each record of a batch, and passes over records, compiled."""

from libc.stdint cimport int64_t

from .inline.memory cimport cut
from .inline.walk cimport Body, Cursor, Seen, read_varint, walk_record

from ..pure.damage import damage_from

__all__ = ["skip_records", "take_records"]


def take_records(
    list taken,
    Py_ssize_t count,
    int64_t headers_max,
    data,
    Py_ssize_t position,
    frame,
    int64_t first,
    int64_t delta_min,
    new,
):
    """Append up to `count` records to `taken`; as `pure.take_records`."""
    cdef Body body = data
    cdef Cursor at
    cdef Seen seen
    cdef Py_ssize_t number, start
    cdef int64_t base_offset, last_delta, base_timestamp
    # Times repeat, and then one object is enough for them.
    cdef int64_t timestamp_before = 0
    cdef int64_t header_count = 0
    topic, partition, base_offset, last_delta, base_timestamp, append_timestamp, epoch = frame
    cdef bint is_append_time = append_timestamp is not None
    cdef object timestamp = append_timestamp
    cdef object key, value, headers
    at.position = position
    at.end = at.value = 0
    for number in range(count):
        start = at.position
        if (
            walk_record(body, &at, base_timestamp, &seen)
            or seen.offset_delta < delta_min
            or seen.offset_delta > last_delta
        ):
            raise damage_from(data, start, first + number, delta_min, frame)
        delta_min = seen.offset_delta + 1
        if not is_append_time and (timestamp is None or seen.timestamp != timestamp_before):
            timestamp_before = seen.timestamp
            timestamp = timestamp_before
        key = None if seen.key_size < 0 else cut(body, seen.key_start, seen.key_size)
        value = None if seen.value_size < 0 else cut(body, seen.value_start, seen.value_size)
        headers = () if not seen.headers else _headers(body, &seen)
        taken.append(new(topic, partition, base_offset + seen.offset_delta, timestamp, key, value, headers, epoch))
        header_count += seen.headers
        if header_count >= headers_max:
            break
    return at.position, header_count


cdef tuple _headers(Body body, Seen* seen):
    """Return the headers of a record, over which the walk has gone before."""
    cdef Cursor at
    cdef list headers = []
    cdef object name
    at.position = seen.headers_start
    at.end = body.shape[0]
    at.value = 0
    for _ in range(seen.headers):
        name = (<bytes>_content(body, &at)).decode("utf-8", "replace")
        headers.append((name, _content(body, &at)))
    return tuple(headers)


cdef object _content(Body body, Cursor* at):
    cdef object content
    read_varint(body, at, 32)
    if at.value < 0:
        return None
    content = cut(body, at.position, at.value)
    at.position += at.value
    return content


def skip_records(Py_ssize_t count, data, Py_ssize_t position, frame, int64_t offset):
    """Pass over records below `offset`; as `pure.skip_records`."""
    cdef Body body = data
    cdef Cursor at
    cdef Seen seen
    cdef Py_ssize_t number = 0, start = position
    cdef int64_t delta_min = 0
    cdef int64_t last_delta = frame.last_delta, base_timestamp = frame.base_timestamp
    cdef int64_t delta = offset - <int64_t>frame.base_offset
    cdef bint is_damaged = False
    at.position = position
    at.end = at.value = 0
    with nogil:
        while number < count:
            start = at.position
            is_damaged = (
                walk_record(body, &at, base_timestamp, &seen) != 0
                or seen.offset_delta < delta_min
                or seen.offset_delta > last_delta
            )
            if is_damaged or seen.offset_delta >= delta:
                break
            delta_min = seen.offset_delta + 1
            number += 1
            start = at.position
    if is_damaged:
        raise damage_from(data, start, number, delta_min, frame)
    return number, start, delta_min
