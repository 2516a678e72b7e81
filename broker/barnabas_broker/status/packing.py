"""Packs a status in pieces: it may tell of a hundred thousand topics. Pure."""

from collections.abc import Generator, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import msgpack

__all__ = ["PACKED_AT_ONCE", "packed"]

PACKED_AT_ONCE = 500
"""Entries of a map or of a list between two yields."""


def packed(status: Mapping[str, Any]) -> Generator[None, None, bytes]:
    """Return what `msgpack.packb` would of a map of maps, lists and small values; yield between pieces of the work."""
    packer = msgpack.Packer()
    pieces: list[bytes] = [packer.pack_map_header(len(status))]
    entries: Iterator[Any]
    for name, value in status.items():
        pieces.append(packer.pack(name))
        if isinstance(value, dict) and len(value) > PACKED_AT_ONCE:
            pieces.append(packer.pack_map_header(len(value)))
            entries = chain.from_iterable(value.items())
        elif isinstance(value, list) and len(value) > PACKED_AT_ONCE:
            pieces.append(packer.pack_array_header(len(value)))
            entries = iter(value)
        else:
            entries = iter([value])
        while some := [packer.pack(entry) for entry in islice(entries, PACKED_AT_ONCE)]:
            pieces += some
            yield
    return b"".join(pieces)
