"""Functions for generated codecs: varints, tag buffers, arrays of numbers, refusals. Pure.

Generated code handles the common case inline (a varint of one byte, no tagged fields) and comes here for the rest.
Positions are indexes into the whole input; every function returns the position after what it read.
"""

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final, NoReturn

from barnabas_raftlog.errors import MalformedMessageError, TooManyElementsError

from .layout import Buffer

__all__ = [
    "BLOB_BYTES_MAX",
    "ONE_BYTE",
    "TAGS_MAX",
    "TEXT_BYTES_MAX",
    "NumberArrays",
    "number_readers",
    "read_uvarint",
    "read_uvarint_tail",
    "refuse",
    "refuse_many",
    "skip_tags",
    "text_length",
    "uvarint",
]

ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))  # the varints 0..127, made once
_VARINT_BITS: Final = 35  # five groups of seven
_ARRAY_MEMO_COUNT: Final = 4096  # entries; at 64 numbers each, some 2 MB in the worst case
_ARRAY_MEMO_LENGTH: Final = 64
_READERS_COUNT: Final = 33
TAGS_MAX: Final = 1_000  # of one struct; those that no version knows are a handful
TEXT_BYTES_MAX: Final = 32_767
"""The most that layouts of fixed lengths can say; Kafka's own classes refuse more in the flexible ones, too."""
BLOB_BYTES_MAX: Final = 8 << 20
"""Of one value that is copied, where a message is decoded in steps: to copy it is one step, of 4 ms."""


def uvarint(value: int) -> bytes:
    """Return `value` in base 128, least significant group first."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def text_length(compact: int) -> bytes:
    """Return `uvarint(compact)`, which is a text's length and one.

    Raises:
        ValueError: the text has more than `TEXT_BYTES_MAX` bytes.
    """
    if compact > TEXT_BYTES_MAX + 1:
        raise ValueError(f"a text of {compact - 1} bytes; {TEXT_BYTES_MAX} are the most")
    return uvarint(compact)


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Read a varint; IndexError where the input ends in it."""
    first = data[position]
    return (first, position + 1) if first < 0x80 else read_uvarint_tail(data, position + 1, first)


def read_uvarint_tail(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read the bytes behind the `first` one of a varint, which has its high bit set."""
    value = first & 0x7F
    for shift in range(7, _VARINT_BITS, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedMessageError(f"varint longer than 5 bytes at {position}")


def skip_tags(data: Buffer, position: int, count: int, size: int) -> int:
    """Step over tagged fields of a struct that knows none; `count` is the first byte of how many there are."""
    if count > 127:
        count, position = read_uvarint_tail(data, position, count)
    if count > TAGS_MAX:
        refuse("tagged fields", count, position, size)
    # Each field takes two bytes at least, so a lying count runs into the end of the input soon.
    for _ in range(count):
        _, position = read_uvarint(data, position)
        length, position = read_uvarint(data, position)
        if length > size - position:
            refuse("a tagged field", length, position, size)
        position += length
    return position


def refuse(what: str, length: int, position: int, size: int) -> NoReturn:
    """Raise for a length or count that is negative where null is not allowed, or larger than what is left."""
    raise MalformedMessageError(f"{what}: length {length} at byte {position} of {size}")


def refuse_many(what: str, count: int) -> NoReturn:
    """Raise for more elements than may be in all arrays of a message together."""
    raise TooManyElementsError(f"{what}: {count} elements are more than all arrays together may still have")


class NumberArrays(dict[tuple[int, ...], bytes]):
    """Encoded arrays of numbers, count included, by content.

    Replica sets repeat over partitions and over requests; looking one up costs a third of packing it again. Holds
    at most 4,096 arrays of at most 64 numbers and forgets all of them when full.
    """

    def __init__(self, code: str, *, flexible: bool) -> None:
        super().__init__()
        self._code = code
        self._flexible = flexible

    def __missing__(self, key: tuple[int, ...]) -> bytes:
        count = len(key)
        head = uvarint(count + 1) if self._flexible else struct.pack(">i", count)
        encoded = head + struct.pack(f">{count}{self._code}", *key)
        if count <= _ARRAY_MEMO_LENGTH:
            if len(self) >= _ARRAY_MEMO_COUNT:
                self.clear()
            self[key] = encoded
        return encoded


@cache
def number_readers(code: str) -> Sequence[Callable[[Buffer, int], tuple[int, ...]]]:
    """Return the `unpack_from` functions for arrays of 0, 1, 2, ... 32 numbers, by count."""
    return tuple(struct.Struct(f">{count}{code}").unpack_from for count in range(_READERS_COUNT))
