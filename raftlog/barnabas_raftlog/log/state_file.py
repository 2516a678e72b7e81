"""Encodes the file `state` beside a log: what its owner knows as of one entry. Pure.

It stands in place of everything that led there. The log never looks into the blob. It keeps index and term of the entry
with it: a log that has the same term at that index has the same entry there, and the same log before it, so the blob
fits; any other log has been truncated, or replaced by a snapshot, since the blob was saved.
"""

import struct
from collections.abc import Callable
from typing import TypeAlias

from barnabas_raftlog.raft.messages import Buffer
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = ["StateOrMaker", "decode_state", "encode_state", "made"]

StateOrMaker: TypeAlias = bytes | Callable[[], bytes]
"""A blob, or a function that makes it in a worker: it may be called again, and rests on nothing that changes."""

_HEADER = struct.Struct(">IQQ")  # crc of what follows, index, term
_AFTER_CRC = struct.Struct(">QQ")
_CRC = struct.Struct(">I")


def made(state: StateOrMaker) -> bytes:
    """Return the blob."""
    return state if isinstance(state, bytes) else state()


def encode_state(index: int, term: int, blob: Buffer) -> bytes:
    """Return the bytes of the file: `blob` says what holds after entry `index` of `term`."""
    tail = _AFTER_CRC.pack(index, term) + blob
    return _CRC.pack(crc32c(tail)) + tail


def decode_state(data: Buffer) -> tuple[int, int, bytes] | None:
    """Return index, term and blob; None if it is empty or damaged, which costs a replay and nothing else."""
    if len(data) < _HEADER.size:
        return None
    checksum, index, term = _HEADER.unpack_from(data)
    if crc32c(memoryview(data)[4:]) != checksum:
        return None
    return index, term, bytes(data[_HEADER.size :])
