"""Reads record batches into columns: the fast path of analytical readers. Pure.

Python objects for each record cost a microsecond; a Spark executor wants millions of records a second. Varints
chain, so something has to walk from record to record: that is the one loop here, and it looks only at each record's
length. Everything inside the records is then decoded for *all* records of *all* batches at once, field by field, with
numpy: a field's position is an array, and each step moves it on.

Nothing is copied out. Keys and values come back as positions and sizes within one buffer: the fetched bytes
themselves where no batch is compressed, else the plain bodies joined. `Slices.packed` gathers them the way Arrow
lays out binary columns.

Meaning, tolerance and errors are those of `reader.py`, which is the model in the tests. A range of offsets can be
given, and `next_offset` says how far the batches reached: a caller ends by that position, because the last offsets of
a range may have no records (compaction, transaction markers).

`arrow.py` reads the same into Arrow's buffers, with the compiled walker where that is there.

Deliberately not here: pyarrow, and leaving out records of aborted transactions.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from barnabas_raftlog.errors import CorruptBatchError

from .compression import DECOMPRESSED_BYTES_MAX
from .header import COMPRESSION_MASK, CONTROL, HEADER_BYTES, TIMESTAMP_LOG_APPEND, BatchHeader
from .reader import INT64_MAX, batch_body, batches, varint_at
from .walker.arrow_parts import Buffer, Part
from .walker.faults import HEADERS_MAX

__all__ = ["Columns", "HeaderColumns", "Slices", "Taken", "decode", "joined", "read_columns", "take_parts"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


# Real records carry a handful of headers; a round over one record costs as much as 20 headers one by one (measured).
HEADER_ROUNDS_MAX = 64


class Slices(NamedTuple):
    """Places of byte strings in a buffer: `sizes` is -1 for null. No start lies before the end of the one before."""

    starts: Ints
    sizes: Ints

    def select(self, chosen: Bools) -> "Slices":
        return Slices(self.starts[chosen], self.sizes[chosen])

    def packed(self, data: memoryview) -> tuple[Ints, bytearray, Bools]:
        """Return n+1 offsets, the bytes they cut, and which entries are not null: an Arrow binary column."""
        valid = self.sizes >= 0
        sizes = np.where(valid, self.sizes, 0)
        ends = self.starts + sizes
        content = bytearray().join(
            [data[start:end] for start, end in zip(self.starts.tolist(), ends.tolist(), strict=True)]
        )
        return _offsets(sizes), content, valid


class HeaderColumns(NamedTuple):
    """The headers of all records in order; record i owns those in [offsets[i], offsets[i+1])."""

    offsets: Ints
    names: Slices
    values: Slices


class Columns(NamedTuple):
    """Records as columns of equal length.

    The slices point into `data`, which may be the caller's memory. `rest` is the part of the caller's bytes that
    was not looked at; it is empty, or holds only a cut-off batch, unless the target size was reached.
    """

    data: memoryview
    offsets: Ints
    timestamps: Ints
    is_log_append: Bools
    keys: Slices
    values: Slices
    headers: HeaderColumns | None
    next_offset: int
    rest: memoryview


class Taken(NamedTuple):
    """The batches of some bytes that hold records of a range.

    Attributes:
        parts: What is to be decoded; bodies of batches that are not compressed are views of the bytes.
        positions: Where the frame of each is in the bytes.
        is_plain: Whether no body is compressed.
        next_offset: Where the last whole batch ended, at most the end of the range.
        rest: The bytes that were not looked at.
    """

    parts: list[Part]
    positions: list[int]
    is_plain: bool
    next_offset: int
    rest: memoryview


def take_parts(
    data: Buffer, start_offset: int, end_offset: int, *, check_crc: bool, target_bytes: int, limit_bytes: int
) -> Taken:
    """Return the batches that hold records of a range, decompressed; arguments and errors as `read_columns`."""
    parts: list[Part] = []
    positions: list[int] = []
    is_plain = True
    view = memoryview(data)
    next_offset = start_offset
    position = 0
    plain_bytes = 0
    for header, frame in batches(view, check_crc=check_crc):
        if header.base_offset >= end_offset:
            next_offset = max(next_offset, end_offset)
            position = len(view)
            break
        next_offset = max(next_offset, min(header.end_offset, end_offset))
        if header.end_offset > start_offset and not header.attributes & CONTROL and not header.is_raft_control:
            part = _part(header, frame, limit_bytes)
            parts.append(part)
            positions.append(position)
            is_plain = is_plain and not header.attributes & COMPRESSION_MASK
            plain_bytes += len(part.body)
        position += header.size_bytes
        if plain_bytes >= target_bytes:
            break
    return Taken(parts, positions, is_plain, next_offset, view[position:])


def _part(header: BatchHeader, frame: memoryview, limit_bytes: int) -> Part:
    return Part(
        batch_body(header, frame, limit_bytes),
        header.record_count,
        header.base_offset,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp if header.attributes & TIMESTAMP_LOG_APPEND else None,
    )


def read_columns(
    data: Buffer,
    start_offset: int = 0,
    end_offset: int = INT64_MAX,
    *,
    with_headers: bool = False,
    check_crc: bool = True,
    target_bytes: int = INT64_MAX,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> Columns:
    """Decode the records of concatenated batches whose offset lies in [start_offset, end_offset).

    Args:
        data: whole batches, the last of which may be cut off.
        start_offset: records before it are skipped.
        end_offset: records from it on are skipped.
        with_headers: whether to return headers, which are checked in any case.
        check_crc: False where the bytes were checked before.
        target_bytes: stop behind the batch with which the plain bodies reach this size; go on with `rest`.
        limit_bytes: no single plain body may be larger.

    Returns:
        Columns, whose `next_offset` is where the last whole batch ended, at most `end_offset`, and
        `start_offset` when there was none.

    Raises:
        CorruptBatchError: anything contradicts itself.
    """
    view = memoryview(data)
    taken = take_parts(
        view, start_offset, end_offset, check_crc=check_crc, target_bytes=target_bytes, limit_bytes=limit_bytes
    )
    if taken.is_plain:
        arena, starts = view, [position + HEADER_BYTES for position in taken.positions]
    else:
        arena, starts = joined(taken.parts)
    columns = decode(arena, taken.parts, starts, start_offset, end_offset, with_headers=with_headers)
    return columns._replace(next_offset=taken.next_offset, rest=taken.rest)


def _record_starts(body: memoryview, count: int, base: int, starts: list[int]) -> None:
    """Add the position of every record's length field. The one loop over records: keep it short."""
    position = 0
    signs = 0
    append = starts.append
    try:
        for _ in range(count):
            append(base + position)
            zigzag = body[position]
            position += 1
            if zigzag >= 0x80:
                byte = body[position]
                shift = 7
                position += 1
                zigzag = zigzag & 0x7F | (byte & 0x7F) << 7
                while byte >= 0x80 and shift < 28:
                    byte = body[position]
                    position += 1
                    shift += 7
                    zigzag |= (byte & 0x7F) << shift
            signs |= zigzag
            position += zigzag >> 1
    except IndexError:
        raise CorruptBatchError(f"record at {position} lies outside its batch of {len(body)} bytes") from None
    if signs & 1:
        raise CorruptBatchError("a record of negative length")
    if position != len(body):
        raise CorruptBatchError(f"{count} records end at {position} of {len(body)} bytes")


