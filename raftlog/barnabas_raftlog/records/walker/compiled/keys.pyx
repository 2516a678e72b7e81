# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""Notes the newest offset of each key, and says which records stay, compiled: with the GIL released."""

import mmap

from libc.stdint cimport int64_t, uint8_t, uint64_t

from .inline.memory cimport copy_bytes
from .inline.siphash cimport Digest, sip_hash, word_at
from .inline.steps cimport Steps, begin, next_step
from .inline.walk cimport BEHIND, NONE, Body, Cursor, read_varint

from ..key_parts import SECRET_BYTES, Kept

__all__ = ["KEY_BYTES", "KeyTable", "siphash_128", "squeeze"]

KEY_BYTES = 32  # a slot, and a third more of them than there may be keys
KEYS_MAX = 1 << 31  # the place of a key is computed in 32 bits

cdef enum:
    SLOT_BYTES = 24
    COPIED_BYTES_MIN = 64  # a run of records that moves by less moves by the byte, because copies must not overlap


def siphash_128(Body data, Body secret) -> bytes:
    """Return the digest of `data`: for tests."""
    cdef Digest known, digest
    read_secret(secret, &known)
    sip_hash(data, 0, data.shape[0], &known, &digest)
    return digest.low.to_bytes(8, "little") + digest.high.to_bytes(8, "little")


cdef int read_secret(Body secret, Digest* known) except -1:
    if secret.shape[0] != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {secret.shape[0]}")
    known.low = word_at(secret, 0, 8)
    known.high = word_at(secret, 8, 8)
    return 0


cdef Py_ssize_t slot_of(const uint64_t[::1] slots, uint64_t capacity, const Digest* digest) except -1 nogil:
    """Return where the three words of a key are, or those of the free slot where they would be."""
    cdef uint64_t number = ((digest.low >> 32) * capacity) >> 32
    cdef Py_ssize_t place
    while True:
        place = <Py_ssize_t>(3 * number)
        if slots[place + 2] == 0 or (slots[place] == digest.low and slots[place + 1] == digest.high):
            return place
        number += 1
        if number == capacity:
            number = 0


cdef class KeyTable:
    """The newest offset of each key; as `pure.KeyTable`. One thread at a time."""

    cdef uint64_t[::1] slots  # three words each: the digest, and the offset plus one; 0: free
    cdef uint64_t capacity  # more than the keys there may be: a search ends at a free slot
    cdef int64_t count, keys_max
    cdef Digest secret

    def __init__(self, keys_max, Body secret):
        read_secret(secret, &self.secret)
        self.keys_max = max(0, min(keys_max, KEYS_MAX))
        self.count = 0
        self.capacity = self.keys_max + self.keys_max // 3 + 1
        # Zeroed by the operating system, a page when it is first used: few keys take little of it.
        size_bytes = SLOT_BYTES * self.capacity
        room = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.slots = memoryview(room).cast("Q")

    def __len__(self):
        return self.count

    def newest(self, Body key) -> int:
        """Return the offset of the newest record with this key, -1 if it is not known."""
        cdef Digest digest
        sip_hash(key, 0, key.shape[0], &self.secret, &digest)
        return <int64_t>self.slots[slot_of(self.slots, self.capacity, &digest) + 2] - 1

    def note(self, part) -> bool:
        """Note the keys of a batch; False if there was no room for one of them."""
        cdef Body body = part.body
        cdef uint64_t[::1] slots = self.slots
        cdef Steps steps
        cdef int64_t records = part.record_count, base_offset = part.base_offset
        cdef int64_t number, offset
        cdef Py_ssize_t place
        cdef Digest digest
        cdef int fault = NONE
        cdef bint is_full = False
        begin(&steps, part.base_timestamp, part.last_offset_delta)
        with nogil:
            for number in range(records):
                fault = next_step(body, &steps)
                if fault:
                    break
                offset = base_offset + steps.seen.offset_delta
                if steps.seen.key_size < 0:
                    continue
                sip_hash(body, steps.seen.key_start, steps.seen.key_size, &self.secret, &digest)
                place = slot_of(slots, self.capacity, &digest)
                if slots[place + 2] == 0:
                    if self.count >= self.keys_max:
                        is_full = True
                        break
                    slots[place] = digest.low
                    slots[place + 1] = digest.high
                    self.count += 1
                slots[place + 2] = <uint64_t>offset + 1
            else:
                if steps.at.position != body.shape[0]:
                    fault = BEHIND
        if fault:
            raise ValueError("a batch that was not checked")
        return not is_full

    def kept(self, part, *, bint drop_tombstones) -> Kept:
        """Return which records of a batch stay."""
        cdef Body body = part.body
        cdef const uint64_t[::1] slots = self.slots
        cdef Steps steps
        cdef int64_t records = part.record_count, base_offset = part.base_offset
        marks = bytearray((records + 7) // 8)
        cdef uint8_t[::1] bits = marks
        cdef int64_t number, offset, count = 0, max_timestamp = -1
        cdef Py_ssize_t place
        cdef Digest digest
        cdef int fault = NONE
        begin(&steps, part.base_timestamp, part.last_offset_delta)
        with nogil:
            for number in range(records):
                fault = next_step(body, &steps)
                if fault:
                    break
                offset = base_offset + steps.seen.offset_delta
                if steps.seen.key_size >= 0:
                    if drop_tombstones and steps.seen.value_size < 0:
                        continue
                    sip_hash(body, steps.seen.key_start, steps.seen.key_size, &self.secret, &digest)
                    place = slot_of(slots, self.capacity, &digest)
                    if <int64_t>slots[place + 2] - 1 > offset:
                        continue
                bits[number >> 3] |= 1 << (number & 7)
                count += 1
                max_timestamp = max(max_timestamp, steps.seen.timestamp)
            else:
                if steps.at.position != body.shape[0]:
                    fault = BEHIND
        if fault:
            raise ValueError("a batch that was not checked")
        return Kept(count, max_timestamp, marks)


cdef int move(uint8_t[::1] body, Py_ssize_t target, Py_ssize_t start, Py_ssize_t size) except -1 nogil:
    """Move bytes towards the beginning."""
    cdef Py_ssize_t shift = start - target, number, piece
    if shift == 0:
        return 0
    if shift < COPIED_BYTES_MIN:
        for number in range(size):
            body[target + number] = body[start + number]
        return 0
    while size > 0:
        piece = min(size, shift)
        copy_bytes(body, target, body, start, piece)
        target += piece
        start += piece
        size -= piece
    return 0


def squeeze(uint8_t[::1] body, const uint8_t[::1] marks, int64_t records) -> int:
    """Move the records that stay to the beginning of a body, in place; return their bytes."""
    cdef Cursor at
    cdef int64_t number
    cdef Py_ssize_t size = 0, begin = 0, run_start = 0
    cdef bint stays, stayed = False
    at.position = at.value = 0
    at.end = body.shape[0]
    with nogil:
        for number in range(records):
            begin = at.position
            if read_varint(body, &at, 32) or at.value < 0 or at.value > at.end - at.position:
                with gil:
                    raise ValueError("a batch that was not checked")
            at.position += at.value
            stays = marks[number >> 3] >> (number & 7) & 1
            if stays and not stayed:
                run_start = begin
            elif stayed and not stays:
                move(body, size, run_start, begin - run_start)
                size += begin - run_start
            stayed = stays
        if stayed:
            move(body, size, run_start, at.position - run_start)
            size += at.position - run_start
    return size
