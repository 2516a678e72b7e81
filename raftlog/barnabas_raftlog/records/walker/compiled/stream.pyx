# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Checks the records of a batch that comes in pieces, compiled: with the GIL released, and in constant memory.

A record that lies within a piece is walked over as `check` does it. One that crosses the end of a piece is followed
field by field, and of it nothing is kept but where it stands.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t

from .inline.walk cimport (
    BEHIND,
    HEADER_COUNT,
    HEADER_NAME,
    HEADER_VALUE,
    HEADERS_MAX,
    KEY,
    LENGTH,
    LONGER,
    NONE,
    OFFSET,
    TIMESTAMP,
    VALUE,
    VARINT,
    Body,
    Cursor,
    Seen,
    pass_short_header,
    walk_record,
)

from ..faults import Fault, Walked

__all__ = ["StreamCheck"]

cdef tuple FAULTS = tuple(Fault)


cdef enum Step:  # what comes next of the record that is followed, in their order
    AT_LENGTH
    AT_ATTRIBUTES
    AT_TIMESTAMP
    AT_OFFSET
    AT_KEY
    AT_VALUE
    AT_HEADERS
    AT_NAME
    AT_HEADER_VALUE
    AT_END


cdef struct Tally:  # of the records before this one
    int64_t records
    int64_t next_delta
    int64_t null_keys
    int64_t min_timestamp
    int64_t max_timestamp


cdef struct Followed:  # positions count from the first byte of the first piece
    Step step
    uint64_t bits  # of the varint that has begun
    int shift
    int64_t skip  # bytes of a key, value or name that are still to come
    int64_t start
    int64_t body_start  # behind its length
    int64_t end
    int64_t headers  # that are still to come
    int64_t timestamp
    int64_t offset_delta
    int64_t key_size