class _Cursor:
    """One reading position for each record, all moved on together; none passes the end of its record."""

    def __init__(self, data: Any, positions: Ints, ends: Ints) -> None:
        self.data = data
        self.positions = positions
        self.ends = ends

    def select(self, chosen: Ints) -> "_Cursor":
        return _Cursor(self.data, self.positions[chosen], self.ends[chosen])

    def skip(self, sizes: Ints | int) -> None:
        self.positions = self.positions + sizes
        if (self.positions > self.ends).any():
            raise CorruptBatchError("a field goes beyond the end of its record")

    def varints(self, bits: int = 32) -> Ints:
        """Decode the zigzag varint at each position: 32 or 64 bits wide."""
        if (self.positions >= self.ends).any():
            raise CorruptBatchError("a varint lies beyond the end of its record")
        byte = self.data[self.positions]
        self.positions = self.positions + 1
        unfinished = np.flatnonzero(byte >= 0x80)
        if not len(unfinished):
            small = byte.astype(np.int64)
            return (small >> 1) ^ -(small & 1)  # type: ignore[no-any-return]
        value = (byte & 0x7F).astype(np.uint64)
        for shift in range(7, bits, 7):
            positions = self.positions[unfinished]
            if (positions >= self.ends[unfinished]).any():
                raise CorruptBatchError("a varint is cut off by the end of its record")
            byte = self.data[positions]
            low = (byte & 0x7F).astype(np.uint64)
            if shift + 7 > bits and (low >> np.uint64(bits - shift)).any():
                break
            value[unfinished] |= low << np.uint64(shift)
            self.positions[unfinished] += 1
            unfinished = unfinished[byte >= 0x80]
            if not len(unfinished):
                wide: Ints = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
                return wide
        raise CorruptBatchError(f"a varint exceeds {bits} bits")

    def slices(self) -> Slices:
        """Read sizes and pass over the bytes they announce."""
        sizes = self.varints()
        if (sizes < -1).any():
            raise CorruptBatchError("a byte string of negative size")
        starts = self.positions
        self.skip(np.maximum(sizes, 0))
        return Slices(starts, sizes)


