# cython: language_level=3, boundscheck=True, wraparound=False, cdivision=True, initializedcheck=False
"""SipHash-2-4 with 128 bits (Aumasson and Bernstein, 2012): a digest that nobody foresees who does not know its key.

Who writes records chooses their keys. Two keys with one digest would be one to compaction, and a record would be lost.
Without the secret nobody finds such two by more than chance, which is 2^-128 for each pair.
"""

from libc.stdint cimport uint8_t, uint64_t

from .walk cimport Body


cdef struct Digest:
    uint64_t low
    uint64_t high


cdef struct Sip:
    uint64_t a
    uint64_t b
    uint64_t c
    uint64_t d


cdef inline uint64_t rotated(uint64_t word, int bits) noexcept nogil:
    return (word << bits) | (word >> (64 - bits))


cdef inline void mix(Sip* sip, int rounds) noexcept nogil:
    cdef int number
    for number in range(rounds):
        sip.a += sip.b
        sip.b = rotated(sip.b, 13) ^ sip.a
        sip.a = rotated(sip.a, 32)
        sip.c += sip.d
        sip.d = rotated(sip.d, 16) ^ sip.c
        sip.a += sip.d
        sip.d = rotated(sip.d, 21) ^ sip.a
        sip.c += sip.b
        sip.b = rotated(sip.b, 17) ^ sip.c
        sip.c = rotated(sip.c, 32)


cdef inline uint64_t word_at(Body body, Py_ssize_t start, Py_ssize_t size) except? 0xDEADBEEF nogil:
    """Return up to eight bytes as a number, the lowest first."""
    cdef uint64_t word = 0
    cdef Py_ssize_t number
    if size >= 8:
        return (
            body[start]
            | <uint64_t>body[start + 1] << 8
            | <uint64_t>body[start + 2] << 16
            | <uint64_t>body[start + 3] << 24
            | <uint64_t>body[start + 4] << 32
            | <uint64_t>body[start + 5] << 40
            | <uint64_t>body[start + 6] << 48
            | <uint64_t>body[start + 7] << 56
        )
    for number in range(size):
        word |= <uint64_t>body[start + number] << (8 * number)
    return word


cdef inline int sip_hash(
    Body body, Py_ssize_t start, Py_ssize_t size, const Digest* secret, Digest* digest
) except -1 nogil:
    """Digest `size` bytes at `start`."""
    cdef Sip sip
    cdef uint64_t word
    cdef Py_ssize_t end = start + size
    sip.a = secret.low ^ 0x736F6D6570736575ULL
    sip.b = secret.high ^ 0x646F72616E646F6DULL ^ 0xEE
    sip.c = secret.low ^ 0x6C7967656E657261ULL
    sip.d = secret.high ^ 0x7465646279746573ULL
    while end - start >= 8:
        word = word_at(body, start, 8)
        sip.d ^= word
        mix(&sip, 2)
        sip.a ^= word
        start += 8
    word = word_at(body, start, end - start) | <uint64_t>(size & 0xFF) << 56
    sip.d ^= word
    mix(&sip, 2)
    sip.a ^= word
    sip.c ^= 0xEE
    mix(&sip, 4)
    digest.low = sip.a ^ sip.b ^ sip.c ^ sip.d
    sip.b ^= 0xDD
    mix(&sip, 4)
    digest.high = sip.a ^ sip.b ^ sip.c ^ sip.d
    return 0