cdef class StreamCheck:
    """As `pure.stream.StreamCheck`."""

    cdef int64_t count, base_timestamp, last_offset_delta
    cdef bint is_dense, is_within  # a record that began in an earlier piece
    cdef int64_t fed, fault_position
    cdef int fault
    cdef Tally tally
    cdef Followed at

    def __init__(
        self, int64_t count, int64_t base_timestamp, int64_t last_offset_delta, *, bint is_dense
    ) -> None:
        self.count = count
        self.base_timestamp = base_timestamp
        self.last_offset_delta = last_offset_delta
        self.is_dense = is_dense
        self.tally.min_timestamp = INT64_MAX
        self.tally.max_timestamp = INT64_MIN

    @property
    def bytes_due(self) -> int:
        return max(self.fed, self.at.end) if self.is_within else self.fed

    def feed(self, Body piece) -> bool:
        if not self.fault:
            with nogil:
                self.walk(piece)
        self.fed += piece.shape[0]
        return not self.fault

    def end(self, *, bint is_cut_short=False) -> Walked:
        cdef int fault = self.fault
        cdef int64_t position = self.fault_position if fault else self.fed
        cdef Tally tally = self.tally
        if not fault and self.is_within and self.at.step == AT_LENGTH:
            fault, position = VARINT, self.at.start
        elif not fault and not self.is_within and tally.records < self.count:
            fault = VARINT
        elif self.is_within and self.fed < self.at.end and not (fault and is_cut_short):
            fault, position = LENGTH, self.at.body_start
        if not tally.records:
            return Walked(FAULTS[fault], 0, position, -1, -1, 0)
        return Walked(
            FAULTS[fault], tally.records, position, tally.min_timestamp, tally.max_timestamp, tally.null_keys
        )

    cdef int walk(self, Body piece) except -1 nogil:
        """Walk over a piece, up to its end or the first fault."""
        cdef Cursor at
        cdef Seen seen
        cdef Py_ssize_t start
        cdef int fault = NONE
        at.position = at.end = 0
        at.value = 0
        if self.is_within:
            fault = self.follow(piece, &at.position)
        while not fault and not self.is_within and self.tally.records < self.count and at.position < piece.shape[0]:
            start = at.position
            fault = walk_record(piece, &at, self.base_timestamp, &seen)
            if not fault:
                fault = self.count_in(seen.offset_delta, seen.timestamp, seen.key_size)
            elif (fault == LENGTH and at.value >= 0) or (fault == VARINT and at.position == start):
                at.position = start  # it may go on in the next piece
                self.begin(start)
                fault = self.follow(piece, &at.position)
        if not fault and not self.is_within and at.position < piece.shape[0]:
            fault = BEHIND
        self.fault = fault
        self.fault_position = self.fed + at.position
        return NONE

    cdef inline int count_in(self, int64_t offset_delta, int64_t timestamp, int64_t key_size) noexcept nogil:
        """Count a record that is sound in itself; return OFFSET if it is not the next one."""
        cdef Tally* tally = &self.tally
        if offset_delta < tally.next_delta or offset_delta > self.last_offset_delta or (
            self.is_dense and offset_delta != tally.next_delta
        ):
            return OFFSET
        tally.next_delta = offset_delta + 1
        tally.min_timestamp = min(tally.min_timestamp, timestamp)
        tally.max_timestamp = max(tally.max_timestamp, timestamp)
        tally.null_keys += key_size < 0
        tally.records += 1
        return NONE

    cdef void begin(self, Py_ssize_t start) noexcept nogil:
        self.is_within = True
        self.at.step = AT_LENGTH
        self.at.bits = 0
        self.at.shift = 0
        self.at.skip = 0
        self.at.start = self.fed + start
        self.at.end = 0

    cdef int follow(self, Body piece, Py_ssize_t* position) except -1 nogil:
        """Follow the record that has begun to its end, or that of the piece; return what is wrong with it."""
        cdef Followed* at = &self.at
        cdef uint8_t byte
        cdef int bits, fault
        cdef int64_t left
        while True:
            left = piece.shape[0] - position[0]
            if at.skip > left:
                at.skip -= left
                position[0] = piece.shape[0]
                return NONE
            position[0] += at.skip
            at.skip = 0
            if at.step == AT_NAME and not at.shift:
                self.pass_headers(piece, position)
            if at.step == AT_END:
                if self.fed + position[0] != at.end:
                    return LONGER
                self.is_within = False
                return self.count_in(at.offset_delta, at.timestamp, at.key_size)
            if at.step != AT_LENGTH and self.fed + position[0] >= at.end:
                return VARINT
            if position[0] >= piece.shape[0]:
                return NONE
            byte = piece[position[0]]
            position[0] += 1
            if at.step == AT_ATTRIBUTES:
                at.step = AT_TIMESTAMP
                continue
            bits = 64 if at.step == AT_TIMESTAMP else 32
            if at.shift + 7 > bits and (byte & 0x7F) >> (bits - at.shift):
                fault = VARINT
            else:
                at.bits |= <uint64_t>(byte & 0x7F) << at.shift
                at.shift += 7
                if byte < 0x80:
                    fault = self.take(<int64_t>(at.bits >> 1) ^ -<int64_t>(at.bits & 1), self.fed + position[0])
                    at.bits = 0
                    at.shift = 0
                else:
                    fault = VARINT if at.shift >= bits else NONE
            if fault:
                if fault == VARINT and at.step == AT_LENGTH:
                    position[0] = at.start - self.fed
                return fault

    cdef int pass_headers(self, Body piece, Py_ssize_t* position) except -1 nogil:
        """Pass over as many headers as are short and within the piece."""
        cdef Cursor at
        cdef int64_t headers = self.at.headers
        at.position = position[0]
        at.end = min(piece.shape[0], self.at.end - self.fed)
        while headers and pass_short_header(piece, &at):
            headers -= 1
        position[0] = at.position
        self.at.headers = headers
        if not headers:
            self.at.step = AT_END
        return NONE

    cdef int take(self, int64_t value, int64_t position) noexcept nogil:
        """Take the number that has come: its meaning is what was due. `position` is behind it."""
        cdef Followed* at = &self.at
        if at.step == AT_LENGTH:
            if value < 0:
                return LENGTH
            at.body_start = position
            at.end = position + value
        elif at.step == AT_TIMESTAMP:
            if (value > 0 and self.base_timestamp > INT64_MAX - value) or (
                value < 0 and self.base_timestamp < INT64_MIN - value
            ):
                return TIMESTAMP
            at.timestamp = self.base_timestamp + value
        elif at.step == AT_OFFSET:
            at.offset_delta = value
        elif at.step == AT_HEADERS:
            # A header is at least two sizes.
            if value < 0 or value > HEADERS_MAX or value > (at.end - position) // 2:
                return HEADER_COUNT
            at.headers = value
        else:
            if value < (0 if at.step == AT_NAME else -1) or value > at.end - position:
                return fault_of(at.step)
            at.skip = max(value, 0)
            if at.step == AT_KEY:
                at.key_size = value
        if at.step == AT_HEADERS or at.step == AT_HEADER_VALUE:
            if at.step == AT_HEADER_VALUE:
                at.headers -= 1
            at.step = AT_NAME if at.headers else AT_END
        else:
            at.step = <Step>(<int>at.step + 1)
        return NONE


cdef inline int fault_of(Step step) noexcept nogil:
    if step == AT_KEY:
        return KEY
    if step == AT_VALUE:
        return VALUE
    return HEADER_NAME if step == AT_NAME else HEADER_VALUE