def joined(parts: Sequence[Part]) -> tuple[memoryview, list[int]]:
    """Return one buffer that holds every body, and where each begins in it."""
    if len(parts) == 1:
        return memoryview(parts[0].body), [0]
    ends = itertools.accumulate((len(part.body) for part in parts), initial=0)
    return memoryview(b"".join([part.body for part in parts])), list(ends)[:-1]


def decode(
    arena: memoryview,
    parts: Sequence[Part],
    bases: Sequence[int],
    start_offset: int,
    end_offset: int,
    *,
    with_headers: bool,
) -> Columns:
    """Return the records of `parts` with offsets in [start_offset, end_offset); body i begins at bases[i] of `arena`.

    Raises:
        CorruptBatchError: a record is not sound, whether it is in the range or not.
    """
    positions: list[int] = []
    for part, base in zip(parts, bases, strict=True):
        _record_starts(memoryview(part.body), part.record_count, base, positions)
    counts = [part.record_count for part in parts]

    def of_batch(values: Sequence[int]) -> Ints:
        return np.repeat(np.array(values, np.int64), counts)

    data = np.frombuffer(arena, np.uint8)
    body_ends = of_batch([base + len(part.body) for part, base in zip(parts, bases, strict=True)])
    cursor = _Cursor(data, np.array(positions, np.int64), body_ends)
    lengths = cursor.varints()
    cursor.ends = cursor.positions + lengths
    cursor.skip(1)  # the record's own attributes mean nothing yet
    timestamp_deltas = cursor.varints(64)
    offset_deltas = cursor.varints()
    before = _before(offset_deltas, counts)
    if ((offset_deltas <= before) | (offset_deltas > of_batch([part.last_offset_delta for part in parts]))).any():
        raise CorruptBatchError("an offset outside its batch, or one that is not larger than the one before")
    offsets = of_batch([part.base_offset for part in parts]) + offset_deltas
    keys = cursor.slices()
    values = cursor.slices()
    headers = _headers(cursor)  # They are checked in any case.
    is_log_append = of_batch([part.append_timestamp is not None for part in parts]) != 0
    timestamps = _sum(of_batch([part.base_timestamp for part in parts]), timestamp_deltas)
    if is_log_append.any():
        timestamps = np.where(is_log_append, of_batch([part.append_timestamp or 0 for part in parts]), timestamps)
    columns = Columns(
        data=arena,
        offsets=offsets,
        timestamps=timestamps,
        is_log_append=is_log_append,
        keys=keys,
        values=values,
        headers=headers if with_headers else None,
        next_offset=0,
        rest=arena[:0],
    )
    return _within(columns, start_offset, end_offset)


