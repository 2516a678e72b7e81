"""Encodes the checkpoint: how far every replica's segment files are synced. Pure.

It is one file for the whole node, written whole and renamed into place. It names the place in the journal at which that
was so, and has a row for every replica, packed when that replica last changed, and every group's hard state; so writing
it costs a join of packed rows, also with 10,000 groups. With it the journal before `journal` can be forgotten. After a
clean stop it says all there is to know about every replica, and no other file needs to be read or scanned.
"""

import struct

import msgspec

from barnabas_raftlog.raft.messages import HardState
from barnabas_raftlog.unpacking import UNREADABLE
from barnabas_raftlog.wire.crc32c import crc32c

__all__ = ["Checkpoint", "JournalPlace", "ReplicaRow", "SegmentRow", "decode", "decode_row", "encode", "encode_row"]

MAGIC = b"BNBSCKPT"
VERSION = 1
_HEADER = struct.Struct(">8sIIQ")  # magic, version, crc of the body, length of the body
_HARD_STATE = struct.Struct(">20sQq")  # group, term, voted_for or -1


class SegmentRow(msgspec.Struct, array_like=True):
    """One segment: the first `size_bytes` bytes of its file are synced and valid."""

    base_offset: int
    first_index: int
    size_bytes: int
    max_timestamp: int
    max_timestamp_offset: int
    index_rows: int
    time_rows: int
    generation: int = 0
    cleaned_ms: int = -1


class ReplicaRow(msgspec.Struct, array_like=True):
    """One replica. The log starts after (`start_index`, its term in `epochs`), its segments are listed oldest first."""

    group: bytes
    name: str
    page_cache: bool
    failed: str  # why the replica may not be used, or empty
    start_index: int
    last_index: int
    end_offset: int
    truncations: int
    epochs: list[tuple[int, int, int]]
    segments: list[SegmentRow]
    members: list[tuple[int, bytes]] = []  # (index, encoded configuration); older checkpoints lack it
    uncertain: bool = False  # it may have lost what it acknowledged, and has not caught up since
    # (term, index) of the configuration that made it a witness's, and it lacks its beginning, which others have
    partial_since: tuple[int, int] | None = None
    blank: bool = False  # it is uncertain, and was begun empty where something had been acknowledged
    # of one that has failed: the last entry that was durable then, and the epochs up to it; None: that is not known
    durable: tuple[int, list[tuple[int, int, int]]] | None = None


class JournalPlace(msgspec.Struct, array_like=True, frozen=True):
    """A batch boundary in the journal: the next batch in file `sequence` begins at `position` or in the next file."""

    sequence: int
    position: int
    batch: int
    size_bytes: int = 0  # that file is at least so long; 0: that is not known


class Checkpoint(msgspec.Struct):
    """Everything a start needs. `number` grows by one with every checkpoint of this directory."""

    number: int
    journal: JournalPlace
    rows: dict[bytes, ReplicaRow]
    hard_states: dict[bytes, HardState]


class _Body(msgspec.Struct, array_like=True):
    number: int
    journal: JournalPlace
    hard_states: bytes
    rows: list[msgspec.Raw]


_packer = msgspec.msgpack.Encoder()
_rows = msgspec.msgpack.Decoder(ReplicaRow)
_bodies = msgspec.msgpack.Decoder(_Body)


def encode_row(row: ReplicaRow) -> bytes:
    """Pack a row, as `encode` wants it."""
    return _packer.encode(row)


def decode_row(data: bytes) -> ReplicaRow:
    """Read what `encode_row` wrote.

    Raises:
        ValueError: it is something else.
    """
    try:
        return _rows.decode(data)
    except UNREADABLE as error:
        raise ValueError(f"the row of a replica is damaged: {error}") from error


def encode(number: int, journal: JournalPlace, rows: list[bytes], hard_states: dict[bytes, HardState]) -> bytes:
    """Return the bytes of a checkpoint file; `rows` are packed by `encode_row`."""
    states = b"".join(
        _HARD_STATE.pack(group, state.term, -1 if state.voted_for is None else state.voted_for)
        for group, state in hard_states.items()
    )
    body = _packer.encode(_Body(number, journal, states, [msgspec.Raw(row) for row in rows]))
    return _HEADER.pack(MAGIC, VERSION, crc32c(body), len(body)) + body


def decode(data: bytes | bytearray) -> Checkpoint:
    """Read a checkpoint file.

    Raises:
        ValueError: it is damaged. It was renamed into place after it was synced, so this is not a torn write.
    """
    if len(data) < _HEADER.size:
        raise ValueError("the checkpoint is shorter than its header")
    magic, version, checksum, size = _HEADER.unpack_from(data)
    body = bytes(data[_HEADER.size :])
    if magic != MAGIC or len(body) != size or crc32c(body) != checksum:
        raise ValueError("the checkpoint is damaged")
    if version != VERSION:
        raise ValueError(f"checkpoint format {version}, this version reads {VERSION}")
    try:
        packed = _bodies.decode(body)
        rows = [_rows.decode(row) for row in packed.rows]
    except UNREADABLE as error:
        raise ValueError(f"the checkpoint is damaged: {error}") from error
    states = {
        group: HardState(term, None if voted_for < 0 else voted_for)
        for group, term, voted_for in _HARD_STATE.iter_unpack(packed.hard_states)
    }
    return Checkpoint(packed.number, packed.journal, {row.group: row for row in rows}, states)
