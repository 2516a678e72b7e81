"""Appends records to a batch, and hashes their keys, in Python. Pure.

`barnabas_raftlog.records.builder` describes the layout. What this adds is speed: nearly all numbers in a record are
small, and found encoded in a table.
"""

from collections.abc import Sequence
from struct import unpack
from typing import Final

from barnabas_raftlog.records.builder import varint

from .walk import Buffer

__all__ = ["append_record", "murmur2"]

_join = b"".join
# Two bytes hold these. The table takes 0.4 MB and a few milliseconds.
_SMALL: Final = 4096
_VARINTS: Final = tuple(varint(number) for number in range(_SMALL))
_NULL: Final = varint(-1)

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def append_record(
    buffer: bytearray,
    limit_bytes: int,
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[tuple[str, Buffer | None]],
) -> bool:
    """Append a record to the buffer of its batch, and return True; False, and nothing else, if there is no room for it.

    Args:
        buffer: Grows by the record. There must be no view of it.
        limit_bytes: The size that the buffer may have afterwards.
        timestamp_delta: Milliseconds from the base timestamp of the batch.
        offset_delta: The number of the record in its batch, from 0.
        key: Its `len` must be the number of its bytes; so must that of `value`, and of what headers say.
        value: None is null, for the others too.
        headers: Pairs of a name and what it says.
    """
    shift = _VARINTS[timestamp_delta] if 0 <= timestamp_delta < _SMALL else varint(timestamp_delta)
    place = _VARINTS[offset_delta] if offset_delta < _SMALL else varint(offset_delta)
    size = 3 + len(shift) + len(place)
    if key is None:
        key_size = _NULL
        key = b""
    else:
        length = len(key)
        key_size = _VARINTS[length] if length < _SMALL else varint(length)
        size += len(key_size) - 1 + length
    if value is None:
        value_size = _NULL
        value = b""
    else:
        length = len(value)
        value_size = _VARINTS[length] if length < _SMALL else varint(length)
        size += len(value_size) - 1 + length
    if headers:
        tail = _encode_headers(headers)
        size += len(tail)
    else:
        tail = b"\0"
        size += 1
    total = _VARINTS[size] if size < _SMALL else varint(size)
    if len(buffer) + len(total) + size > limit_bytes:
        return False
    buffer += _join((total, b"\0", shift, place, key_size, key, value_size, value, tail))
    return True


def _encode_headers(headers: Sequence[tuple[str, Buffer | None]]) -> bytes:
    pieces: list[Buffer] = [varint(len(headers))]
    for name, said in headers:
        encoded = name.encode()
        pieces += (varint(len(encoded)), encoded)
        pieces += (_NULL,) if said is None else (varint(len(said)), said)
    return _join(pieces)


def murmur2(data: Buffer) -> int:
    """Return the 32-bit hash of `data`, 0..2**32-1, with the seed of Kafka's Java clients."""
    size = len(data)
    whole = size & ~3
    hashed = _SEED ^ size
    for word in unpack(f"<{size >> 2}I", data[:whole]):
        mixed = (word * _M) & _MASK
        hashed = ((hashed * _M) & _MASK) ^ (((mixed ^ (mixed >> 24)) * _M) & _MASK)
    if size != whole:
        hashed = ((hashed ^ int.from_bytes(data[whole:], "little")) * _M) & _MASK
    hashed = ((hashed ^ (hashed >> 13)) * _M) & _MASK
    return hashed ^ (hashed >> 15)
