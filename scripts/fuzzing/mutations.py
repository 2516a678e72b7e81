"""Makes bytes wrong without knowing their meaning: flipped, cut, spliced, lengths that lie."""

import random
import struct

__all__ = ["mutated", "with_size"]

SIZE = struct.Struct(">i")
EDGES = {
    ">b": (-1, 0, 1, 127, -128),
    ">h": (-1, 0, 1, 2**15 - 1, -(2**15)),
    ">i": (-1, 0, 1, 1_000_000, 2**31 - 1, -(2**31)),
    ">q": (-1, 0, 1, 2**63 - 1, -(2**63)),
}
VARINTS = (b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x80", b"\x80\x00", b"\xff\x7f")
CHANGES_MAX = 4


def with_size(body: bytes) -> bytes:
    """Return a body behind its size, as 4 bytes."""
    return SIZE.pack(len(body)) + body


def mutated(body: bytes, other: bytes, chance: random.Random, spared: int = 0) -> bytes:
    """Return `body` with one to four things wrong with it; it may be spliced with `other`.

    The first `spared` bytes stay as they are.
    """
    head = body[:spared]
    rest = bytearray(body[spared:])
    for _ in range(chance.randint(1, CHANGES_MAX)):
        rest = _changed(rest, other, chance)
    return head + bytes(rest)


def _changed(data: bytearray, other: bytes, chance: random.Random) -> bytearray:
    kind = chance.randrange(9)
    place = chance.randrange(len(data) + 1)
    if kind <= 1 and data:
        data[min(place, len(data) - 1)] ^= 1 << chance.randrange(8)
    elif kind == 2 and data:
        data[min(place, len(data) - 1)] = chance.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
    elif kind == 3:
        code = chance.choice(list(EDGES))
        size = struct.calcsize(code)
        if len(data) >= size:
            struct.pack_into(code, data, chance.randrange(len(data) - size + 1), chance.choice(EDGES[code]))
    elif kind == 4:
        del data[place:]
    elif kind == 5:
        data[place:place] = chance.choice(VARINTS)
    elif kind == 6:
        end = place + chance.choice((1, 2, 4, 16))
        data[place:place] = data[place:end] * chance.choice((1, 2, 30))
    elif kind == 7:
        del data[place : place + chance.choice((1, 2, 4, 16))]
    else:
        data = data[:place] + other[chance.randrange(len(other) + 1) :]
    return data