def _before(deltas: Ints, counts: Sequence[int]) -> Ints:
    """Return for each delta the one that it must exceed: the one before in its batch, -1 for the first."""
    before = np.empty_like(deltas)
    before[1:] = deltas[:-1]
    before[[first for first, count in zip(itertools.accumulate(counts, initial=0), counts, strict=False) if count]] = -1
    return before


def _sum(base: Ints, delta: Ints) -> Ints:
    total = base + delta
    if (((base ^ total) & (delta ^ total)) < 0).any():
        raise CorruptBatchError("a timestamp does not fit 64 bits")
    return total


def _offsets(counts: Ints) -> Ints:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _headers(cursor: _Cursor) -> HeaderColumns:
    """Decode the headers: the first of every record, then the second, and so on.

    After `HEADER_ROUNDS_MAX` rounds, which cost the same for one record as for thousands, the rest goes one by one.
    """
    counts = cursor.varints()
    most = np.minimum((cursor.ends - cursor.positions) // 2, HEADERS_MAX)  # a header is at least two sizes
    if ((counts < 0) | (counts > most)).any():
        raise CorruptBatchError(f"a negative number of headers, or more than fit their record or than {HEADERS_MAX:,}")
    offsets = _offsets(counts)
    names, values = (Slices(np.zeros(offsets[-1], np.int64), np.zeros(offsets[-1], np.int64)) for _ in range(2))
    for turn in range(min(int(counts.max(initial=0)), HEADER_ROUNDS_MAX)):
        chosen = np.flatnonzero(counts > turn)
        part = cursor.select(chosen)
        for target in (names, values):
            piece = part.slices()
            if target is names and (piece.sizes < 0).any():
                raise CorruptBatchError("a header without a name")
            target.starts[offsets[chosen] + turn] = piece.starts
            target.sizes[offsets[chosen] + turn] = piece.sizes
        cursor.positions[chosen] = part.positions
    arena = memoryview(cursor.data)
    for record in np.flatnonzero(counts > HEADER_ROUNDS_MAX):
        position = int(cursor.positions[record])
        for at in range(int(offsets[record]) + HEADER_ROUNDS_MAX, int(offsets[record + 1])):
            for target in (names, values):
                size, position = varint_at(arena, position, int(cursor.ends[record]))
                if size < (0 if target is names else -1):
                    raise CorruptBatchError(f"a header's string of {size} bytes")
                target.starts[at] = position
                target.sizes[at] = size
                position += max(size, 0)
        cursor.positions[record] = position
    if (cursor.positions != cursor.ends).any():
        raise CorruptBatchError("a record is longer than its content")
    return HeaderColumns(offsets, names, values)


def _within(columns: Columns, start_offset: int, end_offset: int) -> Columns:
    chosen = (columns.offsets >= start_offset) & (columns.offsets < end_offset)
    if chosen.all():
        return columns
    headers = columns.headers
    if headers is not None:
        counts = np.diff(headers.offsets)
        of_chosen = np.repeat(chosen, counts)
        headers = HeaderColumns(
            _offsets(counts[chosen]), headers.names.select(of_chosen), headers.values.select(of_chosen)
        )
    return columns._replace(
        offsets=columns.offsets[chosen],
        timestamps=columns.timestamps[chosen],
        is_log_append=columns.is_log_append[chosen],
        keys=columns.keys.select(chosen),
        values=columns.values.select(chosen),
        headers=headers,
    )
